"""Two arrays of numbers: do they hold the same bits, and how far are they from each other?

Contract: equality is bitwise (-0.0 and 0.0 differ, equal NaNs agree); an error is relative to the
largest magnitude of the right array. O(elements).

What this module does not see: who made the arrays, and what is rounding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays of one shape and dtype hold the same bits.

    O(1) where they are the same memory.
    """
    if a.__array_interface__["data"][0] == b.__array_interface__["data"][0] and a.strides == b.strides:
        return True
    bits = np.dtype(f"u{a.dtype.itemsize}")
    return bool(np.array_equal(a.view(bits), b.view(bits)))


def relative_error(mine: Array, right: Array) -> float | None:
    """Return max |mine - right| over max |right|; None where either is not finite.

    The plain maximum where right is zero.
    """
    a, b = np.asarray(mine, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not a.size:
        return 0.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return None
    scale = float(np.abs(b).max())
    return float(np.abs(a - b).max()) / (scale or 1.0)


__all__ = ["relative_error", "same_bits"]
