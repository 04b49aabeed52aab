"""Which tag holds which bytes: a line of memory, cut where the holder changes.

Convention: a piece is (low, high, tag, key) over the half-open range `[low, high)` of positions;
pieces are sorted, disjoint, and cover the whole line. Neighbours may be of one tag: cuts are kept,
for each piece has a content of its own, known under `key`.

Complexity: a look-up is O(log pieces + pieces met), a change also moves the list's tail.

What this module does not see: what tags and keys mean, and the memory itself.
"""

from bisect import bisect_right
from collections.abc import Iterable

Piece = tuple[int, int, int, int]


class Pieces:
    """A line of positions `[0, size)`, at first one piece."""

    def __init__(self, size: int, tag: int, key: int = -1) -> None:
        self.size = size
        self.starts = [0]
        self.tags = [tag]
        self.keys = [key]

    def copy(self) -> "Pieces":
        """Return a line of equal pieces that changes by itself."""
        twin = Pieces(self.size, 0)
        twin.starts, twin.tags, twin.keys = self.starts.copy(), self.tags.copy(), self.keys.copy()
        return twin

    def meeting(self, low: int, high: int) -> list[Piece]:
        """Return the pieces that share a position with `[low, high)`, whole."""
        if low >= high:
            return []
        starts, size = self.starts, self.size
        at = bisect_right(starts, low) - 1
        found = []
        while at < len(starts) and starts[at] < high:
            end = starts[at + 1] if at + 1 < len(starts) else size
            found.append((starts[at], end, self.tags[at], self.keys[at]))
            at += 1
        return found

    def within(self, low: int, high: int) -> list[Piece]:
        """Return the same, cut to `[low, high)`."""
        return [(max(a, low), min(b, high), tag, key) for a, b, tag, key in self.meeting(low, high)]

    def one(self, low: int, high: int) -> int | None:
        """Return the tag of the single piece that holds all of `[low, high)`, None if there are
        several.
        """
        at = bisect_right(self.starts, low) - 1
        end = self.starts[at + 1] if at + 1 < len(self.starts) else self.size
        return self.tags[at] if high <= end else None

    def put(self, low: int, high: int, tag: int, key: int = -1, *, rest: tuple[int, int] = (-1, -1)) -> None:
        """Make `[low, high)` one piece.

        What is left of the pieces cut at its ends gets the keys of `rest`.
        """
        starts, tags, keys = self.starts, self.tags, self.keys
        first = bisect_right(starts, low) - 1
        last = bisect_right(starts, high - 1) - 1
        end = starts[last + 1] if last + 1 < len(starts) else self.size
        new_starts, new_tags, new_keys = [low], [tag], [key]
        if starts[first] < low:
            new_starts.insert(0, starts[first])
            new_tags.insert(0, tags[first])
            new_keys.insert(0, rest[0])
        if high < end:
            new_starts.append(high)
            new_tags.append(tags[last])
            new_keys.append(rest[1])
        starts[first : last + 1] = new_starts
        tags[first : last + 1] = new_tags
        keys[first : last + 1] = new_keys

    def rows(self) -> list[Piece]:
        """Return all pieces."""
        return list(zip(self.starts, [*self.starts[1:], self.size], self.tags, self.keys, strict=True))


def union(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return ranges in order and apart: those that touch are one."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1]:
            out[-1] = (out[-1][0], max(high, out[-1][1]))
        else:
            out.append((low, high))
    return out
