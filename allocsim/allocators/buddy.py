"""The buddy system: blocks of a power of two, halved on demand and joined with their buddies when
both are free.

A request takes the smallest block that holds it, at a multiple of its own size; the larger blocks
it is cut from are halved, the upper half free. A block freed is joined with its buddy, the other
half of the block they were cut from, while that is free. An unbounded arena begins as one block and
doubles when it is full; a bounded one is the blocks that its capacity is the sum of, the largest
first. An alignment that is no power of two is met inside a larger block. Of the free blocks of one
size the lowest is taken. Fixed bytes are cut out block by block.

Sound. Up to twice the bytes of each buffer are taken, so there is no promise against `reference`.
O(log bytes) for each call, but for the lists. Source: Knowlton, "A fast storage allocator", CACM
8(10), 1965; Knuth, The Art of Computer Programming 1, 2.5 (algorithms R and S).
"""

from bisect import bisect_left, insort

from allocsim.allocators.driven_online import drive
from allocsim.model import Plan, Problem
from allocsim.model.layout import LIMIT

NAME = "buddy"


class Buddy:
    """Free blocks by order: block sizes are `1 << order`, offsets multiples of that."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        self.smallest = max(alignment - 1, 0).bit_length()
        """The order below which no block is cut: that of the arena's alignment."""
        self.bounded = capacity is not None
        self.free_blocks: dict[int, list[int]] = {}
        self.order_at: dict[int, int] = {}
        """Order of each block that is taken, by offset.

        Of those met inside, by the offset handed out.
        """
        self.block_of: dict[int, int] = {}
        self.end = 0
        limit = 0 if capacity is None else min(capacity, LIMIT)
        for order in range(62, self.smallest - 1, -1):
            if self.end + (1 << order) <= limit:
                self._put(order, self.end)
                self.end += 1 << order

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return an offset in the smallest block that is large enough, None if there is none."""
        room = nbytes
        if alignment & (alignment - 1):
            room += alignment - 1
        order = max((max(room, alignment if room == nbytes else 1) - 1).bit_length(), self.smallest)
        if order > 62:
            return None
        block = self._take(order)
        while block is None and not self.bounded and self.end < 1 << 62:
            self._grow(order)
            block = self._take(order)
        if block is None:
            return None
        offset = -(-block // alignment) * alignment
        self.order_at[offset], self.block_of[offset] = order, block
        return offset

    def free(self, offset: int, nbytes: int) -> None:
        """Give a block back and join it with its buddies."""
        del nbytes  # the block knows
        self._join(self.order_at.pop(offset), self.block_of.pop(offset))

    def reserve(self, offset: int, nbytes: int) -> None:
        """Cut `[offset, offset + nbytes)` out of whatever is free, in blocks."""
        while not self.bounded and self.end < offset + nbytes:
            self._grow(self.smallest)
        for order in sorted(self.free_blocks, reverse=True):
            for block in list(self.free_blocks[order]):
                if block < offset + nbytes and offset < block + (1 << order):
                    self.free_blocks[order].remove(block)
                    self._cut_out(order, block, offset, offset + nbytes)

    def _cut_out(self, order: int, block: int, start: int, stop: int) -> None:
        """Put back those parts of a block that lie outside `[start, stop)`."""
        if stop <= block or block + (1 << order) <= start:
            self._put(order, block)
        elif order > self.smallest and not (start <= block and block + (1 << order) <= stop):
            self._cut_out(order - 1, block, start, stop)
            self._cut_out(order - 1, block + (1 << (order - 1)), start, stop)

    def _put(self, order: int, block: int) -> None:
        insort(self.free_blocks.setdefault(order, []), block)

    def _take(self, order: int) -> int | None:
        """Take a block of `order`, cutting the smallest larger one where there is none."""
        found = next((o for o in range(order, 63) if self.free_blocks.get(o)), None)
        if found is None:
            return None
        block = self.free_blocks[found].pop(0)
        while found > order:
            found -= 1
            self._put(found, block + (1 << found))
        return block

    def _grow(self, order: int) -> None:
        """Double the space, at least to one block of `order`.

        What is added may join what is there.
        """
        if not self.end:
            self.end = 1 << order
            self._put(order, 0)
            return
        self._join(self.end.bit_length() - 1, self.end)
        self.end *= 2

    def _join(self, order: int, block: int) -> None:
        while True:
            buddy = block ^ (1 << order)
            blocks = self.free_blocks.get(order, [])
            place = bisect_left(blocks, buddy)
            there = place < len(blocks) and blocks[place] == buddy
            if not there or buddy + (1 << order) > max(self.end, block + (1 << order)):
                break
            del blocks[place]
            block, order = min(block, buddy), order + 1
        self._put(order, block)


def place(problem: Problem) -> Plan:
    """Place by the buddy system. Raises CapacityError where a buffer finds no block."""
    return drive(NAME, problem, Buddy)
