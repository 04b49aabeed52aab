"""The log of the recorder, read: an event a line (`record_events`; `allocsim_record.c` writes
them).

    log = read_log("log.jsonl")
    log.runs, log.touches, log.buffers

Contract
--------
* Lines are taken in the order of `n`. A last line that is cut is left out: whoever was killed left
  all lines before it. Any other line that is no event is a DocumentError with its number.
* A tensor told anew at its address with another op, type or shape is another one; one told with
  other memory, flags or sources is the same. Its buffer is the one that lies at the address told at
  the moment its memory was told.
* A tensor's flags are those it had when its memory was given to it: what the planner knew.

O(lines). What this module does not see: what is wrong.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from allocsim.errors import DocumentError
from allocsim.files.gate import content
from allocsim.systems.ggml.ggml_dump import NONE
from allocsim.systems.ggml.host_record.record_events import (
    AnyEvent,
    BufferFreed,
    BufferTold,
    ContextGone,
    EventRecorded,
    EventWaited,
    GraphTold,
    HostRead,
    HostWrote,
    RunBegins,
    Start,
    TensorTold,
    Waited,
)

COMPUTE_USAGE: Final = 2
"""`GGML_BACKEND_BUFFER_USAGE_COMPUTE`: what allocators of graphs mark their buffers with."""


@dataclass(slots=True, eq=False)
class RecordedBuffer:
    """A buffer of a backend, from birth to death."""

    number: int
    base: int
    size: int
    usage: int
    alignment: int
    name: str
    died: int | None = None
    """The event that gave it back."""

    @property
    def computes(self) -> bool:
        """Whether it is memory of a plan."""
        return self.usage == COMPUTE_USAGE

    def dead(self, event: int) -> bool:
        """Whether it had been given back before an event."""
        return self.died is not None and self.died < event


@dataclass(slots=True, eq=False)
class RecordedTensor:
    """One generation of a tensor; `told` is what was last said of it."""

    number: int
    told: TensorTold
    memory: RecordedBuffer | None
    flags: int

    @property
    def name(self) -> str:
        """Its name, for people."""
        return self.told.name


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTensor:
    """A tensor as it was when a graph was computed."""

    tensor: RecordedTensor
    told: TensorTold
    memory: RecordedBuffer | None
    flags: int
    view_src: RecordedTensor | None
    src: tuple[RecordedTensor | None, ...]


@dataclass(slots=True, eq=False)
class RecordedRun:
    """One computation of a graph."""

    event: int
    by: int
    waits: bool
    leafs: tuple[PlacedTensor, ...]
    outside: tuple[PlacedTensor, ...]
    """Roots of views that the graph does not hold."""
    nodes: tuple[PlacedTensor, ...]
    copies: dict[RecordedTensor, RecordedTensor]
    """What a scheduler copies to another backend: the copy, and what it is a copy of."""
    changed: frozenset[RecordedTensor]
    """Leafs that were written by pointer since the last run or call."""
    same: frozenset[RecordedTensor]
    """Leafs whose bytes are those that the last run or call left there."""


Laid = tuple[
    tuple[PlacedTensor, ...],
    tuple[PlacedTensor, ...],
    tuple[PlacedTensor, ...],
    dict[RecordedTensor, RecordedTensor],
]
"""Leafs, roots outside, nodes, and copies of a graph."""


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """The host wrote or read a part of a tensor."""

    event: int
    writes: bool
    tensor: RecordedTensor
    root: RecordedTensor
    start: int
    """First byte, in the root."""
    stop: int
    by: int
    """The backend that was asked to do it later, 0 where it was done at once."""


@dataclass(frozen=True, slots=True)
class HostWait:
    """The host waited until a backend or scheduler had done what it was given up to an event."""

    reached: int
    told: int
    """The event behind which the host knows."""
    by: int


@dataclass(slots=True)
class RecordLog:
    """All that was said, in order."""

    version: str = ""
    inplace_ops: list[str] = field(default_factory=list)
    buffers: list[RecordedBuffer] = field(default_factory=list)
    runs: list[RecordedRun] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)
    waits: list[HostWait] = field(default_factory=list)


def read_log(path: str | Path) -> RecordLog:
    """Return what a log says; raise DocumentError with the line where it is none."""
    return _Reading(str(path)).all_of(content(path))


class _Reading:
    """The state of the process as far as the log has been read."""

    def __init__(self, source: str) -> None:
        self.source, self.log = source, RecordLog()
        self.memory: dict[int, RecordedBuffer] = {}
        self.tensors: dict[int, RecordedTensor] = {}
        self.graphs: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self.laid: dict[int, Laid] = {}
        self.recorded: dict[int, tuple[int, int]] = {}
        """By event of a backend: where it was recorded last, and on which backend."""
        """Graph -> its tensors as they were at its last run; none where anything was told since."""
        self.count = 0

    def all_of(self, data: bytes) -> RecordLog:
        for event in sorted(self._lines(data), key=lambda one: one.n):
            if isinstance(event, TensorTold | ContextGone | GraphTold):
                self.laid.clear()
            try:
                self._follow(event)
            except KeyError as error:
                rule = f"names {error.args[0]}, where nothing was told to be"
                raise DocumentError(self.source, f"event {event.n}", rule) from None
        return self.log

    def _lines(self, data: bytes) -> Iterator[AnyEvent]:
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield msgspec.json.decode(line, type=AnyEvent)
            except (msgspec.DecodeError, UnicodeError) as error:
                if number == len(lines):
                    return
                raise DocumentError(self.source, f"line {number}", f"is no event: {error}") from None

    def _follow(self, event: AnyEvent) -> None:
        match event:
            case Start():
                self.log.version, self.log.inplace_ops = event.ggml, list(event.inplace_ops)
            case BufferTold():
                self._born(event)
            case BufferFreed():
                self.memory[event.at].died = event.n
            case TensorTold():
                self._told(event)
            case ContextGone():
                self._gone(event)
            case GraphTold():
                self.graphs[event.at] = event.leafs, event.nodes
            case HostWrote() | HostRead():
                self._touched(event)
            case RunBegins():
                self._ran(event)
            case Waited():
                self.log.waits.append(HostWait(event.n, event.n, event.by))
            case EventRecorded():
                self.recorded[event.by] = event.n, event.other
            case EventWaited() if not event.other and event.by in self.recorded:
                reached, by = self.recorded[event.by]
                self.log.waits.append(HostWait(reached, event.n, by))

    def _born(self, event: BufferTold) -> None:
        memory = RecordedBuffer(
            number=len(self.log.buffers), base=event.base, size=event.size, usage=event.usage,
            alignment=max(event.alignment, 1), name=event.name,
        )  # fmt: skip
        self.memory[event.at] = memory
        self.log.buffers.append(memory)

    def _told(self, event: TensorTold) -> None:
        known = self.tensors.get(event.at)
        if known is None or _layout(known.told) != _layout(event):
            known = RecordedTensor(self.count, event, self.memory.get(event.buffer), event.flags)
            self.count += 1
            self.tensors[event.at] = known
        elif (known.told.data, known.told.buffer) != (event.data, event.buffer):
            known.memory, known.flags = self.memory.get(event.buffer), event.flags
        known.told = event

    def _gone(self, event: ContextGone) -> None:
        for table in (self.tensors, self.graphs):
            for at in [at for at in table if event.start <= at < event.stop]:
                del table[at]

    def _touched(self, event: HostWrote | HostRead) -> None:
        tensor = self.tensors[event.t]
        root = self.tensors.get(tensor.told.view_src, tensor)
        start = event.start + (tensor.told.view_offs if root is not tensor else 0)
        writes = isinstance(event, HostWrote)
        self.log.touches.append(Touch(event.n, writes, tensor, root, start, start + event.size, event.by))

    def _ran(self, event: RunBegins) -> None:
        changed, same = (frozenset(self.tensors[at] for at in those) for those in (event.changed, event.same))
        if event.graph not in self.laid:
            self.laid[event.graph] = self._laid(event.graph)
        leafs, outside, nodes, copies = self.laid[event.graph]
        if event.waits:  # a call that waits for its own graph waits for what its backend was given before
            self.log.waits.append(HostWait(event.n, event.n, event.by))
        self.log.runs.append(RecordedRun(event.n, event.by, event.waits, leafs, outside, nodes, copies, changed, same))

    def _laid(self, graph: int) -> Laid:
        listed, ordered = self.graphs[graph]
        marks = {place for place, at in enumerate(ordered[:-1]) if self._is_mark(at)}
        copies = {
            self.tensors[ordered[place + 1]]: self.tensors[self.tensors[ordered[place]].told.src[0]] for place in marks
        }
        nodes = {at: None for place, at in enumerate(ordered) if place not in marks}
        leafs = [at for at in dict.fromkeys(listed) if at not in nodes]
        known = {*leafs, *nodes}
        roots = [self.tensors[at].told.view_src for at in (*leafs, *nodes)]
        outside = [at for at in dict.fromkeys(roots) if at and at not in known]
        one, other, third = (tuple(self._placed(at) for at in those) for those in (leafs, outside, nodes))
        return one, other, third, copies

    def _is_mark(self, at: int) -> bool:
        """Whether a node is a scheduler's mark: an op-NONE view of one source, a copy behind it."""
        told = self.tensors[at].told
        return told.op == NONE and bool(told.view_src) and len(told.src) == 1

    def _placed(self, at: int) -> PlacedTensor:
        tensor = self.tensors[at]
        told = tensor.told
        src = tuple(self.tensors[other] if other else None for other in told.src)
        view_src = self.tensors[told.view_src] if told.view_src else None
        return PlacedTensor(tensor, told, tensor.memory, tensor.flags, view_src, src)


def _layout(told: TensorTold) -> tuple[object, ...]:
    """Return what makes a tensor another one."""
    return told.op, told.type, told.ne, told.nb, told.view_offs
