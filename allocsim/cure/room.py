"""Where a buffer can be put without moving any other: the lowest bytes that nobody else needs while
it lives.

What everyone needs: bytes of the largest size that slot, buffer (at the high end of its sizes) and
belief give, for the life that the program demands and the belief states together, to the run's end
where pinned. A parameter or state needs its bytes in every run, and so does a buffer whose content
one run leaves for another. Where a plan runs several programs, steps mean nothing, and everybody
lives always.

`Rigour` says whom a moved buffer avoids: those it lives with; everybody, as streams have no common
time; or, for what nobody may ever touch, all bytes any plan has. What is right is not said here:
whoever moves a buffer judges the result.

Complexity: O(buffers) for each buffer moved.

What this module does not see: why a buffer moves.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from allocsim.cure.ranks import ranks_of
from allocsim.liveness import lifetimes
from allocsim.model import Bools, Document, Plan, Run
from allocsim.model.assignment import ends_of, highest
from allocsim.model.layout import LIMIT, Int64s


class Rigour(IntEnum):
    """Whom a moved buffer avoids."""

    LIVING = 0
    EVERYBODY = 1
    FRESH = 2


@dataclass(slots=True, kw_only=True)
class Room:
    """The slots of one plan while some of them move."""

    plan: Plan
    arena: Int64s
    offset: Int64s
    nbytes: Int64s
    """int64 (buffers,): bytes needed of each slot."""
    start: Int64s
    stop: Int64s
    first: Int64s
    """int64 (buffers,): an order of them that hangs on no numbering (`ranks_of`)."""
    foreign: tuple[tuple[int, int, int], ...]
    """(arena, low, high) of bytes that other plans keep from run to run."""
    ends: tuple[int, ...]
    """For each arena, the highest end of any slot of any plan."""

    @classmethod
    def of(cls, document: Document, plan: Plan) -> "Room":
        """Return the room of a plan of a document."""
        return _room(_Around.of(document), plan)

    def copy(self) -> "Room":
        """Return a room whose slots can be moved without moving these."""
        return replace(self, arena=self.arena.copy(), offset=self.offset.copy(), nbytes=self.nbytes.copy())

    def move(self, buffers: Collection[int], rigour: Rigour, *, stay: bool = False) -> bool:
        """Move buffers to the lowest bytes that are free for them, large ones first.

        False where one finds no room.

        With `stay`, a buffer whose bytes are free where it lies is left there.
        """
        chosen = sorted(
            buffers, key=lambda b: (-int(self.nbytes[b]), int(self.start[b]), int(self.stop[b]), int(self.first[b]))
        )
        homes = self.plan.program.buffers.arena
        settled = (self.arena >= 0) & (self.nbytes > 0)
        settled[chosen] = False
        for buffer in chosen:
            here = int(homes[buffer])
            at = self._lowest(buffer, here, settled, rigour, stay=stay)
            if at + int(self.nbytes[buffer]) > self.capacity(here):
                return False
            self.arena[buffer], self.offset[buffer] = here, at
            settled[buffer] = bool(self.nbytes[buffer] > 0)
        return True

    def _lowest(self, buffer: int, arena: int, settled: Bools, rigour: Rigour, *, stay: bool) -> int:
        step, size = int(self.plan.program.buffers.alignment[buffer]), int(self.nbytes[buffer])
        taken = self.taken(buffer, arena, settled, rigour) + [(a, b) for n, a, b in self.foreign if n == arena]
        if rigour is Rigour.FRESH:
            taken.append((0, self.ends[arena]))
        now = int(self.offset[buffer])
        fits = now >= 0 and now % step == 0 and now + size <= self.capacity(arena)
        if stay and fits and all(b <= now or now + size <= a for a, b in taken):
            return now
        return first_free(taken, step, size)

    def taken(self, buffer: int, arena: int, settled: Bools, rigour: Rigour) -> list[tuple[int, int]]:
        """Return the ranges of an arena that settled buffers of this plan need beside one."""
        beside = settled & (self.arena == arena)
        if rigour is Rigour.LIVING:
            beside = beside & (self.start < self.stop[buffer]) & (self.start[buffer] < self.stop)
        low, high = self.offset[beside], self.offset[beside] + self.nbytes[beside]
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def capacity(self, arena: int) -> int:
        """Return how many bytes an arena has, `LIMIT` where nothing is said of it."""
        limit = self.plan.program.arenas[arena].capacity
        return LIMIT if limit is None else limit

    def peak(self) -> int:
        """Highest end of any slot, summed over arenas."""
        return highest(self.plan.program, self.arena, self.offset, self.nbytes)


def first_free(taken: Iterable[tuple[int, int]], step: int, size: int) -> int:
    """Return the lowest multiple of `step` at which `size` bytes meet none of these ranges."""
    at = 0
    for low, high in sorted(taken):
        if at + size <= low:
            break
        at = max(at, -(-high // step) * step)
    return at


def rooms_of(document: Document) -> dict[int, Room]:
    """Return the rooms of all plans of a document, by index."""
    around = _Around.of(document)
    return {index: _room(around, plan) for index, plan in enumerate(document.plans)}


def _room(around: "_Around", plan: Plan) -> Room:
    document = around.document
    programs = {id(run.program): run.program for run in around.runs.get(id(plan), ())} or {
        id(plan.program): plan.program
    }
    end = max((len(program.ops) for program in programs.values()), default=0)
    spans = [lifetimes(program) for program in programs.values()]
    start, stop = np.min([span[:, 0] for span in spans], axis=0), np.max([span[:, 1] for span in spans], axis=0)
    idle = stop <= start
    nbytes = np.max([plan.nbytes, *(program.buffers.nbytes_high for program in programs.values())], axis=0)
    problem = plan.problem
    if problem is not None:
        start = np.where(idle, problem.start, np.minimum(start, problem.start))
        stop = np.maximum(stop, problem.stop)
        stop = np.where(problem.pinned, np.maximum(stop, end), stop)
        nbytes = np.maximum(nbytes, problem.nbytes)
    always = _lasting(plan, around.runs.get(id(plan), ()))
    if len(programs) > 1:
        always[:] = True
    start, stop = np.where(always, 0, start), np.where(always, LIMIT, stop)
    return Room(
        plan=plan,
        arena=plan.arena.astype(np.int64),
        offset=plan.offset.copy(),
        nbytes=nbytes.astype(np.int64),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        first=ranks_of(document, plan),
        foreign=tuple(row for other, rows in around.kept.items() if other != id(plan) for row in rows),
        ends=around.ends,
    )


def lasting(document: Document, plan: Plan) -> Bools:
    """Bool (buffers,): the buffers of a plan whose bytes outlast a run: parameters, states, and
    what one run leaves for another.
    """
    return _lasting(plan, [run for run in document.runs if run.plan is plan])


def all_lasting(document: Document) -> list[Bools]:
    """Return what lasts of each plan, in one pass over the runs."""
    runs = _runs(document)
    return [_lasting(plan, runs.get(id(plan), ())) for plan in document.plans]


def _lasting(plan: Plan, runs: Iterable[Run]) -> Bools:
    found: Bools = plan.program.buffers.persistent.copy()
    for run in runs:
        for step in run.skip:  # an upload that is left out
            found[run.program.values.buffer[list(run.program.ops[step].results)]] = True
    return found


def _runs(document: Document) -> dict[int, list[Run]]:
    found: dict[int, list[Run]] = {}
    for run in document.runs:
        found.setdefault(id(run.plan), []).append(run)
    return found


@dataclass(frozen=True, slots=True)
class _Around:
    """What the rooms of a document have in common."""

    document: Document
    runs: dict[int, list[Run]]
    """By the identity of their plan."""
    kept: dict[int, list[tuple[int, int, int]]]
    """The bytes that plans of a session keep from run to run: by the plan's identity."""
    ends: tuple[int, ...]

    @classmethod
    def of(cls, document: Document) -> "_Around":
        kept: dict[int, list[tuple[int, int, int]]] = {}
        if document.session is not None and len(document.plans) > 1:
            for plan, lasts in zip(document.plans, all_lasting(document), strict=True):
                rows = np.flatnonzero(lasts & plan.placed)
                low = plan.offset[rows]
                high = low + plan.program.buffers.nbytes[rows]
                kept[id(plan)] = list(zip(plan.arena[rows].tolist(), low.tolist(), high.tolist(), strict=True))
        return cls(document, _runs(document), kept, _ends(document))


def _ends(document: Document) -> tuple[int, ...]:
    """Return each arena's highest end of any plan's slots, each at least its buffer's size."""
    found = [
        ends_of(plan.program, plan.arena, plan.offset, np.maximum(plan.nbytes, plan.program.buffers.nbytes))
        for plan in document.plans
    ]
    return tuple(map(max, zip(*found, strict=True)))
