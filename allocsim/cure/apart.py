"""Every buffer in bytes of its own: what any cure of placements costs at most.

What a problem tells of `own` and of addresses already decided (`fixed`) is kept; without a problem,
what the plan puts outside the arenas stays there. Bytes that outlast a run, of parameters, states
and buffers into which an upload is left out, are in every plan of a session at one address that
nobody else uses.

Buffers follow each other by alignment, then by size, the largest first: the peak hangs on no
numbering. What lasts is laid first-fit, into the lowest bytes that are free in all plans; beyond
`ALIGNMENTS` different alignments, behind all that was laid before. The others are laid next-fit:
each behind the one before it. Where several are told different addresses for what lasts, each keeps
its own.

Complexity: O(n log n) for n buffers of all plans, and for each plan the stretches in which what
lasts lies.

What this module does not see: lifetimes and pairs, and whether anything is cured.
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
"""Alignments for each of which all holes are looked at anew: a bound on time."""

ENDLESS: Final = 1 << 80
"""Where the last hole ends."""

Range = tuple[int, int]
Wanted = tuple[int, int]
"""(alignment, bytes)"""


def all_apart(document: Document) -> tuple[Plan, ...] | None:
    """Return the plans of a document with every buffer apart, in their order.

    The answer is None where that does not fit into an arena, or an address goes beyond `LIMIT`.
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
    """Which buffers have memory of their own: those of which that was told."""
    return plan.arena == OWN if plan.problem is None else plan.problem.own


def _sizes(document: Document) -> list[Int64s]:
    """For each plan the bytes that a buffer needs in any program that the plan is used for."""
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
    """Return for each arena the ranges of buffers at home somewhere."""
    arena = plan.program.buffers.arena
    found: dict[int, list[Range]] = {}
    for b, at in homes.items():
        found.setdefault(int(arena[b]), []).append((at, at + int(sizes[b])))
    return found


def _joined(ranges: Iterable[Range]) -> list[Range]:
    """Return ranges in order, those that touch as one."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _lasting(document: Document) -> list[list[tuple[int, int]]]:
    """Return the buffers that outlast a run, as (plan, buffer); one name in an arena is one."""
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
    """Return a plan with every buffer outside of what lasts, but those that are at home there."""
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
    """Yield the lowest free offset for each (alignment, bytes) wanted, one after another.

    Alignments come from the largest down. O(log n) each, and O(n) for each alignment.
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
            if not nbytes:  # it lies where anything else may begin
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
    """Return what is free between ranges, and behind them."""
    found, top = [], 0
    for low, high in sorted(taken):
        if top <= low:
            found.append((top, low))
        top = max(top, high)
    return [*found, (top, ENDLESS)]


class _Tree:
    """Numbers of which the first that is large enough is asked for: O(log n)."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._half = 1 << max(len(numbers) - 1, 0).bit_length()
        self._most = [-ENDLESS] * self._half + [*numbers] + [-ENDLESS] * (self._half - len(numbers))
        for at in range(self._half - 1, 0, -1):
            self._most[at] = max(self._most[2 * at], self._most[2 * at + 1])

    def first(self, least: int) -> int:
        """Return the place of the first number that is not below `least`; one must be there."""
        at = 1
        while at < self._half:
            at = 2 * at if self._most[2 * at] >= least else 2 * at + 1
        return at - self._half

    def put(self, place: int, number: int) -> None:
        """Put another number in a place."""
        at = place + self._half
        self._most[at] = number
        while at > 1:
            at //= 2
            self._most[at] = max(self._most[2 * at], self._most[2 * at + 1])


def _free(taken: Iterable[Range], wanted: Iterable[Wanted]) -> Iterator[int]:
    """Yield an offset for each (alignment, bytes) wanted, in turn, between the ranges taken."""
    ahead = sorted(taken, reverse=True)
    top = 0
    for step, nbytes in wanted:
        at = -(-top // step) * step
        while ahead and ahead[-1][0] < at + nbytes:
            at = max(at, -(-ahead.pop()[1] // step) * step)
        yield at
        top = at + nbytes
