"""Placing footprints one after another, for the planners that differ only in their order.

An order is a function of the footprints and of the rows of one arena to those rows in the order in
which they are to be placed. Each row then takes a gap between the rows already placed that meet it:
the lowest (`first fit`) or the smallest, the lowest of equal ones (`best fit`); where none is large
enough it goes on top of them all. Fixed rows lie where they are told to, before all others.

Each row thus rests on the floor, on a fixed row or on another row, so with equal alignments and
without fixed rows a peak is never above that of `reference`.

In compiled code by birth O(n) times what lives at once (`placement_kernels.sweep`), else O(n)
windows of those that live about the same time (`placement_kernels.fit`), O(n^2) for n footprints
where most live all the time.

What this module does not see: why an order is a good one.
"""

from collections.abc import Callable, Sequence

import numpy as np

from allocsim.allocators.footprints import FootprintColumns, Footprints, footprints, plan
from allocsim.allocators.reference import check_fits
from allocsim.errors import CapacityError
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

Order = Callable[[Footprints, Int64s], Int64s]


def place_in_order(name: str, problem: Problem, order: Order, *, best: bool) -> Plan:
    """Return the plan of one order.

    Raises CapacityError where a footprint finds no room in its arena.
    """
    placed = footprints(problem)
    offsets = np.zeros(len(placed), dtype=np.int64)
    arenas = [(arena, rows) for arena, rows in placed.by_arena() if len(rows)]
    if arenas:
        orders = [order(placed, rows) for _, rows in arenas]
        limits = [placed.limit(arena) for arena, _ in arenas]
        rows = np.concatenate([rows for _, rows in arenas])
        offsets[rows] = _fitted(name, placed, rows, orders, limits, best=best)
    return plan(name, placed, offsets)


def fit_rows(
    name: str,
    placed: Footprints,
    arena: int,
    rows: Int64s,
    order: Int64s,
    *,
    best: bool,
    limit: int | None = None,
) -> Int64s:
    """Return the offsets of the footprints `rows` of one arena, placed in the order of `order`, a
    permutation of them.

    Raises CapacityError at the first that does not end at `limit` or before, by default the arena's
    end: an answer that would be no better than another is not looked for to its end.
    """
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    return _fitted(name, placed, rows, [order], [placed.limit(arena) if limit is None else limit], best=best)


def _fitted(
    name: str, placed: Footprints, rows: Int64s, orders: Sequence[Int64s], limits: Sequence[int], *, best: bool
) -> Int64s:
    """Return the offsets of `rows`, those of one arena after those of another, each placed in its
    order and before its limit.
    """
    from allocsim.allocators.placement_kernels import ROOM, fit_each  # noqa: PLC0415 - numba

    # of numpy's own memory, which comes in large pages: compiled code would get small ones
    entries = np.empty((ROOM * max(map(len, orders)), 3), dtype=np.int64)
    ends = np.cumsum([0, *map(len, orders)])
    place = np.zeros(len(placed), dtype=np.int64)
    place[rows] = np.arange(len(rows)) - np.repeat(ends[:-1], np.diff(ends))
    order = place[np.concatenate(orders)]
    offsets, row = fit_each(order, ends, columns(placed, rows), np.array(limits, dtype=np.int64), best, entries)
    if row >= 0:
        raise no_room(name, placed, int(rows[row]))
    found: Int64s = offsets
    return found


def columns(placed: Footprints, rows: Int64s) -> FootprintColumns:
    """Return some footprints as the kernels take them."""
    return FootprintColumns(
        placed.start[rows], placed.stop[rows], placed.nbytes[rows], placed.alignment[rows], placed.fixed[rows]
    )


def no_room(name: str, placed: Footprints, row: int) -> CapacityError:
    """Return the error that says which buffer finds no room.

    Raise the one about its offset where that is fixed.
    """
    buffer = placed.buffers[row][0]
    program = placed.problem.program
    if buffer in placed.problem.fixed:
        check_fits(placed.problem, name, buffer, placed.problem.fixed[buffer])
    arena = program.arenas[int(placed.arena[row])]
    what = f"buffer {buffer} ({program.buffers.names[buffer]!r}, {int(placed.nbytes[row])} bytes)"
    return CapacityError(
        f"allocator {name!r}: {what} finds no room in arena {arena.name!r} of "
        f"{placed.limit(int(placed.arena[row]))} bytes"
    )
