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
from heapq import heappop, heappush
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
    offsets = np.zeros(len(placed), dtype=np.int64)
    _reserve(name, placed, arenas, offsets)
    start, stop, nbytes = placed.start.tolist(), placed.stop.tolist(), placed.nbytes.tolist()
    alignment, arena = placed.alignment.tolist(), placed.arena.tolist()
    solid, decided = placed.solid.tolist(), (placed.fixed != FREE).tolist()
    dying: list[tuple[int, int]] = []
    for row in np.argsort(placed.start, kind="stable").tolist():
        while dying and dying[0][0] <= start[row]:
            _, dead = heappop(dying)
            arenas[arena[dead]].free(int(offsets[dead]), nbytes[dead])
        if not solid[row] or decided[row]:
            continue
        at = arenas[arena[row]].alloc(nbytes[row], alignment[row])
        if at is None:
            raise no_room(name, placed, row)
        if isinstance(at, bool) or not isinstance(at, int | np.integer) or not -LIMIT <= at <= LIMIT:
            raise PlannerError(f"allocator {name!r}: alloc({nbytes[row]}, {alignment[row]}) returned {at!r}, no offset")
        offsets[row] = at
        if stop[row] < LIMIT:
            heappush(dying, (stop[row], row))
    return plan(name, placed, offsets, events=_events(placed))


def _events(placed: Footprints) -> list[tuple[int, int, int]]:
    """Return (step, `Event`, buffer) of all solid footprints: at each moment what has died is
    freed, then what is born allocated.
    """
    starts, stops, pinned = placed.problem.start, placed.problem.stop, placed.problem.pinned
    keyed: list[tuple[tuple[int, int, int, int], tuple[int, int, int]]] = []
    for row in np.flatnonzero(placed.solid).tolist():
        chain = placed.buffers[row]
        for place, buffer in enumerate(chain):
            born, died = int(starts[buffer]), int(stops[buffer])
            if place:
                keyed.append(((born, 1, row, 2 * place - 1), (born, Event.FREE, chain[place - 1])))
            keyed.append(((born, 1, row, 2 * place), (born, Event.ALLOC, buffer)))
        if not pinned[chain[-1]]:
            keyed.append(((died, 0, row, 0), (died - 1, Event.FREE, chain[-1])))
    return [event for _, event in sorted(keyed)]


def _reserve(name: str, placed: Footprints, arenas: list[Online], offsets: Int64s) -> None:
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
