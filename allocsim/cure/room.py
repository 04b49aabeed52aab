"""Find the lowest bytes to which a buffer can move without moving another buffer: the lowest bytes
that no other buffer needs during its lifetime.

A buffer needs the largest of three sizes: the slot's size, the largest size of the buffer itself,
and the believed size. The buffer needs its bytes from the first to the last step of its real and
its believed life, or to the run's end if the buffer is pinned. A parameter or state needs its bytes
in every run, and so does a buffer with content that one run leaves for another. If a plan runs
several programs, their steps are not comparable, and every buffer counts as alive at all steps.

`Rigour` selects the bytes that a moved buffer avoids. `LIVING`: the bytes of buffers alive at the
same time. `EVERYBODY`: the bytes of every buffer, for streams without a common order. `FRESH`: all
bytes below the highest end of any plan. This module does not check a move, so the caller must pass
the result to the judge.

Complexity: O(buffers) for each buffer moved.

This module does not examine why a buffer moves.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from allocsim.cure.ranks import ranks_of
from allocsim.liveness import lifetimes
from allocsim.model import Bools, Document, Plan, Program
from allocsim.model.assignment import ends_of, highest
from allocsim.model.layout import LIMIT, Int64s


class Rigour(IntEnum):
    """The bytes that a moved buffer avoids, as defined in the module docstring."""

    LIVING = 0
    EVERYBODY = 1
    FRESH = 2


@dataclass(slots=True, kw_only=True)
class Room:
    """The slots of one plan while some slots are moved."""

    plan: Plan
    arena: Int64s
    offset: Int64s
    nbytes: Int64s
    """int64 (buffers,): the number of bytes that each buffer needs at the steps [start, stop)."""
    start: Int64s
    stop: Int64s
    first: Int64s
    """int64 (buffers,): sort keys that do not depend on the buffers' indices (`ranks_of`)."""
    foreign: tuple[tuple[int, int, int], ...]
    """The (arena, low, high) of bytes that other plans keep from run to run."""
    ends: tuple[int, ...]
    """For each arena, the highest end of any slot of any plan."""
    lasts: Bools
    """Bool (buffers,): True for parameters, states, and buffers with content for a later run."""

    def copy(self) -> "Room":
        """Return a copy; moving slots of the copy leaves this room unchanged."""
        return replace(self, arena=self.arena.copy(), offset=self.offset.copy(), nbytes=self.nbytes.copy())

    def move(self, buffers: Collection[int], rigour: Rigour, *, stay: bool = False) -> bool:
        """Move buffers to the lowest bytes that are free for each, large buffers first.

        If `stay` is set, a buffer stays if all bytes that the buffer needs are free at its present
        offset. Return False if there is no room for a buffer; earlier buffers have then already
        moved.
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
        """Return the ranges of an arena that `settled` buffers need and `buffer` must avoid."""
        beside = settled & (self.arena == arena)
        if rigour is Rigour.LIVING:
            beside = beside & self.living(buffer)
        low, high = self.offset[beside], self.offset[beside] + self.nbytes[beside]
        return list(zip(low.tolist(), high.tolist(), strict=True))

    def living(self, buffer: int) -> Bools:
        """Return Bool (buffers,): True for buffers that live together with `buffer`, also for
        itself.
        """
        mask: Bools = (self.start < self.stop[buffer]) & (self.start[buffer] < self.stop)
        return mask

    def capacity(self, arena: int) -> int:
        """Return the capacity of an arena in bytes, `LIMIT` if the document states none."""
        limit = self.plan.program.arenas[arena].capacity
        return LIMIT if limit is None else limit

    def peak(self) -> int:
        """Return the sum over all arenas of the highest end of a slot, in bytes."""
        return highest(self.plan.program, self.arena, self.offset, self.nbytes)


def first_free(taken: Iterable[tuple[int, int]], step: int, size: int) -> int:
    """Return the lowest multiple of `step` at which `size` bytes overlap no range of `taken`."""
    at = 0
    for low, high in sorted(taken):
        if at + size <= low:
            break
        at = max(at, -(-high // step) * step)
    return at


def rooms_of(document: Document) -> dict[int, Room]:
    """Return the rooms of all plans of a document, by the index of the plan."""
    plans, lasts = document.plans, lasting(document)
    shared = document.session is not None and len(plans) > 1
    kept = [_kept(*row) for row in zip(plans, lasts, strict=True)] if shared else []
    found = [
        ends_of(plan.program, plan.arena, plan.offset, np.maximum(plan.nbytes, plan.program.buffers.nbytes))
        for plan in plans
    ]
    ends = tuple(map(max, zip(*found, strict=True)))
    rooms = {}
    for index, (plan, under, mine) in enumerate(zip(plans, programs_under(document), lasts, strict=True)):
        foreign = tuple(row for other, rows in enumerate(kept) if other != index for row in rows)
        rooms[index] = _room(plan, under, mine, foreign, ends)
    return rooms


def _room(
    plan: Plan, under: Sequence[Program], lasts: Bools, foreign: tuple[tuple[int, int, int], ...], ends: tuple[int, ...]
) -> Room:
    programs = under or [plan.program]
    end = max(len(program.ops) for program in programs)
    spans = [lifetimes(program) for program in programs]
    start, stop = np.min([span[:, 0] for span in spans], axis=0), np.max([span[:, 1] for span in spans], axis=0)
    idle = stop <= start
    nbytes = np.max([plan.nbytes, *(program.buffers.nbytes_high for program in programs)], axis=0)
    problem = plan.problem
    if problem is not None:
        start = np.where(idle, problem.start, np.minimum(start, problem.start))
        stop = np.maximum(stop, problem.stop)
        stop = np.where(problem.pinned, np.maximum(stop, end), stop)
        nbytes = np.maximum(nbytes, problem.nbytes)
    always = lasts | (len(programs) > 1)
    start, stop = np.where(always, 0, start), np.where(always, LIMIT, stop)
    return Room(
        plan=plan,
        arena=plan.arena.astype(np.int64),
        offset=plan.offset.copy(),
        nbytes=nbytes.astype(np.int64),
        start=start.astype(np.int64),
        stop=stop.astype(np.int64),
        first=ranks_of(plan.program, under),
        foreign=foreign,
        ends=ends,
        lasts=lasts,
    )


def _kept(plan: Plan, lasts: Bools) -> list[tuple[int, int, int]]:
    """Return (arena, low, high) of the bytes that a plan keeps from run to run."""
    rows = np.flatnonzero(lasts & plan.placed)
    low = plan.offset[rows]
    high = low + plan.program.buffers.nbytes[rows]
    return list(zip(plan.arena[rows].tolist(), low.tolist(), high.tolist(), strict=True))


def lasting(document: Document) -> list[Bools]:
    """Return for each plan Bool (buffers,), True for buffers that outlast a run. These are
    parameters, states, and buffers with an upload that some run leaves out.
    """
    found: dict[int, Bools] = {id(plan): plan.program.buffers.persistent.copy() for plan in document.plans}
    for run in document.runs:
        for step in run.skip:
            found[id(run.plan)][run.program.values.buffer[list(run.program.ops[step].results)]] = True
    return [found[id(plan)] for plan in document.plans]


def programs_under(document: Document) -> list[list[Program]]:
    """Return for each plan the programs that run under it, each once, in the order of the runs."""
    found: dict[int, dict[int, Program]] = {id(plan): {} for plan in document.plans}
    for run in document.runs:
        found[id(run.plan)][id(run.program)] = run.program
    return [list(found[id(plan)].values()) for plan in document.plans]


def kin(document: Document, index: int, buffer: int) -> list[tuple[int, int]]:
    """Return the (plan, buffer) that are this buffer; a session may have it in several plans."""
    buffers = document.plans[index].program.buffers
    if document.session is None or not buffers.persistent[buffer]:
        return [(index, buffer)]
    return [
        (number, other)
        for number, plan in enumerate(document.plans)
        for other, name in enumerate(plan.program.buffers.names)
        if name == buffers.names[buffer] and plan.program.buffers.persistent[other]
    ]
