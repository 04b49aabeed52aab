"""Turn runs of a scheduler with concurrent backends into one program, with a stream per backend.

    for document in at_once(log, runs):
        ...  # judged for races

Contract
--------
* A stream is the host or a backend. An op is a node of a split, a copy, or a write, read or copy of
  the host. The ops are in the order of submission. A submitted op comes after all ops that the host
  knew to have ended, and after the earlier ops of its stream. If a backend has no queue, its op has
  ended when the call returns.
* An event comes after the ops of its backend that were submitted before the event was recorded. A
  host or backend that waits for the event continues after these ops.
* An asynchronous copy runs on the stream of its source's backend, or, if that backend has no queue,
  on the stream of its destination's backend. The copy comes after the earlier ops of the source
  (ggml-backend.h). The copy also comes after the events for which the destination had to wait,
  because schedulers rely on this. The copy comes before the later ops of the destination, but not
  after the destination's other earlier ops.
* A scheduler uses numbers that it fetches from a backend, such as the ids of the experts to copy,
  before it sends the next bytes. The experts' weights are read when their backend executes the
  copy.
* Bytes are identified by address. Tensors of one memory that share bytes are in one buffer, and a
  read finds the bytes that are there. A missing order is a fault of the scheduler, whichever
  allocator placed the tensors, because allocators assume that the splits of a graph run one after
  another.
* Of repeated blocks of runs, three repetitions are kept, as in `record_document`. If there are many
  runs, a document has `MOST_RUNS` consecutive runs, and the next document repeats half of them.

The cost is O(runs x nodes). The module does not see work that a backend starts by itself. A kernel
that accesses only a part of a tensor is treated as accessing the whole tensor.
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
"""The largest number of runs in one document of concurrent work."""

HOST: Final = 0

ASIDE: Final = RecordedBuffer(number=-1, born=0, base=0, size=0, usage=0, alignment=1, name="the host")
"""A stand-in buffer for all host memory that is in no buffer of a backend."""

Happened = RecordedRun | Touch | Waited | EventRecorded | EventWaited


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A byte range that an op reads or writes, with the layout and the name of its tensor."""

    memory: RecordedBuffer
    start: int
    stop: int
    layout: tuple[str, tuple[int, ...], tuple[int, ...]]
    name: str


@dataclass(frozen=True, slots=True)
class _Op:
    """One op. `turn` is its name in all runs; `after` has the ops of other actors to wait for."""

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
    """Yield the documents of concurrent backends in consecutive runs of a session, with the events
    from `since` on. A document with a key in `given` is left out; new keys are added to `given`.
    No document is yielded if no scheduler has several backends, if the calls to one of these
    backends were not recorded, or if the log lacks a node of a split or a tensor of a copy.
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
    """Return the names of the backends for which the scheduler's calls were not recorded."""
    backends = {by for run in runs for by in run.backends if by in log.backends}
    return sorted({log.backends[by].name for by in backends if not log.backends[by].seen})


def _parts(log: RecordLog, runs: Sequence[RecordedRun], since: int) -> list[tuple[Hashable, list[Happened]]]:
    """Cut the events of the log from `since` on into pieces, after each run. Return each piece with
    its key; pieces with equal keys are alike. The events after the last run are the last piece.
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
    """Return the key by which an event is compared: two events with equal keys are alike."""
    if isinstance(one, RecordedRun):
        asked = ((each.word, each.by, each.other, each.count) for each in one.asked)
        return tuple((each.told.op, each.told.data, each.told.nbytes) for each in placed(one)), *asked
    if isinstance(one, Touch):
        return one.writes, one.told.data, one.start, one.stop, one.by
    return type(one), one.by, *(one.backends if isinstance(one, Waited) else (one.other,))


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The tables of a run that the handling of each split uses."""

    places: Mapping[int, int]
    """Address of a node -> its place among the nodes of the run."""
    tensors: Mapping[RecordedTensor, PlacedTensor]
    flagged: bool
    """Whether any node has the flag COMPUTE. If so, nodes without this flag are not computed."""

    @classmethod
    def of(cls, run: RecordedRun, tensors: Iterable[PlacedTensor]) -> "_Nodes":
        return cls(
            places={node.told.at: place for place, node in enumerate(run.nodes)},
            tensors={tensor.tensor: tensor for tensor in tensors},
            flagged=any(node.told.flags & COMPUTE for node in run.nodes),
        )


@dataclass(slots=True)
class _Order:
    """The ops, and their order, of the events that have been followed so far."""

    log: RecordLog
    ops: list[_Op] = field(default_factory=list)
    order: HostOrder = field(default_factory=HostOrder)
    """The waits between ops. The streams are actors. The marks are the recorded events and, for
    each actor, all events for which the actor had to wait (`_told`).
    """
    fetched: list[_Bytes] = field(default_factory=list)
    """Bytes that a backend fetched into host memory and the scheduler has not used yet."""
    known: bool = True
    """Whether the nodes of each split and both tensors of each copy were found."""

    def follow(self, one: Happened) -> None:
        """Add the ops and waits of the next event."""
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
        """Add the op that sends bytes to a tensor or fetches bytes from a tensor. The bytes may
        come from the original of a copy, or go to a copy. If bytes are sent, an op in which the
        host reads all bytes in `fetched` is added first.
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
    """Return the name of the mark that collects all events for which an actor had to wait."""
    return "told", actor


def _of_run(tensor: PlacedTensor, run: RecordedRun) -> tuple[str, str]:
    """Return two names of an op: the first names the run, and the second is equal in all runs. The
    second name has the op's kind, because ggml names the first unnamed op of a graph `node_0`.
    """
    of, told = run.copies.get(tensor.tensor), tensor.told
    return f"{told.name} of compute {run.number}", f"{told.op} {told.name}" if of is None else f"copy of {of.name}"


def _part(name: str, memory: RecordedBuffer, start: int, nbytes: int) -> _Bytes:
    return _Bytes(memory, start, start + nbytes, ("u8", (nbytes,), (1,)), name)


def _whole(tensor: PlacedTensor | None) -> tuple[_Bytes, ...]:
    """Return the byte range of a tensor, or an empty tuple if the tensor has no bytes."""
    if tensor is None or tensor.memory is None or not tensor.told.data or not tensor.told.nbytes:
        return ()
    told = tensor.told
    layout = layout_of(told.type, told.ne, told.nb)
    return (_Bytes(tensor.memory, told.data, told.data + told.nbytes, layout, told.name),)


def _accesses(node: PlacedTensor, tensors: Mapping[RecordedTensor, PlacedTensor]) -> tuple[list[_Bytes], list[_Bytes]]:
    """Return the byte ranges that the kernel of a node reads, and the ranges that it writes."""
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
    """Add one buffer for each group of overlapping byte ranges in a memory. Return, for each
    memory, the first addresses of these buffers and their numbers in the program.
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
