"""One address space as segments of equal owner: what wrote which bytes last.

The axis is cut at `starts`; segment `i` covers `[starts[i], starts[i + 1])` and was written last by `owners[i]`. The first
segment starts below every address; an axis that nobody wrote is one segment of owner `NEVER`. Addresses are Python ints, so
no sum wraps. Writing drops the segments it covers and adds at most two, so n writes of one range each leave at most
2n + 1 segments and cost O(log n) bisection each, plus moving the tail of the two lists.

What this module does not see: what an owner is.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Range = tuple[int, int]
Piece = tuple[int, int, int]
"""(low, high, owner): bytes `[low, high)`, all written last by `owner`."""

NEVER = -1
"""Owner of bytes nobody wrote."""

FLOOR = -(1 << 70)


class Segments:
    """The owner of every address of one axis. Hot loops read `starts` and `owners` themselves."""

    __slots__ = ("owners", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = [FLOOR]
        self.owners: list[int] = [NEVER]

    def write(self, low: int, high: int, owner: int) -> None:
        """Give the non-empty range `[low, high)` to `owner`."""
        starts, owners = self.starts, self.owners
        first = bisect_left(starts, low)
        last = bisect_left(starts, high, first)
        if last < len(starts) and starts[last] == high:
            starts[first:last] = [low]
            owners[first:last] = [owner]
            return
        tail = owners[last - 1]
        starts[first:last] = [low, high]
        owners[first:last] = [owner, tail]

    def write_runs(self, runs: list[Range], owner: int) -> None:
        """Give sorted, disjoint, non-empty ranges to `owner`, rebuilding the stretch they span once."""
        if len(runs) <= 2:
            for low, high in runs:
                self.write(low, high, owner)
            return
        pieces: list[Piece] = []
        reach = runs[0][0]
        for low, high in runs:
            pieces += self.pieces(reach, low)
            pieces.append((low, high, owner))
            reach = high
        first = bisect_left(self.starts, runs[0][0])
        last = bisect_left(self.starts, reach, first)
        if last == len(self.starts) or self.starts[last] != reach:
            pieces.append((reach, reach, self.owners[last - 1]))
        self.starts[first:last] = [piece[0] for piece in pieces]
        self.owners[first:last] = [piece[2] for piece in pieces]

    def pieces(self, low: int, high: int) -> list[Piece]:
        """Return `[low, high)` cut where the owner changes."""
        starts, owners = self.starts, self.owners
        found: list[Piece] = []
        at = bisect_right(starts, low) - 1
        while low < high:
            end = min(starts[at + 1], high) if at + 1 < len(starts) else high
            found.append((low, end, owners[at]))
            low, at = end, at + 1
        return found


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return sorted ranges with touching and overlapping neighbours merged and empty ones dropped."""
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
    """Return the bytes that lie in both of two sorted, disjoint lists of ranges. O(len(a) + len(b))."""
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
