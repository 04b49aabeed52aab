"""The exact belief: the lifetimes and in-place pairs that follow from the program itself.

Lifetimes are half-open steps `[first access, last access + 1)`; an op of kind `view` is no access.
Pinned buffers live to the end of the program, persistent buffers (parameters and state) through all
of it, buffers that nothing touches never (`[0, 0)`).

A pair (donor, recipient) is offered where format.md permits it whatever the offsets: the donor's
last op is the recipient's first; that op only reads the donor and only writes the recipient, by one
result; it declares the pair, and every operand it reads in the donor is declared for that result;
each has the result's layout and starts where the result starts within its buffer. The donor is not
pinned and is large enough, neither is persistent or `own`, both belong in one arena.

O(ops + accesses) in columns, and O(n log n) for n accesses of ops with candidates for a pair. What
this module does not see: bytes (a buffer is live as a whole) and `in_place: null` (an op that
declares nothing offers nothing).
"""

from collections.abc import Callable

import numpy as np

from allocsim.allocators.constraints import Constraints
from allocsim.model import Bools, Int32s, Problem, Program, Values
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import NEVER, first_and_last


def believe(
    program: Program, constraints: Constraints, *, seen: Callable[[Program], tuple[Int64s, Int64s]] = first_and_last
) -> Problem:
    """Return the problem in which every lifetime is exact and every permissible declared pair is
    offered.

    `seen` says what is taken for the first and the last access of each buffer; with another than
    the default, lifetimes are as right as it is.
    """
    steps = len(program.ops)
    first, last = seen(program)
    touched = last != NEVER
    start = np.where(touched, first, 0)
    stop = np.where(touched, last + 1, 0)
    stop[constraints.pinned & touched] = steps
    start[program.buffers.persistent], stop[program.buffers.persistent] = 0, steps
    return Problem.of(
        program,
        start=start,
        stop=stop,
        pinned=constraints.pinned,
        own=constraints.own,
        fixed=constraints.fixed,
        may_share=_pairs(program, constraints, first, last),
    )


def _pairs(program: Program, constraints: Constraints, first: Int64s, last: Int64s) -> list[tuple[int, int]]:
    ops, buffers, of_value = program.ops, program.buffers, program.values.buffer
    step = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    donor = of_value[ops.operands[ops.operand_starts[step] + ops.in_place[:, 0]]]
    recipient = of_value[ops.results[ops.result_starts[step] + ops.in_place[:, 1]]]
    apart = constraints.own | buffers.persistent
    candidates = (
        (donor != recipient)
        & (last[donor] == step)
        & (first[recipient] == step)
        & ~(apart | constraints.pinned)[donor]
        & ~apart[recipient]
        & (buffers.arena[donor] == buffers.arena[recipient])
        & (buffers.nbytes[donor] >= buffers.nbytes[recipient])
    )
    rows = np.flatnonzero(candidates)
    if not len(rows):
        return []
    rows = rows[_permitted(program, step[rows], ops.in_place[rows], donor[rows], recipient[rows])]
    return list(dict.fromkeys(zip(donor[rows].tolist(), recipient[rows].tolist(), strict=True)))


def _permitted(program: Program, step: Int64s, pairs: Int32s, donor: Int32s, recipient: Int32s) -> Bools:
    """Whether the result of each pair may lie over all that its op reads in `donor`, the op's only
    result in `recipient`. The rows are all pairs that their ops declare of these buffers.
    """
    ops, home, many = program.ops, program.values.buffer, len(program.buffers)
    asked = np.zeros(len(ops), dtype=np.bool_)
    asked[step] = True
    reads, writes = (
        np.repeat(np.flatnonzero(asked), np.diff(starts)[asked]) * many
        + home[values[np.repeat(asked, np.diff(starts))]]
        for values, starts in ((ops.operands, ops.operand_starts), (ops.results, ops.result_starts))
    )
    giver, taker = step * many + donor, step * many + recipient
    operand = ops.operand_starts[step] + pairs[:, 0]
    result = ops.results[ops.result_starts[step] + pairs[:, 1]].astype(np.int64)
    fine = np.flatnonzero(_alike(program.values, ops.operands[operand], result))
    _, once = np.unique(result[fine] * len(ops.operands) + operand[fine], return_index=True)
    given = result * many + donor
    allowed: Bools = _times(writes, taker) == 1
    allowed &= (_times(writes, giver) == 0) & (_times(reads, taker) == 0)
    allowed &= _times(reads, giver) == _times(given[fine[once]], given)
    return allowed


def _times(keys: Int64s, asked: Int64s) -> Int64s:
    """Return how often each key that is asked for is among some."""
    keys = np.sort(keys)
    times: Int64s = np.searchsorted(keys, asked, side="right") - np.searchsorted(keys, asked)
    return times


def _alike(values: Values, one: Int32s, other: Int64s) -> Bools:
    """Whether values have the layouts of others (`Value.same_layout`) and begin where they do."""
    rank, starts, shape, strides = np.diff(values.dim_starts), values.dim_starts, values.shape, values.strides
    alike: Bools = np.ones(len(one), dtype=np.bool_)
    for column in (rank, values.width, values.offset, values.bit_offset):
        alike &= column[one] == column[other]
    row = np.repeat(np.flatnonzero(alike), rank[one[alike]])
    place = np.arange(len(row)) - np.searchsorted(row, row)
    a, b = starts[one[row]] + place, starts[other[row]] + place
    alike[row[(shape[a] != shape[b]) | ((shape[a] > 1) & (strides[a] != strides[b]))]] = False
    return alike
