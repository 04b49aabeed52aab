"""TLSF, two-level segregated fit: a free block of a good size in a bounded number of steps.

Free blocks are kept in classes by size: a power of two, cut into `DIVISIONS` equal parts. A request
is rounded up to the next class boundary, so any block of its class or of a higher one is large
enough without a search (good fit, not best); the first class that has one gives the block freed
last. The block is cut to size and its rest goes back. A block freed is merged with the free ones
beside it at once. Sizes are rounded up to the arena's alignment. An unbounded arena grows at its
end, where no class has a block.

The rounding may pass by a block that would do; where no class has one, the free blocks are searched
after all before there is no room, as the capacity is a hard limit here. A larger alignment than the
arena's is met inside a block large enough for any start, and the front given back.

Sound; no promise against `reference`, as good fit leaves blocks behind. A call is O(log free
blocks), and what a list moves; O(free blocks) where no class has one. Source: Masmano, Ripoll,
Crespo and Real, "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004; used as a
memory planner in tinygrad (tinygrad/runtime/support/memory.py and engine/runtime/plan_memory.py).
"""

from typing import Final

from allocsim.allocators.driven_online import drive
from allocsim.model import Plan, Problem
from allocsim.model.layout import LIMIT

NAME = "tlsf"

DIVISIONS: Final = 16
"""Classes within one power of two."""


class Tlsf:
    """Free blocks by class, and by both of their ends."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        self.alignment = alignment
        self.stop = LIMIT if capacity is None else min(capacity, LIMIT)
        self.end = 0
        """Where the space that was ever used ends; beyond it everything is free and in no class."""
        self.stop_of: dict[int, int] = {}
        """Start -> stop of the free blocks, no two of which touch."""
        self.start_of: dict[int, int] = {}
        """The other way round."""
        self.classes: dict[int, dict[int, int]] = {}
        """Class -> start -> stop of its free blocks, the one freed last at the end."""
        self.filled = 0
        """The classes that have a block, as bits."""

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the offset of free bytes, from the first class that surely has them."""
        unit = self.alignment
        size = -(-nbytes // unit) * unit
        start = self._good(size if unit % alignment == 0 else size + alignment - 1)
        if start is None:
            start = self._any(size, alignment, nbytes)
        if start is None:
            return None
        offset = -(-start // alignment) * alignment
        self._cut(start, offset, offset + size)
        return offset

    def free(self, offset: int, nbytes: int) -> None:
        """Give bytes back and merge them with what is free beside them."""
        self._give(offset, offset + -(-nbytes // self.alignment) * self.alignment)

    def reserve(self, offset: int, nbytes: int) -> None:
        """Keep bytes from being handed out."""
        stop = offset + nbytes
        if stop > self.end:
            self._give(self.end, stop)
            self.end = stop
        for low, high in sorted(self.stop_of.items()):
            if low < stop and offset < high:
                self._cut(low, max(low, offset), min(high, stop))

    def _good(self, size: int) -> int | None:
        """Return the start of a block of the first class all of whose blocks hold `size` bytes."""
        level = size.bit_length() - 1
        least = (level - 1) * DIVISIONS - (-size * DIVISIONS >> level)
        higher = self.filled >> least
        return next(reversed(self.classes[least + (higher & -higher).bit_length() - 1])) if higher else None

    def _any(self, size: int, alignment: int, nbytes: int) -> int | None:
        """Return the start of the lowest block that holds the request after all, the space grown if
        need be.
        """
        for low, high in sorted(self.stop_of.items()):
            if -(-low // alignment) * alignment + size <= high:
                return low
        low = self.start_of.get(self.end, self.end)
        offset = -(-low // alignment) * alignment
        if offset > self.stop - nbytes:
            return None
        self._give(self.end, offset + size)
        self.end = offset + size
        return low

    def _cut(self, block: int, start: int, stop: int) -> None:
        """Take `[start, stop)` out of the free block that begins at `block`."""
        high = self._forget(block)
        if block < start:
            self._put(block, start)
        if stop < high:
            self._put(stop, high)

    def _give(self, start: int, stop: int) -> None:
        before, after = self.start_of.get(start), self.stop_of.get(stop)
        if before is not None:
            self._forget(before)
            start = before
        if after is not None:
            self._forget(stop)
            stop = after
        self._put(start, stop)

    def _put(self, start: int, stop: int) -> None:
        """Add a free block that touches none."""
        self.stop_of[start], self.start_of[stop] = stop, start
        index = _class(stop - start)
        if self.filled >> index & 1:
            self.classes[index][start] = stop
        else:
            self.classes[index] = {start: stop}
            self.filled |= 1 << index

    def _forget(self, block: int) -> int:
        """Take a free block out of its class; return where it ends."""
        stop = self.stop_of.pop(block)
        del self.start_of[stop]
        index = _class(stop - block)
        blocks = self.classes[index]
        del blocks[block]
        if not blocks:
            self.filled ^= 1 << index
        return stop


def _class(size: int) -> int:
    """Return the class a block of `size` bytes is in: `DIVISIONS` for each power of two."""
    level = size.bit_length() - 1
    return (level - 1) * DIVISIONS + (size * DIVISIONS >> level)


def place(problem: Problem) -> Plan:
    """Place by TLSF. Raises CapacityError where a buffer finds no room."""
    return drive(NAME, problem, Tlsf)
