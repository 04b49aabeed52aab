"""Which operands and results meet in place, and which believed pairs a plan made use of.

What this module does not see: which pairs are bad.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

import numpy as np

from allocsim.model import Plan, Problem, Program
from allocsim.programs.access_steps import NEVER, first_writes

Position = tuple[str, int, int]
"""Kind of op, operand position, result position."""


def used_pairs(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Return the believed pairs that the plan made use of: donor and recipient placed at one
    address.

    A pair believed but not used is none of the plan's doing. O(pairs).
    """
    if plan.problem is None or not len(plan.problem.may_share):
        return ()
    donors, recipients = plan.problem.may_share.T
    same = (
        (plan.arena[donors] == plan.arena[recipients])
        & plan.placed[donors]
        & (plan.offset[donors] == plan.offset[recipients])
    )
    return tuple((int(d), int(r)) for d, r in plan.problem.may_share[same])


def positions_of(program: Program, donor: int, recipient: int) -> tuple[Position, ...]:
    """Return (kind of op, operand, result) by which a recipient may take over a donor: one for each
    operand and result that meet.

    They meet at the op that first writes the recipient; views of the donor count as the donor.
    O(operands of that op).
    """
    step = int(_first_writes(program)[recipient])
    if step == NEVER:
        return ()
    op = program.ops[step]
    buffer = program.values.buffer
    return tuple(
        (op.kind, o, r)
        for r, result in enumerate(op.results)
        if buffer[result] == recipient
        for o, operand in enumerate(op.operands)
        if buffer[operand] == donor
    )


def without_positions(problem: Problem, denied: Collection[Position]) -> Problem:
    """Return a problem without believed pairs of a result of these over an operand. O(pairs)."""
    if not denied:
        return problem
    known = frozenset(denied)
    keep = [known.isdisjoint(positions_of(problem.program, d, r)) for d, r in problem.may_share.tolist()]
    return replace(problem, may_share=problem.may_share[np.array(keep, dtype=np.bool_)])


_first_writes = lru_cache(maxsize=8)(first_writes)
