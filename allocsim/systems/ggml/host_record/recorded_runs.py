"""Find which leafs of each run hold their upload, and which results of the run the host reads.

    for sharing in shared_memory(log):
        facts = facts_of(log, sharing)

Contract
--------
* Runs that share compute memory, directly or through other runs, are one session. So two contexts
  with separate compute memory are two sessions, even if their tensors have equal names or both
  read the same weights.
* A leaf in compute memory is *left out* of a run if the host did not upload it since its last run,
  and another tensor of some run, or another upload, has overwritten one of its bytes. Bytes that a
  graph writes into the leaf itself (a state) do not count. A leaf that keeps its bytes counts as
  uploaded. A leaf in freed memory is left out even if the host wrote there, and so is a leaf that
  got its memory in the call that computes.
* A leaf without any recorded upload is *assumed* to be uploaded before each run. The reason is that
  the host may write the leaf through a pointer, even if no byte changes. There is one exception:
  the leaf is left out if a call uploaded an earlier leaf in exactly these bytes, another tensor
  overwrote one of them, and the leaf still has the content that the last run left.
* A read belongs to the last run that had the tensor. A read belongs to no run if one later upload
  wrote all bytes that are read, and nothing overwrote them since. A read is *late* if a later run,
  the release of the buffer, or an upload to another tensor overwrote one of its bytes. A read is
  *hasty* if the run was started without waiting and no call has waited since, unless the same
  backend does the read in order. An upload can be hasty in the same way.

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
"""A buffer, the first address of a range in the buffer, and the address after the last."""

COPY: Final = re.compile(r"[^#]+#(?P<of>.+)#(?P<number>\d)")
"""A scheduler names its copies by this pattern: `backend#input#number`."""

BOTH: Final = INPUT | OUTPUT
"""The flags of a scheduler's copies, which keep allocators from reusing the copies' bytes."""

KEPT: Final = 3
"""The most repetitions of a block of runs that are kept and judged."""

LONGEST: Final = 4
"""The most runs in a repeated block."""

Read = tuple[RecordedTensor, int, int]
"""A read by the host: a root, the first byte in the root, and the end of the range."""


@dataclass(slots=True, eq=False)
class RunFacts:
    """A run, or the release of a buffer (`given_back`), with the host's uploads and reads."""

    event: int
    run: RecordedRun | None = None
    given_back: RecordedBuffer | None = None
    left_out: dict[RecordedTensor, str] = field(default_factory=dict)
    """Leaf that lost its content and was not uploaded again -> the run or upload that overwrote the
    content; "" if the leaf's memory was freed or is new."""
    assumed: set[RecordedTensor] = field(default_factory=set)
    """Leafs that are assumed to be uploaded before the run, without a recorded upload."""
    reads: set[Read] = field(default_factory=set)
    late: dict[int, set[Read]] = field(default_factory=dict)
    """Index of the last run or release before a late read -> the late reads."""
    overlaid: dict[Touch, set[Read]] = field(default_factory=dict)
    """Upload that overwrote results of this run -> the later reads of the overwritten bytes."""
    hasty_reads: set[Read] = field(default_factory=set)
    hasty_upload: bool = False
    """Whether the host wrote a leaf while this run might still read the leaf."""


def shared_memory(log: RecordLog) -> list[list[RecordedRun]]:
    """Return for each session its runs in order; the runs of a session share compute memory."""
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
    """Yield all tensors of a run: first leafs, then roots outside of the graph, then nodes."""
    yield from run.leafs
    yield from run.outside
    yield from run.nodes


def in_plan(tensor: PlacedTensor, event: int) -> bool:
    """Return whether a tensor counts as planned: it is in compute memory or in a freed buffer."""
    memory = tensor.memory
    return memory is not None and bool(tensor.told.data) and (memory.computes or memory.dead(event))


def is_leaf(tensor: PlacedTensor) -> bool:
    """Return whether the host fills a tensor: it is a root that no op writes."""
    return tensor.told.op == NONE and tensor.view_src is None


Kept = TypeVar("Kept")


def keep(steps: list[Kept], step: Kept, key: Callable[[Kept], Hashable]) -> None:
    """Append a step; if it completes a fourth equal block of steps in a row, remove that block."""
    steps.append(step)
    for length in range(1, LONGEST + 1):
        keys = [key(one) for one in steps[-length * (KEPT + 1) :]]
        if len(keys) == length * (KEPT + 1) and keys[length:] == keys[:-length]:
            del steps[-length:]
            return


def spare_copies(run: RecordedRun) -> dict[RecordedTensor, int]:
    """Return copy -> number for the input copies that a pipelined scheduler keeps for other runs.

    Without a pipelined scheduler, the table is empty. The copies are named `backend#input#number`
    and flagged as both input and output. The copy that this run uses is the input or a node.
    """
    names = {tensor.told.name for tensor in (*run.leafs, *run.nodes)} if run.backends else set()
    found = {
        tensor.tensor: COPY.fullmatch(tensor.told.name) for tensor in run.leafs if tensor.told.flags & BOTH == BOTH
    }
    return {tensor: int(match["number"]) for tensor, match in found.items() if match and match["of"] in names}


def copy_in_turn(run: RecordedRun) -> int | None:
    """Return the number of the input copy that a pipelined run uses; None for other runs."""
    spare = {*spare_copies(run).values()}
    return next(number for number in range(len(spare) + 1) if number not in spare) if spare else None


def memories_of(run: RecordedRun) -> list[RecordedBuffer]:
    """Return the buffers that hold tensors of a run, in the order of their allocation."""
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
    """The state of one leaf in compute memory."""

    span: Span
    uploaded: list[tuple[int, int]] = field(default_factory=list)
    """Byte ranges of the leaf that the host uploaded since the leaf's last run."""
    by_call: bool = False
    """Whether a recorded call ever wrote this leaf or an earlier leaf in the same bytes."""
    taken: str = ""
    """The run or upload that overwrote a byte of the leaf since its upload; empty if none did."""


def facts_of(log: RecordLog, runs: Sequence[RecordedRun]) -> list[RunFacts]:
    """Return the runs and buffer releases of a session in order, with the host's accesses."""
    return host_of(log, runs).done


def host_of(log: RecordLog, runs: Sequence[RecordedRun], stop: int | None = None) -> "FollowedHost":
    """Follow each `Happening` of a session, from the allocation of its first buffer on.

    Only happenings before index `stop` of `log.happened` are followed; None: all happenings.
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
        """Root -> index in `done` of the last run that had the root."""
        self.placed: dict[RecordedTensor, Span] = {}
        """Root -> its byte range in its last run."""
        self.forms: dict[tuple[int, frozenset[RecordedBuffer]], _GraphForm] = {}
        """(graph, freed buffers) -> facts about all runs of the graph after exactly these frees."""
        self.taken_by: dict[int, _GraphForm] = {}
        """Index of a run in `done` -> the facts that the run's graph gives (`_GraphForm`)."""
        self.laid: dict[RecordedTensor, Touch] = {}
        """Root -> its last upload into compute memory."""

    def follow(self, one: Happening) -> None:
        """Follow the next happening: a run of this session, a release, or an access by the host."""
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
        """Return whether one upload after the run wrote all bytes that are read, and nothing has
        overwritten them since.
        """
        laid = self.laid.get(touch.root)
        if laid is None or laid.memory is None or laid.event < self.done[place].event:
            return False
        there = (laid.memory, laid.told.data) == (touch.memory, touch.told.data) and not laid.memory.dead(touch.event)
        whole = laid.start <= touch.start and touch.stop <= laid.stop
        return there and whole and (laid.start, laid.stop) in self.leafs[touch.root].uploaded

    def _overlaid(self, place: int, root: RecordedTensor, span: Span) -> Touch | None:
        """Return an upload to another tensor, after the run, over a byte of `span`, or None."""
        behind = self.done[place].event
        behind_it = (touch for other, touch in self.laid.items() if touch.event > behind and other is not root)
        return next((touch for touch in behind_it if _meet(span, _written(touch))), None)

    def _scheduled(self, place: int) -> bool:
        """Return whether a scheduler computed a run.

        When the scheduler's call returns, the scheduler has already copied its inputs.
        """
        run = self.done[place].run
        return run is not None and bool(run.backends)

    def _in_flight(self, place: int, touch: Touch) -> bool:
        """Return whether a run may still be executing.

        The log does not say which backend of a scheduler computes a tensor. So an access by any of
        its backends counts as ordered after the run, and a wait for any of them as the run's end.
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
        """Decide whether a leaf of a run holds its upload, is assumed uploaded, or was left out."""
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
        """Return the run or upload that overwrote the last leaf that a call uploaded into exactly
        these bytes. Empty: there is no such leaf, or nothing overwrote a byte of the leaf.
        """
        there = [leaf for leaf in self.leafs.values() if leaf.by_call and leaf.span == span]
        return there[-1].taken if there else ""


class _GraphForm:
    """The facts shared by all runs of one graph at the same addresses."""

    def __init__(self, run: RecordedRun) -> None:
        planned = [tensor for tensor in placed(run) if in_plan(tensor, run.event)]
        outside, copies = set(run.outside), {*run.copies, *spare_copies(run)}
        self.leafs = [t for t in planned if is_leaf(t) and t.tensor not in copies and t not in outside]
        self.placed = {t.tensor: _span(t.told, t.memory) for t in planned if t.view_src is None and t.memory}
        """Root -> its byte range."""
        self.memories = {tensor.memory for tensor in planned}
        self.writes = list(_writes(run))
        self._asked: dict[tuple[RecordedTensor, Span], bool] = {}

    def takes(self, root: RecordedTensor, span: Span) -> bool:
        """Return whether an op that writes another root overwrites bytes of this root."""
        if (root, span) not in self._asked:
            self._asked[root, span] = any(other is not root and _meet(span, there) for other, there in self.writes)
        return self._asked[root, span]


def _writes(run: RecordedRun) -> Iterator[tuple[RecordedTensor, Span]]:
    """Yield (root, byte range) for each write of the run's ops."""
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
