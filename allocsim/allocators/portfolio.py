"""First plans: several fast heuristics, and the plan with the lowest peak.

Skyline by area and by lifetime; largest size first into the lowest and into the smallest gap; by
breadth; by contention, then by area; by birth. Each arena for itself; the first that equals the
bound given ends it, and with more than `MANY` footprints the first that is within a hundredth of
it. One that comes to what an earlier one needs is given up there. With more than `TOO_MANY` only
those two are tried that have found the best: skyline by area, largest size first into the lowest
gap; the others only until one fits where neither of them does.

O(n log n) and more for the skylines, which come first, O(n^2) for the others; compiled. What this
module does not see: who asks (`best`, `branch_and_bound`).
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from allocsim.allocators.fitting import fit_rows
from allocsim.allocators.footprints import Footprints
from allocsim.allocators.greedy import by_size
from allocsim.allocators.greedy_by_breadth import broadest, by_breadth
from allocsim.allocators.linear_scan import by_birth
from allocsim.allocators.skyline import largest, lift, longest
from allocsim.errors import CapacityError
from allocsim.model.layout import Int64s

MANY: Final = 5_000
"""Footprints beyond which a heuristic takes long enough to be content with what is nearly as good
as can be.
"""

TOO_MANY: Final = 50_000
"""Footprints beyond which there is time for two of them."""

Heuristic = Callable[[Footprints, int, Int64s, int], Int64s]


def by_contention(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by the most bytes that live at a step of their lives, then by area."""
    start, stop, nbytes = placed.start[rows], placed.stop[rows], placed.nbytes[rows]
    breadth, _ = broadest(start, stop, nbytes)
    return rows[np.lexsort((rows, -nbytes.astype(np.float64) * (stop - start), -breadth))]


def _fitted(order: Callable[[Footprints, Int64s], Int64s], *, best: bool) -> Heuristic:
    return lambda placed, arena, rows, limit: fit_rows(
        NAME, placed, arena, rows, order(placed, rows), best=best, limit=limit
    )


HEURISTICS: Final[tuple[Heuristic, ...]] = (
    lambda placed, arena, rows, limit: lift(NAME, placed, arena, rows, largest, limit=limit),
    lambda placed, arena, rows, limit: lift(NAME, placed, arena, rows, longest, limit=limit),
    _fitted(by_size, best=False),
    _fitted(by_size, best=True),
    _fitted(by_breadth, best=True),
    _fitted(by_contention, best=False),
    _fitted(by_birth, best=False),
)
"""Each gives the footprints `rows` of an arena offsets, none of which ends above a limit."""

AT_SCALE: Final = (HEURISTICS[0], HEURISTICS[2])
REST: Final = tuple(one for one in HEURISTICS if one not in AT_SCALE)

NAME = "portfolio"


def first_plans(placed: Footprints, arena: int, rows: Int64s, bound: int) -> Int64s | None:
    """Return the offsets of the footprints `rows` of one arena with the lowest peak found.

    The answer is None where no heuristic fits them in.
    """
    best: Int64s | None = None
    least = 0
    many = len(rows) > TOO_MANY
    for heuristic in (*AT_SCALE, *REST) if many else HEURISTICS:
        if many and best is not None and heuristic in REST:
            break
        try:
            offsets = heuristic(placed, arena, rows, placed.limit(arena) if best is None else least - 1)
        except CapacityError:
            continue
        peak = int((offsets + placed.nbytes[rows]).max(initial=0))
        best, least = offsets, peak
        if least <= bound or (len(rows) > MANY and least * 100 <= bound * 101):
            break
    return best
