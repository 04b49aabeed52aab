"""Read the recorder's log, which has an event in each line. `record_events` declares the events;
`allocsim_record.c` writes the log.

    log = read_log("log.jsonl")
    log.runs, log.happened, log.buffers

Contract
--------
* Lines are followed in the order of `n`, because two threads may write their lines in the wrong
  order. Events after a missing number are followed only at the end of the log. An incomplete last
  line, as a killed process leaves behind, is ignored. Any other line that is no event raises
  DocumentError with the line's number.
* A log that still grows is read piece by piece (`LogReading`), with the same result.
* A tensor logged again at its address is another tensor if its op, type, shape, strides or view
  offset differs, and the same tensor if only memory, flags or sources differ. The tensor's buffer
  is the buffer that existed at the logged buffer address when the tensor was logged.
* A scheduler, backend or event at the address of a freed object is a new object.
* Tensors that a scheduler placed before a reset keep their addresses, which the next plan does not
  respect. Suppose that a later graph has leafs among these tensors, and that one of these tensors
  shares bytes with another tensor of the graph while both are needed. Then all tensors of the graph
  that were placed before the reset count as freed before that run. Otherwise these tensors keep
  their memory.
* A tensor's flags are the flags that the planner knew when it placed the tensor's memory.

O(lines). What this module does not see: whether an event is a fault.
"""

import heapq
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from allocsim.errors import DocumentError
from allocsim.files.gate import content
from allocsim.model.layout import LIMIT
from allocsim.systems.ggml.ggml_dump import COMPUTE_USAGE, NONE
from allocsim.systems.ggml.host_record.record_events import (
    ActorEnded,
    AnyEvent,
    BackendTold,
    BareLeafs,
    BatchBegins,
    BatchEnded,
    BufferFreed,
    BufferTold,
    ContextGone,
    ElementsTold,
    EventRecorded,
    EventWaited,
    GraphAsked,
    GraphTold,
    HostRead,
    HostWrote,
    MaskTold,
    NumbersTold,
    OptStep,
    Planned,
    Reserved,
    ResultsTaken,
    RowFilled,
    RunBegins,
    SchedulerAsked,
    SchedulerReset,
    SequenceAsked,
    Start,
    TensorTold,
    ThereAgain,
    Waited,
)

GENERATION: Final = LIMIT + 1
"""The numbers of two successive objects at one address differ by this amount."""


@dataclass(slots=True, eq=False)
class RecordedBuffer:
    """A buffer of a backend, from its allocation to its release."""

    number: int
    born: int
    """Number of the event that logged the buffer first."""
    base: int
    size: int
    usage: int
    alignment: int
    name: str
    died: int | None = None
    """Number of the event that freed the buffer; None if no event freed it."""

    @property
    def computes(self) -> bool:
        """Whether this is a compute buffer, the memory that a planner plans."""
        return self.usage == COMPUTE_USAGE

    def dead(self, event: int) -> bool:
        """Return whether the buffer had been freed before the event with this number."""
        return self.died is not None and self.died < event


@dataclass(slots=True, eq=False)
class RecordedTensor:
    """A tensor at an address until another tensor replaces it; `told` is its last logged event."""

    number: int
    told: TensorTold
    memory: RecordedBuffer | None
    flags: int

    @property
    def name(self) -> str:
        """The tensor's name in ggml, which need not be unique."""
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


Placed = tuple[PlacedTensor, ...]


@dataclass(slots=True, eq=False)
class RecordedRun:
    """One computation of a graph."""

    number: int
    """The position of this run among all runs of the log, from 1."""
    event: int
    by: int
    """Number of the backend or scheduler that computed the graph."""
    backends: tuple[int, ...]
    """Numbers of the scheduler's backends; empty if a backend computed the graph."""
    waits: bool
    leafs: Placed
    outside: Placed
    """Roots of the graph's views that are not in the graph."""
    nodes: Placed
    copies: dict[RecordedTensor, RecordedTensor]
    """Copies that a scheduler makes on another backend: copy -> original."""
    changed: frozenset[RecordedTensor]
    """Leafs that the host has changed through a pointer since the last run or call."""
    same: frozenset[RecordedTensor]
    """Leafs that still have the bytes that the last run or call left in them."""
    thread: int = 0
    held: dict[RecordedTensor, NumbersTold | MaskTold] = field(default_factory=dict)
    """Contents of the leafs that name the cells of a llama.cpp batch: indices and masks."""
    bare: frozenset[RecordedTensor] = frozenset()
    """Leafs without memory before the call that computed: the host cannot have filled them."""
    unmade: Placed = ()
    """Results requested by the call and not computed, because the scheduler ran another graph."""
    step: int = 0
    """Number of the ggml_opt evaluation to which this run belongs, from 1; 0 for none."""
    elements: dict[RecordedTensor, str] = field(default_factory=dict)
    """Bytes of leafs in base64, for the leafs whose bytes were logged."""
    asked: list[SchedulerAsked] = field(default_factory=list)
    """The requests of the run's scheduler in order; they name backends and events by number."""
    life: int = 0
    """How often the graph was rebuilt unchanged at its address before this run."""


Numbered = TypeVar("Numbered", Waited, EventRecorded, EventWaited, SchedulerAsked)

Lists = tuple[tuple[int, ...], tuple[int, ...]]
"""Addresses of the leafs and of the nodes of a graph."""

Laid = tuple[Placed, Placed, Placed, dict[RecordedTensor, RecordedTensor]]
"""Leafs, roots outside of the graph, nodes, and copies (copy -> original) of a graph."""


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """The host wrote or read a part of a tensor."""

    event: int
    writes: bool
    tensor: RecordedTensor
    root: RecordedTensor
    told: TensorTold
    """The root's last logged event before the access."""
    memory: RecordedBuffer | None
    """The root's buffer at the time of the access."""
    start: int
    """First byte, counted from the root's first byte."""
    stop: int
    by: int
    """The backend that does the access asynchronously; 0 for an access that the call itself did."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenBatch:
    """A batch of llama.cpp is computed."""

    event: int
    by: int
    """The llama.cpp memory (cache) that the batch uses."""
    thread: int
    rows: tuple[tuple[int | None, tuple[int, ...]], ...]
    """For each token its position, or None if no position was logged, and its sequences."""


CellEvent = NumbersTold | MaskTold | RowFilled | BatchBegins | BatchEnded | SequenceAsked
"""The events of llama.cpp."""

MemoryCall = GivenBatch | BatchEnded | SequenceAsked
"""A call of the host that concerns a llama.cpp memory."""

Happening = RecordedRun | Touch | RecordedBuffer
"""A part of a session: a run, a read or write by the host, or a buffer that is freed."""


def event_of(one: Happening | MemoryCall) -> int:
    """Return the number of the event at which a happening or call took place."""
    if isinstance(one, RecordedBuffer):
        return one.died or 0
    return one.n if isinstance(one, BatchEnded | SequenceAsked) else one.event


@dataclass(slots=True)
class RecordLog:
    """The content of a log: runs, buffers, host accesses and calls, each in order."""

    version: str = ""
    inplace_ops: list[str] = field(default_factory=list)
    buffers: list[RecordedBuffer] = field(default_factory=list)
    runs: list[RecordedRun] = field(default_factory=list)
    happened: list[Happening] = field(default_factory=list)
    calls: list[MemoryCall] = field(default_factory=list)
    uploads: int = 0
    reads: int = 0
    reserved: dict[int, list[Reserved]] = field(default_factory=dict)
    """Allocator or scheduler -> its reservations in order."""
    laid_by: dict[RecordedBuffer, int] = field(default_factory=dict)
    """Buffer -> the allocator or scheduler that first placed tensors in the buffer."""
    backends: dict[int, BackendTold] = field(default_factory=dict)
    """Number -> backend, for the backends of schedulers that have several backends."""
    ordered: list[Waited | EventRecorded | EventWaited] = field(default_factory=list)
    """The host's waits, and the records and waits of backend events, in order, by number."""
    waits: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Backend or scheduler -> pairs (event, reached) in order: after `event` the host knows that
    all work submitted before `reached` has ended.
    """

    def outgrown(self, memory: RecordedBuffer) -> int | None:
        """Return the reserved size in bytes if this buffer is larger than its reservation, or None.

        The reservation is the last successful one before the buffer was first logged. Return None
        too if there is no such reservation, or unless exactly one of its sizes differs from 0.
        """
        before = [one for one in self.reserved.get(self.laid_by.get(memory, 0), ()) if one.done and one.n < memory.born]
        sizes = [size for size in before[-1].sizes if size] if before else []
        return sizes[0] if len(sizes) == 1 and sizes[0] < memory.size else None

    def waited(self, by: int, told: int, reached: int) -> None:
        """Note that at event `told` the host learns that all work submitted to `by` before event
        `reached` has ended.
        """
        waits = self.waits.setdefault(by, [])
        waits.append((told, max(reached, waits[-1][1] if waits else 0)))

    def known_to_end(self, by: int, event: int, at: int) -> bool:
        """Return whether the host knows at event `at` that the work submitted to `by` at event
        `event` has ended.
        """
        waits = self.waits.get(by, [])
        behind = bisect_left(waits, (at,))
        return behind > 0 and waits[behind - 1][1] > event


def read_log(path: str | Path) -> RecordLog:
    """Return the content of a log file; raise DocumentError with the line that is no event."""
    reading = LogReading(str(path))
    reading.feed(content(path))
    reading.end()
    return reading.log


DECODER: Final = msgspec.json.Decoder(AnyEvent)


class LogReading:
    """The process's state as far as its log has been read; `feed` reads a piece of the log."""

    def __init__(self, source: str) -> None:
        self.source, self.log = source, RecordLog()
        self.recorder = 1
        self.lines, self.rest, self.early = 0, b"", list[tuple[int, int, AnyEvent]]()
        """Number of whole lines, the incomplete last line, and events read ahead of their turn."""
        self.next = 0
        self.memory: dict[int, RecordedBuffer] = {}
        self.tensors: dict[int, RecordedTensor] = {}
        self.graphs: dict[int, Lists] = {}
        self.gone: dict[int, RecordedTensor] = {}
        """Address -> the tensor that was at the address until the memory there was freed."""
        self.gone_graphs: dict[int, Lists] = {}
        """Address -> the graph that was at the address until the memory there was freed."""
        self.there_again: dict[int, tuple[int, tuple[int, ...], dict[int, RecordedTensor]]] = {}
        """Graph -> (version, addresses, tensors) of the last `again` event that named the graph."""
        self.lives: Counter[int] = Counter()
        """Graph -> how many `again` events named the graph."""
        self.version = 0
        """Number of logged changes to tensors and buffers so far."""
        self.laid: dict[int, tuple[int, Lists, Laid]] = {}
        """Graph -> (version, lists, tensors) of the graph's last run."""
        self.lays: dict[int, tuple[int, tuple[tuple[int, ...], ...]]] = {}
        """Allocator or scheduler -> (version, lists) of the graph that it planned last."""
        self.ends: Counter[int] = Counter()
        """Address -> how many schedulers, backends and events were freed at the address."""
        self.backends: dict[int, tuple[int, ...]] = {}
        """Backend or scheduler -> the backends of its last run."""
        self.coming: dict[int, dict[int, tuple[int, Touch]]] = {}
        """Backend -> host address -> (end, touch) of the last read into this address; a wait for
        the backend removes its reads."""
        self.computing: dict[int, RecordedRun] = {}
        """Backend or scheduler -> its last run."""
        self.recorded: dict[int, tuple[int, int]] = {}
        """Backend event -> (log event that recorded it last, backend on which it was recorded)."""
        self.filled: dict[int, list[tuple[int | None, tuple[int, ...]]]] = {}
        """llama.cpp batch -> its rows so far, if the host fills the batch row by row."""
        self.held: dict[RecordedTensor, NumbersTold | MaskTold] = {}
        """Leaf -> its numbers or mask, logged for the next run."""
        self.bare: frozenset[RecordedTensor] = frozenset()
        """Leafs that have no memory when a scheduler is called for the next run."""
        self.asked: GraphAsked | None = None
        self.steps, self.step = 0, 0
        """The number of ggml_opt evaluations so far, and the current evaluation (0: none)."""
        self.elements: dict[int, str] = {}
        """Address -> the bytes last logged for the address, in base64."""
        self.given: defaultdict[int, dict[RecordedTensor, int]] = defaultdict(dict)
        """Scheduler -> the tensors that it placed since its last reset, with their addresses."""
        self.given_up: dict[RecordedTensor, int] = {}
        """Tensors that a scheduler placed before a reset -> their addresses."""
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Read a further piece of the log, and follow all events up to the first missing number."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.lines += 1
            if not line.strip():
                continue
            try:
                event = DECODER.decode(line)
            except (msgspec.DecodeError, UnicodeError) as error:
                raise DocumentError(self.source, f"line {self.lines}", f"is no event: {error}") from None
            heapq.heappush(self.early, (event.n, self.lines, event))
            while self.early and self.early[0][0] <= self.next:
                self._take()

    def end(self) -> None:
        """End the log: follow the remaining events, although numbers before them are missing."""
        if self.rest.strip():
            try:
                event = DECODER.decode(self.rest)
                heapq.heappush(self.early, (event.n, self.lines + 1, event))
            except (msgspec.DecodeError, UnicodeError):
                pass  # the process was killed while it wrote this line
        while self.early:
            self._take()

    def _take(self) -> None:
        number, _, event = heapq.heappop(self.early)
        self.next = max(self.next, number + 1)
        self.version += isinstance(event, TensorTold | BufferTold)
        try:
            if isinstance(event, CellEvent):
                self._follow_cells(event)
            else:
                self._follow(event)
        except KeyError as error:
            rule = f"names address {error.args[0]}, where no earlier event placed an object"
            raise DocumentError(self.source, f"event {event.n}", rule) from None

    def _follow(self, event: AnyEvent) -> None:
        match event:
            case Start():
                self.log.version, self.log.inplace_ops = event.ggml, list(event.inplace_ops)
                self.recorder = event.recorder
            case BufferTold():
                self._born(event)
            case BufferFreed():
                self.memory[event.at].died = event.n
                self.log.happened.append(self.memory[event.at])
            case TensorTold():
                self._told(event)
            case ContextGone():
                self._gone(event)
            case GraphTold() | ThereAgain():
                self._listed(event)
            case HostWrote() | HostRead() | ElementsTold():
                self._touched(event)
            case BareLeafs() | GraphAsked() | Planned() | SchedulerReset() | Reserved() | OptStep():
                self._scheduled(event)
            case RunBegins():
                self._ran(event)
            case BackendTold():
                self.log.backends[self._actor(event.at)] = event
            case SchedulerAsked() | Waited() | EventRecorded() | EventWaited() | ActorEnded() | ResultsTaken():
                self._ordered(event)

    def _scheduled(self, event: BareLeafs | GraphAsked | Planned | SchedulerReset | Reserved | OptStep) -> None:
        """Follow an event of a scheduler, an allocator or ggml_opt."""
        match event:
            case BareLeafs():
                self.bare = frozenset(self.tensors[at] for at in event.leafs)
            case GraphAsked():
                self.asked = event
            case Planned():
                self._lays(event.scheduler or event.by, self.graphs[event.graph])
            case Reserved():
                self.log.reserved.setdefault(self._actor(event.by), []).append(event)
            case OptStep():
                self.steps += event.word == "eval"
                self.step = self.steps if event.word == "eval" else 0
            case SchedulerReset():
                self.lays.pop(self._actor(event.by), None)
                known = {**self.given_up, **self.given.pop(self._actor(event.by), {})}
                self.given_up = {one: data for one, data in known.items() if self.tensors.get(one.told.at) is one}

    def _actor(self, at: int) -> int:
        """Return the number of the scheduler, backend or event that is at an address now."""
        return at + self.ends[at] * GENERATION

    def _by_number(self, event: Numbered) -> Numbered:
        """Return a log event that names backends and backend events by number, not by address."""
        whose = {"by": event.by and self._actor(event.by)}
        if isinstance(event, Waited):
            by = whose["by"]
            return msgspec.structs.replace(event, **whose, backends=self.backends.get(by) or (by,))
        if not isinstance(event, SchedulerAsked) or event.word not in {"got", "sent", "fetched"}:  # host addresses
            whose["other"] = event.other and self._actor(event.other)
        return msgspec.structs.replace(event, **whose)

    def _ordered(
        self, event: SchedulerAsked | Waited | EventRecorded | EventWaited | ActorEnded | ResultsTaken
    ) -> None:
        """Follow an event that orders the work of backends and the host."""
        match event:
            case SchedulerAsked():
                self.computing[self._actor(event.scheduler)].asked.append(self._by_number(event))
            case Waited():
                if event.backends:  # a scheduler has backends even before its first run
                    self.backends[self._actor(event.by)] = tuple(map(self._actor, event.backends))
                self._waited(self._actor(event.by), event.n)
                self.log.ordered.append(self._by_number(event))
            case EventRecorded():
                self.log.ordered.append(self._by_number(event))
                self.recorded[self._actor(event.by)] = event.n, self._actor(event.other)
            case EventWaited():
                self.log.ordered.append(self._by_number(event))
                if not event.other and self._actor(event.by) in self.recorded:
                    reached, by = self.recorded[self._actor(event.by)]
                    self.log.waited(by, event.n, reached)
            case ActorEnded():
                self.ends[event.by] += 1
            case ResultsTaken():
                self._taken(event)

    def _born(self, event: BufferTold) -> None:
        memory = RecordedBuffer(
            number=len(self.log.buffers), born=event.n, base=event.base, size=event.size, usage=event.usage,
            alignment=max(event.alignment, 1), name=event.name,
        )  # fmt: skip
        self.memory[event.at] = memory
        self.log.buffers.append(memory)

    def _told(self, event: TensorTold) -> None:
        known, memory = self.tensors.get(event.at), self.memory.get(event.buffer)
        if known is None or _layout(known.told) != _layout(event):
            known = RecordedTensor(self.count, event, memory, event.flags)
            self.count += 1
            self.tensors[event.at] = known
        elif (known.told.data, known.told.buffer) != (event.data, event.buffer) or (
            memory and known.memory and known.memory.dead(memory.born)
        ):
            known.memory, known.flags = memory, event.flags
        known.told = event

    def _gone(self, event: ContextGone) -> None:
        span = range(event.start, event.stop)
        for at in _within(self.tensors, span):
            self.gone[at] = self.tensors.pop(at)
        for at in _within(self.graphs, span):
            self.gone_graphs[at] = self.graphs.pop(at)

    def _listed(self, event: GraphTold | ThereAgain) -> None:
        """Follow the lists of a graph, or tensors that exist again unchanged. A tensor that exists
        again keeps its `RecordedTensor` only if its whole graph exists again, its buffer is the
        same, and its flags are the flags that the planner knew.
        """
        if isinstance(event, GraphTold):
            self.graphs[event.at] = event.leafs, event.nodes
            return
        listed = self.there_again[event.graph][1] if event.tensors is None else event.tensors
        *known, those = self.there_again.get(event.graph, (-1, (), {}))
        if known != [self.version, listed]:
            those = {at: self.gone[at] for at in listed}
            for at, one in those.items():
                same = one.memory is self.memory.get(one.told.buffer) and one.flags == one.told.flags
                if not event.graph or not same:
                    self._told(one.told)
                    those[at] = self.tensors[at]
                    self.version += 1
        self.tensors.update(those)
        if self.given_up:
            self.given_up = {one: data for one, data in self.given_up.items() if those.get(one.told.at) is not one}
        if event.graph:
            self.there_again[event.graph] = self.version, listed, those
            self.graphs[event.graph] = self.gone_graphs[event.graph]
            self.lives[event.graph] += 1

    def _touched(self, event: HostWrote | HostRead | ElementsTold) -> None:
        tensor = self.tensors[event.t]
        if isinstance(event, ElementsTold):
            self.elements[tensor.told.data] = event.bytes
            return
        root = self.tensors.get(tensor.told.view_src, tensor)
        start = event.start + (tensor.told.view_offs if root is not tensor else 0)
        writes = isinstance(event, HostWrote)
        self.log.uploads += writes
        self.log.reads += not writes
        by = self._actor(event.by)
        touch = Touch(event.n, writes, tensor, root, root.told, root.memory, start, start + event.size, by)
        self.log.happened.append(touch)
        if isinstance(event, HostRead) and event.into:
            for others in self.coming.values():
                others.pop(event.into, None)
            self.coming.setdefault(by, {})[event.into] = event.into + event.size, touch

    def _waited(self, by: int, event: int) -> None:
        """Follow a wait of the host for a backend, or for a scheduler with all of its backends."""
        for one in (by, *self.backends.get(by, ())):
            self.log.waited(one, event, event)
            self.coming.pop(one, None)

    def _taken(self, event: ResultsTaken) -> None:
        """Follow the host's receipt of results. If the host did not wait for the read that fetches
        these results, record a read without a wait.
        """
        for by, those in self.coming.items():
            for into, (end, touch) in list(those.items()):
                ended, met = self.log.known_to_end(by, touch.event, event.n), into <= event.at < end
                if met and not ended:
                    self.log.happened.append(replace(touch, event=event.n, by=0))
                if met or ended:  # each read is reported at most once
                    del those[into]

    def _follow_cells(self, event: CellEvent) -> None:
        """Follow a call of llama.cpp, or the logged content of a leaf of the next run."""
        match event:
            case NumbersTold() | MaskTold():
                self.held[self.tensors[event.t]] = event
            case RowFilled():
                self._filled(event)
            case BatchBegins():
                told = tuple(
                    (row[0], tuple(name for name in row[1:] if name is not None) or (0,)) for row in event.rows
                )
                rows = tuple(self.filled.get(event.filled, ())) if event.filled else told
                self.log.calls.append(GivenBatch(event.n, event.by, event.thread, rows))
            case SequenceAsked(word="restore") if self.recorder == 1:  # logged at the end of the restore
                self.log.calls += [event, msgspec.structs.replace(event, word="restored", number=1)]
            case _:
                self.log.calls.append(event)

    def _filled(self, event: RowFilled) -> None:
        rows = self.filled.setdefault(event.by, [])
        if event.word == "clear":
            rows.clear()
        elif event.word == "add" and event.at == len(rows):
            rows.append((None, (event.value,)))
        elif 0 <= event.at < len(rows):
            position, sequences = rows[event.at]
            told = (event.value, sequences) if event.word == "position" else (position, (*sequences, event.value))
            rows[event.at] = told

    def _ran(self, event: RunBegins) -> None:
        changed, same = (frozenset(self.tensors[at] for at in those) for those in (event.changed, event.same))
        lists = self.graphs[event.graph]
        if self.laid.get(event.graph, ())[:2] != (self.version, lists):
            laid = self._laid(event.graph)
            if self._trampled(event, laid):
                laid, self.version = self._laid(event.graph), self.version + 1
            self.laid[event.graph] = self.version, lists, laid
        leafs, outside, nodes, copies = self.laid[event.graph][2]
        if event.backends:
            self._lays(event.by, (*lists, tuple(one.told.at for one in outside)) if outside else lists)
        by, backends = self._actor(event.by), tuple(map(self._actor, event.backends))
        self.backends[by] = backends
        if event.waits:  # a call that waits for its graph also waits for the earlier work of its backend
            self._waited(by, event.n)
        number = len(self.log.runs) + 1
        run = RecordedRun(
            number, event.n, by, backends, event.waits, leafs, outside, nodes, copies, changed, same, event.thread,
            self.held, self.bare, self._unmade(event.by, nodes), self.step, self._held_by((*leafs, *outside, *nodes)),
            life=self.lives[event.graph],
        )  # fmt: skip
        self.held, self.bare, self.asked = {}, frozenset(), None
        self.computing[by] = run
        self.log.runs.append(run)
        self.log.happened.append(run)

    def _held_by(self, tensors: Iterable[PlacedTensor]) -> dict[RecordedTensor, str]:
        """Return leaf -> its bytes in base64, for the leafs whose bytes were logged whole."""
        leafs = (one for one in tensors if one.told.op == NONE and one.view_src is None) if self.elements else ()
        told = {one.tensor: (self.elements.get(one.told.data, ""), -(-one.told.nbytes // 3) * 4) for one in leafs}
        return {tensor: text for tensor, (text, length) in told.items() if text and len(text) == length}

    def _lays(self, scheduler: int, lists: tuple[tuple[int, ...], ...]) -> None:
        actor = self._actor(scheduler)
        if self.lays.get(actor) == (self.version, lists):
            return
        self.lays[actor] = self.version, lists
        tensors = (self.tensors[at] for those in lists for at in those)
        laid = [one for one in tensors if one.memory is not None and one.memory.computes]
        self.given[actor].update((one, one.told.data) for one in laid)
        for memory in {one.memory for one in laid if one.memory is not None}:
            self.log.laid_by.setdefault(memory, actor)

    def _trampled(self, event: RunBegins, laid: Laid) -> bool:
        """Examine the tensors of the run that were placed before a reset. If at least one of them
        is a leaf, and one shares bytes with another tensor while both are needed, move each of
        these old tensors to a freed buffer of its own. Return whether tensors were moved.
        """
        old = {
            one.tensor: one
            for those in laid[:3]
            for one in those
            if self.given_up.get(one.tensor, 0) == one.told.data
            and one.memory is not None
            and not one.memory.dead(event.n)
        }
        filled = {tensor for tensor, one in old.items() if one.told.op == NONE and one.view_src is None}
        if not filled or not _meets_others(laid, old):
            return False
        ended: dict[RecordedTensor, RecordedBuffer] = {}
        whole = [one for one in old.values() if one.view_src is None or one.view_src in old]  # a view is in its root
        for one in sorted(whole, key=lambda one: one.view_src is not None):
            memory = one.memory
            assert memory is not None
            if one.view_src not in ended:
                title = f"{memory.name}, {one.tensor.name} before a reset"
                gone = replace(memory, number=len(self.log.buffers), name=title, died=event.n - 1)
                self.log.buffers.append(gone)
                if one.tensor in filled:
                    self.log.happened.append(gone)
                ended[one.tensor] = gone
            one.tensor.memory = ended[one.view_src or one.tensor]
            del self.given_up[one.tensor]
        return True

    def _unmade(self, by: int, nodes: Placed) -> Placed:
        """Return the results of the requested graph that are not in the computed graph and that no
        other such result reads.
        """
        _, listed = self.graphs[self.asked.graph] if self.asked and self.asked.by == by else ((), ())
        if not listed:
            return ()
        made = {one.tensor for one in nodes}
        unmade = [self._placed(at) for at in listed if self.tensors[at] not in made]
        taken = {source for one in unmade for source in one.src}
        return tuple(one for one in unmade if one.tensor not in taken and one.told.op != NONE)

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
        """Return whether a node marks the next node as a copy: an op-NONE view with one source."""
        told = self.tensors[at].told
        return told.op == NONE and bool(told.view_src) and len(told.src) == 1

    def _placed(self, at: int) -> PlacedTensor:
        tensor = self.tensors[at]
        told = tensor.told
        src = tuple(self.tensors[other] if other else None for other in told.src)
        view_src = self.tensors[told.view_src] if told.view_src else None
        return PlacedTensor(tensor, told, tensor.memory, tensor.flags, view_src, src)


def _within(table: Collection[int], span: range) -> list[int]:
    """Return the addresses of a range that are keys of a table."""
    one, other = (span, table) if len(span) < len(table) else (table, span)
    return [at for at in one if at in other]


def _meets_others(laid: Laid, old: Container[RecordedTensor]) -> bool:
    """Return whether a tensor in `old` shares bytes with another tensor of its graph while both
    are needed.
    """
    leafs, outside, nodes, _ = laid
    everything = *leafs, *outside, *nodes
    first = {one.tensor: -1 for one in (*leafs, *outside)}
    root = {one.tensor: one.view_src or one.tensor for one in everything}
    last = dict(first)
    for place, node in enumerate(nodes):
        for used in (node.tensor, *(source for source in node.src if source is not None)):
            home = root.get(used, used)
            first.setdefault(home, place)
            last[home] = place
    alive: list[PlacedTensor] = []
    roots = [one for one in everything if one.view_src is None and one.memory is not None and one.tensor in first]
    for one in sorted(roots, key=lambda one: first[one.tensor]):
        made = first[one.tensor]
        alive = [other for other in alive if last[other.tensor] > made or first[other.tensor] == made]
        stays = last[one.tensor] > made
        if any(
            (one.tensor in old or other.tensor in old) and (stays or first[other.tensor] == made) and _share(one, other)
            for other in alive
        ):
            return True
        alive.append(one)
    return False


def _share(one: PlacedTensor, other: PlacedTensor) -> bool:
    """Return whether two roots share a byte."""
    one_end, other_end = (each.told.data + each.told.nbytes for each in (one, other))
    return one.memory is other.memory and one.told.data < other_end and other.told.data < one_end


def _layout(told: TensorTold) -> tuple[object, ...]:
    """Return op, type, shape, strides and view offset; a change of these makes another tensor."""
    return told.op, told.type, told.ne, told.nb, told.view_offs
