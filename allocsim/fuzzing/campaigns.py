"""A campaign: the chunks of a source go through a target, until none is left or the time is up.

    asked = CampaignSpec(target=Target(name="my_package.planner:plan"), source="hypothesis", seed=0, examples=10_000)
    result = campaign(asked, corpus=Path("corpus"), jobs=2)
    result.findings                                    # one for each cause, the smallest first
    result.defects                                     # those joined that one mend of the answers explains
    result.tally.programs, result.tally.features

Chunks are explored (`allocsim.fuzzing.explorer`) in this process, in several, or on a cluster.

With a corpus, chunks its journal has are not done again, findings are on disk before they are
reduced, and a campaign that was killed goes on where it was. The chunks of one seed have findings
of the same causes whatever `jobs` is and however often it was killed. Where one of its processes is
killed, chunks that were under way are gone through again; a chunk is given up with a PlannerError
when that has happened more than `LIVES` times. A chunk that is asked for with more examples than
the journal has of it is gone through again from its start, and counted once.

What this module does not see: what a good plan is, and how results are shown.
"""

import atexit
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from time import time
from typing import Final

from allocsim.errors import PlannerError
from allocsim.files.signals import die_with_parent
from allocsim.fuzzing.broken_property import NOTED, BrokenProperty
from allocsim.fuzzing.corpus import Corpus, keep_in
from allocsim.fuzzing.explorer import CampaignSpec, Explored, Explorer, Told
from allocsim.fuzzing.joining import JoinedFindings, joined
from allocsim.fuzzing.sources import SourceChunk, chunks
from allocsim.fuzzing.tally import Tally

WAITING: Final = 2
"""Chunks that are waiting for each process."""

LIVES: Final = 3
"""How often a chunk is gone through again because a process was killed while it was under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignResult:
    """What a campaign came to."""

    findings: tuple[BrokenProperty, ...]
    """One for each cause, those of the fewest ops first."""
    tally: Tally
    complete: bool
    """Whether every case that was asked for was asked."""
    notes: tuple[BrokenProperty, ...] = ()
    """What the target did beside its answers, each with the first case after which it was seen."""

    @property
    def defects(self) -> tuple[JoinedFindings, ...]:
        """The findings; those that one mend of the planner's answers explains are joined."""
        return joined(self.findings)


def campaign(
    asked: CampaignSpec,
    *,
    corpus: Path | None = None,
    jobs: int = 1,
    scheduler: str | None = None,
    minutes: float | None = None,
    tell: Told = lambda _: None,
    advance: Callable[[int], object] = lambda _: None,
) -> CampaignResult:
    """Run a campaign and return what it came to.

    An interrupt ends it as the time limit does, with what there is.

    Args:
        asked: what to do.
        corpus: a folder to keep findings and progress in, and to go on from.
        jobs: processes, each with a target of its own.
        scheduler: address of a Dask scheduler whose workers are used instead (`cluster`).
        minutes: when to stop.
        tell: called with each finding that is new or smaller.
        advance: called with how many programs are done, as they are.

    Raises:
        PlannerError: there is no such target, or it does not start, or processes of the campaign
            were killed again and again.
        OutputError: the corpus is another campaign's, is not as it was written, or cannot be written.
        ClusterError: the scheduler cannot be reached, or its workers cannot do this.
    """
    folder = None if corpus is None else Corpus(corpus, asked.identity)
    known: dict[str, BrokenProperty] = {} if folder is None else folder.findings()
    records = {} if folder is None else folder.done
    every = chunks(asked.source, seed=asked.seed, options=asked.options, total=asked.examples)
    begun = list(islice(every, 1 + max(records, default=-1)))
    short = {chunk.number for chunk in begun if records.get(chunk.number, {}).get("count", 0) < chunk.count}
    done = records.keys() - short
    tally = Tally()
    for number in done:
        tally += Tally.of(records[number])
    advance(tally.programs)

    def keep(finding: BrokenProperty) -> None:
        if finding.key in known and not finding.better_than(known[finding.key]):
            return
        known[finding.key] = finding
        if corpus is not None:
            keep_in(corpus, finding)
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
    findings = tuple(finding for finding in found if finding.breaks != NOTED)
    notes = tuple(finding for finding in found if finding.breaks == NOTED)
    return CampaignResult(findings=findings, tally=tally, complete=complete, notes=notes)


Gone = Iterator[tuple[SourceChunk, Tally, bool]]
Way = Callable[[CampaignSpec, Iterator[SourceChunk], float | None, Told], Gone]
"""How chunks are gone through: yields each with its tally and whether that is all of it."""


def _way(*, jobs: int, corpus: Path | None, scheduler: str | None) -> Way:
    if scheduler is not None:
        from allocsim.fuzzing.cluster import on_cluster  # noqa: PLC0415 - where there is a cluster

        return partial(on_cluster, scheduler=scheduler)
    return _in_turn if jobs == 1 else partial(_side_by_side, jobs=jobs, corpus=corpus)


def _in_turn(asked: CampaignSpec, wanted: Iterator[SourceChunk], until: float | None, keep: Told) -> Gone:
    """Explore the chunks in this process, one after another."""
    with Explorer(asked) as explorer:
        while until is None or time() < until:
            chunk = next(wanted, None)
            if chunk is None:
                return
            yield chunk, *explorer.explore(chunk, keep, until=until)


def _side_by_side(
    asked: CampaignSpec,
    wanted: Iterator[SourceChunk],
    until: float | None,
    keep: Told,
    *,
    jobs: int,
    corpus: Path | None,
) -> Gone:
    """Explore the chunks in processes of their own, a few ahead of what is done.

    They write findings into the corpus themselves.

    A pool that has lost a process is of no use any more: there is a new one, and what was under way
    begins again in it.
    """
    asked.target.open().close()  # a bad target is said once, here
    begun = partial(
        ProcessPoolExecutor, jobs, mp_context=get_context("spawn"), initializer=_begin, initargs=(asked, corpus)
    )
    pool = begun()
    waiting: dict[Future[Explored], tuple[SourceChunk, int]] = {}
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
                waiting = {
                    _submitted(pool, chunk, until): (chunk, _more(chunk, deaths)) for chunk, deaths in waiting.values()
                }
    finally:
        pool.shutdown(wait=not waiting, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, chunk: SourceChunk, until: float | None) -> "Future[Explored]":
    """Return the future of a chunk, which tells if the pool has lost a process meanwhile."""
    try:
        return pool.submit(_go_through, chunk, until)
    except BrokenProcessPool as error:
        future: Future[Explored] = Future()
        future.set_exception(error)
        return future


def _more(chunk: SourceChunk, deaths: int) -> int:
    if deaths == LIVES:
        words = f"a process of the campaign was killed {deaths + 1} times while chunk {chunk.number} was under way"
        raise PlannerError(f"{words}; a campaign with a corpus goes on from there")
    return deaths + 1


_here: tuple[Explorer, Path | None] | None = None
"""What a process of `_side_by_side` keeps from chunk to chunk."""


def _begin(asked: CampaignSpec, corpus: Path | None) -> None:
    global _here  # noqa: PLW0603 - a pool has no other place for what a process keeps
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the campaign is told, and tells
    explorer = Explorer(asked)
    atexit.register(explorer.close)
    _here = explorer, corpus


def _go_through(chunk: SourceChunk, until: float | None) -> Explored:
    assert _here is not None
    explorer, corpus = _here
    if corpus is None:
        return explorer.explored(chunk, until=until)
    return explorer.explored(chunk, until=until, tell=partial(keep_in, corpus))
