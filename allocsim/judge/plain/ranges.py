"""Handle half-open ranges of bits, bytes or steps, and address spaces with an entry per range.

A list of ranges is sorted, disjoint and not adjacent, unless its docstring states row-major.

Complexity: O(ranges) for lists; O(log n + found) for `at`; `put` also moves list entries, O(n).

This module does not interpret the ranges.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

Held = TypeVar("Held")

Range = tuple[int, int]
Ranges = tuple[Range, ...]

EVERYWHERE: Final = (-(1 << 80), 1 << 80)


def merged(ranges: Iterable[Range], *, touching: bool = True) -> Ranges:
    """Return the non-empty ranges, sorted; ranges that overlap (or touch) are joined."""
    found: list[Range] = []
    for low, high in sorted(ranges):
        if found and low < found[-1][1] + touching:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        elif low < high:
            found.append((low, high))
    return tuple(found)


def meet(one: Ranges, other: Ranges) -> Ranges:
    """Return the intersection of two lists of ranges."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low < high:
            found.append((low, high))
        i, j = (i + 1, j) if one[i][1] <= other[j][1] else (i, j + 1)
    return tuple(found)


def without(one: Ranges, holes: Ranges) -> Ranges:
    """Return the ranges of `one` without the parts in `holes`."""
    bounds = [EVERYWHERE[0], *(bound for hole in holes for bound in hole), EVERYWHERE[1]]
    return meet(one, tuple(zip(bounds[::2], bounds[1::2], strict=True)))


def moved(ranges: Ranges, by: int) -> Ranges:
    """Return the ranges shifted up by `by`."""
    return tuple((low + by, high + by) for low, high in ranges)


def in_bytes(ranges: Iterable[Range]) -> Ranges:
    """Return the bytes that ranges of bits cover fully or partly."""
    return merged((low // 8, -(-high // 8)) for low, high in ranges)


class HeldRanges(Generic[Held]):
    """An address space; each range holds the last entry that `put` stored, or None."""

    def __init__(self) -> None:
        self._starts: list[int] = [EVERYWHERE[0]]
        self._held: list[Held | None] = [None]

    def put(self, low: int, high: int, held: Held | None) -> None:
        """Store `held` for the range `[low, high)`."""
        if low >= high:
            return
        first, last = bisect_left(self._starts, low), bisect_left(self._starts, high)
        ends_here = last < len(self._starts) and self._starts[last] == high
        behind = () if ends_here else (self._held[last - 1],)
        self._held[first:last] = [held, *behind]
        self._starts[first:last] = [low] if ends_here else [low, high]

    def at(self, low: int, high: int) -> list[tuple[int, int, Held | None]]:
        """Return (low, high, held) for each range in `[low, high)`."""
        if low >= high:
            return []
        first, last = bisect_right(self._starts, low) - 1, bisect_left(self._starts, high)
        bounds = [low, *self._starts[first + 1 : last], high]
        return list(zip(bounds[:-1], bounds[1:], self._held[first:last], strict=True))

    def copy(self) -> "HeldRanges[Held]":
        """Return a copy that changes independently."""
        other: HeldRanges[Held] = HeldRanges()
        other._starts, other._held = self._starts.copy(), self._held.copy()
        return other
