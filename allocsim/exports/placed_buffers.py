"""Which buffer lies where in an arena, and when, over all runs of a document.

What this module does not see: files.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from allocsim import liveness
from allocsim.errors import OutputError
from allocsim.model import Document, Run
from allocsim.model.layout import Int64s


class PlacedBuffer(NamedTuple):
    """One life of a buffer in a slot. `start` and `stop` are steps of the whole session."""

    run: int
    buffer: int
    step: int
    """Of its run, in which it begins."""
    arena: int
    offset: int
    nbytes: int
    start: int
    stop: int
    stays: bool
    """Its content is kept over runs: it does not end with `stop`."""


def lengths(document: Document) -> list[int]:
    """Return the steps of each run, at least one. Raises OutputError where nothing was run."""
    if not document.runs:
        raise OutputError("it has no plan that is run, so there is nothing to show over time")
    return [max(len(run.program.ops), int(_lives(run)[1].max(initial=0)), 1) for run in document.runs]


def placed_buffers(document: Document) -> Iterator[PlacedBuffer]:
    """Yield each life of a buffer that has bytes in an arena, run by run, by buffer.

    At the op that hands a slot over, donor and recipient are both there. O(size).

    Raises OutputError where nothing was run.
    """
    begin = 0
    for number, (run, steps) in enumerate(zip(document.runs, lengths(document), strict=True)):
        plan, (start, stop) = run.plan, _lives(run)
        sizes = plan.nbytes.tolist()
        shown = np.flatnonzero((plan.arena >= 0) & (plan.nbytes > 0) & (stop > start)).tolist()
        first, last = start.tolist(), stop.tolist()
        arena, offset = plan.arena.tolist(), plan.offset.tolist()
        kept = run.program.buffers.persistent.tolist()
        for k in shown:
            yield PlacedBuffer(
                number, k, first[k], arena[k], offset[k], sizes[k], begin + first[k], begin + last[k], kept[k]
            )
        begin += steps


def _lives(run: Run) -> tuple[Int64s, Int64s]:
    """Return first steps and ends of the buffers of a run: derived, or believed where it has no
    op.
    """
    belief = run.plan.problem
    if not len(run.program.ops) and belief is not None and belief.program is run.program:
        return belief.start, belief.stop
    first, last = liveness.lifetimes(run.program, skip=run.skip).T
    return first, last


__all__ = ["PlacedBuffer", "lengths", "placed_buffers"]
