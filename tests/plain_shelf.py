"""Planners of the shelf as plainly as they can be said: every search goes through a list from its beginning.

What the shelf does with trees and sorted lists must give these plans, bit for bit (`tests/laws/test_plain_shelf.py`).
"""

from dataclasses import dataclass, replace

import numpy as np

from allocsim.allocators import slot_sharing
from allocsim.allocators.caching import (
    LARGE_SEGMENT,
    MIN_BLOCK,
    MIN_LARGE,
    ROUND_LARGE,
    SMALL,
    SMALL_SEGMENT,
)
from allocsim.allocators.footprints import FREE
from allocsim.allocators.free_list import FreeList
from allocsim.allocators.reference import idle
from allocsim.allocators.tlsf import DIVISIONS
from allocsim.model import Event
from allocsim.model.layout import LIMIT


class PlainTlsf:
    """Free blocks by class, over a book of free ranges."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        self.alignment = alignment
        self.stop = LIMIT if capacity is None else min(capacity, LIMIT)
        self.end = 0
        """Where the space that was ever used ends; beyond it everything is free and in no class."""
        self.book = FreeList(0, 0)
        self.classes: dict[int, dict[int, int]] = {}
        """Class -> start -> size of its free blocks, the one freed last at the end."""

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the offset of free bytes, from the first class that surely has them."""
        size = -(-nbytes // self.alignment) * self.alignment
        slack = 0 if self.alignment % alignment == 0 else alignment - 1
        start = self._good(size + slack)
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
        for low, high in list(self.book):
            if low < stop and offset < high:
                self._cut(low, max(low, offset), min(high, stop))

    def _good(self, size: int) -> int | None:
        """Return the start of a block of the first class all of whose blocks hold `size` bytes."""
        least = _class(size) + (size != _floor(_class(size)))
        found = min((c for c, blocks in self.classes.items() if c >= least and blocks), default=None)
        return None if found is None else next(reversed(self.classes[found]))

    def _any(self, size: int, alignment: int, nbytes: int) -> int | None:
        """Return the start of the lowest block that holds the request after all, the space grown if
        need be.
        """
        for low, high in self.book:
            if -(-low // alignment) * alignment + size <= high:
                return low
        low = self.end
        if self.book.stops and self.book.stops[-1] == self.end:
            low = self.book.starts[-1]
        offset = -(-low // alignment) * alignment
        if offset > self.stop - nbytes:
            return None
        self._give(self.end, offset + size)
        self.end = offset + size
        return low

    def _cut(self, block: int, start: int, stop: int) -> None:
        """Take `[start, stop)` out of the free block that begins at `block`."""
        high = self._forget(block)
        self.book.take(block, high)
        for low, top in ((block, start), (stop, high)):
            if low < top:
                self._give(low, top)

    def _give(self, start: int, stop: int) -> None:
        for low, high in list(self.book):
            if low <= stop and start <= high:
                self._forget(low)
        low, high = self.book.give(start, stop)
        if low < high:
            self.classes.setdefault(_class(high - low), {})[low] = high - low

    def _forget(self, block: int) -> int:
        """Take a free block out of its class; return where it ends."""
        stop = self.book.stops[self.book.starts.index(block)]
        del self.classes[_class(stop - block)][block]
        return stop


def _class(size: int) -> int:
    """Return the class a block of `size` bytes is in: DIVISIONS for each power of two."""
    level = max(size.bit_length() - 1, 0)
    return level * DIVISIONS + ((size - (1 << level)) * DIVISIONS >> level)


def _floor(index: int) -> int:
    """Return the least size of a class, rounded up to a whole number of bytes."""
    level, part = divmod(index, DIVISIONS)
    return (1 << level) + -(-(part << level) // DIVISIONS)


@dataclass(slots=True, kw_only=True)
class PlainBlock:
    """A stretch of a segment, free or taken."""

    segment: int
    start: int
    stop: int
    small: bool
    free: bool = True


class PlainCaching:
    """Blocks in order of address; those of one segment cover it."""

    def __init__(self, capacity: int | None, alignment: int) -> None:
        del alignment  # larger alignments than a block's are met inside
        self.stop = LIMIT if capacity is None else min(capacity, LIMIT)
        self.scale = 0
        while self.stop < LARGE_SEGMENT >> self.scale and MIN_BLOCK >> self.scale > 1:
            self.scale += 1
        self.blocks: list[PlainBlock] = []
        self.walls: list[tuple[int, int]] = []
        self.end = 0
        self.segments = 0
        self.reserved = 0

    def alloc(self, nbytes: int, alignment: int) -> int | None:
        """Return the start of free bytes, in a new segment where no block is large enough."""
        unit, most = MIN_BLOCK >> self.scale, SMALL >> self.scale
        size = -(-nbytes // unit) * unit
        small = size <= most
        step = alignment
        fitting = [
            block for block in self.blocks if block.free and block.small == small and _room(block, step) >= nbytes
        ]
        fitting = [block for block in fitting if _room(block, step) >= size or block.stop == self.stop]
        block = min(fitting, key=lambda block: (block.stop - block.start, block.start), default=None)
        if block is None:
            block = self._segment(nbytes, size, step, small=small)
        if block is None:
            return None
        offset = -(-block.start // step) * step
        block.free = False
        rest = block.stop - (offset + size)
        if rest >= unit if small else rest > most:
            tail = replace(block, start=offset + size, free=True)
            block.stop = offset + size
            self.blocks.insert(self.blocks.index(block) + 1, tail)
        return offset

    def free(self, offset: int, nbytes: int) -> None:
        """Free the block the bytes lie in and merge it with its neighbours."""
        del nbytes  # the block knows
        place = next(i for i, block in enumerate(self.blocks) if block.start <= offset < block.stop)
        self.blocks[place].free = True
        for left in (place, place - 1):
            if not 0 <= left < len(self.blocks) - 1:
                continue
            block, following = self.blocks[left], self.blocks[left + 1]
            if block.free and following.free and block.segment == following.segment:
                block.stop = following.stop
                del self.blocks[left + 1]

    def reserve(self, offset: int, nbytes: int) -> None:
        """Keep segments clear of bytes."""
        self.walls = sorted([*self.walls, (offset, offset + nbytes)])

    def _segment(self, nbytes: int, size: int, step: int, *, small: bool) -> PlainBlock | None:
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
        block = PlainBlock(segment=self.segments, start=start, stop=start + want, small=small)
        if want < 1 or _room(block, step) < nbytes:
            return None
        self.segments += 1
        self.reserved += want
        self.end = block.stop
        self.blocks.append(block)
        return block

    def _clear(self, start: int, want: int) -> tuple[int, int]:
        """Return the first start from `start` on whose segment touches no fixed bytes."""
        for low, high in self.walls:
            if low < start + want and start < high:
                start = -(-high // MIN_BLOCK) * MIN_BLOCK
        return start, want


def _room(block: PlainBlock, step: int) -> int:
    """Return the bytes of a block from its first multiple of `step` on."""
    return block.stop - -(-block.start // step) * step


class PlainMemory:
    """ggml's chunks: all of whose free blocks are looked at, and a list of those taken apart and put together."""

    def __init__(self, alignment, capacities):
        self.alignment, self.open = alignment, 0
        self.capacity = [LIMIT if capacity is None else capacity for capacity in capacities]
        ends = [min(self.padded(capacity), LIMIT) for capacity in self.capacity]
        self.free_blocks = [[(0, end)] if end else [] for end in ends]
        self.used, self.most = [0] * len(ends), [bool(end) for end in ends]

    def padded(self, nbytes):
        return -(-nbytes // self.alignment) * self.alignment

    def room(self, chunk, block, size, nbytes, step):
        low, high = block
        start = -(-low // step) * step
        return start + size <= high and start + nbytes <= self.capacity[chunk]

    def alloc(self, nbytes, alignment):
        """Return (chunk, offset), None where there is no room."""
        size, step = self.padded(nbytes), int(np.lcm.reduce(np.array([self.alignment, alignment], dtype=object)))
        found = self.best(size, nbytes, step) or self.tail(size, nbytes, step)
        while found is None and self.open < len(self.capacity):
            blocks = self.free_blocks[self.open]
            if blocks and self.room(self.open, blocks[0], size, nbytes, step):
                found = self.open, blocks[0]
            self.open += 1
        if found is None:
            return None
        chunk, block = found
        start = -(-block[0] // step) * step
        if size:
            self.without(chunk, start, start + size)
        return chunk, start

    def best(self, size, nbytes, step):
        found = None
        for chunk in range(self.open):
            least = None
            for block in self.free_blocks[chunk][:-1]:
                room = block[1] - block[0]
                if (
                    room < size
                    or not self.room(chunk, block, size, nbytes, step)
                    or (least is not None and room > least)
                ):
                    continue
                least, found = room, (chunk, block)
        return found

    def tail(self, size, nbytes, step):
        found, best = None, None
        for chunk in range(self.open):
            if not self.free_blocks[chunk] or not self.room(chunk, self.free_blocks[chunk][-1], size, nbytes, step):
                continue
            reuse = self.used[chunk] - self.free_blocks[chunk][-1][0] - size
            if best is None or (best < 0 and reuse > best) or 0 <= reuse < best:
                best, found = reuse, (chunk, self.free_blocks[chunk][-1])
        return found

    def without(self, chunk, start, stop):
        """Take what is free of `[start, stop)`."""
        for low, high in list(self.free_blocks[chunk]):
            if low < stop and start < high:
                self.free_blocks[chunk].remove((low, high))
                self.free_blocks[chunk] += [(a, b) for a, b in ((low, start), (stop, high)) if a < b]
                self.used[chunk] = max(self.used[chunk], min(stop, high))
        self.free_blocks[chunk].sort()
        self.most[chunk] = max(self.most[chunk], len(self.free_blocks[chunk]))

    def give(self, chunk, start, nbytes):
        stop = start + self.padded(nbytes)
        touched = [block for block in self.free_blocks[chunk] if block[0] <= stop and start <= block[1]]
        kept = [block for block in self.free_blocks[chunk] if block not in touched]
        edges = [start, stop, *(end for block in touched for end in block)]
        self.free_blocks[chunk] = sorted([*kept, (min(edges), max(edges))])
        self.most[chunk] = max(self.most[chunk], len(self.free_blocks[chunk]))


def plain_ggml(problem, memories=()):
    """Return ggml's plan, or the buffer that finds no room: (arena and offset of each buffer, events, used, most blocks)."""
    arenas, named = problem.program.arenas, {arena for group in memories for arena in group}
    groups = [*memories, *([arena] for arena in range(len(arenas)) if arena not in named)]
    books = [PlainMemory(arenas[group[0]].alignment, [arenas[a].capacity for a in group]) for group in groups]
    home = [
        next((m, group.index(a)) for m, group in enumerate(groups) if a in group)
        for a in problem.program.buffers.arena.tolist()
    ]
    start, stop, nbytes, pinned = (getattr(problem, c).tolist() for c in ("start", "stop", "nbytes", "pinned"))
    skipped = problem.own | idle(problem)
    order = [buffer for buffer in problem.order.tolist() if not skipped[buffer]]
    at, live, dying, events = {}, set(), [], []
    for buffer, low in problem.fixed.items():
        if not skipped[buffer]:
            book, (_, chunk) = books[home[buffer][0]], home[buffer]
            book.open = max(book.open, chunk + 1)
            book.without(chunk, low // book.alignment * book.alignment, book.padded(low + nbytes[buffer]))
            at[buffer] = chunk, low

    def release(now):
        for row in sorted(row for row in dying if row[0] <= now):
            dying.remove(row)
            died, buffer, low, size = row
            if low == at[buffer][1]:
                if buffer not in live:
                    continue
                live.remove(buffer)
                events.append((max(died - 1, start[buffer]), Event.FREE, buffer))
            if size:
                books[home[buffer][0]].give(at[buffer][0], low, size)

    for turn, buffer in enumerate(order):
        release(min(start[later] for later in order[turn:]))
        if buffer in problem.fixed:
            continue
        book = books[home[buffer][0]]
        alignment = int(problem.program.buffers.alignment[buffer])
        donor = next(
            (
                donor
                for donor, to in problem.may_share.tolist()
                if to == buffer
                and donor in live
                and not pinned[donor]
                and stop[donor] == start[buffer] + 1
                and 0 < nbytes[buffer] <= nbytes[donor]
                and at[donor][1] % alignment == 0
                and home[donor][0] == home[buffer][0]
            ),
            None,
        )
        if donor is not None:
            live.remove(donor)
            events.append((start[buffer], Event.FREE, donor))
            at[buffer] = at[donor]
            kept, whole = book.padded(nbytes[buffer]), book.padded(nbytes[donor])
            if whole > kept:
                dying.append((stop[donor], donor, at[donor][1] + kept, whole - kept))
        else:
            place = book.alloc(nbytes[buffer], alignment)
            if place is None and nbytes[buffer]:
                return buffer
            at[buffer] = place or (home[buffer][1], 0)
        live.add(buffer)
        events.append((start[buffer], Event.ALLOC, buffer))
        if not pinned[buffer]:
            dying.append((stop[buffer], buffer, at[buffer][1], nbytes[buffer]))
    release(len(problem.program.ops) - 1)
    places = {buffer: (groups[home[buffer][0]][chunk], low) for buffer, (chunk, low) in at.items()}
    used = {arena: book.used[c] for book, group in zip(books, groups, strict=True) for c, arena in enumerate(group)}
    return places, events, [used[arena] for arena in sorted(used)], max(max(book.most) for book in books)


def plain_share(placed, rows):
    """Give each row that is not fixed a slot, of all free ones the best."""
    slots, free, dying = [], [], []
    for row in rows[np.argsort(placed.start[rows], kind="stable")].tolist():
        if placed.fixed[row] != FREE:
            continue
        free += [slot for stop, slot in dying if stop <= placed.start[row]]
        dying = [(stop, slot) for stop, slot in dying if stop > placed.start[row]]
        nbytes, alignment = int(placed.nbytes[row]), int(placed.alignment[row])
        chosen = plain_match(slots, free, nbytes)
        if chosen is None:
            chosen = len(slots)
            slots.append(slot_sharing.Slot(nbytes=nbytes, alignment=alignment, rows=[]))
        else:
            free.remove(chosen)
        slot = slots[chosen]
        slot.nbytes, slot.alignment = max(slot.nbytes, nbytes), min(int(np.lcm(slot.alignment, alignment)), LIMIT)
        slot.rows.append(row)
        if placed.stop[row] < LIMIT:
            dying.append((int(placed.stop[row]), chosen))
    return slots


def plain_match(slots, free, nbytes):
    """Return the free slot that fits best, None where none is of about that size."""
    most = slot_sharing.MATCH
    larger = [slot for slot in free if nbytes <= slots[slot].nbytes <= nbytes * most]
    if larger:
        return min(larger, key=lambda slot: (slots[slot].nbytes, slot))
    smaller = [slot for slot in free if nbytes <= slots[slot].nbytes * most and slots[slot].nbytes < nbytes]
    return max(smaller, key=lambda slot: (slots[slot].nbytes, -slot), default=None)


def plain_fit(order, placed, limit, best):
    """Return the offset of each row, and the first that finds no room, -1 if all do: every row that lives beside it is looked at."""
    rows = list(zip(*(column.tolist() for column in placed), strict=True))  # start, stop, nbytes, alignment, fixed
    offset = np.zeros(len(rows), dtype=np.int64)
    there = []
    for row in sorted(order.tolist(), key=lambda row: rows[row][4] == FREE):
        start, stop, nbytes, step, at = rows[row]
        if at == FREE:
            gaps, floor = [], 0
            for bottom, top in sorted((b, t) for s, e, b, t in there if s < stop and start < e):
                low = -(-floor // step) * step
                gaps += [(bottom - low, low)] if bottom - low >= nbytes else []
                floor = max(floor, top)
            chosen = min(gaps) if gaps and best else gaps[0] if gaps else (0, -(-floor // step) * step)
            at = chosen[1]
        if not 0 <= at <= limit - nbytes:
            return offset, row
        offset[row] = at
        there.append((start, stop, at, at + nbytes))
    return offset, -1


def plain_events(placed):
    """Return (step, event, buffer), one footprint after another, then sorted."""
    starts, stops, pinned = placed.problem.start, placed.problem.stop, placed.problem.pinned
    keyed = []
    for row in np.flatnonzero(placed.solid).tolist():
        chain = placed.buffers[row]
        for place, buffer in enumerate(chain):
            born, died = int(starts[buffer]), int(stops[buffer])
            if place:
                keyed.append(((born, 1, row, 2 * place - 1), (born, Event.FREE, chain[place - 1])))
            keyed.append(((born, 1, row, 2 * place), (born, Event.ALLOC, buffer)))
        if not pinned[chain[-1]]:
            keyed.append(((died, 0, row, 0), (died - 1, Event.FREE, chain[-1])))
    return [event for _, event in sorted(keyed)]
