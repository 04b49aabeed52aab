"""What a caching allocator of a rank would do, as events of `allocsim trace`.

    document = trace(events_of(step.lowered.program))

The host goes through the list once, as an eager runtime does: a buffer is given out before its
first op, from the pool of that op's stream, and freed behind its last. A pool is a caching
allocator of its own (segments, blocks split and joined) in addresses of its own. A block that
another stream used is told by `record_stream`; freed, it is held by an event until that stream has
done what it was given, which the host sees `lag` ops later, and only then goes back to its pool
(`returned`). FSDP2's events that hold a buffer are the same to this record: what orders is the
event, whoever keeps it.

`forgotten` names a buffer whose `record_stream` is left out: freed, it goes back at once.

O(ops + accesses). What this module does not see: data, and whether an order is legal.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from allocsim.allocators.caching import Caching
from allocsim.model import HOST_READ, VIEW, Program, Role

POOL: Final = 1 << 40
"""Bytes of addresses of each pool."""

Event = Mapping[str, Any]


def events_of(program: Program, *, lag: int = 8, forgotten: int | None = None) -> list[Event]:
    """Return the events of one run. O(ops + accesses)."""
    return list(_Host(program, lag, forgotten).events())


class _Host:
    """The host of one rank while it issues ops."""

    def __init__(self, program: Program, lag: int, forgotten: int | None) -> None:
        self.program, self.lag, self.forgotten = program, lag, forgotten
        self.pools = [Caching(None, 512) for _ in program.streams]
        self.last: dict[int, int] = {}
        self.home: dict[int, int] = {}
        self.streams: dict[int, set[int]] = {}
        self.address: dict[int, int] = {}
        self.held: list[tuple[int, int]] = []
        """(op at which the host sees the event, buffer)."""
        for op in program.ops:
            for buffer in self._touched(op):
                self.last[buffer] = len(program.ops) if op.kind == HOST_READ else max(op.step, self.last.get(buffer, 0))
                self.home.setdefault(buffer, op.stream)
                self.streams.setdefault(buffer, set()).add(op.stream)
        waited = {step for op in program.ops for step in op.after}
        self.marked = waited

    def events(self) -> Iterator[Event]:
        persistent = self.program.buffers.persistent
        for buffer in self.home:
            if persistent[buffer]:
                yield self._given_out(buffer)
        for op in self.program.ops:
            while self.held and self.held[0][0] <= op.step:
                yield from self._back(self.held.pop(0)[1], seen=True)
            touched = self._touched(op)
            for buffer in touched:
                if buffer not in self.address:
                    yield self._given_out(buffer)
            for earlier in op.after:
                yield {"event": "wait", "mark": earlier, "stream": op.stream}
            if op.kind != VIEW:
                yield self._use(op)
            if op.step in self.marked:
                yield {"event": "record", "mark": op.step, "stream": op.stream}
            for buffer in touched:
                if self.last[buffer] == op.step and not persistent[buffer]:
                    yield from self._freed(buffer, op.step)

    def _touched(self, op: Any) -> list[int]:
        if op.kind == VIEW:
            return []
        of_value = self.program.values.buffer
        return list(dict.fromkeys(int(of_value[value]) for value in (*op.operands, *op.results)))

    def _given_out(self, buffer: int) -> Event:
        stream, buffers = self.home[buffer], self.program.buffers
        nbytes = int(buffers.nbytes[buffer])
        offset = self.pools[stream].alloc(max(nbytes, 1), 512)
        assert offset is not None  # a pool has no end
        self.address[buffer] = stream * POOL + offset
        role = Role(int(buffers.role[buffer])).name.lower()
        event = {"event": "alloc", "block": buffer, "address": self.address[buffer], "nbytes": nbytes}
        return {**event, "stream": stream, "name": buffers.names[buffer], "role": role}

    def _use(self, op: Any) -> Event:
        sides = {"reads": op.operands, "writes": op.results}
        parts = {side: [self._part(value) for value in values] for side, values in sides.items()}
        pairs = None if op.in_place is None else [list(pair) for pair in op.in_place]
        return {"event": "use", "stream": op.stream, "kind": op.kind, "name": op.name, **parts, "in_place": pairs}

    def _part(self, value: int) -> Event:
        low, high = (int(edge) for edge in self.program.values.hulls[value])
        return {"block": int(self.program.values.buffer[value]), "offset": low, "nbytes": high - low}

    def _freed(self, buffer: int, step: int) -> Iterator[Event]:
        others = sorted(self.streams[buffer] - {self.home[buffer]})
        if buffer == self.forgotten:
            others = []
        for stream in others:
            yield {"event": "record_stream", "block": buffer, "stream": stream}
        yield {"event": "free", "block": buffer}
        if others:
            self.held.append((step + self.lag, buffer))
        else:
            yield from self._back(buffer, seen=False)

    def _back(self, buffer: int, *, seen: bool) -> Iterator[Event]:
        stream = self.home[buffer]
        self.pools[stream].free(self.address[buffer] - stream * POOL, 0)
        if seen:
            yield {"event": "returned", "block": buffer}
