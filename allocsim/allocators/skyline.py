"""Skyline best fit: the lowest stretch of the skyline takes the buffer, within its steps, that
lives longest or covers most.

Steps are the width and bytes the height. The lowest stretch (the earliest of several) takes, of the
buffers not placed whose lives lie within its steps, the one with the longest life
(`skyline_by_lifetime`) or the largest product of bytes and steps (`skyline_by_area`), ties by size
and then by the problem's order, at the left where it is. Where no buffer fits the stretch is lifted
to its lower neighbour. A buffer that would lie on a fixed one is raised above it.

Sound; at most the bytes of `reference` where all alignments are equal. O((n + lifts) log n) as a
rule, compiled: stretches and buffers are found in trees of minima
(`allocsim.allocators.placement_kernels`). Source: Sekiyama, Imai, Negishi and Kawachiya,
"Profile-guided memory optimization for deep neural networks", arXiv:1804.10001, after Burke,
Kendall and Whitwell's best fit for strip packing.
"""

from collections.abc import Callable

import numpy as np

from allocsim.allocators.fitting import no_room
from allocsim.allocators.footprints import FootprintColumns, Footprints, footprints, plan
from allocsim.model import Plan, Problem
from allocsim.model.layout import LIMIT, Int64s

Preference = Callable[[Int64s, Int64s, Int64s], Int64s]
"""(start, stop, nbytes) -> rows, the most wanted first."""


def longest(start: Int64s, stop: Int64s, nbytes: Int64s) -> Int64s:
    """Return the rows by length of life, then size."""
    order: Int64s = np.lexsort((-nbytes, start - stop))
    return order


def largest(start: Int64s, stop: Int64s, nbytes: Int64s) -> Int64s:
    """Return the rows by bytes times steps, then size."""
    area = -nbytes.astype(np.float64) * (stop - start)  # the product may leave 64 bits
    order: Int64s = np.lexsort((-nbytes, area))
    return order


def lift(
    name: str, placed: Footprints, arena: int, rows: Int64s, preference: Preference, *, limit: int | None = None
) -> Int64s:
    """Return the offsets of the footprints `rows` of one arena.

    Raises CapacityError at the first that does not end at `limit` or before, by default the arena's
    end.
    """
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    from allocsim.allocators.placement_kernels import skyline  # noqa: PLC0415 - numba

    start, stop, nbytes = placed.start[rows], placed.stop[rows], placed.nbytes[rows]
    end = max(int(start.max()) + 1, int(stop[stop < LIMIT].max(initial=0)))
    stop = np.minimum(stop, end)  # what never stops lives to the end; areas need a number
    marks = np.unique(np.concatenate([start, stop]))
    ranks = np.searchsorted(marks, start), np.searchsorted(marks, stop)
    order = preference(start, stop, nbytes)
    by_start = np.argsort(ranks[0], kind="stable")
    boxes = FootprintColumns(*ranks, nbytes, placed.alignment[rows], placed.fixed[rows])
    offsets, row = skyline(order, by_start, boxes, placed.limit(arena) if limit is None else limit)
    if row >= 0:
        raise no_room(name, placed, int(rows[row]))
    found: Int64s = offsets
    return found


def place_by_lifetime(problem: Problem) -> Plan:
    """Place by longest life. Raises CapacityError where a buffer finds no room."""
    return _place("skyline_by_lifetime", problem, longest)


def place_by_area(problem: Problem) -> Plan:
    """Place by largest area. Raises CapacityError where a buffer finds no room."""
    return _place("skyline_by_area", problem, largest)


def _place(name: str, problem: Problem, preference: Preference) -> Plan:
    placed = footprints(problem)
    offsets = np.zeros(len(placed), dtype=np.int64)
    for arena, rows in placed.by_arena():
        offsets[rows] = lift(name, placed, arena, rows, preference)
    return plan(name, placed, offsets)
