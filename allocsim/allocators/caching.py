"""A caching allocator with segments, blocks and splitting, as PyTorch's for CUDA.

Sizes are rounded up to 512 bytes. Requests of at most 1 MiB are small and come out of segments of 2
MiB; larger ones out of segments of 20 MiB below 10 MiB, and of their own size rounded up to 2 MiB
from there on. Segments are taken from the arena one after another and never given back. A request
takes the smallest free block of its kind that holds it, the lowest of equal ones; the rest becomes
a block of its own if it is at least 512 bytes (small) or more than 1 MiB (large), else it stays
with the block. A block freed is merged with its free neighbours of the same segment.

In an arena of less than 20 MiB all these numbers are halved until a large segment fits, or the
smallest block is one byte. A segment that would leave the capacity is cut to what is left, and
where that is too little the request is refused; PyTorch would first give whole free segments back.
Alignments beyond 512 are met inside a block. Fixed bytes are kept clear of by segments.

Sound; whole segments make its peak the memory reserved, so there is no promise against `reference`.
`plan.meta["caching"]["reserved"]` has the bytes of segments by arena. A call is O(log blocks), and
what a list moves, where alignments are those of blocks. Source:
PyTorch c10/cuda/CUDACachingAllocator.cpp (v2.6).
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace
from typing import Final

from allocsim.allocators.driven_online import drive
from allocsim.model import Plan, Problem
from allocsim.model.layout import LIMIT

NAME = "caching"

MIN_BLOCK: Final = 512
SMALL: Final = 1 << 20
"""Largest request that is small."""
SMALL_SEGMENT: Final = 2 << 20
LARGE_SEGMENT: Final = 20 << 20
MIN_LARGE: Final = 10 << 20
"""Requests from here on have a segment of their own size."""
ROUND_LARGE: Final = 2 << 20


@dataclass(slots=True, kw_only=True, eq=False)
class CachedBlock:
    """A stretch of a segment, free or taken."""

    start: int
    stop: int
    small: bool
    free: bool = False
    before: "CachedBlock | None" = None
    """What lies in front of it in its segment."""
    after: "CachedBlock | None" = None


class Caching:
    """Blocks, each with its neighbours; those of one segment cover it."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        del alignment  # larger alignments than a block's are met inside
        self.stop = LIMIT if capacity is None else min(capacity, LIMIT)
        self.scale = 0
        while self.stop < LARGE_SEGMENT >> self.scale and MIN_BLOCK >> self.scale > 1:
            self.scale += 1
        self.blocks: dict[int, CachedBlock] = {}
        """Free ones by start."""
        self.taken: dict[int, CachedBlock] = {}
        """Others by the offset that was handed out."""
        self.unused: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
        """(size, start) of free blocks, sorted: large ones, small ones."""
        self.walls: list[tuple[int, int]] = []
        self.end = 0
        self.reserved = 0

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the start of free bytes, in a new segment where no block is large enough."""
        unit, most = MIN_BLOCK >> self.scale, SMALL >> self.scale
        size = -(-nbytes // unit) * unit
        small = size <= most
        step = alignment
        block = self._fitting(nbytes, size, step, small=small) or self._segment(nbytes, size, step, small=small)
        if block is None:
            return None
        offset = -(-block.start // step) * step
        self._unlist(block)
        self.taken[offset] = block
        rest = block.stop - (offset + size)
        if rest >= unit if small else rest > most:
            tail = CachedBlock(start=offset + size, stop=block.stop, small=small, before=block, after=block.after)
            if block.after is not None:
                block.after.before = tail
            block.stop, block.after = tail.start, tail
            self._list(tail)
        return offset

    def _fitting(self, nbytes: int, size: int, step: int, *, small: bool) -> CachedBlock | None:
        """Return the smallest free block of a kind that holds a request, of equal ones the lowest.

        None where there is none.
        """
        unused = self.unused[small]
        for place in range(bisect_left(unused, (nbytes,)), len(unused)):
            block = self.blocks[unused[place][1]]
            room = _room(block, step)
            if room >= size or (room >= nbytes and block.stop == self.stop):
                return block
        return None

    def _list(self, block: CachedBlock) -> None:
        """Make a block free."""
        block.free = True
        self.blocks[block.start] = block
        insort(self.unused[block.small], (block.stop - block.start, block.start))

    def _unlist(self, block: CachedBlock) -> None:
        """Make a free block one that is taken."""
        block.free = False
        del self.blocks[block.start]
        unused = self.unused[block.small]
        del unused[bisect_left(unused, (block.stop - block.start, block.start))]

    def free(self, offset: int, nbytes: int) -> None:
        """Free the block the bytes lie in and merge it with its neighbours."""
        del nbytes  # the block knows
        block = self.taken.pop(offset)
        before, after = block.before, block.after
        if after is not None and after.free:
            self._unlist(after)
            block.stop, block.after = after.stop, after.after
        if before is not None and before.free:
            self._unlist(before)
            block.start, block.before = before.start, before.before
        if block.before is not None:
            block.before.after = block
        if block.after is not None:
            block.after.before = block
        self._list(block)

    def reserve(self, offset: int, nbytes: int) -> None:
        """Keep segments clear of bytes."""
        self.walls = sorted([*self.walls, (offset, offset + nbytes)])

    def _segment(self, nbytes: int, size: int, step: int, *, small: bool) -> CachedBlock | None:
        """Open a segment behind the last one; None where the arena has no room for the request."""
        scale, unit = self.scale, ROUND_LARGE >> self.scale
        want = (
            SMALL_SEGMENT >> scale
            if small
            else LARGE_SEGMENT >> scale
            if size < MIN_LARGE >> scale
            else -(-size // unit) * unit
        )
        want += 0 if MIN_BLOCK % step == 0 and not scale else step - 1
        start, want = self._clear(self.end, want)
        if start + want > self.stop:
            want = self.stop - start
        block = CachedBlock(start=start, stop=start + want, small=small)
        if want < 1 or _room(block, step) < nbytes:
            return None
        self.reserved += want
        self.end = block.stop
        self._list(block)
        return block

    def _clear(self, start: int, want: int) -> tuple[int, int]:
        """Return the first start from `start` on whose segment touches no fixed bytes."""
        for low, high in self.walls:
            if low < start + want and start < high:
                start = -(-high // MIN_BLOCK) * MIN_BLOCK
        return start, want


def _room(block: CachedBlock, step: int) -> int:
    """Return the bytes of a block from its first multiple of `step` on."""
    return block.stop - -(-block.start // step) * step


def place(problem: Problem) -> Plan:
    """Place by a caching allocator. Raises CapacityError where a segment does not fit."""
    made: list[Caching] = []

    def make(capacity: int | None, alignment: int) -> Caching:
        made.append(Caching(capacity, alignment))
        return made[-1]

    plan = drive(NAME, problem, make)
    return replace(plan, meta={NAME: {"reserved": [allocator.reserved for allocator in made]}})
