"""Follow the log of a process that still runs, and make documents of the sessions that have news.

    followed = FollowedSessions("log.jsonl")
    for piece in pieces:
        followed.feed(piece)
        for number, document in followed.news():  # to be judged
            ...
    followed.end()
    documents = followed.documents()

Contract
--------
* `news` yields a document of each session that has had a new kind of event since the last call. A
  run is new if its graph or layout is new, if it follows other runs than before, if other uploads
  were left out, or if the scheduler did not compute the graph passed to it. A read is new if other
  bytes are read. No document is yielded twice.
* The comparison of events only selects the sessions to examine. A document has the whole session so
  far, and is judged like any other document.
* `documents` returns the same documents as `documents_of` for the whole log, in the same order.
* Facts are kept from one piece of the log to the next. If a session gets a new buffer, it is
  followed again from the allocation of its first buffer.

A piece costs O(its events), and O(runs + tensors of new graphs) for a session that has news. This
module does not read the log file, and does not judge the documents.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from allocsim.model import Document
from allocsim.systems.ggml.host_record.backend_order import MOST_RUNS, at_once
from allocsim.systems.ggml.host_record.record_document import (
    document_of,
    documents_of_session,
    parts_of,
    programs_of,
)
from allocsim.systems.ggml.host_record.record_log import (
    Happening,
    LogReading,
    RecordedBuffer,
    RecordedRun,
    RecordLog,
    Touch,
)
from allocsim.systems.ggml.host_record.record_rows import SessionPrograms, skipped
from allocsim.systems.ggml.host_record.recorded_runs import FollowedHost, host_of, keep, memories_of


class FollowedSessions:
    """The sessions of a process, as far as its log has been read."""

    def __init__(self, source: str) -> None:
        self.reading = LogReading(source)
        self.sessions: list[_Session] = []
        self._taken = 0
        self._in: dict[RecordedBuffer, list[_Session]] = {}
        """Buffer -> the sessions that have tensors in it."""
        self._memories: dict[int, list[RecordedBuffer]] = {}
        """The `id` of a run's nodes, which the log keeps alive -> the buffers of the run."""

    @property
    def log(self) -> RecordLog:
        """The part of the log that was read."""
        return self.reading.log

    def feed(self, data: bytes) -> None:
        """Follow a further piece of the log."""
        self.reading.feed(data)
        self._follow()

    def end(self) -> None:
        """Follow the rest of the log, when no further piece will come."""
        self.reading.end()
        self._follow()

    def news(self) -> Iterator[tuple[int, Document]]:
        """Yield (number of the session, document) for each new document that must be judged."""
        for number, session in enumerate(self.sessions):
            for document in (*session.news(), *session.at_once()):
                yield number, document

    def documents(self) -> list[Document]:
        """Return the documents of all sessions that were followed."""
        return [one for session in self.sessions for one in session.documents()]

    def _follow(self) -> None:
        for one in self.log.happened[self._taken :]:
            self._taken += 1
            if isinstance(one, RecordedRun):
                self._ran(one)
                continue
            memory = one if isinstance(one, RecordedBuffer) else one.memory
            for session in self._in.get(memory, ()) if memory is not None else ():
                session.follow(one)

    def _ran(self, run: RecordedRun) -> None:
        """Follow a run in the session with its compute memory; join several such sessions."""
        if id(run.nodes) not in self._memories:
            self._memories[id(run.nodes)] = memories_of(run)
        memories = self._memories[id(run.nodes)]
        homes = [memory for memory in memories if memory.computes]
        near = {id(one): one for home in homes for one in self._in.get(home, ()) if home in one.homes}
        joined = [*near.values()] if homes else [one for one in self.sessions if not one.homes]
        if len(joined) == 1 and joined[0].host.memories.issuperset(memories):
            joined[0].follow(run)
            return
        runs = sorted((*(one for session in joined for one in session.runs), run), key=lambda one: one.event)
        host = host_of(self.log, runs, self._taken)
        session = _Session(host, runs, frozenset(homes).union(*(one.homes for one in joined)))
        place = min((self.sessions.index(one) for one in joined), default=len(self.sessions))
        self.sessions = [one for one in self.sessions if one not in joined]
        self.sessions.insert(place, session)
        for memory in host.memories:
            self._in[memory] = [*(one for one in self._in.get(memory, ()) if one not in joined), session]


@dataclass(slots=True, eq=False)
class _Session:
    """A session as far as it was followed, and the keys of the documents yielded from it."""

    host: FollowedHost
    runs: list[RecordedRun]
    homes: frozenset[RecordedBuffer]
    programs: SessionPrograms | None = None
    fresh: bool = True
    """Whether the session has news since the last call of `news`."""
    order: list[Hashable] = field(default_factory=list)
    """The keys of the session's runs and freed buffers, in order; repeated blocks are shortened."""
    lanes: dict[Hashable, dict[int, int]] = field(default_factory=dict)
    """The `id` of the rows of a graph -> generations of its tensors -> the lane (see `_like`)."""
    seen: set[Hashable] = field(default_factory=set)
    """The keys of the host's reads so far: the rows of the run, the kind of read, and its bytes."""
    given: set[Hashable] = field(default_factory=set)
    """The keys of the documents that were already yielded."""

    def follow(self, one: Happening) -> None:
        """Follow the next event of the log, and set `fresh` if the event is news."""
        last = self.host.last.get(one.root) if isinstance(one, Touch) else None
        before = self._read(last)
        self.host.follow(one)
        if isinstance(one, RecordedRun):
            self.runs.append(one)
            self._appended(self._like(one))
            self.fresh |= bool(one.unmade)
        elif isinstance(one, RecordedBuffer):
            self._appended(one)
        elif last is not None and before != (after := self._read(last)):
            self._read_anew(one, last, tuple(a != b for a, b in zip(before, after, strict=True)))

    def news(self) -> Iterator[Document]:
        """Yield the documents of the session that were not yielded yet."""
        if not self.fresh:
            return
        self.fresh = False
        programs = self._programs()
        for part in parts_of(programs, self.host.done):
            if part.key not in self.given:
                self.given.add(part.key)
                yield document_of(part, programs, self.host.done)

    def at_once(self) -> Iterator[Document]:
        """Yield the documents of concurrent backends that were not yielded before. Only the last
        `MOST_RUNS` runs are examined.
        """
        before = self.runs[-MOST_RUNS - 1].event if len(self.runs) > MOST_RUNS else -1
        yield from at_once(self.host.log, self.runs[-MOST_RUNS:], before, self.given)

    def documents(self) -> list[Document]:
        """Return all documents of the session."""
        return documents_of_session(self._programs(), self.host.done)

    def _programs(self) -> SessionPrograms:
        """Return the programs of the session. If a run has a new planned buffer, all programs are
        made again, and all documents count as news.
        """
        form = self.host.taken_by.get(len(self.host.done) - 1)
        if self.programs is not None and form is not None and not form.memories.issubset(self.programs.memories):
            self.programs, self.fresh = None, True
            for known in (self.order, self.lanes, self.seen, self.given):
                known.clear()
        if self.programs is None:
            self.programs = programs_of(self.host.log, self.host.done)
        return self.programs

    def _appended(self, key: Hashable) -> None:
        length = len(self.order)
        keep(self.order, key, lambda one: one)
        self.fresh |= len(self.order) > length

    def _like(self, run: RecordedRun) -> Hashable:
        """Return the key by which a run is compared: its rows, its lane, and the uploads left out.
        Graphs with equal rows that are computed in turns have different lanes.
        """
        programs = self._programs()
        rows = id(programs.rows_of(run))
        generations = hash(programs.generations(run))
        lanes = self.lanes.setdefault(rows, {})
        latest = not lanes or next(reversed(lanes)) == generations or generations not in lanes
        lane = lanes.setdefault(generations, len(lanes))
        return rows, 0 if latest else lane, skipped(run, self.host.done[-1].left_out)

    def _read(self, place: int | None) -> tuple[Any, ...]:
        """Return the run's count of each kind of read, and whether an upload lacked a wait."""
        if place is None:
            return ()
        one = self.host.done[place]
        late, overlaid = (sum(map(len, those.values())) for those in (one.late, one.overlaid))
        return len(one.reads), late, overlaid, len(one.hasty_reads), one.hasty_upload

    def _read_anew(self, touch: Touch, last: int, how: tuple[bool, ...]) -> None:
        run = self.host.done[last].run
        assert run is not None
        programs = self._programs()
        what = programs.named(run, [(touch.root, touch.start, touch.stop)])
        key = id(programs.rows_of(run)), how, tuple(what)
        self.fresh |= key not in self.seen
        self.seen.add(key)
