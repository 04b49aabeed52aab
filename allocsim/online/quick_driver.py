"""A driver that makes the calls of `driver`, and says of answers only whether one may be wrong.

    quick = QuickDriver(make, capacity=1 << 20, alignment=64, streams=1)
    quick.run(sequence.calls)
    quick.finish(largest)         # raises SuspectError where a promise may be broken

It chooses where a campaign looks, never what is said: whatever it suspects is run again by the
plain driver on a fresh target, and that one alone convicts. `tests/laws/test_quick_driver.py` holds
that a target is asked the same by both, in the same order, and that this one suspects all that the
other convicts.

It is quicker since pages that were given out together and are used alike are one block, since
nothing is kept of uses where there is one stream, and since there are no names, events and
sentences. Marks of the device have other numbers than under the plain driver, which waits for each
page of a block.

Complexity: O(log blocks) a call and what a sorted list moves, O(pages) for what is given out or
back, O(handles) where a block is split. What this module does not see: which promise is broken;
calls on other threads and forks, and memory of the process itself.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Any, Final

from allocsim.model.layout import LIMIT
from allocsim.online.device import Device
from allocsim.online.driver import Call, bytes_moved, copying, whole
from allocsim.online.held_memory import GoneMemory, Uses
from allocsim.online.protocol import Abilities, Make

NO_PAGES: Final[list[int]] = []


class SuspectError(Exception):
    """An answer may break a promise."""


class QuickBlock:
    """Bytes `[low, high)`, or pages, that are held and used alike."""

    __slots__ = ("alignment", "high", "holders", "low", "pages", "stream", "uses", "written")

    def __init__(self, low: int, high: int, pages: list[int], stream: int, alignment: int) -> None:
        self.low, self.high, self.pages, self.stream, self.alignment = low, high, pages, stream, alignment
        self.holders = 1
        self.written = False
        self.uses: Uses = {}
        """As `HeldBlock` has it; empty where there is one stream."""

    def split(self, at: int) -> "QuickBlock":
        """Keep the first pages, and return the others as a block of their own."""
        rest = QuickBlock(0, 0, self.pages[at:], self.stream, self.alignment)
        rest.holders, rest.written, rest.uses = self.holders, self.written, dict(self.uses)
        del self.pages[at:]
        return rest


class QuickMemory:
    """What is out, and what was: `HeldMemory` without names."""

    __slots__ = ("_device", "_gone", "_gone_pages", "_highs", "_lows", "_out", "_stop", "live", "most", "page", "top")

    def __init__(self, device: Device, capacity: int | None, page: int) -> None:
        self.page = page
        self.live = self.most = self.top = 0
        self._device = device
        self._stop = LIMIT if capacity is None else min(capacity, LIMIT)
        self._lows: list[int] = []
        self._highs: dict[int, int] = {}
        self._out: set[int] = set()
        """Pages that are held."""
        self._gone = GoneMemory()
        self._gone_pages: dict[int, Uses] = {}

    def given(self, block: QuickBlock) -> None:
        """Write a block down as held. Raises SuspectError where its bytes may not be."""
        if block.pages:
            self._pages_given(block)
            return
        low, high, lows = block.low, block.high, self._lows
        if low == high:
            return
        at = bisect_left(lows, low)
        if (
            low < 0
            or high > self._stop
            or low % block.alignment
            or (at and self._highs[lows[at - 1]] > low)
            or (at < len(lows) and lows[at] < high)
        ):
            raise SuspectError
        if self._device.streams > 1:
            for _, uses in self._gone.taken(low, high):
                self._ordered(uses, block.stream)
        lows.insert(at, low)
        self._highs[low] = high
        self._count(high - low, high)

    def _pages_given(self, block: QuickBlock) -> None:
        pages, out = block.pages, self._out
        count, high = len(out) + len(pages), (max(pages) + 1) * self.page
        out.update(pages)
        if len(out) != count or min(pages) < 0 or high > self._stop:
            raise SuspectError
        if self._gone_pages:
            seen = None
            for page in pages:
                uses = self._gone_pages.pop(page, None)
                if uses is not None and uses is not seen:
                    self._ordered(uses, block.stream)
                    seen = uses
        self._count(len(pages) * self.page, high)

    def _ordered(self, uses: Uses, stream: int) -> None:
        for other, (number, _) in uses.items():
            if not self._device.ordered(other, number, stream):
                raise SuspectError

    def _count(self, nbytes: int, high: int) -> None:
        self.live += nbytes
        self.most = max(self.most, self.live)
        self.top = max(self.top, high)

    def dropped(self, block: QuickBlock) -> None:
        """Write down that nobody holds a block any more; its uses may go on."""
        if block.pages:
            self._out.difference_update(block.pages)
            self.live -= len(block.pages) * self.page
            if block.uses:
                self._gone_pages.update(dict.fromkeys(block.pages, block.uses))
            return
        low, high = block.low, block.high
        if low == high:
            return
        del self._lows[bisect_left(self._lows, low)], self._highs[low]
        self.live -= high - low
        if block.uses:
            self._gone.add(low, high, "", block.uses)


class QuickDriver:
    """One target, its device, its book, and what the caller holds. Calls raise SuspectError, and
    whatever the target raises.
    """

    def __init__(self, make: Make, *, capacity: int | None, alignment: int, streams: int) -> None:
        copies = self._copies = list[tuple[int, int, int]]()
        self.device = Device(streams, None, copying(copies))
        self.alignment = alignment
        self.holds: dict[int, list[QuickBlock]] = {}
        self.answers: list[Any] = []
        """What each alloc and realloc was answered, in order."""
        self.target = make(capacity, alignment, self.device)
        abilities = self.abilities = Abilities.of(self.target)  # another target may be asked other questions
        self.book = QuickMemory(self.device, None if abilities.unbounded else capacity, abilities.page)
        self._can, self._page, self._several = abilities.calls, abilities.page, streams > 1
        self._steps: dict[int, int] = {}
        self._reserved = self._reserved_for = 0

    def run(self, calls: Iterable[Call]) -> None:
        """Make calls, in their order. Raises KeyError for one that is not of `CALLS`."""
        for word, *arguments in calls:
            CALLS[word](self, *arguments)

    def finish(self, largest: int | None = None) -> None:
        """Free all that is held, let every stream end, and ask for the largest block."""
        for step in list(self._steps):
            self._end(step)
        for handle in list(self.holds):
            self._free(handle, told=False)
        for stream in range(self.device.streams):
            self.device.synchronize(stream)
        self._trim()
        if largest is not None:
            self._alloc(-1, largest, self.alignment, 0)
            if -1 not in self.holds:
                raise SuspectError
            self._free(-1, told=False)

    def close(self) -> None:
        """Say to the target that nothing more is asked."""
        if callable(getattr(self.target, "close", None)):
            self.target.close()

    # the calls ------------------------------------------------------------------------------------

    def _alloc(self, handle: int, nbytes: int, alignment: int, stream: int) -> None:
        if handle in self.holds:
            return
        answer = self.target.alloc(nbytes, alignment, stream, f"h{handle}")
        self.answers.append(answer)
        reserved, self._reserved = self._reserved, 0
        if answer is None and nbytes <= reserved and stream == self._reserved_for:
            raise SuspectError
        if answer is not None:
            block = self._block(answer, nbytes, stream, alignment)
            self.book.given(block)
            self.holds[handle] = [block]

    def _free(self, handle: int, told: bool) -> None:  # noqa: FBT001 - a call's argument
        blocks = self.holds.pop(handle, None)
        if blocks is not None:
            self._give_back(blocks, told=told)

    def _part(self, handle: int, first: int, count: int) -> None:
        blocks = self.holds.get(handle, [])
        many = sum(len(block.pages) for block in blocks)
        if first < many and min(count, many - first) not in {0, many}:
            start, stop = self._cut(blocks, first), self._cut(blocks, first + count)
            gone = blocks[start:stop]
            del blocks[start:stop]
            self._give_back(gone, told=False)

    def _realloc(self, handle: int, nbytes: int) -> None:
        if handle not in self.holds or "realloc" not in self._can or self._page:
            return
        (old,) = self.holds[handle]
        if old.holders > 1:
            return
        self._order([old], old.stream)
        self._copies.clear()
        answer = self.target.realloc(old.low, nbytes)
        self.answers.append(answer)
        if answer is None:
            return
        new = self._block(answer, nbytes, old.stream, old.alignment)
        moved = new.low != old.low
        if moved:
            self._check_moved(old.low, new.low, min(nbytes, old.high - old.low))
        new.uses = dict(old.uses)
        self.book.dropped(old)
        self.book.given(new)
        if moved:
            self._use_blocks(old.stream, [new])
        self.holds[handle] = [new]

    def _share(self, handle: int, of: int, pages: int) -> None:
        if handle in self.holds or of not in self.holds or "share" not in self._can:
            return
        blocks = self.holds[of]
        if self._page and pages:
            blocks = blocks[: self._cut(blocks, pages)]
        self.target.share(self._memory(blocks))
        for block in blocks:
            block.holders += 1
        self.holds[handle] = list(blocks)

    def _write(self, handle: int) -> None:
        if handle not in self.holds or "write" not in self._can:
            return
        blocks = self.holds[handle]
        old, page = blocks[-1], self._page
        self._copies.clear()
        answer = self.target.write(old.pages[-1:] if page else old.low)
        if answer is None:
            return
        nbytes = page or old.high - old.low
        new = self._block(answer, nbytes, old.stream, old.alignment)
        here, there = (old.pages[-1], new.pages[0]) if page else (old.low, new.low)
        if here == there:
            if old.holders > 1:
                raise SuspectError
            return
        if page:
            self._cut(blocks, sum(len(block.pages) for block in blocks) - 1)
            old = blocks[-1]
        self._order([old], old.stream)
        self._check_moved(here * (page or 1), there * (page or 1), nbytes)
        self.book.given(new)
        self._use_blocks(old.stream, [old, new] if old.written else [new])
        blocks[-1] = new
        old.holders -= 1
        if not old.holders:
            self.book.dropped(old)

    def _use(self, stream: int, handles: Iterable[int], _write: bool = False) -> None:  # noqa: FBT001, FBT002 - as above
        holds = self.holds
        blocks = [block for handle in handles if handle in holds for block in holds[handle]]
        if blocks:
            self._use_blocks(stream, blocks)

    def _begin(self, step: int, stream: int, handles: Iterable[int]) -> None:
        blocks = list({id(b): b for handle in handles for b in self.holds.get(handle, ())}.values())
        if step in self._steps or not blocks:
            return
        told = "begin" in self._can
        self._use_blocks(stream, blocks, told=told)
        self._steps[step] = self.device.record(stream)
        if told:
            for part in [blocks] if self._page else [[block] for block in blocks]:
                self.target.begin(step, self._memory(part))

    def _end(self, step: int) -> None:
        if step not in self._steps:
            return
        mark = self._steps.pop(step)
        for stream in range(self.device.streams):
            self.device.advance(stream)
        self.device.passed(mark)
        if "begin" in self._can:
            self.target.end(step)

    def _count(self, handle: int) -> None:
        if handle not in self.holds or "count" not in self._can:
            return
        block = self.holds[handle][0]
        found = self.target.count(block.pages[:1] if self._page else block.low)
        if whole(found) != block.holders:
            raise SuspectError

    def _reserve(self, nbytes: int, stream: int) -> None:
        self._reserved = 0
        if "reserve" in self._can:
            answer = self.target.reserve(nbytes, stream)
            if answer is not None and not isinstance(answer, bool):
                raise SuspectError
            self._reserved, self._reserved_for = nbytes if answer else 0, stream

    def _trim(self) -> None:
        if "trim" in self._can:
            self.target.trim()

    def _evict(self, nbytes: int) -> None:
        if "evict" in self._can:
            self.target.evict(nbytes)

    def _synchronize(self, stream: int) -> None:
        self.device.synchronize(stream)

    def _advance(self, stream: int) -> None:
        self.device.advance(stream)

    # what they are made of ------------------------------------------------------------------------

    def _block(self, answer: Any, nbytes: int, stream: int, alignment: int) -> QuickBlock:
        """Return the block of an answer. Raises SuspectError for what is none."""
        page = self._page
        if not page:
            address = answer if type(answer) is int else _number(answer)
            return QuickBlock(address, address + nbytes, NO_PAGES, stream, alignment)
        if not isinstance(answer, list | tuple) or len(answer) != -(-nbytes // page):
            raise SuspectError
        pages = list(answer) if {*map(type, answer)} <= {int} else list(map(_number, answer))
        return QuickBlock(0, 0, pages, stream, 1)

    def _cut(self, blocks: list[QuickBlock], at: int) -> int:
        """Let a block end before page `at` of these, for all who hold it; return how many blocks
        then lie before that page.
        """
        for number, block in enumerate(blocks):
            if at <= 0:
                return number
            if at < len(block.pages):
                rest = block.split(at)
                for held in self.holds.values():
                    if block in held:
                        held.insert(held.index(block) + 1, rest)
                return number + 1
            at -= len(block.pages)
        return len(blocks)

    def _use_blocks(self, stream: int, blocks: list[QuickBlock], *, told: bool = False) -> None:
        """Put an op on a stream, behind all that used these blocks on others."""
        if not self._several:
            self.device.put(stream)
            return
        self._order(blocks, stream)
        use = self.device.put(stream), told
        for block in blocks:
            block.uses[stream] = use
            block.written = True

    def _order(self, blocks: list[QuickBlock], stream: int) -> None:
        """Let a stream wait for the alloc of these blocks and for their uses elsewhere."""
        device = self.device
        for block in blocks if self._several else ():
            if block.stream != stream and not block.uses:
                device.wait(device.record(block.stream), stream)
            for other, (number, _) in block.uses.items():
                if other != stream and not device.ordered(other, number, stream):
                    device.wait(device.record(other), stream)

    def _give_back(self, blocks: list[QuickBlock], *, told: bool) -> None:
        """Free memory in the order of its own stream; tell of other streams, or wait for them."""
        stream = blocks[0].stream
        for block in blocks if self._several else ():
            self._tell_of_uses(block, stream, told=told and "record_stream" in self._can)
        self.target.free(self._memory(blocks) if self._page else blocks[0].low, stream)
        for block in blocks:
            block.holders -= 1
            if not block.holders:
                self.book.dropped(block)

    def _tell_of_uses(self, block: QuickBlock, stream: int, *, told: bool) -> None:
        """Tell of uses on other streams, page by page, or wait for them."""
        device = self.device
        unknown = [(other, number) for other, (number, known) in block.uses.items() if not known]
        for part in self._parts(block) if told else [None]:
            for other, number in unknown:
                if device.ordered(other, number, stream):
                    continue
                if told:
                    self.target.record_stream(part, other)
                    block.uses[other] = number, True
                else:
                    device.wait(device.record(other), stream)

    def _parts(self, block: QuickBlock) -> list[Any]:
        return [[page] for page in block.pages] if self._page else [block.low]

    def _check_moved(self, source: int, target: int, nbytes: int) -> None:
        if bytes_moved(self._copies, source, target) < nbytes:
            raise SuspectError

    def _memory(self, blocks: list[QuickBlock]) -> Any:
        if not self._page:
            return blocks[0].low
        return blocks[0].pages[:] if len(blocks) == 1 else [page for block in blocks for page in block.pages]


def _number(answer: Any) -> int:
    found = whole(answer)
    if found is None:
        raise SuspectError
    return found


CALLS: Final[dict[str, Callable[..., None]]] = {
    word: getattr(QuickDriver, f"_{word}")
    for word in (
        "alloc", "free", "part", "realloc", "share", "write", "use", "begin", "end", "count", "reserve", "trim", "evict",
        "synchronize", "advance",
    )
}  # fmt: skip
"""What is done for a call, by its word."""

__all__ = ["CALLS", "QuickDriver", "SuspectError"]
