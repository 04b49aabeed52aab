"""Exploring one chunk of a campaign with a running target.

    tally, findings = explore(asked, chunk)

Nothing is started but the target. A chunk's findings depend on what is asked and on the chunk, so
chunks may be explored in this process, in others, or on other machines
(`allocsim.fuzzing.campaigns`). What is found is told at once, and reduced where its cause is new.

What this module does not see: which chunks there are, the corpus, the time of the whole campaign.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from time import time
from typing import Any, Final, Self

from allocsim.allocators import ALLOCATORS
from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.broken_property import NOTED, BrokenProperty
from allocsim.fuzzing.bulk import Cut
from allocsim.fuzzing.examination import AGAIN, WORDS, Examiner, Execute, finding_of, until_case
from allocsim.fuzzing.fuzz_case import HANGS, Answer, FuzzCase
from allocsim.fuzzing.history import CHANGED, HISTORY, UNKNOWN, after, after_all_is_compiled, alike, alone, sequence
from allocsim.fuzzing.properties import asked_of
from allocsim.fuzzing.reducing import smallest
from allocsim.fuzzing.sources import SOURCES, SourceChunk
from allocsim.fuzzing.tally import Tally
from allocsim.fuzzing.target import Asker, Target
from allocsim.fuzzing.worker import KEEPS
from allocsim.judge.violations import KINDS

LATE: Final = "did not answer in time once, and did when it was asked again"
"""The remark on a target that answered a question too late once and in time when asked again."""

UNSTEADY: Final = 4
"""How many times as many CPU seconds the same work may take where other work runs beside: a turn of
an empty loop took from 15 to 60 ns on one machine within an hour.
"""

ALONE: Final = {*CHANGED, HISTORY, UNKNOWN}
"""Causes that were found with fresh processes."""

THOROUGH: Final = 5
"""One batch in so many, planned as one program, is asked twice and with all pinned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSpec:
    """What a campaign does; all of it decides what is found."""

    target: Target
    source: str
    """A key of `SOURCES`."""
    seed: int = 0
    examples: int | None = None
    """Cases in all; None: as many as there is time for."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """For the source."""
    guarantees: tuple[str, ...] | None = None
    """What the planner is held to, of the properties that are by choice; None: what it states."""
    without: tuple[str, ...] = ()
    """Properties that are left out."""
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
            **({"guarantees": list(self.guarantees)} if self.guarantees is not None else {}),
            **({"without": list(self.without)} if self.without else {}),
        }


Told = Callable[[BrokenProperty], object]
"""Is given each finding that is new or smaller."""

Explored = tuple[Tally, bool, list[BrokenProperty]]
"""What a process says of a chunk: its tally, whether that is all of it, and what was found."""


class TimeIsUp(BaseException):
    """The campaign's time is over in the middle of a chunk."""


class Explorer:
    """A running target with all that is asked of it, chunk by chunk; a context manager."""

    def __init__(self, asked: CampaignSpec) -> None:
        self.asked = asked
        self.asker: Asker = asked.target.open()
        self.known: dict[str, BrokenProperty] = {}
        """The smallest finding of each cause this explorer has seen."""
        self._witness: Asker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the target."""
        self.asker.close()
        if self._witness is not None:
            self._witness.close()

    @property
    def properties(self) -> list[str]:
        """The names of the properties that the target is held to."""
        asked, asker = self.asked, self.asker
        stated = asker.guarantees if asked.guarantees is None else asked.guarantees
        return asked_of(stated, told=asker.told, places=asker.places, without=asked.without)

    def witness(self) -> Asker:
        """Return the target in another process, with another seed of hashes, shown other hours and
        called from other threads.
        """
        if self._witness is None:
            target = self.asked.target
            other = replace(target, hash_seed=target.hash_seed + 1, trace=False, clock=True, thread=True)
            self._witness = other.open()
        return self._witness

    def explore(self, chunk: SourceChunk, tell: Told, *, until: float | None = None) -> tuple[Tally, bool]:
        """Go through a chunk; return what was exercised, and whether that is all of it.

        `tell` is given each finding that is new or smaller, first as it came, then reduced. `until`
        is a time of `time.time`.
        """
        examiner = Examiner(
            self.asker,
            properties=self.properties,
            execute=self.asked.execute,
            plain=SOURCES[self.asked.source].proves,
            witness=None if self.asked.target.name in ALLOCATORS else self.witness,
        )
        origin = {
            "target": self.asked.target.name,
            "source": self.asked.source,
            "seed": chunk.seed,
            "chunk": chunk.number,
        }
        asking = _Asking(explorer=self, examiner=examiner, origin=origin, tell=tell, until=until)
        complete = True
        try:
            SOURCES[self.asked.source].explore(chunk, asking)
        except TimeIsUp:
            complete = False
        asking.keep(examiner.judge_held(until=until))
        examiner.tally.arcs.update(self.asker.take_seen())
        examiner.tally.noted.update(self.asker.noted)
        self.asker.noted.clear()
        for what, case in self.asker.noted_at.items():
            note = finding_of(NOTED, (what, f"the target {what}"), case, Answer())
            self.known.setdefault(note.key, note)
            tell(replace(self.known[note.key], origin=dict(origin)))
        self.asker.noted_at.clear()
        return examiner.tally, complete

    def explored(self, chunk: SourceChunk, *, until: float | None = None, tell: Told = lambda _: None) -> Explored:
        """Go through a chunk as `explore` does; return the last finding of each cause, too."""
        found: dict[str, BrokenProperty] = {}

        def noted(finding: BrokenProperty) -> None:
            found[finding.key] = finding
            tell(finding)

        tally, whole = self.explore(chunk, noted, until=until)
        return tally, whole, list(found.values())

    def found(self, finding: BrokenProperty, tell: Told, examiner: Examiner, *, until: float | None = None) -> None:
        """Tell of a finding and make it small, unless one as good is known of its fault.

        From `until` on, a time of `time.time`, nothing more is asked: it is told as it came.
        """
        known = self.known.get(finding.key)
        if known is not None and not finding.better_than(known):
            return
        in_time = until is None or time() < until
        shown = finding.breaks == "bits" or finding.before or finding.cause in ALONE
        if known is None and in_time and not shown:
            finding = of_history(finding, self.asker, examiner, self.known.values(), until=until)
            examiner.tally.noted[LATE] += finding.cause == LATE
            if finding.key in self.known:
                return
        self.known[finding.key] = finding
        seconds = self.asked.reduce_seconds if until is None else min(self.asked.reduce_seconds, until - time())
        vague = finding.cause in KINDS and seconds > 0
        if not vague:
            tell(finding)
        if seconds > 0 and known is None and not finding.before and finding.breaks != NOTED:
            small = smallest(finding, examiner, seconds=seconds)
            best = self.known.get(small.key)
            if best is None or small.better_than(best):
                self.known[small.key] = small
                tell(small)
            elif vague and small is finding:
                tell(finding)


def of_history(
    finding: BrokenProperty,
    asker: Asker,
    examiner: Examiner,
    known: Iterable[BrokenProperty],
    *,
    until: float | None = None,
) -> BrokenProperty:
    """Return a finding as it is where a fresh process shows it alone, else as one of what was asked
    before: the one that is known, or a new one with its sequence of questions.

    Where no sequence of questions shows another answer than alone, the finding says so; and where
    the time was up (`until`) before all were tried. An answer that came late once and is not late
    again is no finding but something noted (`LATE`): the planner may have compiled itself, or other
    work ran beside, so it may take `UNSTEADY` times its time alone on top of the limit. So is an
    answer for which a target had no more memory that keeps more at every call (`KEEPS`): how soon
    it has none is a limit of the campaign's, and alone it answers.
    """
    before = until_case(examiner.histories, finding.case)
    late = finding.cause == HANGS
    answered = after_all_is_compiled if late else after
    first = answered(asker, (), finding.case)
    if finding.breaks == "deterministic":
        if not alike(first, alone(asker, finding.case)):
            return finding
        before = [*before, (finding.case, False)]
    elif late:
        if first.late:
            first = alone(asker, finding.case)
            if first.late:
                return finding
            before = [*before, (finding.case, False)]  # in time once, and not when it is asked again
        answered = partial(after_all_is_compiled, grace=UNSTEADY * first.seconds)
    else:
        asker.renew()
        if examiner.find(finding.case, finding.breaks) is not None:
            return finding
    if finding.cause == "memory" and (KEEPS in asker.noted or any(other.cause == KEEPS for other in known)):
        return finding_of(NOTED, (KEEPS, f"the target {KEEPS}, until it had no more"), finding.case, Answer())
    joined = next((other for other in known if other.cause == HISTORY), None)
    if joined is not None:
        return joined
    found = sequence(asker, before, finding.case, first, until=until, answered=answered)
    if found is None and late:
        return finding_of(NOTED, (LATE, f"the target {LATE}"), finding.case, Answer())
    if found is None:
        words = "asked alone in a fresh process it does not do so, and not after the same questions"
        if until is not None and time() >= until:
            words = "asked alone in a fresh process it does not do so; the time was up before more was asked"
        return replace(finding, message=f"{finding.message}; {words}")
    other = answered(asker, [(case, False) for case in found], finding.case)
    words = WORDS[HISTORY].format(len(found)) + f"; after them: {finding.message}"
    made = finding_of("deterministic", (HISTORY, words), finding.case, other)
    return replace(made, before=found, reduced=True, origin=finding.origin)


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

    def case(self, case: FuzzCase) -> Answer:
        """Ask a case twice, and with everything pinned."""
        self._in_time()
        answer, findings = self.examiner.hold(case)
        self.keep(findings)
        return answer

    def batch(self, batch: Batch) -> None:
        """Examine a batch: as one program if the planner is of this project, or one that plans the
        parts of a batch, and nothing is capped, else one by one.

        Of an exhaustive source every program is asked twice and with everything pinned, so that all
        properties are proven.
        """
        self._in_time()
        all_of_them = self.explorer.asked.source == "exhaustive"
        thorough, every = all_of_them or self.turn() % THOROUGH == 0, 1 if all_of_them else AGAIN
        capped = any(arena.capacity is not None for arena in batch.program.arenas)
        in_one = self.explorer.asked.target.name in ALLOCATORS or self.explorer.asker.in_parts
        whole = in_one and not capped
        self.keep(
            self.examiner.examine_whole(batch, thorough=thorough, every=every, until=self.until)
            if whole
            else self.examiner.examine(Cut(batch), every=every, until=self.until)
        )
        self._in_time()  # else the end of this batch may be missing, and it may be the last

    def _in_time(self) -> None:
        if self.until is not None and time() >= self.until:
            raise TimeIsUp

    def keep(self, findings: Sequence[BrokenProperty]) -> None:
        """Keep what was found, made small."""
        for finding in findings:
            made = replace(finding, origin=dict(self.origin))
            self.explorer.found(made, self.tell, self.examiner, until=self.until)


def explore(asked: CampaignSpec, chunk: SourceChunk) -> tuple[Tally, list[BrokenProperty]]:
    """Go through one chunk with a target started for it alone.

    Return what was exercised and what was found, one for each cause.
    """
    with Explorer(asked) as explorer:
        tally, _, found = explorer.explored(chunk)
    return tally, found
