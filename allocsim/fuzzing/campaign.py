"""A campaign: chunks of a source through a target, until there are none left or the time is up.

    asked = Asked(target=Target(name="my_package.planner:plan"), source="hypothesis", seed=0, examples=10_000)
    result = campaign(asked, corpus=Path("corpus"), jobs=2)
    result.findings                                    # one for each cause, the smallest first
    result.tally.programs, result.tally.features

A chunk is explored by `explore`, which starts nothing but the target and returns a `Tally`; it is a plain function of (what is asked, chunk), so
it may be called in this process, in others, or on other machines. What it finds is kept at once, and reduced where its cause is new.

With a corpus, chunks its journal has are not done again, findings are on disk before they are reduced, and a campaign that was killed
goes on where it was. The chunks of one seed have findings of the same causes whatever `jobs` is and however often it was killed. Where one of its processes
is killed, chunks that were under way are gone through again; a chunk is given up with a PlannerError when that has happened more than `LIVES` times.
A chunk that is asked for with more examples than the journal has of it is gone through again from its start, and counted once.

What this module does not see: what a good plan is, and how results are shown.
"""

import atexit
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count, islice
from multiprocessing import get_context
from pathlib import Path
from time import time
from typing import Any, Final, Self

from allocsim.allocators import ALLOCATORS
from allocsim.errors import PlannerError
from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.bulk import Cut
from allocsim.fuzzing.case import Answer, Case
from allocsim.fuzzing.corpus import Corpus, keep_in
from allocsim.fuzzing.examination import AGAIN, Examiner, Execute
from allocsim.fuzzing.finding import Finding
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.reducing import smallest
from allocsim.fuzzing.sources import SOURCES, Chunk, chunks
from allocsim.fuzzing.tally import Tally
from allocsim.fuzzing.target import Asker, Target
from allocsim.fuzzing.worker import die_with_parent

WAITING: Final = 2
"""Chunks that are waiting for each process."""

LIVES: Final = 3
"""How often a chunk is gone through again because a process was killed while it was under way."""

THOROUGH: Final = 4
"""One batch in so many, of those planned as one program, is asked twice and with everything pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a campaign does; all of it decides what is found."""

    target: Target
    source: str
    """A key of `SOURCES`."""
    seed: int = 0
    examples: int | None = None
    """Cases in all; None: as many as there is time for."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the source."""
    execute: Execute | None = None
    """Runs plans; for a campaign of several processes a function of a module."""
    reduce_seconds: float = 30.0
    """How long one finding is reduced at most; 0 leaves findings as they came."""

    @property
    def identity(self) -> dict[str, Any]:
        """What a corpus is of: with these equal, chunks are the same."""
        return {
            "target": self.target.name,
            "source": self.source,
            "seed": self.seed,
            "options": dict(self.options),
            "execute": self.execute is not None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a campaign came to."""

    findings: tuple[Finding, ...]
    """One for each cause, those of the fewest ops first."""
    tally: Tally
    complete: bool
    """Whether every case that was asked for was asked."""


Told = Callable[[Finding], object]


class TimeIsUp(BaseException):
    """The campaign's time is over in the middle of a chunk."""


class Explorer:
    """A running target with all that is asked of it, for one chunk after another. Use as a context manager."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.asker: Asker = asked.target.open()
        self.known: dict[str, Finding] = {}
        """The smallest finding of each cause this explorer has seen."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.asker.close()

    def explore(self, chunk: Chunk, tell: Told, *, until: float | None = None) -> tuple[Tally, bool]:
        """Go through a chunk; return what was exercised, and whether that is all of it.

        `tell` is given each finding that is new or smaller, first as it came, then reduced. `until` is a time of `time.time`.
        """
        examiner = Examiner(
            self.asker, properties=asked_of(self.asker.guarantees, told=self.asker.told), execute=self.asked.execute
        )
        origin = {"target": self.asked.target.name, "source": self.asked.source, "seed": chunk.seed, "chunk": chunk.number}
        asking = _Asking(explorer=self, examiner=examiner, origin=origin, tell=tell, until=until)
        complete = True
        try:
            SOURCES[self.asked.source].explore(chunk, asking)
        except TimeIsUp:
            complete = False
        asking.keep(examiner.judge_held())
        examiner.tally.arcs.update(self.asker.take_seen())
        return examiner.tally, complete

    def found(self, finding: Finding, tell: Told, examiner: Examiner) -> None:
        """Tell of a finding and make it small, unless one as good is known of its fault."""
        known = self.known.get(finding.key)
        if known is not None and not finding.better_than(known):
            return
        self.known[finding.key] = finding
        tell(finding)
        if self.asked.reduce_seconds and known is None:
            small = smallest(finding, examiner, seconds=self.asked.reduce_seconds)
            if small.better_than(finding):
                self.known[finding.key] = small
                tell(small)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """What a source does with the cases of one chunk (`sources.Asking`)."""

    explorer: Explorer
    examiner: Examiner
    origin: Mapping[str, Any]
    tell: Told
    until: float | None
    turn: Callable[[], int] = field(default_factory=lambda: partial(next, count()))
    """How many batches there were."""

    def case(self, case: Case) -> Answer:
        """Ask a case twice, and with everything pinned."""
        self._in_time()
        answer, findings = self.examiner.hold(case)
        self.keep(findings)
        return answer

    def batch(self, batch: Batch) -> None:
        """Examine a batch: as one program if the planner is of this project and nothing is capped, else one by one.

        Of an exhaustive source every program is asked twice and with everything pinned, so that all properties are proven.
        """
        self._in_time()
        all_of_them = self.explorer.asked.source == "exhaustive"
        thorough, every = all_of_them or self.turn() % THOROUGH == 0, 1 if all_of_them else AGAIN
        capped = any(arena.capacity is not None for arena in batch.program.arenas)
        whole = self.explorer.asked.target.name in ALLOCATORS and not capped
        self.keep(
            self.examiner.examine_whole(batch, thorough=thorough, every=every, until=self.until)
            if whole
            else self.examiner.examine(Cut(batch), every=every, until=self.until)
        )
        self._in_time()  # else the end of this batch may be missing, and it may be the last

    def _in_time(self) -> None:
        if self.until is not None and time() >= self.until:
            raise TimeIsUp

    def keep(self, findings: Sequence[Finding]) -> None:
        """Keep what was found, made small."""
        for finding in findings:
            self.explorer.found(replace(finding, origin=dict(self.origin)), self.tell, self.examiner)


def explore(asked: Asked, chunk: Chunk) -> tuple[Tally, list[Finding]]:
    """Go through one chunk with a target started for it alone; return what was exercised and what was found, one for each cause."""
    found: dict[str, Finding] = {}
    with Explorer(asked) as explorer:
        tally, _ = explorer.explore(chunk, lambda finding: found.update({finding.key: finding}))
    return tally, list(found.values())


def campaign(
    asked: Asked,
    *,
    corpus: Path | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    minutes: float | None = None,
    tell: Told = lambda _: None,
    advance: Callable[[int], object] = lambda _: None,
) -> Result:
    """Run a campaign and return what it came to; an interrupt ends it as the time limit does, with what there is.

    Args:
        asked: what to do.
        corpus: a folder to keep findings and progress in, and to go on from.
        jobs: processes, each with a target of its own.
        scheduler: address of a Dask scheduler whose workers are used instead (`cluster`).
        minutes: when to stop.
        tell: called with each finding that is new or smaller.
        advance: called with how many programs are done, as they are.

    Raises:
        PlannerError: there is no such target, or it does not start, or processes of the campaign were killed again and again.
        ModelError, OutputError: the corpus is another campaign's, or cannot be written.
        ClusterError: the scheduler cannot be reached, or its workers cannot do this.
    """
    folder = None if corpus is None else Corpus(corpus, asked.identity)
    known: dict[str, Finding] = {} if folder is None else folder.findings()
    records = {} if folder is None else folder.done
    every = chunks(asked.source, seed=asked.seed, options=asked.options, total=asked.examples)
    begun = list(islice(every, 1 + max(records, default=-1)))
    short = {chunk.number for chunk in begun if records.get(chunk.number, {}).get("count", 0) < chunk.count}
    done = records.keys() - short
    tally = Tally()
    for number in done:
        tally += Tally.of(records[number])
    advance(tally.programs)

    def keep(finding: Finding) -> None:
        if finding.key in known and not finding.better_than(known[finding.key]):
            return
        known[finding.key] = finding
        if folder is not None:
            folder.keep(finding)
        tell(finding)

    wanted = (chunk for chunk in chain(begun, every) if chunk.number not in done)
    until = None if minutes is None else time() + 60 * minutes
    complete = True
    try:
        for chunk, part, whole in _way(jobs=jobs, corpus=corpus, scheduler=scheduler)(asked, wanted, until, keep):
            tally += part
            complete &= whole
            if folder is not None and whole:
                folder.note(chunk.number, {**part.as_json(), "count": chunk.count})
            advance(part.programs)
    except KeyboardInterrupt:
        complete = False
    complete &= next(wanted, None) is None
    found = sorted(known.values(), key=lambda finding: (finding.ops, finding.breaks, finding.cause))
    return Result(findings=tuple(found), tally=tally, complete=complete)


Gone = Iterator[tuple[Chunk, Tally, bool]]
Way = Callable[[Asked, Iterator[Chunk], float | None, Told], Gone]
"""How chunks are gone through: yields each with its tally and whether that is all of it."""


def _way(*, jobs: int, corpus: Path | None, scheduler: str | None) -> Way:
    if scheduler is not None:
        from allocsim.fuzzing.cluster import on_cluster  # noqa: PLC0415 - where there is a cluster

        return partial(on_cluster, scheduler=scheduler)
    return _in_turn if jobs == 1 else partial(_side_by_side, jobs=jobs, corpus=corpus)


def _in_turn(asked: Asked, wanted: Iterator[Chunk], until: float | None, keep: Told) -> Gone:
    """Explore the chunks in this process, one after another."""
    with Explorer(asked) as explorer:
        while until is None or time() < until:
            chunk = next(wanted, None)
            if chunk is None:
                return
            yield chunk, *explorer.explore(chunk, keep, until=until)


Explored = tuple[Tally, bool, list[Finding]]
"""What a process says of a chunk: its tally, whether that is all of it, and what was found."""


def _side_by_side(
    asked: Asked, wanted: Iterator[Chunk], until: float | None, keep: Told, *, jobs: int, corpus: Path | None
) -> Gone:
    """Explore the chunks in processes of their own, a few ahead of what is done; they write findings into the corpus themselves.

    A pool that has lost a process is of no use any more: there is a new one, and what was under way begins again in it.
    """
    asked.target.open().close()  # a bad target is said once, here
    begun = partial(ProcessPoolExecutor, jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(asked, corpus))
    pool = begun()
    waiting: dict[Future[Explored], tuple[Chunk, int]] = {}
    """Chunks that are under way, and how often each was so when a process was killed."""
    try:
        while True:
            while len(waiting) < WAITING * jobs and (until is None or time() < until):
                chunk = next(wanted, None)
                if chunk is None:
                    break
                waiting[_submitted(pool, chunk, until)] = chunk, 0
            if not waiting:
                return
            ended = wait(waiting, return_when=FIRST_COMPLETED).done
            lost = {future for future in ended if isinstance(future.exception(), BrokenProcessPool)}
            for future in ended - lost:
                chunk, _ = waiting.pop(future)
                tally, whole, found = future.result()
                for finding in found:
                    keep(finding)
                yield chunk, tally, whole
            if lost:
                pool.shutdown()
                pool = begun()
                waiting = {_submitted(pool, chunk, until): (chunk, _more(chunk, deaths)) for chunk, deaths in waiting.values()}
    finally:
        pool.shutdown(wait=not waiting, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, chunk: Chunk, until: float | None) -> "Future[Explored]":
    """Return the future of a chunk; of a pool that has lost a process meanwhile, one that says so."""
    try:
        return pool.submit(_go_through, chunk, until)
    except BrokenProcessPool as error:
        future: Future[Explored] = Future()
        future.set_exception(error)
        return future


def _more(chunk: Chunk, deaths: int) -> int:
    if deaths == LIVES:
        words = f"a process of the campaign was killed {deaths + 1} times while chunk {chunk.number} was under way"
        raise PlannerError(f"{words}; a campaign with a corpus goes on from there")
    return deaths + 1


_here: tuple[Explorer, Path | None] | None = None
"""What a process of `_side_by_side` keeps from chunk to chunk."""


def _begin(asked: Asked, corpus: Path | None) -> None:
    global _here  # noqa: PLW0603 - a pool has no other place for what a process keeps
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign is told, and tells
    explorer = Explorer(asked)
    atexit.register(explorer.asker.close)
    _here = explorer, corpus


def _go_through(chunk: Chunk, until: float | None) -> Explored:
    assert _here is not None
    explorer, corpus = _here
    found: dict[str, Finding] = {}

    def tell(finding: Finding) -> None:
        found[finding.key] = finding
        if corpus is not None:
            keep_in(corpus, finding)

    tally, whole = explorer.explore(chunk, tell, until=until)
    return tally, whole, list(found.values())


__all__ = ["Asked", "Explorer", "Result", "campaign", "explore"]
