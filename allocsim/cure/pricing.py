"""Compute a cure's price (peak growth, lost overlap, moved slots), and find a plan's planner.

This module does not examine whether the changes cure.
"""

from collections.abc import Iterator

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.planner import Allocator
from allocsim.cure.changes import Change
from allocsim.cure.mending import index_of_part
from allocsim.cure.waits import Ordered
from allocsim.errors import AllocsimError
from allocsim.model import Document, Plan


def grown(before: Document, after: Document) -> int:
    """Return the growth of the peaks in bytes; a new plan is compared with the plan it replaces."""
    total = sum(new.peak_bytes - old.peak_bytes for old, new in zip(before.plans, after.plans, strict=False))
    for old_run, run in zip(before.runs, after.runs, strict=False):
        at = index_of_part(after.plans, run.plan)
        if at >= len(before.plans):
            total += run.plan.peak_bytes - old_run.plan.peak_bytes
            break
    return total


def overlap_lost(before: Document, after: Document) -> int:
    """Return the number of pairs of ops that can no longer run at once. O(ops x streams)."""
    lost = 0
    for old, new in zip(before.programs, after.programs, strict=True):
        if len(old.ops.after) != len(new.ops.after):
            lost += Ordered.of(old).overlapping() - Ordered.of(new).overlapping()
    return lost


def moves(before: Document, after: Document) -> Iterator[Change]:
    """Yield a `place` change for each changed slot, with the new arena, offset and size."""
    for index, (old, new) in enumerate(zip(before.plans, after.plans, strict=False)):
        changed = (old.arena != new.arena) | (old.offset != new.offset) | (old.nbytes != new.nbytes)
        for buffer in np.flatnonzero(changed).tolist():
            arena, offset, nbytes = (int(column[buffer]) for column in (new.arena, new.offset, new.nbytes))
            yield Change(kind="place", plan=index, buffer=buffer, arena=arena, offset=offset, nbytes=nbytes)


def planner_of(plan: Plan) -> Allocator | None:
    """Return the planner in `ALLOCATORS` that makes exactly this plan from its problem, or None."""
    planner = ALLOCATORS.get(plan.source)
    if planner is None or plan.problem is None:
        return None
    try:
        again = planner.place(plan.problem)
    except AllocsimError:
        return None
    same = np.array_equal(again.offset, plan.offset) and np.array_equal(again.arena, plan.arena)
    return planner if same else None
