"""Place every buffer in bytes of its own; the peak is the upper bound for the price of a cure.

The `own` and `fixed` lists of a problem are kept. Without a problem, a buffer outside the arenas
stays outside. A buffer *outlasts* a run if the buffer is a parameter or state, or if an upload into
it is left out. Such a buffer has the same address in every plan of a session, and no other buffer
uses that address.

Buffers are placed by alignment, then by size, the largest first, so the peak does not depend on
their indices. Buffers that outlast a run are placed first-fit, in the lowest bytes that are free in
all plans. After `ALIGNMENTS` different alignments, they are placed after all earlier buffers. The
other buffers are placed next-fit, each after the previous one. If the problems of several plans
state different addresses for one buffer that outlasts a run, each plan keeps its own address.

Complexity: O(n log n) for n buffers of all plans, plus, for each plan, the number of ranges of the
buffers that outlast a run.

This module does not examine lifetimes and pairs, and whether the plans cure anything.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

import numpy as np

from allocsim.cure.room import lasting, programs_under
from allocsim.model import OWN, Bools, Document, Plan
from allocsim.model.layout import LIMIT, Int64s

ALIGNMENTS: Final = 16
"""The largest number of alignments for which free ranges are searched again, to bound the time."""

ENDLESS: Final = 1 << 80
"""The end of the last free range, above all addresses."""

Range = tuple[int, int]
Wanted = tuple[int, int]
"""The (alignment, bytes) of a buffer to place."""


def all_apart(document: Document) -> tuple[Plan, ...] | None:
    """Return the plans of a document with every buffer apart, in the document's order.

    Return None if a plan does not fit into an arena, or an address would be above `LIMIT`.
    """
    plans, sizes = document.plans, _sizes(document)
    told = [
        {b: at for b, at in (plan.problem.fixed if plan.problem is not None else {}).items() if not _own(plan)[b]}
        for plan in plans
    ]
    homes = [dict(mine) for mine in told]
    decided: dict[int, list[Range]] = defaultdict(list)
    for plan, size, mine in zip(plans, sizes, told, strict=True):
        for arena, ranges in _ranges(plan, size, mine).items():
            decided[arena] += ranges
    kept: dict[int, list[Range]] = defaultdict(list)

    def keep(found: list[tuple[int, int]], arena: int, at: int, nbytes: int) -> None:
        kept[arena].append((at, at + nbytes))
        for n, b in found:
            homes[n].setdefault(b, at)

    free: dict[int, list[tuple[Wanted, list[tuple[int, int]]]]] = defaultdict(list)
    rows = []
    for found in _lasting(document):
        step = max(_order(plans[n], sizes[n], b)[0] for n, b in found)
        rows.append((step, max(int(sizes[n][b]) for n, b in found), found))
    for step, most, found in sorted(rows, key=lambda row: row[:2], reverse=True):
        arena = int(plans[found[0][0]].program.buffers.arena[found[0][1]])
        known = [told[n][b] for n, b in found if b in told[n]]
        if known:
            keep(found, arena, known[0], most)
        else:
            free[arena].append(((step, most), found))
    for arena, asked in free.items():
        places = list(_first_free([*decided[arena], *kept[arena]], [wanted for wanted, _ in asked]))
        for ((_, most), found), at in zip(asked, places, strict=True):
            keep(found, arena, at, most)
    lasts = {arena: _joined(ranges) for arena, ranges in kept.items()}
    placed = []
    for plan, size, mine in zip(plans, sizes, homes, strict=True):
        made = _placed(plan, size, mine, lasts)
        if made is None:
            return None
        placed.append(made)
    return tuple(placed)


def _own(plan: Plan) -> Bools:
    """Bool (buffers,): True for memory of its own, by the problem, or by the plan without one."""
    return plan.arena == OWN if plan.problem is None else plan.problem.own


def _sizes(document: Document) -> list[Int64s]:
    """For each plan, the largest size of each buffer in the problem and the plan's programs."""
    return [
        np.max(
            [program.buffers.nbytes_high for program in (plan.program, *under)]
            + ([] if plan.problem is None else [plan.problem.nbytes]),
            axis=0,
        )
        for plan, under in zip(document.plans, programs_under(document), strict=True)
    ]


def _order(plan: Plan, sizes: Int64s, buffer: int) -> tuple[int, int]:
    return int(plan.program.buffers.alignment[buffer]), int(sizes[buffer])


def _ranges(plan: Plan, sizes: Int64s, homes: dict[int, int]) -> dict[int, list[Range]]:
    """Return for each arena the ranges of the buffers that have an offset in `homes`."""
    arena = plan.program.buffers.arena
    found: dict[int, list[Range]] = {}
    for b, at in homes.items():
        found.setdefault(int(arena[b]), []).append((at, at + int(sizes[b])))
    return found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in ascending order; ranges that touch or overlap are joined."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _lasting(document: Document) -> list[list[tuple[int, int]]]:
    """Return the slots of each buffer that outlasts a run, as (plan, buffer). Parameters and states
    with the same name and arena are one buffer in all plans.
    """
    found: dict[Hashable, list[tuple[int, int]]] = {}
    if document.session is None:
        return []
    for index, (plan, lasts) in enumerate(zip(document.plans, lasting(document), strict=True)):
        buffers, own = plan.program.buffers, _own(plan)
        for buffer in np.flatnonzero(lasts & ~own).tolist():
            named = (
                (buffers.names[buffer], int(buffers.arena[buffer])) if buffers.persistent[buffer] else (index, buffer)
            )
            found.setdefault(named, []).append((index, buffer))
    return list(found.values())


def _placed(plan: Plan, sizes: Int64s, homes: dict[int, int], lasts: dict[int, list[Range]]) -> Plan | None:
    """Return a plan with the buffers of `homes` at their offsets. All other buffers are placed
    next-fit, outside the bytes of buffers that outlast a run. Return None if the plan does not fit.
    """
    buffers, own = plan.program.buffers, _own(plan)
    offset = np.zeros(len(own), dtype=np.int64)
    ranges = _ranges(plan, sizes, homes)
    rows = np.flatnonzero(~own)
    rows = rows[np.argsort(buffers.arena[rows], kind="stable")].tolist()
    for arena, members in groupby(rows, key=lambda b: int(buffers.arena[b])):
        here = list(members)
        free = sorted((b for b in here if b not in homes), key=lambda b: _order(plan, sizes, b), reverse=True)
        taken = [*lasts.get(arena, ()), *ranges.get(arena, ())]
        found = list(_free(taken, [_order(plan, sizes, b) for b in free])) if free else []
        at = {**dict(zip(free, found, strict=True)), **{b: homes[b] for b in here if b in homes}}
        end = max(at[b] + int(sizes[b]) for b in here)
        capacity = plan.program.arenas[arena].capacity
        if end > (LIMIT if capacity is None else min(capacity, LIMIT)):
            return None
        offset[here] = [at[b] for b in here]
    return replace(
        plan,
        arena=np.where(own, OWN, buffers.arena).astype(np.int32),
        offset=offset,
        nbytes=np.where(own, 0, sizes).astype(np.int64),
    )


# free bytes ---------------------------------------------------------------------------------------


def _first_free(taken: Iterable[Range], wanted: Sequence[Wanted]) -> Iterator[int]:
    """Yield the lowest free offset for each (alignment, bytes) wanted; these bytes are then taken.

    `wanted` has the largest alignments first. O(log n) for each offset, and O(n log n) for each
    alignment.
    """
    holes = _holes(taken)
    lowest = holes[0][0]
    left = 0
    for turn, (step, rows) in enumerate(groupby(wanted, key=lambda row: row[0])):
        if turn == ALIGNMENTS:
            yield from _free([(0, holes[-1][0])], wanted[left:])
            return
        tree, split = _Tree([high - -(-low // step) * step for low, high in holes]), []
        for _, nbytes in rows:
            left += 1
            if not nbytes:  # a buffer without bytes may begin where another one begins
                yield -(-lowest // step) * step
                continue
            place = tree.first(nbytes)
            low, high = holes[place]
            at = -(-low // step) * step
            yield at
            if low < at:
                split.append((low, at))
            holes[place] = at + nbytes, high
            tree.put(place, high - -(-(at + nbytes) // step) * step)
        holes = sorted([*split, *(hole for hole in holes if hole[0] < hole[1])])


def _holes(taken: Iterable[Range]) -> list[Range]:
    """Return the free ranges between the taken ranges, and the free range after all of these."""
    found, top = [], 0
    for low, high in sorted(taken):
        if top <= low:
            found.append((top, low))
        top = max(top, high)
    return [*found, (top, ENDLESS)]


class _Tree:
    """A list of numbers that finds the first number that is at least `least` in O(log n)."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._half = 1 << max(len(numbers) - 1, 0).bit_length()
        self._most = [-ENDLESS] * self._half + [*numbers] + [-ENDLESS] * (self._half - len(numbers))
        for at in range(self._half - 1, 0, -1):
            self._most[at] = max(self._most[2 * at], self._most[2 * at + 1])

    def first(self, least: int) -> int:
        """Return the index of the first number not below `least`; such a number must exist."""
        at = 1
        while at < self._half:
            at = 2 * at if self._most[2 * at] >= least else 2 * at + 1
        return at - self._half

    def put(self, place: int, number: int) -> None:
        """Replace the number at index `place`."""
        at = place + self._half
        self._most[at] = number
        while at > 1:
            at //= 2
            self._most[at] = max(self._most[2 * at], self._most[2 * at + 1])


def _free(taken: Iterable[Range], wanted: Iterable[Wanted]) -> Iterator[int]:
    """Yield an offset for each (alignment, bytes) wanted, next-fit between the taken ranges."""
    ahead = sorted(taken, reverse=True)
    top = 0
    for step, nbytes in wanted:
        at = -(-top // step) * step
        while ahead and ahead[-1][0] < at + nbytes:
            at = max(at, -(-ahead.pop()[1] // step) * step)
        yield at
        top = at + nbytes
