"""One address space as ranges that each hold one thing, the last that was put there.

Used with whatever must be known of each bit: who wrote it last, since when it is live.

Complexity: O(log n) and a move of memory for each range put, O(log n + found) for each look.

What this module does not see: what is held.
"""

from bisect import bisect_left, bisect_right
from typing import Final, Generic, TypeVar

Held = TypeVar("Held")

LOWEST: Final = -(1 << 80)


class HeldRanges(Generic[Held]):
    """Ranges of one address space; None where nothing was put."""

    def __init__(self) -> None:
        self._starts: list[int] = [LOWEST]
        self._held: list[Held | None] = [None]

    def put(self, low: int, high: int, held: Held | None) -> None:
        """Let `[low, high)` hold something else."""
        if low >= high:
            return
        first, last = bisect_left(self._starts, low), bisect_left(self._starts, high)
        ends_here = last < len(self._starts) and self._starts[last] == high
        behind = () if ends_here else (self._held[last - 1],)
        self._held[first:last] = [held, *behind]
        self._starts[first:last] = [low] if ends_here else [low, high]

    def at(self, low: int, high: int) -> list[tuple[int, int, Held | None]]:
        """Return what `[low, high)` holds, range by range."""
        if low >= high:
            return []
        found, place = [], bisect_right(self._starts, low) - 1
        while place < len(self._starts) and self._starts[place] < high:
            end = self._starts[place + 1] if place + 1 < len(self._starts) else high
            found.append((max(low, self._starts[place]), min(high, end), self._held[place]))
            place += 1
        return found

    def all(self) -> list[tuple[int, int, Held | None]]:
        """Return all ranges that hold something."""
        ends = [*self._starts[1:], self._starts[-1]]
        return [row for row in zip(self._starts, ends, self._held, strict=True) if row[2] is not None]

    def copy(self) -> "HeldRanges[Held]":
        """Return a memory that holds the same."""
        other: HeldRanges[Held] = HeldRanges()
        other._starts, other._held = self._starts.copy(), self._held.copy()
        return other
