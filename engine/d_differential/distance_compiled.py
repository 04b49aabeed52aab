"""The two loops of `engine.d_differential.distance`, compiled: importing this module imports numba.

What this module does not see: shapes and dtypes; both arrays are flat, dense and of one length.
"""

# ruff: noqa: PLR0124 - NaN is what differs from itself

from typing import Any

import numpy as np

from allocsim.allocators.compiling import compiled


@compiled()
def distance(a: Any, b: Any) -> tuple[float, float, int, int]:
    """Return the largest |a - b| and |b|, and two counts.

    The counts are of elements that differ, and of those among them without a finite difference.
    """
    worst, scale, differing, infinite = 0.0, 0.0, 0, 0
    for i in range(a.size):
        x, y = np.float64(a[i]), np.float64(b[i])
        size = abs(y)
        if size < np.inf:
            scale = max(scale, size)
        if x == y or (x != x and y != y):
            continue
        differing += 1
        apart = abs(x - y)
        if apart < np.inf:
            worst = max(worst, apart)
        else:
            infinite += 1
    return worst, scale, differing, infinite


@compiled()
def steps(a: Any, b: Any, bits_a: Any, bits_b: Any, lowest: int) -> Any:
    """Return the most floats between two elements that are finite on both sides.

    `bits` are the arrays as stored, as signed integers.

    `lowest` is the least of these integers. Negative floats count down from their sign bit: turned
    over, all floats stand in order, both zeros at 0.
    """
    most = np.uint64(0)
    for i in range(a.size):
        x, y = np.int64(bits_a[i]), np.int64(bits_b[i])
        if x == y or not (np.isfinite(a[i]) and np.isfinite(b[i])):
            continue
        x = lowest - x if x < 0 else x
        y = lowest - y if y < 0 else y
        apart = np.uint64(x) - np.uint64(y) if x > y else np.uint64(y) - np.uint64(x)
        most = max(most, apart)
    return most
