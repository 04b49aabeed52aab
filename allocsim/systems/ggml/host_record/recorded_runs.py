"""The state of the leafs in each run, and the host's reads of each run.

    for sharing in shared_memory(log):
        facts = facts_of(log, sharing)

Contract
--------
* Runs that share compute memory, directly or through other runs, are one session. So two contexts
  with memory of their own are two sessions, whatever the names of their tensors. Weights that both
  read do not join them.
* A leaf in compute memory is *left out* of a run if the host did not upload it since its last run,
  and another tensor of some run, or another upload, has overwritten one of its bytes. Bytes that a
  graph writes into the leaf itself (a state) do not count. A leaf that keeps its bytes counts as
  uploaded. A leaf in freed memory is left out, whatever was written there, and so is a leaf that
  got its memory in the call that computes.
* A leaf without any recorded upload is *assumed* to be uploaded before each run, since the host may
  write through a pointer, even the bytes that lie there already. An exception: a call uploaded the
  earlier leaf at its place, a run overwrote those bytes, and they are still as the run left them.
  Then the leaf is unwritten.
* A read belongs to the last run that had the tensor, or to none if one later upload wrote all bytes
  that are read and they are still there. It is *late* if another run, freed memory, or an upload to
  another tensor took one of its bytes in between. It is *hasty* if the run was started without
  waiting and no call has waited since, unless the same backend does the read in order. An upload
  can be hasty in the same way.

O(events x leafs of the session). What this module does not see: whether a plan is sound.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from allocsim.systems.ggml.ggml_dump import COMPUTE, INPUT, NONE, OUTPUT, ROOTS_KEPT
from allocsim.systems.ggml.host_record.record_events import TensorTold
from allocsim.systems.ggml.host_record.record_log import (
    Happening,
    PlacedTensor,
    RecordedBuffer,
    RecordedRun,
    RecordedTensor,
    RecordLog,
    Touch,
    event_of,
)

Span = tuple[RecordedBuffer, int, int]
"""RecordedBuffer, first address and the address behind the last."""

COPY: Final = re.compile(r"[^#]+#(?P<of>.+)#(?P<number>\d)")
"""What a scheduler calls its copies."""

BOTH: Final = INPUT | OUTPUT
"""By which it keeps allocators from their bytes."""

KEPT: Final = 3
"""Repetitions of a block of runs that are judged."""

LONGEST: Final = 4
"""Runs in a block."""

Read = tuple[RecordedTensor, int, int]
"""A root and a range of its bytes."""


@dataclass(slots=True, eq=False)
class RunFacts:
    """A run, or the end of a buffer (`given_back`), and what the host did about it."""

    event: int
    run: RecordedRun | None = None
    given_back: RecordedBuffer | None = None
    left_out: dict[RecordedTensor, str] = field(default_factory=dict)
    """Leafs that were not uploaded, and do not hold what was laid there: what took its bytes."""
    assumed: set[RecordedTensor] = field(default_factory=set)
    """Leafs that are assumed to be uploaded."""
    reads: set[Read] = field(default_factory=set)
    late: dict[int, set[Read]] = field(default_factory=dict)
    """Place of the last run or end before a late read -> what was read."""
    overlaid: dict[Touch, set[Read]] = field(default_factory=dict)
    """Upload that took bytes of the run behind it -> what was read of them."""
    hasty_reads: set[Read] = field(default_factory=set)
    hasty_upload: bool = False
    """Whether a leaf was written while the run might read it."""


def shared_memory(log: RecordLog) -> list[list[RecordedRun]]:
    """Return the runs that share compute memory, in order, for each session."""
    leader: dict[RecordedBuffer, RecordedBuffer] = {}

    def find(memory: RecordedBuffer) -> RecordedBuffer:
        while leader.setdefault(memory, memory) is not memory:
            memory = leader[memory]
        return memory

    homes = [[memory for memory in memories_of(run) if memory.computes] for run in log.runs]
    for found in homes:
        for memory in found:
            leader[find(memory)] = find(found[0])
    sessions: dict[RecordedBuffer | None, list[RecordedRun]] = defaultdict(list)
    for run, found in zip(log.runs, homes, strict=True):
        sessions[find(found[0]) if found else None].append(run)
    return list(sessions.values())


def placed(run: RecordedRun) -> Iterator[PlacedTensor]:
    """Yield all tensors of a run: leafs, roots outside of the graph, nodes."""
    yield from run.leafs
    yield from run.outside
    yield from run.nodes


def in_plan(tensor: PlacedTensor, event: int) -> bool:
    """Return whether a tensor counts as planned: in compute memory, or in what was given back."""
    memory = tensor.memory
    return memory is not None and bool(tensor.told.data) and (memory.computes or memory.dead(event))


def is_leaf(tensor: PlacedTensor) -> bool:
    """Return whether the host fills a tensor: a root that no op makes."""
    return tensor.told.op == NONE and tensor.view_src is None


Kept = TypeVar("Kept")


def keep(steps: list[Kept], step: Kept, key: Callable[[Kept], Hashable]) -> None:
    """Append a step, unless a block of steps that ends with it is there three times already."""
    steps.append(step)
    for length in range(1, LONGEST + 1):
        keys = [key(one) for one in steps[-length * (KEPT + 1) :]]
        if len(keys) == length * (KEPT + 1) and keys[length:] == keys[:-length]:
            del steps[-length:]
            return


def spare_copies(run: RecordedRun) -> dict[RecordedTensor, int]:
    """Return the copies of inputs that a pipelined scheduler keeps for its other runs, each with
    its number; none for other runs. They are called `backend#input#number`, and flagged as both
    input and output; the copy of this run is the input itself, or a node.
    """
    names = {tensor.told.name for tensor in (*run.leafs, *run.nodes)} if run.backends else set()
    found = {
        tensor.tensor: COPY.fullmatch(tensor.told.name) for tensor in run.leafs if tensor.told.flags & BOTH == BOTH
    }
    return {tensor: int(match["number"]) for tensor, match in found.items() if match and match["of"] in names}


def copy_in_turn(run: RecordedRun) -> int | None:
    """Return which of its copies a pipelined scheduler uses in a run; None for other runs."""
    spare = {*spare_copies(run).values()}
    return next(number for number in range(len(spare) + 1) if number not in spare) if spare else None


def memories_of(run: RecordedRun) -> list[RecordedBuffer]:
    """Return the buffers in which the tensors of a run lie, in the order of their births."""
    found = {tensor.memory: None for tensor in placed(run) if tensor.memory is not None}
    return sorted(found, key=lambda memory: memory.number)


def _span(told: TensorTold, memory: RecordedBuffer, start: int = 0, stop: int | None = None) -> Span:
    return memory, told.data + start, told.data + (told.nbytes if stop is None else stop)


def _written(touch: Touch) -> Span:
    assert touch.memory is not None
    return _span(touch.told, touch.memory, touch.start, touch.stop)


def _meet(one: Span, other: Span) -> bool:
    return one[0] is other[0] and one[1] < other[2] and other[1] < one[2]


@dataclass(slots=True, eq=False)
class _Leaf:
    """What is known of one leaf in compute memory."""

    span: Span
    uploaded: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of its bytes, since its last run."""
    by_call: bool = False
    """Whether a call ever wrote it, or the leaf that lay there before."""
    taken: str = ""
    """What took a byte of it since it was laid."""


def facts_of(log: RecordLog, runs: Sequence[RecordedRun]) -> list[RunFacts]:
    """Return runs and ends of buffers of a session, in order, with what the host did."""
    return host_of(log, runs).done


def host_of(log: RecordLog, runs: Sequence[RecordedRun], stop: int | None = None) -> "FollowedHost":
    """Follow all that happened in a session, from the birth of its first buffer on; of the log so
    many happenings.
    """
    host = FollowedHost(log, {memory for run in runs for memory in memories_of(run)})
    mine = set(runs)
    born = min((memory.born for memory in host.memories), default=0)
    for one in log.happened[bisect_left(log.happened, born, key=event_of) : stop]:
        if not isinstance(one, RecordedRun) or one in mine:
            host.follow(one)
    return host


class FollowedHost:
    """The memory of a session as far as its events have been followed."""

    def __init__(self, log: RecordLog, memories: set[RecordedBuffer]) -> None:
        self.log, self.memories = log, memories
        self.done: list[RunFacts] = []
        self.leafs: dict[RecordedTensor, _Leaf] = {}
        self.last: dict[RecordedTensor, int] = {}
        """Root -> place of the last run that had it."""
        self.placed: dict[RecordedTensor, Span] = {}
        """Where it lay then."""
        self.forms: dict[tuple[int, frozenset[RecordedBuffer]], _GraphForm] = {}
        """What runs of one graph have in common."""
        self.taken_by: dict[int, _GraphForm] = {}
        """The form of each run, by its place."""
        self.laid: dict[RecordedTensor, Touch] = {}
        """Root -> its last upload into compute memory."""

    def follow(self, one: Happening) -> None:
        """Take in what happened next: a run of this session, or whatever the host did."""
        match one:
            case RecordedRun():
                self._ran(RunFacts(event=one.event, run=one))
            case RecordedBuffer() if one in self.memories:
                self.done.append(RunFacts(event=one.died or 0, given_back=one))
            case Touch() if one.memory in self.memories and one.writes:
                self._uploaded(one)
            case Touch() if one.memory in self.memories:
                self._read(one)

    def _uploaded(self, touch: Touch) -> None:
        root, memory = touch.root, touch.memory
        if memory is None or not memory.computes or memory.dead(touch.event):
            return
        span = _span(touch.told, memory)
        leaf = self.leafs.setdefault(root, _Leaf(span))
        leaf.span, leaf.by_call = span, True
        self.laid[root] = touch
        leaf.uploaded.append((touch.start, touch.stop))
        if _covers(leaf.uploaded, touch.told.nbytes):
            leaf.taken = ""
        written = _written(touch)
        for other, there in self.leafs.items():
            if other is not root and _meet(there.span, written):
                there.taken, there.uploaded = f"the upload of {touch.told.name!r}", []
        last = self.last.get(root)
        if last is not None and not self._scheduled(last) and self._in_flight(last, touch):
            self.done[last].hasty_upload = True

    def _read(self, touch: Touch) -> None:
        root, last = touch.root, self.last.get(touch.root)
        if last is None or self._laid_anew(touch, last):
            return
        read = root, touch.start, min(touch.stop, touch.told.nbytes)
        memory, base, _ = self.placed[root]
        span = memory, base + read[1], base + read[2]
        if self._in_flight(last, touch):
            self.done[last].hasty_reads.add(read)
        elif any(self._takes(place, root, span) for place in range(last + 1, len(self.done))):
            self.done[last].late.setdefault(len(self.done) - 1, set()).add(read)
        elif (over := self._overlaid(last, root, span)) is not None:
            self.done[last].overlaid.setdefault(over, set()).add(read)
        else:
            self.done[last].reads.add(read)

    def _takes(self, place: int, root: RecordedTensor, span: Span) -> bool:
        if self.done[place].given_back is span[0]:
            return True
        return place in self.taken_by and self.taken_by[place].takes(root, span)

    def _laid_anew(self, touch: Touch, place: int) -> bool:
        """Return whether all that is read lies there by one upload behind a run, and nothing took
        it since.
        """
        laid = self.laid.get(touch.root)
        if laid is None or laid.memory is None or laid.event < self.done[place].event:
            return False
        there = (laid.memory, laid.told.data) == (touch.memory, touch.told.data) and not laid.memory.dead(touch.event)
        whole = laid.start <= touch.start and touch.stop <= laid.stop
        return there and whole and (laid.start, laid.stop) in self.leafs[touch.root].uploaded

    def _overlaid(self, place: int, root: RecordedTensor, span: Span) -> Touch | None:
        """Return the first upload behind a run, to another tensor, that took one of these bytes."""
        behind = self.done[place].event
        behind_it = (touch for other, touch in self.laid.items() if touch.event > behind and other is not root)
        return next((touch for touch in behind_it if _meet(span, _written(touch))), None)

    def _scheduled(self, place: int) -> bool:
        """Return whether a scheduler computed a run: it has taken its inputs when its call comes
        back.
        """
        run = self.done[place].run
        return run is not None and bool(run.backends)

    def _in_flight(self, place: int, touch: Touch) -> bool:
        """Return whether a run may go on yet. Which backend of a scheduler computes a tensor is not
        told: each is taken for it.
        """
        run = self.done[place].run
        if run is None or run.waits or touch.by in (run.by, *run.backends):
            return False
        return not any(self.log.known_to_end(by, run.event, touch.event) for by in (run.by, *run.backends))

    def _ran(self, facts: RunFacts) -> None:
        run = facts.run
        assert run is not None
        form = self._form(run)
        for tensor in form.leafs:
            self._found(tensor, facts, run)
        place = len(self.done)
        self.done.append(facts)
        self.taken_by[place] = form
        for root, leaf in self.leafs.items():
            if form.takes(root, leaf.span):
                leaf.taken, leaf.uploaded = f"compute {run.number}", []
        self.last |= dict.fromkeys(form.placed, place)
        self.placed |= form.placed

    def _form(self, run: RecordedRun) -> "_GraphForm":
        dead = frozenset(memory for memory in self.memories if memory.dead(run.event))
        if (id(run.nodes), dead) not in self.forms:
            self.forms[id(run.nodes), dead] = _GraphForm(run)
        return self.forms[id(run.nodes), dead]

    def _found(self, tensor: PlacedTensor, facts: RunFacts, run: RecordedRun) -> None:
        """Settle whether a leaf of a run holds what the host laid there."""
        root, memory = tensor.tensor, tensor.memory
        assert memory is not None
        span = _span(tensor.told, memory)
        leaf = self.leafs.setdefault(root, _Leaf(span))
        if memory.dead(run.event) or root in run.bare:
            facts.left_out[root] = ""
        elif root in run.changed or (_covers(leaf.uploaded, tensor.told.nbytes) and not leaf.taken):
            leaf.taken = ""
        elif leaf.by_call:
            if leaf.taken:
                facts.left_out[root] = leaf.taken
        elif root in run.same and (spoilt := self._spoilt(span)):
            leaf.by_call = True
            facts.left_out[root] = spoilt
        else:
            leaf.taken = ""
            facts.assumed.add(root)
        leaf.span, leaf.uploaded = span, []

    def _spoilt(self, span: Span) -> str:
        """Return what took a byte since of the last leaf that lay exactly there, if that was
        uploaded by a call.
        """
        there = [leaf for leaf in self.leafs.values() if leaf.by_call and leaf.span == span]
        return there[-1].taken if there else ""


class _GraphForm:
    """What runs of a graph at its addresses have in common."""

    def __init__(self, run: RecordedRun) -> None:
        planned = [tensor for tensor in placed(run) if in_plan(tensor, run.event)]
        outside, copies = set(run.outside), {*run.copies, *spare_copies(run)}
        self.leafs = [t for t in planned if is_leaf(t) and t.tensor not in copies and t not in outside]
        self.placed = {t.tensor: _span(t.told, t.memory) for t in planned if t.view_src is None and t.memory}
        """Roots, and where they lie."""
        self.memories = {tensor.memory for tensor in planned}
        self.writes = list(_writes(run))
        self._asked: dict[tuple[RecordedTensor, Span], bool] = {}

    def takes(self, root: RecordedTensor, span: Span) -> bool:
        """Return whether an op writes into bytes of a root for another one."""
        if (root, span) not in self._asked:
            self._asked[root, span] = any(other is not root and _meet(span, there) for other, there in self.writes)
        return self._asked[root, span]


def _writes(run: RecordedRun) -> Iterator[tuple[RecordedTensor, Span]]:
    """Yield what the ops of a run write: the root, and the bytes."""
    flagged = any(tensor.told.flags & COMPUTE for tensor in run.nodes)
    for tensor in run.nodes:
        if flagged and not tensor.told.flags & COMPUTE and tensor.tensor not in run.copies:
            continue
        if tensor.told.op in ROOTS_KEPT or tensor.memory is None or not tensor.told.data:
            continue
        if is_leaf(tensor) and tensor.tensor not in run.copies:
            continue
        yield tensor.view_src or tensor.tensor, _span(tensor.told, tensor.memory)


def _covers(ranges: Iterable[tuple[int, int]], nbytes: int) -> bool:
    end = 0
    for start, stop in sorted(ranges):
        if start > end:
            return False
        end = max(end, stop)
    return end >= nbytes
