"""The distance of two arrays: in units in the last place, and relative to the reference.

    gap = gap_of(mine, right)        # equal shapes; the dtypes may differ (a float32 result against a float64 one)
    gap.ulp, gap.error

* `error` is max |mine - right| over max |right| (the plain maximum where right is zero): normwise,
  because an element near zero beside large ones carries their rounding.
* `ulp` is the largest distance in units in the last place, for two arrays of one dtype: how many
  floats lie between two elements. It counts elements near zero as harshly as any other, so it is
  large where sums cancel; `error` is what is judged by.
* Equal elements agree whatever they are: equal infinities, two NaNs. Otherwise an element that is
  not finite on either side makes `finite` false, and both measures leave it out (so they do a
  difference of finite numbers beyond the range of float64).

Complexity: one pass, a few ns an element (compiled at first use); arrays that are not dense are
copied first.

What this module does not see: which of the two is to blame, and what is still rounding
(`engine.d_differential.rounding`).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """The distance of one array from another."""

    error: float
    """Largest difference of finite elements over the right array's largest magnitude."""
    ulp: int | None
    """Largest distance in units in the last place; None between dtypes, and for whole numbers."""
    finite: bool
    """Whether every element that differs is finite on both sides."""
    elements: int
    """How many elements differ, as numbers."""

    @property
    def equal(self) -> bool:
        """Whether no element differs as a number (zeros of either sign are one)."""
        return not self.elements

    @property
    def shown(self) -> float | None:
        """The error for people and files: None where a number is not finite."""
        return self.error if self.finite else None


def gap_of(mine: Array, right: Array) -> Gap:
    """Return how far `mine` is from `right`, two arrays of one shape. O(elements)."""
    from engine.d_differential.distance_compiled import distance, steps  # noqa: PLC0415 - loads numba

    a, b = (np.ascontiguousarray(array).reshape(-1) for array in (mine, right))
    real_a, real_b = _real(a), _real(b)
    worst, scale, differing, infinite = distance(real_a, real_b)
    ulp: int | None = None
    if a.dtype == b.dtype and a.dtype.kind not in "iu":
        bits, lowest = np.dtype(f"i{a.dtype.itemsize}"), -(1 << (8 * a.dtype.itemsize - 1))
        ulp = int(steps(real_a, real_b, a.view(bits), b.view(bits), lowest))
    return Gap(error=worst / (scale or 1.0), ulp=ulp, finite=not infinite, elements=int(differing))


def _real(array: Array) -> Array:
    """Return numbers that machine code computes with: half floats are widened, exactly."""
    return array if array.dtype.itemsize > 2 else array.astype(np.float32)
