"""The concurrent backends of a scheduler: its runs as one program, in which a backend is a stream.

    for document in at_once(log, runs):
        ...  # judged for races

Contract
--------
* A stream is the host or a backend. An op is a node of a split, a copy, or a write, read or copy of
  the host, in the order in which the ops were submitted. A submitted op comes after all ops that
  the host knew to have ended, and after the earlier ops of its stream. A backend without a queue
  has ended its op when the call returns.
* An event comes after the ops of its backend that were submitted before it was recorded. A host or
  backend that waits for the event continues after these ops.
* An asynchronous copy is ordered by its source's backend, or by its destination's if the source's
  has no queue. It comes after the earlier ops of the source (ggml-backend.h), after the events that
  the destination was told to wait for (as schedulers use it), and before the later ops of the
  destination. It does not come after the destination's other earlier ops.
* A scheduler acts at once on numbers that it reads from a queue, such as the experts to copy; the
  experts' weights are read where they lie when their backend executes the copy.
* Bytes are identified by address: tensors of one memory that share bytes lie in one buffer, and a
  read finds the bytes that lie there. A missing order is the scheduler's fault, whichever allocator
  placed the tensors: allocators assume that the splits of a graph run one after another.
* Blocks of equal runs are kept three times, as in `record_document`. Of many runs a document has a
  fixed number of consecutive ones, and half of them are in the next document too.

O(runs x nodes). What this module does not see: work that a backend starts by itself, and kernels
that touch only a part of their tensors.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Final

from allocsim.model import HOST_READ, HOST_WRITE, Document, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.host_order import HostMark, HostOrder
from allocsim.systems.ggml.dump_document import NOT_READ, SIDE_EFFECTS, layout_of
from allocsim.systems.ggml.ggml_dump import AT_ONCE, COMPUTE, NONE, ROOTS_KEPT
from allocsim.systems.ggml.host_record.record_events import EventRecorded, EventWaited, SchedulerAsked, Waited
from allocsim.systems.ggml.host_record.record_log import (
    PlacedTensor,
    RecordedBuffer,
    RecordedRun,
    RecordedTensor,
    RecordLog,
    Touch,
    event_of,
)
from allocsim.systems.ggml.host_record.recorded_runs import keep, memories_of, placed

MOST_RUNS: Final = 16
"""Runs in a document."""

HOST: Final = 0

ASIDE: Final = RecordedBuffer(number=-1, born=0, base=0, size=0, usage=0, alignment=1, name="the host")
"""Memory of the host that no buffer of a backend is."""

Happened = RecordedRun | Touch | Waited | EventRecorded | EventWaited


@dataclass(frozen=True, slots=True)
class _Bytes:
    """What an op touches."""

    memory: RecordedBuffer
    start: int
    stop: int
    layout: tuple[str, tuple[int, ...], tuple[int, ...]]
    name: str


@dataclass(frozen=True, slots=True)
class _Op:
    """`turn` is its name in every run, `after` are ops of other actors that it waits for."""

    actor: int
    kind: str
    name: str
    turn: str
    after: Sequence[int]
    reads: Sequence[_Bytes]
    writes: Sequence[_Bytes]


def at_once(
    log: RecordLog, runs: Sequence[RecordedRun], since: int = -1, given: set[Hashable] | None = None
) -> Iterator[Document]:
    """Yield what several backends did at once in runs of a session that follow one another, behind
    an event, unless it was given before; nothing where no scheduler has several, or what it asks of
    one of them is not seen.
    """
    mine = [run for run in runs if run.asked and all(by in log.backends for by in run.backends)]
    if not mine or unseen(log, mine):
        return
    kept: list[tuple[Hashable, list[Happened]]] = []
    for alike in _parts(log, mine, since):
        keep(kept, alike, lambda one: one[0])
    known = set() if given is None else given
    for first in range(0, max(len(kept) - MOST_RUNS // 2, 1), MOST_RUNS // 2):
        window = kept[first : first + MOST_RUNS]
        order, forms = _Order(log), tuple(form for form, _ in window)
        if forms in known:
            continue
        known.add(forms)
        for one in chain.from_iterable(part for _, part in window):
            order.follow(one)
        if order.known and order.ops:
            yield _document(log, order, window)


def unseen(log: RecordLog, runs: Iterable[RecordedRun]) -> list[str]:
    """Return the backends of which it is not seen what a scheduler asks of them."""
    backends = {by for run in runs for by in run.backends if by in log.backends}
    return sorted({log.backends[by].name for by in backends if not log.backends[by].seen})


def _parts(log: RecordLog, runs: Sequence[RecordedRun], since: int) -> list[tuple[Hashable, list[Happened]]]:
    """Return what happened, in order, up to the end of each run and behind the last, each with what
    makes it unlike others.
    """
    memories = {memory for run in runs for memory in memories_of(run)}
    behind = log.happened[bisect_left(log.happened, since, key=event_of) :]
    everything: list[tuple[int, Happened]] = [(run.event, run) for run in runs]
    everything += [(one.event, one) for one in behind if isinstance(one, Touch) and one.memory in memories]
    everything += [(one.n, one) for one in log.ordered[bisect_left(log.ordered, since, key=lambda one: one.n) :]]
    everything.sort(key=lambda row: row[0])
    ends = [place + 1 for place, (_, one) in enumerate(everything) if isinstance(one, RecordedRun)]
    spans = pairwise((0, *ends, len(everything)))
    parts = [[one for _, one in everything[first:last]] for first, last in spans]
    return [(tuple(map(_form, part)), part) for part in parts if part]


def _form(one: Happened) -> Hashable:
    """Return what makes something that happened unlike others."""
    if isinstance(one, RecordedRun):
        asked = ((each.word, each.by, each.other, each.count) for each in one.asked)
        return tuple((each.told.op, each.told.data, each.told.nbytes) for each in placed(one)), *asked
    if isinstance(one, Touch):
        return one.writes, one.told.data, one.start, one.stop, one.by
    return type(one), one.by, *(one.backends if isinstance(one, Waited) else (one.other,))


@dataclass(frozen=True, slots=True)
class _Nodes:
    """What all splits of a run look up."""

    places: Mapping[int, int]
    """Address of a node -> its place among them."""
    tensors: Mapping[RecordedTensor, PlacedTensor]
    flagged: bool
    """Whether some node says that it is to be computed: then the others are not."""

    @classmethod
    def of(cls, run: RecordedRun, tensors: Iterable[PlacedTensor]) -> "_Nodes":
        return cls(
            places={node.told.at: place for place, node in enumerate(run.nodes)},
            tensors={tensor.tensor: tensor for tensor in tensors},
            flagged=any(node.told.flags & COMPUTE for node in run.nodes),
        )


@dataclass(slots=True)
class _Order:
    """Ops as far as what happened has been followed."""

    log: RecordLog
    ops: list[_Op] = field(default_factory=list)
    order: HostOrder = field(default_factory=HostOrder)
    """What waits for what: its streams are actors, its marks are events, and what events together
    told a backend to wait for.
    """
    fetched: list[_Bytes] = field(default_factory=list)
    """What is in host memory for the scheduler, and was not looked at yet."""
    known: bool = True
    """Whether all that was asked of a backend is known."""

    def follow(self, one: Happened) -> None:
        """Take in what happened next."""
        match one:
            case RecordedRun():
                tensors = {tensor.told.at: tensor for tensor in placed(one)}
                nodes = _Nodes.of(one, tensors.values())
                for each in one.asked:
                    self._asked(one, each, tensors, nodes)
            case Touch() if one.memory is not None:
                part = (_part(one.told.name, one.memory, one.told.data + one.start, one.stop - one.start),)
                kind, word = (HOST_WRITE, "write") if one.writes else (HOST_READ, "read")
                what = kind, *(f"{word} {one.told.name}",) * 2
                self._give(one.by, what, () if one.writes else part, part if one.writes else ())
            case Waited():
                for by in one.backends:
                    self.order.synchronize(self.order.stream(by))
            case EventRecorded():
                self.order.record(one.by, self.order.stream(one.other))
            case EventWaited():
                self._wait(one.other, one.by)

    def _asked(
        self, run: RecordedRun, one: SchedulerAsked, tensors: Mapping[int, PlacedTensor], nodes: "_Nodes"
    ) -> None:
        match one.word:
            case "split":
                self._split(run, one, nodes)
            case "record":
                self.order.record(one.by, self.order.stream(one.other))
            case "wait":
                self._wait(one.other, one.by)
            case "sync":
                self.order.synchronize(self.order.stream(one.by))
            case "copy":
                self._copy(run, one, tensors)
            case "copied" | "got" | "sent" | "fetched":
                self._moved(run, one, tensors)

    def _wait(self, actor: int, event: int) -> None:
        order, told = self.order, _told(actor)
        if event not in order.marks:
            return
        if actor == HOST:
            order.synchronize_mark(event)
        order.wait(event, order.stream(actor))
        order.marks[told] = order.marks.get(told, HostMark({}, {})).with_(order.marks[event])

    def _give(self, actor: int, what: tuple[str, str, str], reads: Sequence[_Bytes], writes: Sequence[_Bytes]) -> None:
        stream = self.order.stream(actor)
        self.ops.append(_Op(actor, *what, self.order.put(stream, len(self.ops)), reads, writes))
        if not self._queues(actor):
            self.order.synchronize(stream)

    def _queues(self, actor: int) -> bool:
        return actor in self.log.backends and self.log.backends[actor].queues

    def _split(self, run: RecordedRun, one: SchedulerAsked, nodes: "_Nodes") -> None:
        first, last = nodes.places.get(one.first, 0), nodes.places.get(one.last, -1)
        self.known &= last - first + 1 == one.count
        for node in run.nodes[first : last + 1]:
            if node.told.op not in (NONE, *ROOTS_KEPT) and (node.told.flags & COMPUTE or not nodes.flagged):
                self._give(one.by, (node.told.op.lower(), *_of_run(node, run)), *_accesses(node, nodes.tensors))

    def _copy(self, run: RecordedRun, one: SchedulerAsked, tensors: Mapping[int, PlacedTensor]) -> None:
        source, made = tensors.get(one.first), tensors.get(one.last)
        if source is None or made is None:
            self.known = False
            return
        actor, order = one.other if self._queues(one.other) else one.by, self.order
        copying, target = order.stream(actor), order.stream(one.by)
        order.join([copying], behind=[order.stream(one.other)])
        order.wait(_told(one.by), copying)
        self._give(actor, ("copy", *_of_run(made, run)), _whole(source), _whole(made))
        order.join([target], behind=[copying])

    def _moved(self, run: RecordedRun, one: SchedulerAsked, tensors: Mapping[int, PlacedTensor]) -> None:
        """Take in what was sent to a tensor or a part of one, maybe of what it is a copy of, or
        fetched from one, maybe into a copy.
        """
        sent, whole = one.word in {"copied", "sent"}, one.word in {"copied", "got"}
        told = tensors.get(one.last if one.word == "copied" else one.first)
        if told is None or told.memory is None:
            return
        start, count = (0, told.told.nbytes) if whole else (one.last, one.count)
        copies = (made for made in tensors.values() if made.tensor in run.copies and made.told.data == one.other)
        source = tensors.get(one.first) if whole else None
        other = (source or _copied(told, run.copies, tensors)) if sent else next(copies, None)
        here, there = [_part(told.told.name, told.memory, told.told.data + start, count)], list[_Bytes]()
        if other and other.memory and (whole or one.other == other.told.data + start):
            there = [_part(other.told.name, other.memory, other.told.data + start, count)]
        elif not sent and self._queues(one.by):
            there = [_part(f"{told.told.name} with the host", ASIDE, one.other, count)]
        if sent and self.fetched:
            look = f"look at {self.fetched[0].name}"
            self._give(HOST, (HOST_READ, f"{look} for compute {run.number}", look), self.fetched, ())
            self.fetched = []
        (name, turn), kind = _of_run(told, run), "copy" if there else HOST_WRITE if sent else HOST_READ
        what = kind, name if count == told.told.nbytes else f"{name} from byte {start} on", turn
        self._give(one.by, what, there if sent else here, here if sent else there)
        self.fetched += [each for each in there if each.memory is ASIDE]


def _copied(
    made: PlacedTensor, copies: Mapping[RecordedTensor, RecordedTensor], tensors: Mapping[int, PlacedTensor]
) -> PlacedTensor | None:
    source = copies.get(made.tensor)
    return None if source is None else tensors.get(source.told.at)


def _told(actor: int) -> tuple[str, int]:
    """Return the mark of all that events told an actor to wait for."""
    return "told", actor


def _of_run(tensor: PlacedTensor, run: RecordedRun) -> tuple[str, str]:
    """Return the name of an op of a run, and what it is in every run: ggml gives `node_0` to the
    first op of each graph that has no name, so its kind tells which.
    """
    of, told = run.copies.get(tensor.tensor), tensor.told
    return f"{told.name} of compute {run.number}", f"{told.op} {told.name}" if of is None else f"copy of {of.name}"


def _part(name: str, memory: RecordedBuffer, start: int, nbytes: int) -> _Bytes:
    return _Bytes(memory, start, start + nbytes, ("u8", (nbytes,), (1,)), name)


def _whole(tensor: PlacedTensor | None) -> tuple[_Bytes, ...]:
    """Return the bytes of a tensor that has any."""
    if tensor is None or tensor.memory is None or not tensor.told.data or not tensor.told.nbytes:
        return ()
    told = tensor.told
    layout = layout_of(told.type, told.ne, told.nb)
    return (_Bytes(tensor.memory, told.data, told.data + told.nbytes, layout, told.name),)


def _accesses(node: PlacedTensor, tensors: Mapping[RecordedTensor, PlacedTensor]) -> tuple[list[_Bytes], list[_Bytes]]:
    """Return what the kernel of a node reads, and what it writes."""
    sources = [(slot, tensors.get(source)) for slot, source in enumerate(node.src) if source is not None]
    unread, beside = NOT_READ.get(node.told.op, ()), SIDE_EFFECTS.get(node.told.op, ())
    reads = [each for slot, source in sources if slot not in unread for each in _whole(source)]
    written = [each for slot, source in sources if slot in beside for each in _whole(source)]
    return reads, [*_whole(node), *written]


def _document(log: RecordLog, order: _Order, window: Iterable[tuple[Hashable, list[Happened]]]) -> Document:
    actors = list(dict.fromkeys((HOST, *(op.actor for op in order.ops))))
    told = [log.backends[by].name if by in log.backends else "another backend" for by in actors[1:]]
    names = ["host", *(f"{name} {n}" for n, name in enumerate(told))]
    builder = ProgramBuilder("runs of a scheduler", streams=names)
    buffers = _buffers(builder, [each for op in order.ops for each in (*op.reads, *op.writes)])
    lying: dict[_Bytes, int] = {}

    def value(of: _Bytes) -> int:
        starts, numbers = buffers[of.memory]
        home = bisect_right(starts, of.start) - 1
        dtype, shape, strides = of.layout
        return builder.value(of.name, numbers[home], dtype, shape, strides=strides, offset=of.start - starts[home])

    for op in order.ops:
        reads = [*dict.fromkeys(op.reads)]
        for each in reads:
            if each not in lying:
                lying[each] = value(each)
        over = [
            (place, result, "whole")
            for place, read in enumerate(reads)
            for result, made in enumerate(op.writes)
            if read.memory is made.memory and read.start < made.stop and made.start < read.stop
        ]
        operands, results = [lying[each] for each in reads], [*map(value, op.writes)]
        stream, about = actors.index(op.actor), {"turn_of": op.turn}
        builder.op(op.kind, operands, results, name=op.name, in_place=over, stream=stream, after=op.after, meta=about)
    program = builder.build()
    computes = [one.number for _, part in window for one in part if isinstance(one, RecordedRun)]
    host = {"uploads": log.uploads, "reads": log.reads, "assumed": [], "of": AT_ONCE, "computes": computes[:1]}
    return Document(
        programs=(program,),
        plans=(plan_of(program, {}, source="where tensors lay"),),
        meta={"ggml": {"version": log.version, "host": host}},
    )


def _buffers(builder: ProgramBuilder, touched: Iterable[_Bytes]) -> dict[RecordedBuffer, tuple[list[int], list[int]]]:
    """Add a buffer for all bytes of a memory that touch each other by what lies there; return where
    they begin, and their numbers, by memory.
    """
    by_memory: dict[RecordedBuffer, list[_Bytes]] = {}
    for one in dict.fromkeys(touched):
        by_memory.setdefault(one.memory, []).append(one)
    found = {}
    taken: set[str] = set()
    for memory, those in by_memory.items():
        those.sort(key=lambda one: one.start)
        ends = list(accumulate((one.stop for one in those), max))
        cuts = [0, *(place for place in range(1, len(those)) if those[place].start >= ends[place - 1]), len(those)]
        starts, numbers = [], []
        for first, last in pairwise(cuts):
            names = [*dict.fromkeys(one.name for one in those[first:last])]
            title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
            title = f"{title} #{len(taken)}" if title in taken else title
            taken.add(title)
            starts.append(those[first].start)
            numbers.append(builder.buffer(title, ends[last - 1] - those[first].start, role=Role.STATE))
        found[memory] = starts, numbers
    return found
