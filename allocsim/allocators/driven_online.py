"""Online allocators: driven through `alloc` and `free` in the order in which buffers are born and
die.

An online allocator is one object for each arena with

    alloc(nbytes, alignment) -> offset | None     # None: no room
    free(offset, nbytes)                          # as allocated
    reserve(offset, nbytes)                       # optional: keep bytes from being handed out, before anything is allocated

made by a function `(capacity | None, alignment) -> allocator`. `drive` turns one into a placement:
footprints in order of first step, of equal ones in the problem's order; before each, everything
that has died is freed, in order of death. Pinned footprints are never freed. A fixed footprint
keeps its bytes from beginning to end (`reserve`); an allocator without `reserve` is refused
problems that have one. Footprints without bytes or steps are not asked for.

`plan.events` are the allocations and frees of buffers in that order; a chain of donors and
recipients is one allocation, whose buffers take over from each other.

    allocator("mine", MyAllocator)      # a planner with the exact belief, ready for the table, an entry point or `compare`

O(n log n) and the calls. What this module does not see: how bytes are found.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from allocsim.allocators import exact
from allocsim.allocators.fitting import no_room
from allocsim.allocators.footprints import FREE, Footprints, footprints, plan
from allocsim.allocators.planner import Allocator
from allocsim.allocators.reference import check_fits
from allocsim.errors import PlannerError
from allocsim.model import Event, Plan, Problem
from allocsim.model.layout import LIMIT, Int64s


class Online(Protocol):
    """What is driven; `reserve(offset, nbytes)` is optional."""

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the offset of free bytes and take them; None where there are none."""
        ...

    def free(self, offset: int, nbytes: int) -> None:
        """Give bytes back as they were allocated."""
        ...


Make = Callable[[int | None, int], Online]
"""(capacity of the arena in bytes, None for unbounded; alignment of the arena) -> an empty
allocator.
"""


def allocator(name: str, make: Make, *, source: str = "", guarantees: tuple[str, ...] = ()) -> Allocator:
    """Return the planner that an online allocator is under exact lifetimes."""
    return Allocator(
        name=name,
        belief=exact.believe,
        placement=lambda problem: drive(name, problem, make),
        source=source,
        guarantees=guarantees,
    )


def drive(name: str, problem: Problem, make: Make) -> Plan:
    """Place a problem with one allocator for each arena.

    Raises CapacityError where it finds no room, PlannerError for nonsense.
    """
    placed = footprints(problem)
    arenas = [make(arena.capacity, arena.alignment) for arena in problem.program.arenas]
    offsets = [0] * len(placed)
    _reserve(name, placed, arenas, offsets)
    start, stop, nbytes = placed.start.tolist(), placed.stop.tolist(), placed.nbytes.tolist()
    alignment, arena = placed.alignment.tolist(), [arenas[place] for place in placed.arena.tolist()]
    asked = np.flatnonzero(placed.solid & (placed.fixed == FREE))
    born = asked[np.argsort(placed.start[asked], kind="stable")].tolist()
    dying = asked[np.argsort(placed.stop[asked], kind="stable")].tolist()  # what has died was born before
    dead = 0
    for row in born:
        now = start[row]
        while stop[dying[dead]] <= now:
            gone = dying[dead]
            arena[gone].free(offsets[gone], nbytes[gone])
            dead += 1
        at = arena[row].alloc(nbytes[row], alignment[row])
        if at is None:
            raise no_room(name, placed, row)
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or not -LIMIT <= at <= LIMIT:
            raise PlannerError(f"allocator {name!r}: alloc({nbytes[row]}, {alignment[row]}) returned {at!r}, no offset")
        offsets[row] = int(at)
    return plan(name, placed, np.array(offsets, dtype=np.int64), events=_events(placed))


def _events(placed: Footprints) -> Int64s:
    """Return (step, `Event`, buffer) of all solid footprints: at each moment what has died is
    freed, then what is born allocated.
    """
    problem = placed.problem
    rows = np.flatnonzero(placed.solid)
    chains = [placed.buffers[row] for row in rows.tolist()]
    first = np.array([chain[0] for chain in chains], dtype=np.int64)
    last = np.array([chain[-1] for chain in chains], dtype=np.int64)
    none = np.zeros(len(rows), dtype=np.int64)
    born, died, ends = problem.start[first], problem.stop[last], ~problem.pinned[last]
    # moment, whether born, row, place in the chain; step, event, buffer
    births = np.stack([born, none + 1, rows, none, born, none + Event.ALLOC, first], axis=1)
    deaths = np.stack([died, none, rows, none, died - 1, none + Event.FREE, last], axis=1)[ends]
    links = [
        (step, 1, row, 2 * place - (event == Event.FREE), step, event, buffer)
        for row, chain in zip(rows.tolist(), chains, strict=True)
        for place in range(1, len(chain))
        for step in (int(problem.start[chain[place]]),)
        for event, buffer in ((Event.FREE, chain[place - 1]), (Event.ALLOC, chain[place]))
    ]
    keyed = np.concatenate([births, deaths, np.array(links, dtype=np.int64).reshape(-1, 7)])
    events: Int64s = keyed[np.lexsort(keyed[:, 3::-1].T)][:, 4:]
    return events


def _reserve(name: str, placed: Footprints, arenas: list[Online], offsets: list[int]) -> None:
    for row in np.flatnonzero((placed.fixed != FREE) & placed.solid).tolist():
        buffer, at = placed.buffers[row][0], int(placed.fixed[row])
        check_fits(placed.problem, name, buffer, at)
        reserve = getattr(arenas[int(placed.arena[row])], "reserve", None)
        if reserve is None:
            raise PlannerError(
                f"allocator {name!r} cannot keep bytes for buffer {buffer}, whose offset is fixed at {at}"
            )
        reserve(at, int(placed.nbytes[row]))
        offsets[row] = at
