"""ggml's dynamic address allocator (`ggml_dyn_tallocr`) and the walk that asks it, compiled: free
blocks in chunks, offsets only, no memory.

A memory is a stretch of chunks; a chunk is `[0, capacity)` with a sorted list of free blocks, none
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
`give(chunk, start, stop)` gives bytes back and merges them with the free blocks they touch.

Differences from the original, none of which shows where it works: chunks are arenas and have
capacities that hold (the original opens a chunk of any size and lets the backend refuse); a buffer
may ask for a larger alignment than the memory's and then leaves a gap at the front of the block,
free; more than 256 free blocks in a chunk are allowed, where the original aborts (`most_blocks`
says how many there were); freeing nothing does nothing.

O(free blocks) for each call. Source: ggml `src/ggml-alloc.c`, 675a08cf to d99724f2. What this
module does not see: problems and plans.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple

import numpy as np

from allocsim.allocators.compiling import compiled
from allocsim.model import Bools, Event
from allocsim.model.layout import LIMIT, Int64s

ALLOC: Final = int(Event.ALLOC)
FREE: Final = int(Event.FREE)

NEVER: Final = (1 << 63) - 1


class Chunks(NamedTuple):
    """Chunks with their free blocks, those of one memory side by side."""

    begins: Int64s
    """Where the chunks of each memory begin, and the number of all."""
    alignment: Int64s
    """Of each memory."""
    capacity: Int64s
    """Of each chunk, as all that follows."""
    filled: Int64s
    """Free blocks."""
    used: Int64s
    """Highest end of any allocation so far, in bytes rounded up to the alignment."""
    most: Int64s
    """Most free blocks at a time."""
    open: Int64s
    """How many chunks of each memory are in use."""


class Asked(NamedTuple):
    """What is asked for, by buffer."""

    start: Int64s
    stop: Int64s
    nbytes: Int64s
    alignment: Int64s
    step: Int64s
    """A place that is not a donor's is a multiple of it."""
    pinned: Bools
    decided: Bools
    memory: Int64s
    chunk: Int64s
    """The chunk in which a buffer without bytes lies where there is no room."""
    donor_begins: Int64s
    donors: Int64s


def empty(memories: Sequence[tuple[int, Sequence[int | None]]], room: int) -> tuple[Int64s, Chunks]:
    """Return the lists of free blocks, `room` for each chunk, and the chunks of memories of which
    nothing is taken: of each its alignment, and where its chunks end.
    """
    units = [unit for unit, ends in memories for _ in ends]
    capacity = [LIMIT if end is None else min(end, LIMIT) for _, ends in memories for end in ends]
    blocks = np.zeros((len(capacity), room, 2), dtype=np.int64)
    blocks[:, 0, 1] = [min(-(-end // unit) * unit, LIMIT) for end, unit in zip(capacity, units, strict=True)]
    count = (blocks[:, 0, 1] > 0).astype(np.int64)
    return blocks, Chunks(
        begins=np.cumsum([0, *(len(ends) for _, ends in memories)], dtype=np.int64),
        alignment=np.array([unit for unit, _ in memories], dtype=np.int64),
        capacity=np.array(capacity, dtype=np.int64),
        filled=count,
        used=np.zeros(len(capacity), dtype=np.int64),
        most=count.copy(),
        open=np.zeros(len(memories), dtype=np.int64),
    )


@compiled()
def _wider(blocks: Int64s) -> Int64s:
    """Return the lists of free blocks with twice the room."""
    wider = np.empty((blocks.shape[0], 2 * blocks.shape[1], 2), dtype=np.int64)
    for chunk in range(blocks.shape[0]):
        for block in range(blocks.shape[1]):
            wider[chunk, block, 0], wider[chunk, block, 1] = blocks[chunk, block, 0], blocks[chunk, block, 1]
    return wider


@compiled(allocates=False)
def _shift(mine: Int64s, first: Any, stop: Any, by: Any) -> None:
    """Move the free blocks `[first, stop)` by so many places."""
    for turn in range(stop - first):
        block = stop - 1 - turn if by > 0 else first + turn
        mine[block + by, 0], mine[block + by, 1] = mine[block, 0], mine[block, 1]


@compiled()
def take(blocks: Int64s, chunks: Chunks, chunk: Any, block: Any, start: Any, size: Any) -> None:  # noqa: PLR0917 - compiled
    """Cut `[start, start + size)` out of a free block that contains it."""
    mine, count = blocks[chunk], chunks.filled[chunk]
    low, high, stop = mine[block, 0], mine[block, 1], start + size
    if low < start and stop < high:
        _shift(mine, block + 1, count, np.int64(1))
        mine[block, 1], mine[block + 1, 0], mine[block + 1, 1] = start, stop, high
        count += 1
    elif low < start:
        mine[block, 1] = start
    elif stop < high:
        mine[block, 0] = stop
    else:
        _shift(mine, block + 1, count, np.int64(-1))
        count -= 1
    chunks.filled[chunk] = count
    chunks.used[chunk] = max(chunks.used[chunk], stop)
    chunks.most[chunk] = max(chunks.most[chunk], count)


@compiled()
def reserve(blocks: Int64s, chunks: Chunks, chunk: Any, start: Any, stop: Any) -> None:
    """Take all free bytes of `[start, stop)`, whatever of it is taken already."""
    for block in range(chunks.filled[chunk] - 1, -1, -1):
        low, high = max(start, blocks[chunk, block, 0]), min(stop, blocks[chunk, block, 1])
        if low < high:
            take(blocks, chunks, chunk, block, low, high - low)


@compiled()
def give(blocks: Int64s, chunks: Chunks, chunk: Any, start: Any, stop: Any) -> None:
    """Make `[start, stop)` free and merge it with the free blocks it touches."""
    mine, count = blocks[chunk], chunks.filled[chunk]
    first, end = np.int64(0), count
    while first < end:
        middle = (first + end) // 2
        if mine[middle, 1] < start:
            first = middle + 1
        else:
            end = middle
    last = first
    while last < count and mine[last, 0] <= stop:
        start, stop = min(start, mine[last, 0]), max(stop, mine[last, 1])
        last += 1
    if last != first + 1:
        _shift(mine, last, count, first + 1 - last)
    mine[first, 0], mine[first, 1] = start, stop
    chunks.filled[chunk] = count + 1 - (last - first)
    chunks.most[chunk] = max(chunks.most[chunk], chunks.filled[chunk])


@compiled()
def _room(blocks: Int64s, chunks: Chunks, chunk: Any, block: Any, size: Any, nbytes: Any, step: Any) -> int:  # noqa: PLR0917 - compiled
    """Return where a free block can hold `size` bytes at a multiple of `step` within the capacity,
    -1 if nowhere.
    """
    start = -(-blocks[chunk, block, 0] // step) * step
    fits = size <= blocks[chunk, block, 1] - start and nbytes <= chunks.capacity[chunk] - start
    return int(start) if fits else -1


@compiled()
def alloc(blocks: Int64s, chunks: Chunks, memory: Any, nbytes: Any, step: Any) -> tuple[int, int]:
    """Return (chunk, offset) of `nbytes` free bytes and take them; (-1, -1) if no chunk has them.

    Nothing is taken for zero bytes.
    """
    unit, begin = chunks.alignment[memory], chunks.begins[memory]
    size = -(-nbytes // unit) * unit
    chunk: Any = np.int64(-1)
    block: Any = np.int64(-1)
    for index in range(begin, begin + chunks.open[memory]):
        least: Any = np.int64(-1)
        for place in range(chunks.filled[index] - 1):
            room = blocks[index, place, 1] - blocks[index, place, 0]
            if room < size or 0 <= least < room or _room(blocks, chunks, index, place, size, nbytes, step) < 0:
                continue
            least, chunk, block = room, index, place
    if block < 0:
        best = np.int64(0)
        for index in range(begin, begin + chunks.open[memory]):
            last = chunks.filled[index] - 1
            if last < 0 or _room(blocks, chunks, index, last, size, nbytes, step) < 0:
                continue
            reuse = chunks.used[index] - blocks[index, last, 0] - size
            if block < 0 or (best < 0 and reuse > best) or 0 <= reuse < best:
                best, chunk, block = reuse, index, last
    while block < 0 and chunks.open[memory] < chunks.begins[memory + 1] - begin:
        index = begin + chunks.open[memory]
        chunks.open[memory] += 1
        if chunks.filled[index] and _room(blocks, chunks, index, 0, size, nbytes, step) >= 0:
            chunk, block = index, np.int64(0)
    if block < 0:
        return -1, -1
    start = _room(blocks, chunks, chunk, block, size, nbytes, step)
    if size:
        take(blocks, chunks, chunk, block, start, size)
    return int(chunk), int(start)


@compiled()
def _donor(buffer: Any, asked: Asked, live: Bools, offset: Int64s) -> int:
    """Return the first donor whose place a buffer may take, -1 if there is none."""
    for donor in asked.donors[asked.donor_begins[buffer] : asked.donor_begins[buffer + 1]]:
        fine = live[donor] and not asked.pinned[donor] and asked.stop[donor] == asked.start[buffer] + 1
        fine = fine and 0 < asked.nbytes[buffer] <= asked.nbytes[donor]
        if fine and asked.memory[donor] == asked.memory[buffer] and offset[donor] % asked.alignment[buffer] == 0:
            return int(donor)
    return -1


@compiled()
def _horizon(order: Int64s, start: Int64s, end: Any) -> Int64s:
    """Return for each buffer of the order the earliest start of it and of all that follow, and at
    the end `end`.
    """
    horizon = np.empty(len(order) + 1, dtype=np.int64)
    least = NEVER
    for turn in range(len(order) - 1, -1, -1):
        least = min(least, start[order[turn]])
        horizon[turn] = least
    horizon[len(order)] = end
    return horizon


@compiled()
def walk(  # noqa: PLR0917 - compiled
    order: Int64s, asked: Asked, blocks: Int64s, chunks: Chunks, at: Int64s, offset: Int64s, end: Any
) -> tuple[Int64s, int]:
    """Place the buffers of `order` into `at`, a chunk each, and `offset`; what is decided is there
    already.

    Returns (events, buffer): buffer is the first without room, -1 if there is none. What dies at or
    before step `end` is freed.
    """
    start, stop, nbytes, memory = asked.start, asked.stop, asked.nbytes, asked.memory
    events, told = np.empty((2 * len(order), 3), dtype=np.int64), 0
    live = np.zeros(len(start), dtype=np.bool_)
    dying = [(np.int64(0), np.int64(0), np.int64(0), np.int64(0))]  # stop, buffer, offset, nbytes: free from `stop` on
    dying.clear()
    for turn, now in enumerate(_horizon(order, start, end)):
        while len(dying) > 0 and dying[0][0] <= now:
            died, buffer, low, size = heappop(dying)
            if low == offset[buffer]:
                if not live[buffer]:
                    continue
                live[buffer] = False
                events[told] = max(died - 1, start[buffer]), FREE, buffer
                told += 1
            if size:
                unit = chunks.alignment[memory[buffer]]
                if chunks.filled[at[buffer]] == blocks.shape[1]:
                    blocks = _wider(blocks)
                give(blocks, chunks, at[buffer], low, low - (-size // unit) * unit)
        if turn == len(order) or asked.decided[order[turn]]:
            continue
        buffer = order[turn]
        here, unit = memory[buffer], chunks.alignment[memory[buffer]]
        donor = _donor(buffer, asked, live, offset)
        if donor >= 0:
            live[donor] = False
            events[told] = start[buffer], FREE, donor
            told += 1
            at[buffer], offset[buffer] = at[donor], offset[donor]
            kept, whole = -(-nbytes[buffer] // unit) * unit, -(-nbytes[donor] // unit) * unit
            if whole > kept:
                heappush(dying, (stop[donor], np.int64(donor), offset[donor] + kept, whole - kept))
        else:
            for chunk in range(chunks.begins[here], chunks.begins[here + 1]):
                if chunks.filled[chunk] == blocks.shape[1]:
                    blocks = _wider(blocks)
            chunk, place = alloc(blocks, chunks, here, nbytes[buffer], asked.step[buffer])
            if chunk < 0 and nbytes[buffer]:
                return events[:told], int(buffer)
            at[buffer], offset[buffer] = (chunk, place) if chunk >= 0 else (asked.chunk[buffer], 0)
        live[buffer] = True
        events[told] = start[buffer], ALLOC, buffer
        told += 1
        if not asked.pinned[buffer]:
            heappush(dying, (stop[buffer], buffer, offset[buffer], nbytes[buffer]))
    return events[:told], -1
