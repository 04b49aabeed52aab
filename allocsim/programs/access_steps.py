"""First and last accesses of buffers: the one place outside the judge that finds them.

An access is an operand or a result of an op that is no `view`; accesses of the host count like any
others. An access to a value is an access to its buffer, also for a view. The judge
(`allocsim.judge`) and the sanitizer (`allocsim.p_sanitizer`) find accesses by themselves, so that
no mistake here can hide a mistake there.

What this module does not see: pins, roles and streams; time is the order of the list.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np

from allocsim.model import VIEW, Bools, Ops, Program
from allocsim.model.layout import Int64s

NEVER: Final = -1
"""Stands for a step if there is no such access."""


def accesses(program: Program, *, skip: Iterable[int] = ()) -> tuple[Int64s, Int64s, Bools]:
    """Return (step, buffer, whether it writes) of every access; all reads stand before all writes.

    `skip` are steps of ops that do not run. O(operands + results).
    """
    ops = program.ops
    acts = ~ops.is_kind(VIEW)
    acts[list(skip)] = False
    readers, writers = np.diff(ops.operand_starts), np.diff(ops.result_starts)
    steps = np.arange(len(ops), dtype=np.int64)
    step = np.concatenate([np.repeat(steps, readers), np.repeat(steps, writers)])
    buffer = program.values.buffer[np.concatenate([ops.operands, ops.results])].astype(np.int64)
    writes = np.arange(len(step)) >= len(ops.operands)
    kept = acts[step]
    return step[kept], buffer[kept], writes[kept]


def first_and_last(program: Program, *, skip: Iterable[int] = ()) -> tuple[Int64s, Int64s]:
    """Return the steps of the first and the last access of each buffer, `NEVER` for none."""
    step, buffer, _ = accesses(program, skip=skip)
    first = np.full(len(program.buffers), len(program.ops), dtype=np.int64)
    np.minimum.at(first, buffer, step)
    last = _latest(program, step, buffer)
    first[last == NEVER] = NEVER
    return first, last


def first_writes(program: Program) -> Int64s:
    """Return the step of the first write into each buffer, `NEVER` for none."""
    step, buffer, writes = accesses(program)
    first = np.full(len(program.buffers), len(program.ops), dtype=np.int64)
    np.minimum.at(first, buffer[writes], step[writes])
    first[first == len(program.ops)] = NEVER
    return first


def last_writes(program: Program) -> Int64s:
    """Return the step of the last write into each buffer, `NEVER` for none."""
    step, buffer, writes = accesses(program)
    return _latest(program, step[writes], buffer[writes])


def _latest(program: Program, step: Int64s, buffer: Int64s) -> Int64s:
    last = np.full(len(program.buffers), NEVER, dtype=np.int64)
    np.maximum.at(last, buffer, step)
    return last


def side_by_side_values(ops: Ops, chosen: Bools) -> tuple[Int64s, Int64s, Int64s]:
    """Return (op, operand, result) of every operand of the `chosen` ops beside every result of its
    op. O(pairs).
    """
    readers, writers = np.diff(ops.operand_starts), np.diff(ops.result_starts)
    many = np.where(chosen, readers * writers, 0)
    op = np.repeat(np.arange(len(ops)), many)
    place, width = np.arange(len(op)) - np.repeat(np.cumsum(many) - many, many), np.maximum(writers, 1)[op]
    operand, result = ops.operand_starts[op] + place // width, ops.result_starts[op] + place % width
    return op, ops.operands[operand], ops.results[result]
