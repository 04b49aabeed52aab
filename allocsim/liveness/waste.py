"""What lifetimes that are believed too long cost: detector L, in bytes.

A lifetime is too long where it begins before the first access or ends later than just after the
last one, unless the buffer is pinned or persistent (`LifetimeTooLong`). Three measures, from the
surest to the most telling:

    wasted         bytes times steps for which a buffer keeps memory that nothing in it needs
    live           the most bytes alive at a step, as believed and as it is; buffers in memory of their own and pairs in place left out of account. No plan
                   without pairs in place goes below it
    peak           what a planner makes of the problem, and of the same problem with these lifetimes cut to what they are; pairs are the believed ones

Lifetimes that are too short are faults (`allocsim.judge`), not waste: they are counted, and stay as
they are believed, so where there are any the program may need more than these numbers.

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
        """Bytes times steps."""
        longer = max(self.derived[0] - self.believed[0], 0) + max(self.believed[1] - self.derived[1], 0)
        return self.nbytes * longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """What the lifetimes of one problem waste."""

    buffers: tuple[TooLong, ...]
    """The most wasteful first."""
    wasted: int
    """Bytes times steps, of all of them."""
    live_believed: int
    live: int
    """The most bytes alive at a step: as believed, and with these lifetimes cut to what they
    are.
    """
    allocator: str | None
    peak_believed: int | None
    peak: int | None
    """What that allocator needs for the problem, and with these lifetimes cut."""
    short: int
    """Buffers believed to live too short, pinned and persistent ones aside."""


def waste(problem: Problem, planner: Planner | None = None) -> Waste:
    """Measure a problem; with a planner, also by planning it twice.

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
