"""The free bytes of one address space, as sorted ranges that never touch.

Ranges are half-open; the space ends at `stop`. O(log ranges) for each call, and what a list moves.
"""

from bisect import bisect_left, bisect_right


class FreeList:
    """Sorted, disjoint, non-adjacent free ranges."""

    def __init__(self, start: int, stop: int) -> None:
        self.starts = [start] if start < stop else []
        self.stops = [stop] if start < stop else []

    def __iter__(self) -> "zip[tuple[int, int]]":
        return zip(self.starts, self.stops, strict=True)

    def touched(self, start: int, stop: int) -> list[int]:
        """Return the starts of the free ranges that `[start, stop]` meets or touches."""
        return self.starts[bisect_left(self.stops, start) : bisect_right(self.starts, stop)]

    def end_of(self, start: int) -> int:
        """Return where the free range that begins at `start` ends."""
        return self.stops[bisect_left(self.starts, start)]

    def take(self, start: int, stop: int) -> None:
        """Take whatever of `[start, stop)` is free."""
        first, last = bisect_right(self.stops, start), bisect_left(self.starts, stop)
        if first >= last or start >= stop:
            return
        low, high = self.starts[first], self.stops[last - 1]
        left = [(a, b) for a, b in ((low, start), (stop, high)) if a < b]
        self.starts[first:last] = [a for a, _ in left]
        self.stops[first:last] = [b for _, b in left]

    def give(self, start: int, stop: int) -> tuple[int, int]:
        """Make `[start, stop)` free; return the free range it is now part of."""
        if start >= stop:
            return start, stop
        first, last = bisect_left(self.stops, start), bisect_right(self.starts, stop)
        if first < last:
            start, stop = min(start, self.starts[first]), max(stop, self.stops[last - 1])
        self.starts[first:last] = [start]
        self.stops[first:last] = [stop]
        return start, stop
