"""XLA's decreasing-size best fit: two orders, the better plan of the two.

*Spatial*: by size, then length of life, then the problem's order. *Temporal*: by length of life,
then size, then order. Each buffer takes the smallest free chunk that holds it (the lowest of equal
ones), else the room above all chunks. The plan with the lower peak is kept, in each arena for
itself; the spatial one where they are equal. XLA's colocations are chains here
(`allocsim.allocators.footprints`).

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled. Source:
xla/service/heap_simulator.cc, `GlobalDecreasingSizeBestFitHeap` under `ChooseBestHeapAlgorithm`.
"""

from contextlib import suppress

import numpy as np

from allocsim.allocators.fitting import fit_rows
from allocsim.allocators.footprints import Footprints, footprints, plan
from allocsim.errors import CapacityError
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

NAME = "xla_best_fit"


def spatial(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by size, then by length of life."""
    return rows[np.lexsort((rows, placed.start[rows] - placed.stop[rows], -placed.nbytes[rows]))]


def temporal(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by length of life, then by size."""
    return rows[np.lexsort((rows, -placed.nbytes[rows], placed.start[rows] - placed.stop[rows]))]


def place(problem: Problem) -> Plan:
    """Keep the better of both orders. Raises CapacityError where neither fits."""
    placed = footprints(problem)
    offsets = np.zeros(len(placed), dtype=np.int64)
    for arena, rows in placed.by_arena():
        offsets[rows] = _better(placed, arena, rows)
    return plan(NAME, placed, offsets)


def _better(placed: Footprints, arena: int, rows: Int64s) -> Int64s:
    """Return the plan by life where that by size needs more, which is known at the first row that
    ends above it.
    """
    try:
        found = fit_rows(NAME, placed, arena, rows, temporal(placed, rows), best=True)
    except CapacityError as refusal:
        try:
            return fit_rows(NAME, placed, arena, rows, spatial(placed, rows), best=True)
        except CapacityError:
            raise refusal from None
    peak = int((found + placed.nbytes[rows]).max(initial=0))
    with suppress(CapacityError):
        return fit_rows(NAME, placed, arena, rows, spatial(placed, rows), best=True, limit=peak)
    return found
