"""What a run of a tensor library did with memory, written down call by call: blocks, and who reads
and writes which part of them. No torch is needed here.

    ledger = Ledger("step")
    x = ledger.meet(1, "cpu", address, nbytes)          # it was there before, or the host filled it
    read = ledger.read(x, part)
    y = ledger.give(2, "cpu", address, nbytes, "relu")  # the allocator gave it out
    ledger.call("relu", [read], writes=[(y, part)])
    ledger.free(2)
    document = ledger.document()

Time: calls in order, one step each; a block lives from the step in which it was given out up to the
step before which it was given back, half-open. What is met first as an operand was there from the
start; but where it lies on bytes that the run used before, it was filled by the host just then.

What becomes of it. A block is a buffer, what is written into it a value, a write to part of it or
over an operand a mutation, since the caller wrote one. What reads other bytes than were written
last reads a view of them. Blocks that were there before the run and outlive it are `state`
(`parameter` where nobody writes them) in memory of their own; all others lie in the arena of their
device, at the address that they had. Bytes of blocks that are alive at the end and were written in
the run are read by the host then. The belief is the lives of the blocks, the events are what was
given out and back.

Streams. `ledger.stream` is where the calls that follow run, `HOST` at first; `ledger.order` hears
of marks and waits. What the host does is done when the next call begins, and what is put on a
stream comes after what the host did before. Memory serves its own stream again at once, the one
where it was given out; `lend` says that another uses it too. A block that is met on used bytes
while a stream runs was filled in an order that nobody told: after all that came before. Where more
streams than the host's were met, the belief stands beside the plan: a caching allocator was told no
lifetime, and is held to its own rule (docs/format.md, "Streams as runtimes have them").

What is met over one live block that was met is that block, grown to both. What this module does not
see: what nobody told it; that what is met over *several* live blocks is memory of one array: they
are told as blocks that overlap. Complexity: O(calls), O(log blocks) for each block, O(blocks alive)
for one that is met on bytes that were used before, and O(values) where that makes it grow.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from allocsim.model import (
    HOST_READ,
    HOST_WRITE,
    VIEW,
    Arena,
    Bools,
    Document,
    Event,
    Meta,
    Plan,
    Problem,
    Program,
    Role,
)
from allocsim.programs.addresses import compacted
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.host_order import DeviceBytes, HostOrder

GRANULE: Final = 64
"""Bytes between blocks that lie apart."""


HOST: Final = "host"
"""The stream of what the host does itself, and of devices that have no streams."""


class Extent(NamedTuple):
    """The elements of a block that a call touches: a dtype, a shape, strides and offset in
    bytes.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


Touched = tuple["Block", Extent]

Pair = tuple[int, int] | tuple[int, int, str]
"""Positions of an operand and of what is written, with the strength of the pair if it is not
`exact`.
"""


@dataclass(slots=True, eq=False)
class Block:
    """Memory that an allocator gave out, from then until it is given back."""

    index: int
    device: int
    address: int
    nbytes: int
    name: str
    start: int
    """Step; -1 for a block that was there before the run."""
    stream: int
    """Where it was given out."""
    stop: int | None = None
    """Step before which it was given back; None while it is alive."""
    keys: int = 1
    """By how many keys it is alive: two tensors over memory that no allocator gave out are one
    block.
    """
    written: bool = False
    """Whether a call wrote it."""
    content: int | None = None
    """The value of all its bytes, where it came with some."""
    latest: int | None = None
    """The value written last."""
    values: dict[Extent, int] = field(default_factory=dict)
    """What its bytes are by now, by part."""
    parts: dict[Extent, None] = field(default_factory=dict)
    """All parts that were written."""
    lent: set[int] = field(default_factory=set)
    """Streams that use it too, as the allocator was told."""


class _Call(NamedTuple):
    kind: str
    operands: Sequence[int]
    results: Sequence[int]
    in_place: tuple[Pair, ...] | None
    meta: Meta | None
    stream: int
    after: Sequence[int]


class Ledger:
    """Blocks and calls as they come; `document` makes a program, a belief and a plan of them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive: dict[object, Block] = {}
        """Key -> block."""
        self.order = HostOrder()
        self.order.stream(HOST)
        self.stream: Hashable = HOST
        """Where calls run from now on."""
        self._blocks: list[Block] = []
        self._devices: dict[str, int] = {}
        self._values: list[tuple[str, int, Extent]] = []
        self._calls: list[_Call] = []
        self._events: list[tuple[int, int, int]] = []
        self._used: dict[int, list[tuple[int, int]]] = {}
        """Device -> ranges of the blocks so far, sorted, those that share a byte joined."""

    @property
    def step(self) -> int:
        """The step of the next call."""
        return len(self._calls)

    def meet(self, key: object, device: str, address: int, nbytes: int, name: str = "") -> Block:
        """Return the block of an operand that nobody gave out here."""
        place, end = self._device(device), address + nbytes
        again = self._overlaps(place, address, end)
        if again:
            near = {id(other): other for _, other in self.over(device, address, end)}
            one = next(iter(near.values())) if len(near) == 1 else None
            inside = [b for b in near.values() if b.address <= address and end <= b.address + b.nbytes]
            joined = inside[0] if inside else one if one is not None and one.content is not None else None
            if joined is not None:
                self._grow(joined, address, end)
                joined.keys += 1
                self.alive[key] = joined
                return joined
        block = self._block(key, place, (address, nbytes), name, self.step if again else -1)
        whole = Extent("u8", (nbytes,), (1,), 0)
        block.content = block.latest = block.values[whole] = self._value(block, whole)
        if again:
            self._events.append((self.step, int(Event.ALLOC), block.index))
            block.written = True
            if self.stream != HOST:
                self.order.join([self.order.stream(self.stream)])
            self._append(HOST_WRITE, (), (block.content,), (), None)
        return block

    def give(self, key: object, device: str, address: int, nbytes: int, name: str) -> Block:
        """Return a block that the allocator has just given out; nobody wrote it yet."""
        place = self._device(device)
        self.order.given_out(DeviceBytes(place, address, address + nbytes))
        self._overlaps(place, address, address + nbytes)
        block = self._block(key, place, (address, nbytes), name, self.step)
        self._events.append((self.step, int(Event.ALLOC), block.index))
        return block

    def filled(self, block: Block) -> None:
        """Note that the host has written a block by a way that nobody told."""
        whole = Extent("u8", (block.nbytes,), (1,), 0)
        value = self._value(block, whole)
        block.values, block.latest, block.written = {whole: value}, value, True
        stream, self.stream = self.stream, HOST
        self._append(HOST_WRITE, (), (value,), (), None)
        self.stream = stream

    def free(self, key: object) -> None:
        """Note that a block was given back. Nothing where it is not known."""
        block = self.alive.pop(key, None)
        if block is not None:
            self.end(block)

    def end(self, block: Block) -> None:
        """Note that a key of a block, which is another block's by now, holds it no more."""
        block.keys -= 1
        if block.keys == 0:
            block.stop = self.step
            memory = DeviceBytes(block.device, block.address, block.address + block.nbytes)
            self.order.freed(block.index, memory, block.lent - {block.stream})
            self._events.append((self.step, int(Event.FREE), block.index))

    def over(self, device: str, low: int, high: int) -> list[tuple[object, Block]]:
        """Return the blocks that are alive on some of these bytes, with their keys. O(alive)."""
        place = self._device(device)
        return [
            (key, block)
            for key, block in self.alive.items()
            if block.device == place and block.address < high and low < block.address + block.nbytes
        ]

    def read(self, block: Block, part: Extent) -> int:
        """Return the value of a part: the one written last, or a view of it."""
        found = block.values.get(part)
        if found is None:
            found = block.values[part] = self._value(block, part)
            if block.latest is not None:
                self._append(VIEW, (block.latest,), (found,), (), None)
        return found

    def call(
        self,
        kind: str,
        operands: Sequence[int],
        writes: Iterable[Touched],
        *,
        in_place: Iterable[Pair] | None = (),
        meta: Meta | None = None,
    ) -> None:
        """Write down a call: it reads all operands (`read`), then writes all parts.

        `in_place` are positions (operand, write) that may lie on each other exactly, or as their
        strength says; None if nobody knows.
        """
        results = []
        for block, part in writes:
            value = self._value(block, part)
            block.values, block.latest, block.written = {part: value}, value, True
            block.parts[part] = None
            results.append(value)
        self._append(kind, operands, results, None if in_place is None else tuple(in_place), meta)

    def lend(self, block: Block, stream: Hashable) -> None:
        """Note that the allocator was told of a use on another stream (`record_stream`)."""
        block.lent.add(self.order.stream(stream))

    def take(self, kind: str, blocks: Iterable[Block]) -> None:
        """Write down that memory was given out on this stream, and not written yet."""
        nothing = Extent("u8", (0,), (1,), 0)
        self._append(kind, (), [self._value(block, nothing) for block in blocks], (), None)

    def document(self, names: Mapping[int, str] | None = None, meta: Meta | None = None) -> Document:
        """Return program, belief and plan of what was written down.

        `names` are better ones for blocks by index, `meta` is that of the program. O(size).
        """
        kept = [block for block in self._blocks if block.start < 0 and block.stop is None]
        gone = [block for block in self._blocks if block.start < 0 and block.stop is not None]
        ahead = int(bool(gone))
        arenas = [Arena(name=name, alignment=1) for name in self._devices] or [Arena(name="cpu")]
        several = len(self.order.streams) > 1
        builder = ProgramBuilder(
            self.name,
            arenas=arenas,
            streams=tuple(map(str, self.order.streams)) if several else ("main",),
            meta={**({"assumed_returns": self.order.assumed} if self.order.assumed else {}), **(meta or {})},
        )
        homes = frozenset(block.index for block in kept)
        for block in self._blocks:
            name = (names or {}).get(block.index) or block.name or f"block {block.index}"
            builder.buffer(name, block.nbytes, role=_role(block), arena=block.device, alignment=1)
        for name, index, part in self._values:
            builder.value(name, index, part.dtype, part.shape, strides=part.strides, offset=part.offset)
        if gone:
            contents = [block.content for block in gone if block.content is not None]
            builder.op(HOST_WRITE, (), contents, name="before the run")
        self._write_calls(builder, ahead)
        last = self._downloads(builder, [op + ahead for op in self._fronts()])
        program = builder.build()
        own = np.array([block.index in homes for block in self._blocks], dtype=np.bool_)
        problem = self._belief(program, ahead, own, last)
        events = [(0, int(Event.ALLOC), block.index) for block in gone]
        events += [(step + ahead, what, index) for step, what, index in self._events if index not in homes]
        arena = np.where(own, -1, program.buffers.arena).astype(np.int32)
        plan = Plan(
            program=program,
            problem=None if several else problem,
            source=self.name,
            arena=arena,
            offset=self._offsets() * (arena >= 0),
            nbytes=program.buffers.nbytes * (arena >= 0),
            events=np.array(events, dtype=np.int64).reshape(-1, 3),
        )
        return Document.of(plan, problem)

    def _write_calls(self, builder: ProgramBuilder, ahead: int) -> None:
        """Add every call; `ahead` ops stand before the first."""
        begun = {0}
        for call in self._calls:
            after = [op + ahead for op in call.after]
            if call.stream not in begun:  # all streams come after what was there before
                begun.add(call.stream)
                after = sorted({*range(ahead), *after})
            builder.op(
                call.kind, call.operands, call.results, in_place=call.in_place, meta=call.meta,
                stream=call.stream, after=after,
            )  # fmt: skip

    def _belief(self, program: Program, ahead: int, own: Bools, last: Container[int]) -> Problem:
        """Return when each block was held; those of `last` are read at the end."""
        steps = len(program.ops)
        start = [block.start + ahead if block.start >= 0 else 0 for block in self._blocks]
        stop = [steps if block.stop is None else block.stop + ahead for block in self._blocks]
        return Problem.of(
            program,
            start=np.array(start, dtype=np.int64),
            stop=np.array(stop, dtype=np.int64),
            pinned=np.array([index in last for index in range(len(self._blocks))], dtype=np.bool_),
            own=own,
        )

    # --- streams

    def _append(
        self,
        kind: str,
        operands: Sequence[int],
        results: Sequence[int],
        in_place: tuple[Pair, ...] | None,
        meta: Meta | None,
    ) -> None:
        stream = self.order.stream(self.stream)
        after = self.order.put(stream, self.step)
        self._calls.append(_Call(kind, operands, results, in_place, meta, stream, after))
        if self.stream == HOST:
            self.order.synchronize(stream)

    def _fronts(self) -> list[int]:
        """Return the last op of each stream but the host's."""
        found = {op for stream in self.order.streams.values() if stream for op in self.order.front(stream).values()}
        return sorted(found)

    # --- blocks

    def _device(self, name: str) -> int:
        return self._devices.setdefault(name, len(self._devices))

    def _block(self, key: object, device: int, where: tuple[int, int], name: str, start: int) -> Block:
        block = Block(len(self._blocks), device, *where, name, start, stream=self.order.stream(self.stream))
        self._blocks.append(block)
        self.alive[key] = block
        return block

    def _grow(self, block: Block, address: int, end: int) -> None:
        """Let a block that was met reach over these bytes too, which lay in the same memory."""
        low, high = min(address, block.address), max(end, block.address + block.nbytes)
        if block.content is None or (low, high) == (block.address, block.address + block.nbytes):
            return
        shift = block.address - low
        whole = Extent("u8", (high - low,), (1,), 0)
        block.values = {part._replace(offset=part.offset + shift): v for part, v in block.values.items()}
        block.parts = {part._replace(offset=part.offset + shift): None for part in block.parts}
        for at, (name, index, part) in enumerate(self._values):
            if index == block.index:
                self._values[at] = (name, index, part._replace(offset=part.offset + shift))
        self._values[block.content] = (self._values[block.content][0], block.index, whole)
        block.values = {part: value for part, value in block.values.items() if value != block.content}
        if block.latest == block.content:
            block.values[whole] = block.content
        block.address, block.nbytes = low, high - low

    def _overlaps(self, device: int, low: int, high: int) -> bool:
        """Return whether the run used some of these bytes already, and add them."""
        if low >= high:
            return False
        used = self._used.setdefault(device, [])
        first = bisect_right(used, (low, high))
        if first and used[first - 1][1] > low:
            first -= 1
        last = bisect_left(used, (high, high))
        found = used[first:last]
        if not found:
            insort(used, (low, high))
            return False
        used[first:last] = [(min(low, found[0][0]), max(high, *(end for _, end in found)))]
        return True

    def _offsets(self) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        rows = [(block.device, block.address, block.address + block.nbytes) for block in self._blocks]
        device, low, high = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        own = np.array([block.start < 0 and block.stop is None for block in self._blocks], dtype=np.bool_)
        offsets = np.zeros(len(rows), dtype=np.int64)
        for place in range(len(self._devices)):
            here = (device == place) & ~own
            offsets[here], _ = compacted(low[here], low[here], high[here], granule=GRANULE)
        return offsets

    # --- values

    def _value(self, block: Block, part: Extent) -> int:
        self._values.append((block.name or f"block {block.index}", block.index, part))
        return len(self._values) - 1

    def _downloads(self, builder: ProgramBuilder, after: Sequence[int]) -> set[int]:
        """Let the host read, after these ops, what is alive at the end and was written; return
        these blocks.
        """
        read = [block for block in self._blocks if block.stop is None and block.written]
        operands = []
        for block in read:
            for part in block.parts or {Extent("u8", (block.nbytes,), (1,), 0): None}:
                value = block.values.get(part)
                if value is None:
                    name = block.name or f"block {block.index}"
                    value = builder.value(
                        name, block.index, part.dtype, part.shape, strides=part.strides, offset=part.offset
                    )
                    builder.op(VIEW, (block.latest or 0,), (value,))
                operands.append(value)
        if operands:
            builder.op(HOST_READ, operands, (), name="alive at the end", after=after)
        return {block.index for block in read}


def _role(block: Block) -> Role:
    """Return what a block is for the run: what was there before and stays is held by the caller."""
    if block.start >= 0:
        return Role.TEMPORARY
    if block.stop is not None:
        return Role.INPUT
    return Role.STATE if block.written else Role.PARAMETER


__all__ = ["GRANULE", "Block", "Extent", "Ledger", "Pair", "Touched"]
