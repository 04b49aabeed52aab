"""The cost in bytes of lifetimes that are believed too long (detector L).

A lifetime is too long if it begins before the first access or ends later than just after the last
access, unless the buffer is pinned or persistent (`LifetimeTooLong`). There are three measures:

    wasted         bytes times steps for which a buffer is believed to live beyond its derived lifetime
    live           the most bytes alive at a step, with the believed lifetimes and with cut ones; buffers in memory of their own and in-place pairs are
                   left out of account. No plan without in-place pairs goes below it
    peak           the peak of a planner's plan for the problem, and for the problem with cut lifetimes; pairs are the believed ones

A *cut* lifetime is one that is too long, cut to the derived lifetime. Lifetimes that are too short
are faults (`allocsim.judge`), not waste: they are counted and not changed, so if there are any, the
program may need more bytes than these numbers.

What this module does not see: whether the plan is sound.
"""

from dataclasses import dataclass, replace

import numpy as np

from allocsim.allocators import Planner
from allocsim.allocators.lower_bounds import alive_at
from allocsim.liveness import lifetimes
from allocsim.model import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class TooLong:
    """One buffer that is believed to live too long."""

    buffer: int
    name: str
    nbytes: int
    believed: tuple[int, int]
    derived: tuple[int, int]

    @property
    def wasted(self) -> int:
        """Bytes times steps of the believed lifetime outside the derived one."""
        longer = max(self.derived[0] - self.believed[0], 0) + max(self.believed[1] - self.derived[1], 0)
        return self.nbytes * longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """The waste of the believed lifetimes of one problem."""

    buffers: tuple[TooLong, ...]
    """Buffers believed to live too long, the most wasteful first."""
    wasted: int
    """Sum of `wasted` of all these buffers: bytes times steps."""
    live_believed: int
    live: int
    """The most bytes alive at a step: `live_believed` with the believed lifetimes, `live` with the
    cut ones.
    """
    allocator: str | None
    peak_believed: int | None
    peak: int | None
    """Peak in bytes of the allocator's plan for the problem, and for cut lifetimes."""
    short: int
    """Number of buffers believed to live too short, without pinned and persistent ones."""


def waste(problem: Problem, planner: Planner | None = None) -> Waste:
    """Return the waste of a problem; with a planner, also the peaks of two plans.

    O(size) and two placements; errors are the planner's.
    """
    program = problem.program
    span = lifetimes(program)
    start, stop = problem.start, problem.stop
    judged = ~problem.pinned & ~program.buffers.persistent & (span[:, 1] > span[:, 0])
    long = judged & ((start < span[:, 0]) | (stop > span[:, 1]))
    short = judged & ((start > span[:, 0]) | (stop < span[:, 1]))
    cut = replace(
        problem,
        start=np.where(long, np.maximum(start, span[:, 0]), start),
        stop=np.where(long, np.minimum(stop, span[:, 1]), stop),
    )
    rows = [
        TooLong(
            buffer=buffer,
            name=program.buffers.names[buffer],
            nbytes=int(problem.nbytes[buffer]),
            believed=(int(start[buffer]), int(stop[buffer])),
            derived=(int(span[buffer, 0]), int(span[buffer, 1])),
        )
        for buffer in np.flatnonzero(long).tolist()
    ]
    rows.sort(key=lambda row: (-row.wasted, row.buffer))
    return Waste(
        buffers=tuple(rows),
        wasted=sum(row.wasted for row in rows),
        live_believed=_live(problem),
        live=_live(cut),
        allocator=planner.name if planner is not None else None,
        peak_believed=planner.place(problem).peak_bytes if planner is not None else None,
        peak=planner.place(cut).peak_bytes if planner is not None else None,
        short=int(np.count_nonzero(short)),
    )


def _live(problem: Problem) -> int:
    """Return the most bytes alive at a step, outside memory of their own."""
    size = np.where(problem.own | (problem.stop <= problem.start), 0, problem.nbytes)
    return int(alive_at(np.arange(len(problem.program.ops) + 1), problem.start, problem.stop, size).max(initial=0))
