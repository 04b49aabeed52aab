"""Turns addresses of a process into offsets of an arena: allocated ranges are laid one after
another, so that a peak is the bytes used and not the width of an address space.

Ranges are half-open, in bytes. O(n log n) for n ranges.

What this module does not see: the meaning of the addresses.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.int64]


def compacted(addresses: Addresses, low: Addresses, high: Addresses, *, granule: int) -> tuple[Addresses, int]:
    """Return the offset of each address, and the sum of the bytes of all ranges `[low, high)`.

    Ranges that share a byte or touch become one, and each is rounded up to `granule` bytes. An
    address keeps its distance from the start of its range, and must lie in a range or at its end.
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
