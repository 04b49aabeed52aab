"""Slot sharing: whole slots handed from buffer to buffer, each as large as the largest it ever
holds.

Buffers go by first step, of equal ones by the problem's order. Each takes a slot that is free: the
smallest that is large enough and at most `MATCH` times its size, else the largest smaller one of at
least a `MATCH`th of its size, which grows; else a new slot. A slot is free again when its buffer
has died. When all have one, the slots of an arena are laid out one behind another, each at a
multiple of the alignments of its buffers, around the fixed buffers, which share with nobody.

No two slots ever share bytes, which is all that planners whose answer is a storage id can say.

Sound; at most the bytes of `reference` where all alignments are equal. O(n * slots). Source: TVM's
graph planner (src/relay/backend/graph_plan_memory.cc, `StorageAllocator`, match range 16);
ExecuTorch's `mem_obj_id` is the same idea.
"""

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
    free: list[int] = []
    dying: list[tuple[int, int]] = []
    for row in rows[np.argsort(placed.start[rows], kind="stable")].tolist():
        if placed.fixed[row] != FREE:
            continue
        while dying and dying[0][0] <= placed.start[row]:
            free.append(heappop(dying)[1])
        nbytes, alignment = int(placed.nbytes[row]), int(placed.alignment[row])
        chosen = _match(slots, free, nbytes)
        if chosen is None:
            chosen = len(slots)
            slots.append(Slot(nbytes=nbytes, alignment=alignment, rows=[]))
        else:
            free.remove(chosen)
        slot = slots[chosen]
        slot.nbytes, slot.alignment = max(slot.nbytes, nbytes), min(lcm(slot.alignment, alignment), LIMIT)
        slot.rows.append(row)
        if placed.stop[row] < LIMIT:
            heappush(dying, (int(placed.stop[row]), chosen))
    return slots


def _match(slots: list[Slot], free: list[int], nbytes: int) -> int | None:
    """Return the free slot that fits best, None where none is of about that size."""
    larger = [slot for slot in free if nbytes <= slots[slot].nbytes <= nbytes * MATCH]
    if larger:
        return min(larger, key=lambda slot: (slots[slot].nbytes, slot))
    smaller = [slot for slot in free if nbytes <= slots[slot].nbytes * MATCH and slots[slot].nbytes < nbytes]
    return max(smaller, key=lambda slot: (slots[slot].nbytes, -slot), default=None)


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
