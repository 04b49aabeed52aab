"""Records the memory of a run of a tensor library call by call: the blocks, and the parts of blocks
that each call reads and writes. This module does not import torch.

    ledger = Ledger("step")
    x = ledger.meet(1, "cpu", address, nbytes)          # x existed before the run, or the host filled it
    read = ledger.read(x, part)
    y = ledger.give(2, "cpu", address, nbytes, "relu")  # the allocator allocated y
    ledger.call("relu", [read], writes=[(y, part)])
    ledger.free(2)
    document = ledger.document()

Time: each call is one step, in order. The lifetime of a block is half-open: from the step at which
it was allocated to the step before which it was freed. If a block is first seen as an operand
(`meet`) and its bytes were not used before in the run, it is recorded as alive from the start of
the run. If its bytes were used before, its lifetime begins at this call, and it is recorded as
filled by the host just before the call.

Document. A block is a buffer, and each write makes a value in it. A write to a part of a block, or
over an operand, is a mutation. If a call reads other bytes than the last call wrote, it reads a
view of the latest value. Blocks that existed before the run and outlive it are `state` (`parameter`
if no call writes them), and each has separate memory. All other blocks are in the arena of their
device, at their recorded address. At the end the host reads the blocks that are alive and were
written in the run. The belief has the blocks' lifetimes; the events are allocations and frees.

Streams. The next calls run on `ledger.stream`, which is `HOST` at first; `ledger.order` keeps marks
and waits. Work of the host has ended when the next call begins, and a call on a stream comes after
all earlier work of the host. Freed memory may be reused at once on the stream on which it was
allocated. `lend` records that another stream uses a block too. If a block is met on used bytes
while the current stream is not the host's, it is recorded as filled after all earlier calls,
because the true order is unknown. If there are streams besides the host's, the belief is in the
document but is not the problem of the plan: a caching allocator gets no lifetimes and is judged by
a separate rule (docs/format.md, "Streams as runtimes have them").

If `meet` gets bytes inside a live block, or bytes that overlap only one live block that `meet`
made, both ranges are recorded as one block.

What this module does not see: accesses that no call reports. If `meet` gets bytes of *several* live
blocks, the ledger does not know that these are one array, and records overlapping blocks.

Complexity: O(calls), O(log blocks) for each block, O(blocks alive) for a block met on used bytes,
O(values) if a block grows.
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
"""Ranges of adjacent blocks are rounded up to this many bytes; gaps between them are closed."""


HOST: Final = "host"
"""The stream of the host's work, and of devices that have no streams."""


class Extent(NamedTuple):
    """The elements of a block that a call accesses; strides and offset are in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


Touched = tuple["Block", Extent]

Pair = tuple[int, int] | tuple[int, int, str]
"""An in-place pair: the positions of an operand and of a write. A third item is the strength of the
pair; without it the pair is `exact`."""


@dataclass(slots=True, eq=False)
class Block:
    """A range of memory from its allocation until it is freed."""

    index: int
    device: int
    address: int
    nbytes: int
    name: str
    start: int
    """The step of the allocation; -1 if the block existed before the run."""
    stream: int
    """The stream on which the block was allocated."""
    stop: int | None = None
    """The step before which the block was freed; None while the block is alive."""
    keys: int = 1
    """The number of keys that refer to the block. Two tensors in the same memory from outside the
    allocator are one block with two keys."""
    written: bool = False
    """Whether a call or the host wrote the block in the run."""
    content: int | None = None
    """The value of all bytes of the block, if `meet` made the block; otherwise None."""
    latest: int | None = None
    """The last value written in the block."""
    values: dict[Extent, int] = field(default_factory=dict)
    """Part -> the latest value of the part's bytes."""
    parts: dict[Extent, None] = field(default_factory=dict)
    """All parts of the block that calls wrote."""
    lent: set[int] = field(default_factory=set)
    """Other streams that use the block, as `lend` recorded them."""


class _Call(NamedTuple):
    kind: str
    operands: Sequence[int]
    results: Sequence[int]
    in_place: tuple[Pair, ...] | None
    meta: Meta | None
    stream: int
    after: Sequence[int]


class Ledger:
    """Records blocks and calls; `document` makes a program, a belief and a plan from them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive: dict[object, Block] = {}
        """Key of a block -> the block, for all blocks that are alive."""
        self.order = HostOrder()
        self.order.stream(HOST)
        self.stream: Hashable = HOST
        """The stream of the next calls."""
        self._blocks: list[Block] = []
        self._devices: dict[str, int] = {}
        self._values: list[tuple[str, int, Extent]] = []
        self._calls: list[_Call] = []
        self._events: list[tuple[int, int, int]] = []
        self._used: dict[int, list[tuple[int, int]]] = {}
        """Device -> the sorted byte ranges of all blocks so far; overlapping ranges are merged."""

    @property
    def step(self) -> int:
        """The step of the next call."""
        return len(self._calls)

    def meet(self, key: object, device: str, address: int, nbytes: int, name: str = "") -> Block:
        """Return the block of an operand for which no allocation was recorded."""
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
        """Return a new, unwritten block for memory that the allocator has just allocated."""
        place = self._device(device)
        self.order.given_out(DeviceBytes(place, address, address + nbytes))
        self._overlaps(place, address, address + nbytes)
        block = self._block(key, place, (address, nbytes), name, self.step)
        self._events.append((self.step, int(Event.ALLOC), block.index))
        return block

    def filled(self, block: Block) -> None:
        """Record that the host has written a block outside of any call."""
        whole = Extent("u8", (block.nbytes,), (1,), 0)
        value = self._value(block, whole)
        block.values, block.latest, block.written = {whole: value}, value, True
        stream, self.stream = self.stream, HOST
        self._append(HOST_WRITE, (), (value,), (), None)
        self.stream = stream

    def free(self, key: object) -> None:
        """Record that a key no longer refers to its block. Does nothing for an unknown key."""
        block = self.alive.pop(key, None)
        if block is not None:
            self.end(block)

    def end(self, block: Block) -> None:
        """Remove one key of a block. If no key is left, record that the block is freed."""
        block.keys -= 1
        if block.keys == 0:
            block.stop = self.step
            memory = DeviceBytes(block.device, block.address, block.address + block.nbytes)
            self.order.freed(block.index, memory, block.lent - {block.stream})
            self._events.append((self.step, int(Event.FREE), block.index))

    def over(self, device: str, low: int, high: int) -> list[tuple[object, Block]]:
        """Return (key, block) for each live block that overlaps bytes `[low, high)`. O(alive)."""
        place = self._device(device)
        return [
            (key, block)
            for key, block in self.alive.items()
            if block.device == place and block.address < high and low < block.address + block.nbytes
        ]

    def read(self, block: Block, part: Extent) -> int:
        """Return the value of a part of a block: the latest value, or a view of that value."""
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
        """Record a call: the call reads all operands (values from `read`), then writes all parts.

        `in_place` has the positions (operand, write) of pairs that may share bytes: exactly, or as
        the strength of the pair allows. None means that the pairs are unknown.
        """
        results = []
        for block, part in writes:
            value = self._value(block, part)
            block.values, block.latest, block.written = {part: value}, value, True
            block.parts[part] = None
            results.append(value)
        self._append(kind, operands, results, None if in_place is None else tuple(in_place), meta)

    def lend(self, block: Block, stream: Hashable) -> None:
        """Record that another stream uses a block too; `record_stream` reports such a use."""
        block.lent.add(self.order.stream(stream))

    def take(self, kind: str, blocks: Iterable[Block]) -> None:
        """Record that unwritten memory was allocated on the current stream."""
        nothing = Extent("u8", (0,), (1,), 0)
        self._append(kind, (), [self._value(block, nothing) for block in blocks], (), None)

    def document(self, names: Mapping[int, str] | None = None, meta: Meta | None = None) -> Document:
        """Return the program, belief and plan of the recorded calls.

        `names` maps a block's index to a name that replaces its recorded name; `meta` is added to
        the `meta` of the program. O(size).
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
        """Add every call; `ahead` is the number of ops before the first call."""
        begun = {0}
        for call in self._calls:
            after = [op + ahead for op in call.after]
            if call.stream not in begun:  # every stream starts after the uploads
                begun.add(call.stream)
                after = sorted({*range(ahead), *after})
            builder.op(
                call.kind, call.operands, call.results, in_place=call.in_place, meta=call.meta,
                stream=call.stream, after=after,
            )  # fmt: skip

    def _belief(self, program: Program, ahead: int, own: Bools, last: Container[int]) -> Problem:
        """Return the lifetimes as a belief. The blocks in `last` are pinned, because the host reads
        them at the end.
        """
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
        """Return the last ops of all streams except the host's."""
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
        """Grow a block that `meet` made so that it covers bytes `[address, end)` too. The parts of
        the block keep their addresses.
        """
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
        """Mark bytes `[low, high)` of a device as used; return whether some were used before."""
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
        """Add one host read, after the ops `after`, of the blocks that were written and are alive
        at the end. Return the indices of these blocks.
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
    """Return a block's role: state or parameter if the block exists before and after the run."""
    if block.start >= 0:
        return Role.TEMPORARY
    if block.stop is not None:
        return Role.INPUT
    return Role.STATE if block.written else Role.PARAMETER


__all__ = ["GRANULE", "Block", "Extent", "Ledger", "Pair", "Touched"]
