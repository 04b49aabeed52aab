"""Drive an online allocator through calls, and hold each answer to what was promised.

    from allocsim.online import Driver, find

    driver = Driver(find("tlsf"), capacity=1 << 20, alignment=64, streams=1)
    driver.step(("alloc", 0, 100, 64, 0))
    driver.finish()                       # everything freed: does the memory come back?

A call is a tuple, its word first; what it holds is named by numbers of the caller's own
(*handles*). A call whose handle is not held (since its `alloc` found no room, or was left out)
does nothing, so every part of a sequence is a sequence.

| call | what happens |
|---|---|
| `alloc h nbytes alignment stream` | memory for handle h |
| `free h told` | h gives its memory back; uses on other streams are told by `record_stream`, or waited for |
| `part h first count` | some pages of h are given back |
| `realloc h nbytes` | h grows or shrinks |
| `share h of pages` | h holds the first pages of another handle, too (0: all) |
| `write h` | h is about to write its last page or block: it must be its own |
| `use stream handles` | an op on a stream reads or writes them |
| `begin step stream handles`, `end step` | a step in flight uses them; the host sees it end |
| `count h` | how many hold it |
| `reserve nbytes stream` | room for the next `alloc` on a stream, of at most so many bytes and no larger alignment than the target's |
| `thread n call` | another thread makes the call, which is done before the next |
| `fork` | a child goes on with a copy of all: it asks for as much as is held, and frees all |
| `trim`, `evict nbytes`, `synchronize stream`, `advance stream` | as their names say |

The driver is a caller that keeps its promises: it puts every use behind the `alloc` and behind uses
on other streams, and a `free` behind uses that nobody told of. So what is broken is the
allocator's.

With `events` the driver also writes what happened as events of `allocsim trace`, where every order
that the host or a stream has is told, and nothing is assumed.

O(blocks met) a call beside the target's own work. What this module does not see: which calls are
worth making.
"""

import signal
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, Final

from allocsim.errors import AskedError
from allocsim.model.layout import LIMIT
from allocsim.online.device import Device
from allocsim.online.elsewhere import Threads, in_child
from allocsim.online.held_memory import Broken, HeldBlock, HeldMemory
from allocsim.online.protocol import Abilities, Make, shown

Call = tuple[Any, ...]

LARGEST: Final = 1 << 20
"""Bytes that a drained target without a capacity is asked for."""


class BrokenPromiseError(Exception):
    """An answer broke a promise; `broken` says which."""

    def __init__(self, broken: Broken) -> None:
        self.broken = broken
        super().__init__(broken.sentence)


class Driver:
    """One target, its device, its book, and what the caller holds."""

    def __init__(
        self,
        make: Make,
        *,
        capacity: int | None,
        alignment: int,
        streams: int,
        events: list[dict[str, Any]] | None = None,
    ) -> None:
        copies = self._copies = list[tuple[int, int, int]]()
        tell = None if events is None else (lambda word, **keys: events.append({"event": word, **keys}))
        # neither holds the driver: what it drives is let go with it
        self.device = Device(streams, tell, copying(copies))
        self.book = HeldMemory(self.device, capacity)
        self.alignment = alignment
        self.events = events
        self.holds: dict[int, list[HeldBlock]] = {}
        self.answers: list[Any] = []
        """What each alloc and realloc was answered, in order."""
        self._steps: dict[int, int] = {}
        self.sound = True
        """Whether no promise has been broken so far."""
        self._threads = Threads()
        self._thread_now: int | None = None
        """The thread that makes the call; None: this one."""
        self._given = 0
        self._reserved = self._reserved_for = 0
        """Bytes that the next alloc is not refused, and its stream."""
        self._broken: HeldBlock | None = None
        """The block that breaks a promise, once one does."""
        self.target = self._answer("make", make, capacity, alignment, self.device)
        self.abilities = Abilities.of(self.target)
        if self.abilities.unbounded:
            self.book.capacity = None

    def run(self, calls: Iterable[Call]) -> None:
        """Make calls, in their order. Raises as `step`."""
        for call in calls:
            self.step(call)

    def step(self, call: Call) -> None:
        """Make one call. Raises BrokenPromiseError for an answer that breaks a promise."""
        self.sound = False
        getattr(self, f"_{call[0]}")(*call[1:])
        self.sound = True

    def finish(self, largest: int | None = None) -> None:
        """Free all that is held, let every stream end, and ask for the largest block that a fresh
        target gives. Raises BrokenPromiseError where it does not come back.
        """
        for step in list(self._steps):
            self._end(step)
        for handle in list(self.holds):
            self._free(handle, told=False)
        for stream in range(self.device.streams):
            self.device.synchronize(stream)
        self._trim()
        if largest is None:
            return
        blocks = self._got(-1, largest, self.alignment, 0)
        if blocks is None:
            sentence = f"{largest} bytes are refused when nobody holds any; a fresh one gives them"
            raise BrokenPromiseError(Broken("returned", "memory that does not come back", sentence))
        self.holds[-1] = blocks
        self._free(-1, told=False)

    def close(self) -> None:
        """Say to the target that nothing more is asked."""
        if callable(getattr(self.target, "close", None)):
            self._asked("close")

    def confess(self) -> None:
        """Tell of what comes of a block that breaks a promise: its owner writes it, and who held
        these bytes reads them.
        """
        block = self._broken
        if block is None:
            return
        others = self.book.meeting(block)
        for other in others:
            if not other.written:
                self._tell("use", stream=other.stream, writes=[other.name])
        self._tell("use", stream=block.stream, writes=[block.name])
        for other in others:
            self._tell("use", stream=other.stream, reads=[other.name])

    # the calls ------------------------------------------------------------------------------------

    def _alloc(self, handle: int, nbytes: int, alignment: int, stream: int) -> None:
        if handle in self.holds:
            return
        blocks = self._got(handle, nbytes, alignment, stream)
        if blocks is not None:
            self.holds[handle] = blocks

    def _free(self, handle: int, told: bool) -> None:  # noqa: FBT001 - a call's argument
        blocks = self.holds.pop(handle, None)
        if blocks is None:
            return
        self._give_back(blocks, told=told)

    def _part(self, handle: int, first: int, count: int) -> None:
        blocks = self.holds.get(handle, [])
        gone = blocks[first : first + count]
        if self.abilities.page and gone and len(gone) < len(blocks):
            del blocks[first : first + count]
            self._give_back(gone, told=False)

    def _realloc(self, handle: int, nbytes: int) -> None:
        if handle not in self.holds or "realloc" not in self.abilities.calls or self.abilities.page:
            return
        (old,) = self.holds[handle]
        if old.holders > 1:
            return
        self._order([old], old.stream)
        self._copies.clear()
        self._reserved = 0
        answer = self._asked("realloc", old.low, nbytes)
        self.answers.append(answer)
        if answer is None:
            return
        new = self._blocks(handle, answer, nbytes, old.stream, old.alignment)[0]
        moved = new.low != old.low
        if moved:
            self._check_moved(old, new, min(nbytes, old.high - old.low))
        new.uses = dict(old.uses)
        self.book.dropped(old)
        if not moved:
            self._tell("free", block=old.name, stream=old.stream)
        self._keep(new)
        if moved:
            self._use_blocks(old.stream, [old], [new])
            self._tell("free", block=old.name, stream=old.stream)
        self.holds[handle] = [new]

    def _share(self, handle: int, of: int, pages: int) -> None:
        if handle in self.holds or of not in self.holds or "share" not in self.abilities.calls:
            return
        blocks = self.holds[of][: pages or None]
        self._asked("share", self._memory(blocks))
        for block in blocks:
            block.holders += 1
        self.holds[handle] = list(blocks)

    def _write(self, handle: int) -> None:
        if handle not in self.holds or "write" not in self.abilities.calls:
            return
        blocks = self.holds[handle]
        old = blocks[-1]
        self._copies.clear()
        self._reserved = 0
        answer = self._asked("write", self._memory([old]))
        if answer is None:
            return
        new = self._blocks(handle, answer, old.high - old.low, old.stream, old.alignment)[-1]
        if new.low == old.low:
            if old.holders > 1:
                sentence = f"{old.name} at {old.low} has {old.holders} holders, and one of them may write it"
                raise BrokenPromiseError(Broken("copied", "shared memory that one holder writes", sentence))
            return
        self._order([old], old.stream)
        self._check_moved(old, new, old.high - old.low)
        self._keep(new)
        self._use_blocks(old.stream, [old], [new])
        blocks[-1] = new
        self._drop(old)

    def _use(self, stream: int, handles: Sequence[int], write: bool = False) -> None:  # noqa: FBT001, FBT002 - as above
        blocks = [block for handle in handles for block in self.holds.get(handle, ())]
        if blocks:
            fresh = [block for block in blocks if write or not block.written]
            self._use_blocks(stream, [block for block in blocks if block not in fresh], fresh)

    def _begin(self, step: int, stream: int, handles: Sequence[int]) -> None:
        blocks = list({id(b): b for handle in handles for b in self.holds.get(handle, ())}.values())
        if step in self._steps or not blocks:
            return
        fresh = [block for block in blocks if not block.written]
        self._use_blocks(
            stream, [block for block in blocks if block.written], fresh, told="begin" in self.abilities.calls
        )
        self._steps[step] = self.device.record(stream)
        if "begin" in self.abilities.calls:
            parts = [blocks] if self.abilities.page else [[block] for block in blocks]
            for part in parts:
                self._asked("begin", step, self._memory(part))

    def _end(self, step: int) -> None:
        if step not in self._steps:
            return
        mark = self._steps.pop(step)
        for stream in range(self.device.streams):
            self.device.advance(stream)
        self.device.passed(mark)
        if "begin" in self.abilities.calls:
            self._asked("end", step)

    def _count(self, handle: int) -> None:
        if handle not in self.holds or "count" not in self.abilities.calls:
            return
        block = self.holds[handle][0]
        found = self._asked("count", self._memory([block]))
        if whole(found) != block.holders:
            sentence = f"{block.name} at {block.low} has {block.holders} holders; the allocator says {_shown(found)}"
            raise BrokenPromiseError(Broken("counts", "a wrong number of holders", sentence))

    def _reserve(self, nbytes: int, stream: int) -> None:
        self._reserved = 0
        if "reserve" in self.abilities.calls:
            answer = self._asked("reserve", nbytes, stream)
            if answer is not None and not isinstance(answer, bool):
                raise BrokenPromiseError(_odd(answer, "room is reserved, True, or not"))
            self._reserved, self._reserved_for = nbytes if answer else 0, stream

    def _trim(self) -> None:
        self._reserved = 0
        if "trim" in self.abilities.calls:
            self._asked("trim")

    def _evict(self, nbytes: int) -> None:
        self._reserved = 0
        if "evict" in self.abilities.calls:
            self._asked("evict", nbytes)

    def _synchronize(self, stream: int) -> None:
        self.device.synchronize(stream)

    def _advance(self, stream: int) -> None:
        self.device.advance(stream)

    def _thread(self, number: int, call: Call) -> None:
        self._thread_now = number if self.abilities.threads else None
        try:
            getattr(self, f"_{call[0]}")(*call[1:])
        finally:
            self._thread_now = None

    def _fork(self) -> None:
        broken = in_child(self._as_child) if self.abilities.forks else None
        if broken is not None:
            raise BrokenPromiseError(broken)

    def _as_child(self) -> Broken | None:
        """Ask for what is held once more, and free all."""
        self._threads.forked()
        self.events = None
        try:
            for number, blocks in enumerate(list(self.holds.values()), 1):
                nbytes = sum(block.high - block.low for block in blocks)
                self._alloc(-number, nbytes, blocks[0].alignment, blocks[0].stream)
            for handle in list(self.holds):
                self._free(handle, told=False)
        except BrokenPromiseError as error:
            return error.broken
        return None

    # what they are made of ------------------------------------------------------------------------

    def _got(self, handle: int, nbytes: int, alignment: int, stream: int) -> list[HeldBlock] | None:
        answer = self._asked("alloc", nbytes, alignment, stream, f"h{handle}")
        self.answers.append(answer)
        reserved, self._reserved = self._reserved, 0
        if answer is None:
            if nbytes <= reserved and alignment <= self.alignment and stream == self._reserved_for:
                sentence = f"{nbytes} bytes for stream {stream} are refused, and {reserved} were reserved just before"
                raise BrokenPromiseError(Broken("reserved", "what was reserved is refused", sentence))
            return None
        blocks = self._blocks(handle, answer, nbytes, stream, alignment)
        for block in blocks:
            self._keep(block)
        return blocks

    def _blocks(self, handle: int, answer: Any, nbytes: int, stream: int, alignment: int = 1) -> list[HeldBlock]:
        """Return the blocks of an answer. Raises BrokenPromiseError for what is none."""
        page = self.abilities.page
        if not page:
            address = whole(answer)
            if address is None:
                raise BrokenPromiseError(_odd(answer, "an address is a whole number below 2^62, or None"))
            self._given += 1
            return [HeldBlock(address, address + nbytes, f"h{handle}#{self._given}", stream, alignment)]
        pages = -(-nbytes // page)
        numbers = [whole(number) for number in answer] if isinstance(answer, list | tuple) else [None]
        if None in numbers:
            raise BrokenPromiseError(_odd(answer, "pages are a list of whole numbers below 2^62, or None"))
        if len(numbers) != pages:
            raise BrokenPromiseError(_odd(answer, f"{nbytes} bytes are {pages} pages of {page}"))
        self._given += 1
        return [
            HeldBlock(number * page, (number + 1) * page, f"h{handle}#{self._given}.{at}", stream, page=number)
            for at, number in enumerate(number for number in numbers if number is not None)
        ]

    def _keep(self, block: HeldBlock) -> None:
        if block.high > block.low:
            nbytes = block.high - block.low
            self._tell("alloc", block=block.name, address=block.low, nbytes=nbytes, stream=block.stream)
            broken = self.book.given(block)
            if broken is not None:
                self._broken = block
                raise BrokenPromiseError(broken)

    def _use_blocks(
        self,
        stream: int,
        reads: Iterable[HeldBlock],
        writes: Iterable[HeldBlock],
        *,
        told: bool = False,
    ) -> None:
        """Put an op on a stream, behind all that used these blocks on others."""
        reads, writes = [block for block in reads if block.written], list(writes)
        self._order([*reads, *writes], stream)
        number = self.device.put(stream)
        for block in (*reads, *writes):
            block.uses[stream] = number, told
        for block in writes:
            block.written = True
        if self.events is not None:
            self._tell(
                "use", stream=stream, reads=list(dict.fromkeys(b.name for b in reads)),
                writes=list(dict.fromkeys(b.name for b in writes)),
            )  # fmt: skip

    def _order(self, blocks: Iterable[HeldBlock], stream: int) -> None:
        """Let a stream wait for the alloc of these blocks and for their uses elsewhere."""
        device = self.device
        for block in blocks:
            for other, (number, _) in [(block.stream, (0, False)), *block.uses.items()]:
                unseen = other != stream and (not device.ordered(other, number, stream) or not (number or block.uses))
                if unseen:
                    device.wait(device.record(other), stream)

    def _give_back(self, blocks: list[HeldBlock], *, told: bool) -> None:
        """Free memory in the order of its own stream; tell of other streams, or wait for them."""
        device, stream = self.device, blocks[0].stream
        last = [block for block in blocks if block.holders == 1]
        for block in blocks:
            for other, (number, known) in block.uses.items():
                if known or device.ordered(other, number, stream):
                    continue
                if told and "record_stream" in self.abilities.calls:
                    self._asked("record_stream", self._memory([block]), other)
                    block.uses[other] = number, True
                else:
                    device.wait(device.record(other), stream)
        for block in last:
            self._tell("free", block=block.name, stream=stream)
        self._asked("free", self._memory(blocks), stream)
        for block in blocks:
            self._drop(block, told=True)

    def _drop(self, block: HeldBlock, *, told: bool = False) -> None:
        block.holders -= 1
        if not block.holders:
            if not told:
                self._tell("free", block=block.name, stream=block.stream)
            if block.high > block.low:
                self.book.dropped(block)

    def _check_moved(self, old: HeldBlock, new: HeldBlock, nbytes: int) -> None:
        """Hold a move to what it copied: the first bytes, from the old place to the new one."""
        reached = bytes_moved(self._copies, old.low, new.low)
        if reached < nbytes:
            sentence = f"{old.name} moved from {old.low} to {new.low}, and {reached} of its {nbytes} bytes were copied"
            raise BrokenPromiseError(Broken("kept", "bytes that are lost when memory moves", sentence))

    def _memory(self, blocks: Sequence[HeldBlock]) -> Any:
        return [block.page for block in blocks] if self.abilities.page else blocks[0].low

    def _asked(self, word: str, *arguments: Any) -> Any:
        return self._answer(word, getattr(self.target, word), *arguments)

    def _answer(self, word: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the target's answer; what it raises is a broken promise."""
        try:
            if self._thread_now is not None:
                return self._threads.call(self._thread_now, function, arguments)
            return function(*arguments)
        except BrokenPromiseError:
            raise
        except AskedError as error:
            raise BrokenPromiseError(Broken("answers", f"the target {error.cause}", str(error))) from error
        except BaseException as error:
            if not of_the_target(error):
                raise
            said = f"{type(error).__name__}: {shown(error, str, 200)}"[:200].rstrip(":, ")
            broken = Broken("answers", f"{word} raises {type(error).__name__}", f"{word} raised {said}")
            raise BrokenPromiseError(broken) from error

    def _tell(self, word: str, **keys: Any) -> None:
        if self.events is not None:
            self.events.append({"event": word, **keys})


def of_the_target(error: BaseException) -> bool:
    """Return whether a target raised it, and not whoever interrupts this process."""
    return not isinstance(error, KeyboardInterrupt) or signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def copying(copies: list[tuple[int, int, int]]) -> Callable[[int, int, int], None]:
    """Return what writes a copy down. It raises TypeError for what are no numbers."""
    return lambda source, target, nbytes: copies.append((index(source), index(target), index(nbytes)))


def bytes_moved(copies: Iterable[tuple[int, int, int]], low: int, new: int) -> int:
    """Return how many of the first bytes at one place were copied to the same places at another."""
    reached = 0
    for source, target, many in sorted(copies):
        if source - low == target - new and source - low <= reached:
            reached = max(reached, source - low + many)
    return reached


def whole(answer: Any) -> int | None:
    """Return a number that a target answered; None for what is none, or cannot be an address."""
    try:
        number = None if isinstance(answer, bool) else index(answer)
    except TypeError:
        return None
    return number if number is not None and abs(number) < LIMIT else None


def _odd(answer: Any, rule: str) -> Broken:
    return Broken("answers", "an answer that is none", f"{_shown(answer)} was answered; {rule}")


def _shown(answer: Any) -> str:
    return "a number beyond 2^62" if type(answer) is int and abs(answer) >= LIMIT else shown(answer, most=80)
