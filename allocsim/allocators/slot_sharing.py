"""Slot sharing: whole slots handed from buffer to buffer, each as large as the largest it ever
holds.

Buffers go by first step, of equal ones by the problem's order. Each takes a slot that is free: the
smallest that is large enough and at most `MATCH` times its size, else the largest smaller one of at
least a `MATCH`th of its size, which grows; else a new slot. A slot is free again when its buffer
has died. When all have one, the slots of an arena are laid out one behind another, each at a
multiple of the alignments of its buffers, around the fixed buffers, which share with nobody.

No two slots ever share bytes, which is all that planners whose answer is a storage id can say.

Sound; at most the bytes of `reference` where all alignments are equal. O(n log slots), and what a
list moves. Source: TVM's
graph planner (src/relay/backend/graph_plan_memory.cc, `StorageAllocator`, match range 16);
ExecuTorch's `mem_obj_id` is the same idea.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from math import lcm
from typing import Final

import numpy as np

from allocsim.allocators.fitting import no_room
from allocsim.allocators.footprints import FREE, Footprints, footprints, plan
from allocsim.model import Plan, Problem
from allocsim.model.layout import LIMIT, Int64s

NAME = "slot_sharing"

MATCH: Final = 16


@dataclass(slots=True, kw_only=True)
class Slot:
    """Bytes that one buffer after another has for itself."""

    nbytes: int
    alignment: int
    rows: list[int]


def place(problem: Problem) -> Plan:
    """Share whole slots. Raises CapacityError where they do not fit side by side."""
    placed = footprints(problem)
    offsets = np.where(placed.fixed == FREE, 0, placed.fixed)
    for arena, rows in placed.by_arena():
        _lay_out(placed, arena, rows, _share(placed, rows), offsets)
    return plan(NAME, placed, offsets)


def _share(placed: Footprints, rows: Int64s) -> list[Slot]:
    """Give each row that is not fixed a slot."""
    slots: list[Slot] = []
    free: list[tuple[int, int]] = []
    dying: list[tuple[int, int]] = []
    rows = rows[placed.fixed[rows] == FREE]
    rows = rows[np.argsort(placed.start[rows], kind="stable")]
    columns = (column[rows].tolist() for column in (placed.start, placed.stop, placed.nbytes, placed.alignment))
    for row, start, stop, nbytes, alignment in zip(rows.tolist(), *columns, strict=True):
        while dying and dying[0][0] <= start:
            chosen = heappop(dying)[1]
            insort(free, (slots[chosen].nbytes, chosen))
        place = _match(free, nbytes)
        if place is None:
            chosen = len(slots)
            slots.append(Slot(nbytes=nbytes, alignment=alignment, rows=[]))
        else:
            chosen = free.pop(place)[1]
        slot = slots[chosen]
        slot.nbytes, slot.alignment = max(slot.nbytes, nbytes), min(lcm(slot.alignment, alignment), LIMIT)
        slot.rows.append(row)
        if stop < LIMIT:
            heappush(dying, (stop, chosen))
    return slots


def _match(free: list[tuple[int, int]], nbytes: int) -> int | None:
    """Return the place of the free slot that fits best among (size, slot), sorted; None where none
    is of about that size.
    """
    place = bisect_left(free, (nbytes,))
    if place < len(free) and free[place][0] <= nbytes * MATCH:
        return place
    if not place or free[place - 1][0] * MATCH < nbytes:
        return None
    return bisect_left(free, (free[place - 1][0],))


def _lay_out(placed: Footprints, arena: int, rows: Int64s, slots: list[Slot], offsets: Int64s) -> None:
    fixed = [row for row in rows.tolist() if placed.fixed[row] != FREE]
    walls = sorted((int(placed.fixed[row]), int(placed.fixed[row] + placed.nbytes[row])) for row in fixed)
    top = 0
    for slot in slots:
        at = -(-top // slot.alignment) * slot.alignment
        for low, high in walls:
            if low < at + slot.nbytes and at < high:
                at = -(-high // slot.alignment) * slot.alignment
        top = at + slot.nbytes
        if top > placed.limit(arena):
            raise no_room(NAME, placed, max(slot.rows, key=lambda row: int(placed.nbytes[row])))
        offsets[slot.rows] = at
