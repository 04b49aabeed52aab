"""Order buffers independently of their indices, by the first access in the list of ops.

This module does not examine bytes and plans.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from allocsim.model import Program
from allocsim.model.layout import Int64s


@lru_cache(maxsize=8)
def ranks(program: Program) -> Int64s:
    """Return the rank of each buffer by its first access: int64 (buffers,). Accesses are ordered by
    op, and results come before operands. Buffers without accesses share the last rank. O(accesses).
    """
    ops = program.ops
    count = len(ops.results) + len(ops.operands)
    steps = np.concatenate(
        [np.repeat(np.arange(len(ops)), np.diff(starts)) for starts in (ops.result_starts, ops.operand_starts)]
    )
    buffers = program.values.buffer[np.concatenate([ops.results, ops.operands])]
    found = np.full(len(program.buffers), count, dtype=np.int64)
    np.minimum.at(found, buffers[np.argsort(steps, kind="stable")], np.arange(count))
    return found


def ranks_of(program: Program, others: Iterable[Program]) -> Int64s:
    """Return sort keys of a plan's buffers, int64 (buffers,), by the ranks in the plan's own
    program. Ties are broken by the ranks in the other programs, in the given order. O(accesses).
    """
    programs = dict.fromkeys((program, *others))
    if len(programs) == 1:
        return ranks(program)
    rows = np.stack([ranks(one) for one in programs], axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()
