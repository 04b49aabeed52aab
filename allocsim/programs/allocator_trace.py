"""Turns a trace of a caching allocator, with its streams, into a document: the blocks with their
addresses and lifetimes, and the order in which the device ran the ops.

Events come in the order in which the host made them, one object each (one a line, in a file):

| event | keys (defaults in brackets) | what happened |
|---|---|---|
| `pool` | `page`, `device` [0], `cells` [1], `pages` [not told] | a device has pages of so many bytes, each with room for so many positions |
| `alloc` | `block`, `address` and `nbytes`, or `page`, `stream` [0], `device` [0], `name` [block], `role` [temporary] | a block was given out |
| `free` | `block`, `stream` [the alloc's] | the host gave the block back, in the order of that stream |
| `returned` | `block` | the allocator has seen all recorded uses of a freed block end, and may give it out again |
| `use` | `stream` [0], `reads` [none], `writes` [none], `kind` [use], `name` [kind], `in_place` [null], `mark` [none], `program` [none] | an op was put on a stream, and marked; or it is one of a captured program |
| `move` | `from`, `to`, `stream` [0], `name` | bytes were put on their way from one block, or part, to another |
| `run` | `program`, `after` [none] | a captured program was put on its streams, behind these marks |
| `record` | `mark`, `stream` [0] | an event marks what the stream has been given so far |
| `wait` | `mark`, `stream` [0] | what the stream is given from now on waits for that mark |
| `done` | `mark` | the host has seen that all before that mark has ended |
| `barrier` | `actors` | these streams have met: what each is given next comes after all that any of them was given |
| `synchronize` | `stream` [all] | the host waited until the stream had done what it was given so far |
| `record_stream` | `block`, `stream` [0] | the block is in use on another stream too; once freed, it waits for what that has been given by then |

The allocator's own book, which no op reads (`allocsim.recordings.book` compares it):

| event | keys | what happened |
|---|---|---|
| `ref`, `unref` | `block`, `count` [not told] | one more holder, or one less; and how many the allocator says there are then |
| `cell` | `block`, `sequence`, `position`, `count` [1], `slot`, `content` | the allocator says that these cells hold these positions |
| `share` | the same | the same, for one more holder |
| `evict`, `trim` | `block`, `nbytes`, `device` | memory of a cache was given up |
| `exhausted`, `failed` | `device`, `nbytes`, `pages`, `reason` | nothing was given out |

Any event may have `meta`. A `block` is what stands under that name in the last `alloc` of it;
`reads` and `writes` list blocks, or parts of them:
`{"block": ..., "offset": [0], "nbytes": [the rest]}`, or cells of a page
(`allocsim.programs.trace_events`, where the shorter words are written out). What the host does
itself is a `use` of kind `host.write` or `host.read`.

The document. A block becomes a buffer, a device an arena, the addresses become the slots of a plan,
and allocs and frees its events. A use becomes an op on its stream. It writes a new value, for a use
mutates a live block; it reads the value last written there, if that has exactly these bytes. A wait
becomes an `after` of the next op on its stream. A block may be reused on its own stream at once, by
stream order; on another stream that needs a wait, or both uses race. Ops that the host knows to be
done (`synchronize`, `done`, `returned`) happen before all ops that it issues later. A block that
`record_stream` named is returned when the recorded uses have ended. If the trace has no `returned`
for it, and the bytes are allocated again, the allocator is trusted that these uses had ended; the
program's `meta` counts such cases as `assumed_returns`. If a block was used on a stream that was
not recorded, nothing is assumed, and its uses race with those of the next block.

Complexity: O(events x (streams + blocks that wait for a return)). What this module does not see:
the purpose of a block, and whether the trace is complete.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Event, Plan, Role
from allocsim.model.layout import LIMIT
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.host_order import DeviceBytes, HostOrder
from allocsim.programs.trace_events import Cells, Lowering, checked, key_of, meta_of, number_of, pairs_of, shown

_ROLES: Final = {role.name.lower(): role for role in Role}


@dataclass(slots=True, kw_only=True)
class _Block:
    """The state of one allocation."""

    buffer: int
    memory: DeviceBytes
    stream: int
    freed: bool = False
    recorded: set[int] = field(default_factory=set)
    """Other streams that `record_stream` named."""
    written: dict[tuple[int, int], int] = field(default_factory=dict)
    """Range of bytes -> the value that covers exactly these bytes."""


def trace(events: Iterable[Mapping[str, Any]], *, name: str = "trace") -> Document:
    """Return the document of a trace: one program, and one plan with the addresses of the trace.

    Args:
        events: in the order in which the host made them; see the module for their keys.
        name: of the program.

    The module header gives the complexity. Raises ModelError, at `events[i]`, for an event that is
    malformed or contradicts earlier ones.
    """
    made = _Trace()
    for index, event in enumerate(events):
        try:
            made.add(event)
        except ModelError as error:
            raise error.within(f"events[{index}]") from None
    return made.document(name)


class _Trace:
    """A document while its events come in."""

    def __init__(self) -> None:
        self.order = HostOrder()
        self.lowering = Lowering()
        self.devices: dict[Any, int] = {}
        self.blocks: dict[Any, _Block] = {}
        self.places: list[tuple[int, int]] = []
        """(address, size in bytes) of each buffer."""
        self.buffers: list[dict[str, Any]] = []
        self.values: list[tuple[str, int, int, int]] = []
        self.ops: list[dict[str, Any]] = []
        self.done: list[tuple[int, int, int]] = []

    def add(self, event: Mapping[str, Any]) -> None:
        """Add one event."""
        for plain in self.lowering.plain(checked(event)):
            handler = getattr(self, f"_{plain['event']}", None)
            if handler is not None:  # other events are the allocator's own book, which no op reads
                handler(plain)

    def _alloc(self, event: Mapping[str, Any]) -> None:
        block, address, nbytes = key_of(event, "block"), number_of(event, "address"), number_of(event, "nbytes")
        role = event.get("role", "temporary")
        if role not in _ROLES:
            raise ModelError("role", f"{shown(role)} is none of {' '.join(_ROLES)}")
        old = self.blocks.get(block)
        if old is not None and not old.freed:
            raise ModelError("block", f"{shown(block)} was given out already and not freed")
        device = self.devices.setdefault(key_of(event, "device", 0), len(self.devices))
        memory = DeviceBytes(device, address, address + nbytes)
        found = _Block(buffer=len(self.buffers), memory=memory, stream=self._stream(event))
        self.order.given_out(found.memory)
        self.blocks[block] = found
        self.places.append((address, nbytes))
        self.done.append((len(self.ops), int(Event.ALLOC), found.buffer))
        self.buffers.append(
            {
                "name": str(event.get("name", block)),
                "nbytes": nbytes,
                "role": _ROLES[role],
                "arena": device,
                "meta": meta_of(event),
            }
        )

    def _free(self, event: Mapping[str, Any]) -> None:
        block = self._block(event)
        stream = self._stream(event, block.stream)
        self.done.append((len(self.ops), int(Event.FREE), block.buffer))
        block.freed = True
        self.order.freed(block.buffer, block.memory, block.recorded - {stream})

    def _returned(self, event: Mapping[str, Any]) -> None:
        block = self._block(event)
        if not block.freed:
            raise ModelError("block", f"{shown(event['block'])} was returned before it was freed")
        self.order.returned(block.buffer)

    def _record(self, event: Mapping[str, Any]) -> None:
        self.order.record(key_of(event, "mark"), self._stream(event))

    def _wait(self, event: Mapping[str, Any]) -> None:
        self.order.wait(self._mark(event), self._stream(event))

    def _done(self, event: Mapping[str, Any]) -> None:
        self.order.synchronize_mark(self._mark(event))

    def _mark(self, event: Mapping[str, Any]) -> Any:
        mark = key_of(event, "mark")
        if mark not in self.order.marks:
            raise ModelError("mark", f"{shown(mark)} was never recorded")
        return mark

    def _barrier(self, event: Mapping[str, Any]) -> None:
        streams = [self.order.stream(name) for name in event["actors"]]
        self.order.join(streams, streams)

    def _synchronize(self, event: Mapping[str, Any]) -> None:
        self.order.synchronize(*([self._stream(event)] if "stream" in event else ()))

    def _record_stream(self, event: Mapping[str, Any]) -> None:
        self._block(event).recorded.add(self._stream(event))

    def _use(self, event: Mapping[str, Any]) -> None:
        stream, step = self._stream(event), len(self.ops)
        kind = str(event.get("kind", "use"))
        reads, writes = (self._parts(event, side) for side in ("reads", "writes"))
        if (kind == HOST_WRITE and reads) or (kind == HOST_READ and writes):
            raise ModelError("kind", f"a {kind} has no {'reads' if reads else 'writes'}")
        pairs = pairs_of(event)
        operands = [self._value(part, made=False) for part in reads]
        results = [self._value(part, made=True) for part in writes]
        self.ops.append(
            {
                "kind": kind,
                "operands": operands,
                "results": results,
                "name": str(event.get("name", kind)),
                "in_place": pairs if operands and results else (),
                "stream": stream,
                "after": self.order.put(stream, step),
                "meta": meta_of(event),
            }
        )

    def _parts(self, event: Mapping[str, Any], side: str) -> list[tuple[_Block, int, int]]:
        found = []
        for position, part in enumerate(event.get(side, ())):
            plain = part.as_bytes() if type(part) is Cells else part
            row: Mapping[str, Any] = plain if isinstance(plain, Mapping) else {"block": plain}
            try:
                block = self._block(row)
                offset = number_of(row, "offset", 0)
                nbytes = number_of(row, "nbytes", max(block.memory.high - block.memory.low - offset, 0))
            except ModelError as error:
                raise error.within(f"{side}[{position}]") from None
            found.append((block, offset, offset + nbytes))
        return found

    def _value(self, part: tuple[_Block, int, int], *, made: bool) -> int:
        """Return the value of some bytes of a block: a new value if the op makes it, or if no value
        covers exactly these bytes.
        """
        block, low, high = part
        known = block.written.get((low, high))
        if not made and known is not None:
            return known
        index = len(self.values)
        if made:  # values that share a byte with what is written now are no longer what lies there
            block.written = {ends: value for ends, value in block.written.items() if ends[1] <= low or high <= ends[0]}
        block.written[low, high] = index
        self.values.append((self.buffers[block.buffer]["name"], block.buffer, low, high - low))
        return index

    def _stream(self, event: Mapping[str, Any], default: int | None = None) -> int:
        if default is not None and "stream" not in event:
            return default
        return self.order.stream(key_of(event, "stream", 0))

    def _block(self, event: Mapping[str, Any]) -> _Block:
        block = self.blocks.get(key_of(event, "block"))
        if block is None:
            near = get_close_matches(str(event["block"]), map(str, self.blocks), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError("block", f"{shown(event['block'])} was never given out{hint}")
        return block

    def document(self, name: str) -> Document:
        """Return the document of all events added."""
        arenas = tuple(Arena(name=str(device)) for device in self.devices) or (Arena(name="0"),)
        streams = tuple(map(str, self.order.streams)) or ("0",)
        assumed = self.order.assumed
        b = ProgramBuilder(name, arenas=arenas, streams=streams, meta={"assumed_returns": assumed} if assumed else None)
        for row in self.buffers:
            b.buffer(**row)
        for label, buffer, offset, length in self.values:
            b.value(label, buffer, "u8", (length,), offset=offset)
        for op in self.ops:
            b.op(**op)
        program = b.build()
        low = np.full(len(arenas), LIMIT, dtype=np.int64)
        address, nbytes = np.array(self.places, dtype=np.int64).reshape(-1, 2).T
        np.minimum.at(low, program.buffers.arena, address)
        plan = Plan(
            program=program,
            source="trace",
            arena=program.buffers.arena,
            offset=address - low[program.buffers.arena],
            nbytes=nbytes,
            events=np.array(self.done, dtype=np.int64).reshape(-1, 3),
        )
        return Document.of(plan)


__all__ = ["trace"]
