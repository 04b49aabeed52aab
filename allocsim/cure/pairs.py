"""Find the believed pairs that a plan uses, and the operand and result of each use.

This module does not examine which pairs may not share bytes.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

import numpy as np

from allocsim.model import Plan, Problem, Program
from allocsim.programs.access_steps import NEVER, first_writes

Position = tuple[str, int, int]
"""The op kind, the operand position and the result position."""


def used_pairs(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Return the believed pairs (donor, recipient) with both slots at one address.

    A believed pair that the plan does not use has no effect. O(pairs).
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
    """Return the positions at which a recipient takes over the bytes of its donor. There is a
    position for each operand in the donor and each result in the recipient.

    Only the op that first writes the recipient is examined, and views of the donor count as the
    donor. O(operands of that op).
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
    """Return the problem without the believed pairs at a position in `denied`. O(pairs)."""
    if not denied:
        return problem
    known = frozenset(denied)
    keep = [known.isdisjoint(positions_of(problem.program, d, r)) for d, r in problem.may_share.tolist()]
    return replace(problem, may_share=problem.may_share[np.array(keep, dtype=np.bool_)])


_first_writes = lru_cache(maxsize=8)(first_writes)
