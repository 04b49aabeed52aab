"""Find the cheapest ways to move one or two of the slots that violations name.

    for move in moves_of(document, rooms, bodies, rigours):     # the cheapest first
        ...                                                     # the caller judges each move

A *body* is a group of slots that move together: one slot, or all slots of a parameter or state in
the plans of a session. A body moves to the lowest free bytes. Bytes are not free if a buffer of the
same plan needs them during the body's lifetime, or if another plan keeps them from run to run. A
parameter or state avoids all bytes of other plans.

In a double move, a body moves to bytes of a neighbour, and the neighbour moves to the lowest free
bytes.

A slot with a place stated by the problem (`fixed`, `own`) is never moved.

Complexity: O(n log n) for each body, for n slots. A double move has this cost for each of at most
`NEIGHBOURS` neighbours.

This module does not examine whether a move removes violations; the caller judges each move.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim.cure.changes import Change, Charges
from allocsim.cure.drafting import Draft, place_of
from allocsim.cure.mending import index_of_part, plans_of
from allocsim.cure.room import Rigour, Room, first_free, kin
from allocsim.judge.violations import Violation
from allocsim.model import Document

Body = tuple[tuple[int, int], ...]
"""The (plan, buffer) of the slots that move together."""

BODIES: Final = 8
"""The largest number of bodies that are tried."""

PLACES: Final = frozenset({"slot", "size", "state", "address", "wait"})
"""Kinds of change that need another slot, and not another belief."""

FEW: Final = frozenset({"lifetime", "pair", "pin", "size", "slot", "state", "address", "wait"})
"""Kinds of change that few moves can make."""

NEIGHBOURS: Final = 32
"""The most neighbours tried for each body; the slots nearest in size are tried first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotMove:
    """A move of slots, with the growth of the peaks in bytes and the rooms after the move."""

    growth: int
    rooms: Mapping[int, Room]
    """For each plan with a moved slot, the room after the move."""
    moved: Body


def bodies_of(document: Document, asked: Charges) -> tuple[Body, ...]:
    """Return the bodies to try: for each change its own slot, then the slots of its violations."""
    found: dict[tuple[int, int], None] = {}
    for change, violations in asked.items():
        slots = [(index, change.buffer) for index in plans_of(document, change)]
        for v in violations:
            plans, other = document.plans, v.other_run
            theirs = v.plan if other is None else index_of_part(plans, document.runs[other].plan)
            slots += [(-1 if v.plan is None else v.plan, v.buffer), (-1 if theirs is None else theirs, v.other_buffer)]
        found |= {(index, buffer): None for index, buffer in slots if index >= 0 and buffer is not None}
    bodies = dict.fromkeys(_body(document, index, buffer) for index, buffer in found)
    return tuple(filter(None, bodies))[:BODIES]


def moved_off(draft: Draft, new: Iterable[Violation], rigour: Rigour) -> bool:
    """Move one slot of each pair that new violations report after a belief was mended. Return False
    if there is no pair or no room, or if a violation is not about two buffers of one run.
    """
    chosen: dict[int, set[int]] = defaultdict(set)
    for v in new:
        pair = {v.buffer, v.other_buffer} - {None}
        if v.plan not in draft.rooms or len(pair) < 2 or (v.run is not None and v.other_run not in {None, v.run}):
            return False
        if not pair & chosen[v.plan]:
            movable = [b for b in (v.buffer, v.other_buffer) if b is not None and _body(draft.document, v.plan, b)]
            if not movable:
                return False
            chosen[v.plan].add(movable[0])
    for index, buffers in chosen.items():
        if not draft.rooms[index].move(buffers, rigour):
            return False
        draft.moved[index] |= buffers
    return bool(chosen)


def moves_of(
    document: Document, rooms: Mapping[int, Room], bodies: Sequence[Body], rigours: Sequence[Rigour]
) -> list[SlotMove]:
    """Return the moves of one body each, the cheapest first."""
    made = ((body, _shifted(document, rooms, body, rigour)) for body in bodies for rigour in rigours)
    return _cheapest_first(rooms, made)


def double_moves_of(
    document: Document, rooms: Mapping[int, Room], bodies: Sequence[Body], rigour: Rigour
) -> list[SlotMove]:
    """Return the moves of one body and one neighbour each, the cheapest first."""
    pairs = (
        (body, neighbour)
        for body in bodies
        if len(body) == 1
        for other in _neighbours(rooms[body[0][0]], body[0][1])
        if (neighbour := _body(document, body[0][0], other))
    )
    made = (((*body, *other), _both(document, rooms, body, other, rigour)) for body, other in pairs)
    return _cheapest_first(rooms, made)


def _cheapest_first(
    rooms: Mapping[int, Room], made: Iterable[tuple[Body, Mapping[int, Room] | None]]
) -> list[SlotMove]:
    found = [
        SlotMove(growth=sum(room.peak() - rooms[at].peak() for at, room in after.items()), rooms=after, moved=moved)
        for moved, after in made
        if after is not None
    ]
    return sorted(found, key=lambda move: (move.growth, len(move.moved)))


def drafted(base: Draft, move: SlotMove, asked: Iterable[Change]) -> Draft:
    """Return a draft with the move made; for kinds in `PLACES`, it lists the moved slots."""
    moved, resized = deepcopy(base.moved), deepcopy(base.resized)
    draft = replace(base, rooms={**base.rooms, **move.rooms}, changes=dict(base.changes), moved=moved, resized=resized)
    for index, buffer in move.moved:
        moved[index].add(buffer)
    if any(change.kind in PLACES for change in asked):
        draft.changes |= dict.fromkeys(place_of(draft, index, buffer) for index, buffer in move.moved)
    return draft


def give_full_sizes(draft: Draft, asked: Iterable[Change]) -> None:
    """Give each slot of a `size` or `slot` change all the bytes that its buffer needs."""
    for change in asked:
        if change.kind not in {"size", "slot"} or change.plan is None or change.buffer is None:
            continue
        room, plan = draft.rooms[change.plan], draft.document.plans[change.plan]
        if int(room.nbytes[change.buffer]) > int(plan.nbytes[change.buffer]) and plan.placed[change.buffer]:
            draft.resized[change.plan].add(change.buffer)
            nbytes = int(room.nbytes[change.buffer])
            draft.changes[replace(place_of(draft, change.plan, change.buffer), nbytes=nbytes)] = None


def _body(document: Document, index: int, buffer: int) -> Body:
    """Return the body of a slot; the body is empty if one of its slots may not move."""
    placed = tuple(slot for slot in kin(document, index, buffer) if document.plans[slot[0]].placed[slot[1]])
    told = ((document.plans[number].problem, other) for number, other in placed)
    fixed = any(problem is not None and (problem.own[other] or other in problem.fixed) for problem, other in told)
    return () if fixed else placed


def _shifted(document: Document, rooms: Mapping[int, Room], body: Body, rigour: Rigour) -> dict[int, Room] | None:
    """Return the rooms with a body at the lowest bytes free in all its plans, or None."""
    made = {index: rooms[index].copy() for index, _ in body}
    homes = {int(room.plan.program.buffers.arena[buffer]) for index, buffer in body for room in [made[index]]}
    if len(homes) > 1:
        return None
    (arena,) = homes
    taken: list[tuple[int, int]] = []
    step = size = 1
    for index, buffer in body:
        room = made[index]
        settled = (room.arena >= 0) & (room.nbytes > 0)
        settled[buffer] = False
        taken += room.taken(buffer, arena, settled, rigour)
        if document.session is not None:
            taken += _elsewhere(document, rooms, (index, buffer), body)
        step = max(step, int(room.plan.program.buffers.alignment[buffer]))
        size = max(size, int(room.nbytes[buffer]))
    if any(step % int(made[index].plan.program.buffers.alignment[buffer]) for index, buffer in body):
        return None
    at = first_free(taken, step, size)
    if at + size > room.capacity(arena):  # all programs have the same arenas
        return None
    for index, buffer in body:
        made[index].arena[buffer], made[index].offset[buffer] = arena, at
    return made


def _elsewhere(
    document: Document, rooms: Mapping[int, Room], slot: tuple[int, int], body: Body
) -> Iterator[tuple[int, int]]:
    """Yield the ranges of other plans that a slot must avoid: bytes kept from run to run. A slot of
    a buffer that outlasts a run must avoid all bytes of other plans.
    """
    index, buffer = slot
    arena = document.plans[index].program.buffers.arena[buffer]
    mine = {number for number, _ in body}
    for number in range(len(document.plans)):
        if number in mine:
            continue
        room = rooms[number]
        there = (room.arena == arena) & (room.nbytes > 0)
        if not rooms[index].lasts[buffer]:
            there &= room.lasts
        low = room.offset[there]
        yield from zip(low.tolist(), (low + room.nbytes[there]).tolist(), strict=True)


def _neighbours(room: Room, buffer: int) -> list[int]:
    """Return the buffers of the same arena that live at the same time, nearest in size first."""
    arena = room.plan.program.buffers.arena[buffer]
    near = (room.arena == arena) & (room.nbytes > 0) & room.living(buffer)
    near[buffer] = False
    size = int(room.nbytes[buffer])
    found = sorted(np.flatnonzero(near).tolist(), key=lambda b: (abs(int(room.nbytes[b]) - size), int(room.first[b])))
    return found[:NEIGHBOURS]


def _both(
    document: Document, rooms: Mapping[int, Room], body: Body, neighbour: Body, rigour: Rigour
) -> dict[int, Room] | None:
    """Return the rooms after a body, and then its neighbour, moved to free bytes."""
    if set(body) & set(neighbour):
        return None
    away = {index: rooms[index].copy() for index in {index for index, _ in (*body, *neighbour)}}
    for index, other in neighbour:
        away[index].arena[other] = -1
    made = _shifted(document, {**rooms, **away}, body, rigour)
    if made is None:
        return None
    away |= made
    back = _shifted(document, {**rooms, **away}, neighbour, rigour)
    return None if back is None else {**away, **back}
