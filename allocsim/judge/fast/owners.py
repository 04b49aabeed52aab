"""Store the last writer of every byte of one address space, as segments of equal owner.

The axis is a sorted list of segment starts. A segment covers the bytes from its start to the next
start, and its owner wrote these bytes last. The first segment starts below every address. An axis
without writes is one segment with owner `NEVER`. Addresses are Python ints, so no sum wraps.

Starts and owners are stored in chunks of at most `CHUNK` segments, so that an insertion moves a
bounded part of a list. A write removes the segments that it covers and adds at most two. So n
writes of single ranges leave at most 2n + 1 segments, and each write costs O(log n) and a move of
O(CHUNK) memory.

This module does not interpret the owners.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

Range = tuple[int, int]
Piece = tuple[int, int, int]
"""(low, high, owner): the bytes `[low, high)` were all written last by `owner`."""

NEVER = -1
"""The owner of bytes without a write."""

FLOOR = -(1 << 70)


CHUNK = 4096
"""The largest number of segments in a chunk; a larger chunk is split."""


class OwnerAxis:
    """The owner of every address of one address space."""

    __slots__ = ("_heads", "_owners", "_starts")

    def __init__(self) -> None:
        self._heads: list[int] = [FLOOR]
        """The first start of each chunk."""
        self._starts: list[list[int]] = [[FLOOR]]
        self._owners: list[list[int]] = [[NEVER]]

    def holds(self, low: int, high: int, owner: int) -> bool:
        """Return whether the non-empty range `[low, high)` is in one segment of `owner`."""
        heads = self._heads
        chunk = bisect_right(heads, low) - 1
        starts = self._starts[chunk]
        after = bisect_right(starts, low)
        if self._owners[chunk][after - 1] != owner:
            return False
        if after < len(starts):
            return starts[after] >= high
        return chunk + 1 == len(heads) or heads[chunk + 1] >= high

    def write(self, low: int, high: int, owner: int) -> None:
        """Give the non-empty range `[low, high)` to `owner`."""
        heads = self._heads
        chunk = bisect_right(heads, low) - 1
        starts, owners = self._starts[chunk], self._owners[chunk]
        first = bisect_left(starts, low)
        last = bisect_left(starts, high, first)
        if last == len(starts) and chunk + 1 < len(heads):
            self._splice(low, high, [low], [owner])
        elif last < len(starts) and starts[last] == high:
            if last == first + 1 and starts[first] == low:
                owners[first] = owner  # exactly one segment: no start changes
            else:
                starts[first:last], owners[first:last] = (low,), (owner,)
        else:
            starts[first:last], owners[first:last] = (low, high), (owner, owners[last - 1])
            if len(starts) > CHUNK:
                self._split(chunk)

    def write_runs(self, runs: list[Range], owner: int) -> None:
        """Give sorted, disjoint, non-empty ranges to `owner`.

        If the hull of the ranges has few other segments, all its segments are replaced at once.
        """
        if len(runs) <= 2 or self._count(runs[0][0], runs[-1][1]) > 8 * len(runs):
            for low, high in runs:
                self.write(low, high, owner)
            return
        pieces: list[Piece] = []
        reach = runs[0][0]
        for low, high in runs:
            pieces += self.pieces(reach, low)
            pieces.append((low, high, owner))
            reach = high
        self._splice(runs[0][0], reach, [piece[0] for piece in pieces], [piece[2] for piece in pieces])

    def pieces(self, low: int, high: int) -> list[Piece]:
        """Return the pieces of `[low, high)`, cut where the owner changes."""
        return list(self.walk(low, high))

    def walk(self, low: int, high: int) -> Iterator[Piece]:
        """Yield the pieces of `[low, high)` in order; the axis must not change meanwhile."""
        chunk = bisect_right(self._heads, low) - 1
        at = bisect_right(self._starts[chunk], low) - 1
        while low < high:
            starts = self._starts[chunk]
            end = starts[at + 1] if at + 1 < len(starts) else self._head(chunk + 1, high)
            yield low, min(end, high), self._owners[chunk][at]
            low, at = end, at + 1
            if at == len(starts):
                chunk, at = chunk + 1, 0

    def _count(self, low: int, high: int) -> int:
        """Return the number of segments in `[low, high)`; an estimate over three chunks or more."""
        first, last = bisect_right(self._heads, low) - 1, bisect_left(self._heads, high) - 1
        if last - first > 1:
            return (last - first - 1) * (CHUNK // 2)  # all chunks but the first and the last count as half full
        starts = [*self._starts[first : last + 1]]
        return sum(bisect_left(column, high) - bisect_right(column, low) for column in starts) + 1

    def _head(self, chunk: int, otherwise: int) -> int:
        """Return the first start of a chunk, or `otherwise` if there is no such chunk."""
        return self._heads[chunk] if chunk < len(self._heads) else otherwise

    def _splice(self, low: int, high: int, starts: list[int], owners: list[int]) -> None:
        """Replace the segments of `[low, high)` by the given segments, which cover it exactly."""
        heads, all_starts, all_owners = self._heads, self._starts, self._owners
        chunk, end = bisect_right(heads, low) - 1, bisect_left(heads, high) - 1
        first, last = bisect_left(all_starts[chunk], low), bisect_left(all_starts[end], high)
        following = all_starts[end][last] if last < len(all_starts[end]) else self._head(end + 1, FLOOR)
        if following != high:
            starts, owners = [*starts, high], [*owners, all_owners[end][last - 1]]
        if chunk == end:
            all_starts[chunk][first:last] = starts
            all_owners[chunk][first:last] = owners
        else:
            all_starts[chunk][first:] = starts + all_starts[end][last:]
            all_owners[chunk][first:] = owners + all_owners[end][last:]
            del heads[chunk + 1 : end + 1], all_starts[chunk + 1 : end + 1], all_owners[chunk + 1 : end + 1]
        if len(all_starts[chunk]) > CHUNK:
            self._split(chunk)

    def _split(self, chunk: int) -> None:
        starts, owners = self._starts[chunk], self._owners[chunk]
        cuts = range(0, len(starts), CHUNK // 2)
        self._starts[chunk : chunk + 1] = [starts[cut : cut + CHUNK // 2] for cut in cuts]
        self._owners[chunk : chunk + 1] = [owners[cut : cut + CHUNK // 2] for cut in cuts]
        self._heads[chunk : chunk + 1] = [starts[cut] for cut in cuts]


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return sorted ranges without the empty ones, with overlapping or touching ranges merged."""
    out: list[Range] = []
    for low, high in ranges:
        if low >= high:
            continue
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return tuple(out)


def shared(a: list[Range], b: list[Range]) -> tuple[Range, ...]:
    """Return the intersection of two sorted lists of disjoint ranges. O(len(a) + len(b))."""
    out: list[Range] = []
    i = j = 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low < high:
            out.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return merged(out)


def left_over(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return the sorted `ranges` without the parts that are in `taken`."""
    left = []
    others = sorted(taken)
    for low, high in ranges:
        begin = low
        for a, b in others:
            if b <= begin or a >= high:
                continue
            if begin < a:
                left.append((begin, a))
            begin = max(begin, b)
        if begin < high:
            left.append((begin, high))
    return left
