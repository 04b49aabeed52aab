"""The exact belief: the lifetimes and in-place pairs that follow from the program itself.

Lifetimes are half-open steps `[first access, last access + 1)`; an op of kind `view` is no access.
Pinned buffers live to the end of the program, persistent buffers (parameters and state) through all
of it, buffers that nothing touches never (`[0, 0)`).

A pair (donor, recipient) is offered where format.md permits it whatever the offsets: the donor's
last op is the recipient's first; that op only reads the donor and only writes the recipient, by one
result; it declares the pair, and every operand it reads in the donor is declared for that result;
each has the result's layout and starts where the result starts within its buffer. The donor is not
pinned and is large enough, neither is persistent or `own`, both belong in one arena.

O(ops + accesses) in columns; only candidates for a pair are looked at one by one. What this module
does not see: bytes (a buffer is live as a whole) and `in_place: null` (an op that declares nothing
offers nothing).
"""

from collections.abc import Callable

import numpy as np

from allocsim.allocators.constraints import Constraints
from allocsim.model import Problem, Program
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
    found: dict[tuple[int, int], None] = {}
    for row in np.flatnonzero(candidates).tolist():
        pair = int(donor[row]), int(recipient[row])
        if _permitted(program, int(step[row]), int(ops.in_place[row, 1]), *pair):
            found[pair] = None
    return list(found)


def _permitted(program: Program, step: int, position: int, donor: int, recipient: int) -> bool:
    """Whether result `position` of the op may lie over all it reads in `donor`, its only result in
    `recipient`.
    """
    op, values = program.ops[step], program.values
    written = [int(values.buffer[result]) for result in op.results]
    if written.count(recipient) != 1 or donor in written:
        return False
    if any(values.buffer[operand] == recipient for operand in op.operands):
        return False
    result = values[op.results[position]]
    declared = {o for o, r in op.in_place or () if r == position}
    for place, operand in enumerate(op.operands):
        if values.buffer[operand] != donor:
            continue
        value = values[operand]
        if place not in declared or value.offset != result.offset or not value.same_layout(result):
            return False
    return True
