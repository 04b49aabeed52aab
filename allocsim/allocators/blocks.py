"""ggml's dynamic address allocator (`ggml_dyn_tallocr`): free blocks in chunks, offsets only, no
memory.

A memory is a list of chunks; a chunk is `[0, capacity)` with a sorted list of free blocks, none
empty, none touching another, and a high-water mark `used`, the buffer size the backend needs. Sizes
are rounded up to the memory's alignment, so every block starts at a multiple of it.

`alloc(nbytes)`
  1. best fit over the free blocks of all open chunks except the last block of each: the smallest
     that is large enough, the later one of two equal ones. The smallest size found is forgotten at
     each chunk, so that any fit in a later chunk replaces the one found in an earlier chunk (a
     quirk of the original, kept).
  2. where there is none, the last block of a chunk. With reuse = used - start - size (negative: the
     chunk grows by that much), a larger reuse wins while the best is negative, else the smallest
     reuse that is not negative.
  3. where there is none, the next chunk is opened; a chunk too small for the request is opened and
     stays empty.
  Bytes are taken from the front of the block.
`free(chunk, start, nbytes)` gives bytes back and merges them with the free blocks they touch.

Differences from the original, none of which shows where it works: chunks are arenas and have
capacities that hold (the original opens a chunk of any size and lets the backend refuse); a buffer
may ask for a larger alignment than the memory's and then leaves a gap at the front of the block,
free; more than 256 free blocks in a chunk are allowed, where the original aborts (`most_blocks`
says how many there were); freeing nothing does nothing.

O(log free blocks) for each call, and what a list moves. Source: ggml `src/ggml-alloc.c`, 675a08cf
to d99724f2.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from math import lcm

from allocsim.model.layout import LIMIT

NO_ROOM = (-1, -1)

SHIFT = 63
"""Bits of a start, which is at most `LIMIT`."""


class AddressRange:
    """One address range: its free blocks and its high-water mark."""

    __slots__ = ("by_size", "capacity", "most_blocks", "starts", "stops", "used")

    def __init__(self, capacity: int, alignment: int) -> None:
        self.capacity = capacity
        end = min(-(-capacity // alignment) * alignment, LIMIT)
        self.starts: list[int] = [0] if end > 0 else []
        self.stops: list[int] = [end] if end > 0 else []
        self.by_size = [end << SHIFT] if end > 0 else []
        """Size, then start of the free blocks, sorted: one number for both, compared at once."""
        self.used = 0
        """Highest end of any allocation so far, in bytes rounded up to the alignment."""
        self.most_blocks = len(self.starts)

    def take(self, block: int, start: int, size: int) -> None:
        """Cut `[start, start + size)` out of a free block that contains it."""
        low, high = self.starts[block], self.stops[block]
        stop = start + size
        if start == low and stop < high:  # from the front, as nearly always
            self._known(low, high, there=False)
            self._known(stop, high, there=True)
            self.starts[block] = stop
        else:
            self._exchange(block, block + 1, [(a, b) for a, b in ((low, start), (stop, high)) if b > a])
        self.used = max(self.used, stop)
        self.most_blocks = max(self.most_blocks, len(self.starts))

    def reserve(self, start: int, stop: int) -> None:
        """Take all free bytes of `[start, stop)`, whatever of it is taken already."""
        for block in range(len(self.starts) - 1, -1, -1):
            low, high = max(start, self.starts[block]), min(stop, self.stops[block])
            if low < high:
                self.take(block, low, high - low)

    def give(self, start: int, stop: int) -> None:
        """Make `[start, stop)` free and merge it with the free blocks it touches."""
        first = bisect_left(self.stops, start)
        last = bisect_right(self.starts, stop)
        if first < last:
            start, stop = min(start, self.starts[first]), max(stop, self.stops[last - 1])
        self._exchange(first, last, [(start, stop)])
        self.most_blocks = max(self.most_blocks, len(self.starts))

    def _exchange(self, first: int, last: int, pieces: list[tuple[int, int]]) -> None:
        """Put other free blocks in the place of some."""
        for block in range(first, last):
            self._known(self.starts[block], self.stops[block], there=False)
        for low, high in pieces:
            self._known(low, high, there=True)
        self.starts[first:last] = [low for low, _ in pieces]
        self.stops[first:last] = [high for _, high in pieces]

    def _known(self, start: int, stop: int, *, there: bool) -> None:
        """Add a free block to those by size, or take it out."""
        key = (stop - start) << SHIFT | start
        if there:
            insort(self.by_size, key)
        else:
            del self.by_size[bisect_left(self.by_size, key)]


class Memory:
    """Chunks that share one alignment, opened one after another as they are needed."""

    def __init__(self, alignment: int, capacities: Sequence[int | None]) -> None:
        self.alignment = alignment
        self.chunks = [AddressRange(LIMIT if capacity is None else capacity, alignment) for capacity in capacities]
        self.open = 0
        """How many chunks are in use."""

    def padded(self, nbytes: int) -> int:
        """Round up to the alignment."""
        return -(-nbytes // self.alignment) * self.alignment

    def alloc(self, nbytes: int, alignment: int = 1) -> tuple[int, int]:
        """Return (chunk, offset) of `nbytes` free bytes and take them.

        `NO_ROOM` if no chunk has them.

        The offset is a multiple of the memory's alignment and of `alignment`. Nothing is taken for
        zero bytes.
        """
        size = self.padded(nbytes)
        step = self.alignment if self.alignment % alignment == 0 else lcm(self.alignment, alignment)
        chunk, block = self._best_fit(size, nbytes, step)
        if block < 0:
            chunk, block = self._tail(size, nbytes, step)
        while block < 0 and self.open < len(self.chunks):
            chunk, self.open = self.open, self.open + 1
            block = self._room(chunk, 0, size, nbytes, step)
        if block < 0:
            return NO_ROOM
        start = -(-self.chunks[chunk].starts[block] // step) * step
        if size:
            self.chunks[chunk].take(block, start, size)
        return chunk, start

    def free(self, chunk: int, offset: int, nbytes: int) -> None:
        """Give back `nbytes` bytes at `offset`, as they were allocated."""
        if nbytes:
            self.chunks[chunk].give(offset, offset + self.padded(nbytes))

    def reserve(self, chunk: int, offset: int, nbytes: int) -> None:
        """Keep every aligned block that `[offset, offset + nbytes)` touches from ever being handed
        out; opens the chunk.
        """
        self.open = max(self.open, chunk + 1)
        self.chunks[chunk].reserve(offset // self.alignment * self.alignment, self.padded(offset + nbytes))

    def _room(self, chunk: int, block: int, size: int, nbytes: int, step: int) -> int:
        """Return `block` if it can hold `size` bytes at a multiple of `step` within the capacity,
        -1 if not.
        """
        place = self.chunks[chunk]
        if block >= len(place.starts):
            return -1
        start = place.starts[block]
        if step != self.alignment:
            start = -(-start // step) * step
        return block if start + size <= place.stops[block] and start + nbytes <= place.capacity else -1

    def _best_fit(self, size: int, nbytes: int, step: int) -> tuple[int, int]:
        found = NO_ROOM
        for index in range(self.open):
            block = self._best_block(index, size, nbytes, step)
            found = (index, block) if block >= 0 else found
        return found

    def _best_block(self, chunk: int, size: int, nbytes: int, step: int) -> int:
        """Return the smallest free block of a chunk that can hold a request, the last of equal
        ones, but never the last of all; -1 for none.
        """
        starts, by_size = self.chunks[chunk].starts, self.chunks[chunk].by_size
        first = bisect_left(by_size, size << SHIFT)
        while first < len(by_size):
            last = bisect_left(by_size, ((by_size[first] >> SHIFT) + 1) << SHIFT)
            for place in range(last - 1, first - 1, -1):
                block = bisect_left(starts, by_size[place] & (1 << SHIFT) - 1)
                if block < len(starts) - 1 and self._room(chunk, block, size, nbytes, step) >= 0:
                    return block
            first = last
        return -1

    def _tail(self, size: int, nbytes: int, step: int) -> tuple[int, int]:
        found = NO_ROOM
        best: int | None = None
        for index in range(self.open):
            chunk = self.chunks[index]
            block = len(chunk.starts) - 1
            if block < 0 or self._room(index, block, size, nbytes, step) < 0:
                continue
            reuse = chunk.used - chunk.starts[block] - size
            if best is None or (best < 0 and reuse > best) or 0 <= reuse < best:
                best, found = reuse, (index, block)
        return found
