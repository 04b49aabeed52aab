"""Which buffer lies where in an arena, and when, over all runs of a document.

What this module does not see: files.
"""

from collections.abc import Iterable
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


class TimedRun(NamedTuple):
    """A run, and when it and its buffers are there. O(buffers)."""

    run: Run
    begin: int
    """Of the steps of the session, behind the runs before."""
    first: Int64s
    last: Int64s
    """Steps of the run, half-open, in which each buffer lives: derived, or believed where it has no
    op.
    """


def timed_runs(document: Document) -> list[TimedRun]:
    """Return the runs one behind the other, each of one step at least. O(size).

    Raises OutputError where nothing was run.
    """
    if not document.runs:
        raise OutputError("it has no plan that is run, so there is nothing to show over time")
    made, begin = [], 0
    for run in document.runs:
        belief, ops = run.plan.problem, len(run.program.ops)
        if not ops and belief is not None and belief.program is run.program:
            first, last = belief.start, belief.stop
        else:
            first, last = liveness.lifetimes(run.program, skip=run.skip).T
        made.append(TimedRun(run, begin, first, last))
        begin += max(ops, int(last.max(initial=0)), 1)
    return made


def placed_buffers(runs: Iterable[TimedRun]) -> list[PlacedBuffer]:
    """Return each life of a buffer that has bytes in an arena, run by run, by buffer. O(size).

    At the op that hands a slot over, donor and recipient are both there.
    """
    found = []
    for number, (run, begin, start, stop) in enumerate(runs):
        plan, first, last = run.plan, start.tolist(), stop.tolist()
        arena, offset, sizes = plan.arena.tolist(), plan.offset.tolist(), plan.nbytes.tolist()
        kept = run.program.buffers.persistent.tolist()
        found += [
            PlacedBuffer(number, k, first[k], arena[k], offset[k], sizes[k], begin + first[k], begin + last[k], kept[k])
            for k in np.flatnonzero((plan.arena >= 0) & (plan.nbytes > 0) & (stop > start)).tolist()
        ]
    return found


__all__ = ["PlacedBuffer", "TimedRun", "placed_buffers", "timed_runs"]
