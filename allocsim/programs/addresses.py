"""Addresses of a process as offsets of an arena: ranges that were given out are laid one after
another, so that a peak is what was used and not the width of an address space.

Half-open, in bytes. O(n log n) of the ranges.

What this module does not see: what the addresses mean.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.int64]


def compacted(addresses: Addresses, low: Addresses, high: Addresses, *, granule: int) -> tuple[Addresses, int]:
    """Return the offsets of addresses, and the bytes of all ranges `[low, high)` together.

    Ranges that share a byte or touch are one, and each is rounded up to `granule` bytes; an address
    keeps its distance to the begin of its range. Every address lies in a range or at its end.
    """
    if not low.size:
        return addresses, 0
    order = np.lexsort((high, low))
    low, high = low[order], high[order]
    reach = np.maximum.accumulate(high)
    first = np.flatnonzero(np.concatenate(([True], low[1:] > reach[:-1])))
    begin, end = low[first], reach[np.concatenate((first[1:] - 1, [len(low) - 1]))]
    sizes = -(-(end - begin) // granule) * granule
    base = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    home = np.searchsorted(begin, addresses, side="right") - 1
    offsets: Any = base[home] + addresses - begin[home]
    return offsets, int(sizes.sum())


__all__ = ["Addresses", "compacted"]
