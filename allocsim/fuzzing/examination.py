"""The examiner: it asks the target, judges the answers by every property, and confirms suspects.

    examiner = Examiner(asker, properties=asked_of(asker.guarantees))
    findings = examiner.examine(cases)                      # or one by one: hold(case), and judge_held() in the end

Judging is done on all answers at once, as one batch of those on one stream and one of those on
several; only suspects are looked at one by one. Every finding has been decided by `Property.broken`
on the very case it shows.

What this module does not see: where cases come from, and what becomes of findings.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import time
from typing import Final, Protocol

import numpy as np

from allocsim.errors import EngineError
from allocsim.fuzzing.batch import Batch, join, join_plans, join_problems
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.bulk import TELLINGS, Cut
from allocsim.fuzzing.features import marks, tallied
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase
from allocsim.fuzzing.history import CHANCE, CLOCK, FOLDER, HASHES, HISTORY, THREAD, UNKNOWN, Questions, alike, unlike
from allocsim.fuzzing.laws import MOST
from allocsim.fuzzing.pairwise import met
from allocsim.fuzzing.properties import PROPERTIES, Property, Suspects, Why, unsound
from allocsim.fuzzing.tally import Tally
from allocsim.fuzzing.target import Asker
from allocsim.fuzzing.told_constraints import told_in
from allocsim.model import Document, Plan, Program

Execute = Callable[[Plan], str | None]
"""Runs a plan's program under it and without reuse.

Says in words which result differs, None if none does. Raises EngineError for what it cannot run."""

AGAIN: Final = 8
"""One in so many programs of a batch from bulk mode is asked twice and once more with everything
pinned; each that Hypothesis draws.
"""

LAWFUL: Final = 5
"""Of so many programs that are asked one by one, one is asked as a pair too, of one law in turn."""

FEW: Final = 4
"""Programs of a batch that are asked as a pair of each law."""

GAPPED: Final = 4
"""Of so many programs that are asked one by one, one is asked as its lives with gaps too."""

TOGETHER: Final = 125
"""Cases that are asked one by one and judged at once."""

CLOSE: Final = 50
"""So many findings of a property in one batch are enough, more are much the same.

Suspects that are none do not count, or a rare fault is missed.
"""

LONG: Final = 64
"""Ops from which on a program takes long to look at closer."""

AS_ONE: Final = {"deterministic", "bits"}
"""Properties that suspect a batch as a whole: of its programs one at least should be found."""

IN_A_BATCH: Final = {"sound", "pins", "kept", "told", "gaps", "streams", "no_worse", *AS_ONE}
"""Properties whose suspects in a plan of a whole batch should be found again alone.

What is not is counted as `only in a batch`.
"""

WITNESSED: Final = 5
"""One in so many cases that are asked twice is asked in another process too."""

WORDS: Final = {
    CHANCE: "two fresh processes answered in two ways: it depends on chance, time or addresses",
    FOLDER: "two fresh processes answered in two ways: it depends on the working directory",
    CLOCK: "two fresh processes answered in two ways: it depends on the time that the clock shows",
    THREAD: "two fresh processes answered in two ways: it depends on the thread that calls it",
    HASHES: "two fresh processes answered in two ways: it depends on PYTHONHASHSEED",
    HISTORY: "asked alone, and after {} other questions, it answered in two ways",
    UNKNOWN: "two processes answered in two ways; neither alone nor after the same questions was that seen again",
}
"""What is said of each cause of `history`."""

WITHOUT: Final = {"pins", "told"}
"""Properties broken only by what is sound where nothing is told."""

Joined = Sequence[tuple[Batch, Sequence[int]]]
"""Batches of cases, each with the places of its programs among the cases."""


class Answering(Protocol):
    """Whoever answers cases: a target in its own process (`target.Asker`), or a planner here."""

    def ask(self, cases: Sequence[FuzzCase], *, again: bool = False, until: float | None = None) -> list[Answer]:
        """Return the answer to each case.

        With `again`, each is asked twice and the answers are compared.

        From `until` on, a time of `time.time`, there are no more answers: to the last cases there
        is none.
        """
        ...


class Examiner:
    """One target under examination."""

    def __init__(
        self,
        asker: Answering,
        *,
        properties: Sequence[str],
        execute: Execute | None = None,
        plain: bool = False,
        witness: Callable[[], Asker] | None = None,
    ) -> None:
        self.asker = asker
        self.plain = plain
        """Whether the plain checks alone say which programs of a batch are sound."""
        self.witness = witness
        """Returns the target in another process and seed of hashes; None where there is none."""
        self.tally = Tally()
        self.histories: Sequence[Questions] = ((),)
        """What the process was asked that answered the cases judged last."""
        self.rows: dict[str, Property] = {name: PROPERTIES[name] for name in properties}
        self.held: list[tuple[list[FuzzCase], list[Answer]]] = []
        """Cases whose answers wait to be judged: plain and pinned."""
        if execute is not None:
            self.rows["bits"] = bits(execute, self.tally)

    def hold(self, case: FuzzCase) -> tuple[Answer, list[BrokenProperty]]:
        """Ask a case, twice, and as one that is told something: of every two cases one with
        everything pinned, one with whatever may be told.

        Return its answer, and what was found by now.

        `TOGETHER` cases are judged at a time, which takes a fraction of the time it takes one by
        one; what is no plan is judged at once, with all that waits. `judge_held` judges the rest.
        """
        turn = self.tally.programs
        lawful = self.laws and turn % LAWFUL == LAWFUL - 1
        asked = [case, *self._told(case)]
        self.tally.programs += 1
        answers = self._asked(asked, again="deterministic" in self.rows)
        self.held.append((asked, answers))
        unlawful = self._pairs([case], self.laws[turn // LAWFUL % len(self.laws)]) if lawful else []
        self.tally.broken.update(finding.breaks for finding in unlawful)
        wrong = any(answer.failure is not None or not answer.again for answer in answers)
        found = self.judge_held() if wrong or len(self.held) == TOGETHER else []
        return answers[0], unlawful + found

    def judge_held(self, *, until: float | None = None) -> list[BrokenProperty]:
        """Judge the answers that wait; from `until` on (`Answering`) nothing more is asked."""
        held, self.held = self.held, []
        self.histories = getattr(self.asker, "histories", ((),))
        joined = self._described([asked[0] for asked, _ in held])
        self._note(len(held))
        self._note(len(held), again=True)
        found = self._judged([asked[0] for asked, _ in held], joined, [answers[0] for _, answers in held])
        for kind in TELLINGS:
            pairs = [
                (case, answer)
                for asked, answers in held
                for case, answer in list(zip(asked, answers, strict=True))[1:]
                if case.kind == kind
            ]
            self._note(len(pairs), kind=kind)
            cases, answers = [case for case, _ in pairs], [answer for _, answer in pairs]
            found += self._judged(cases, batches(cases), answers) if pairs else []
        found += self._witnessed([asked[0] for asked, _ in held], [answers[0] for _, answers in held], until=until)
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def _witnessed(
        self, cases: Sequence[FuzzCase], answers: Sequence[Answer], *, until: float | None = None
    ) -> list[BrokenProperty]:
        """Ask some of the cases once more, the last first, in another process; say why the first
        one is answered otherwise there, if one is.
        """
        if "deterministic" not in self.rows or self.witness is None or not cases:
            return []
        if until is not None and time() >= until:
            return []
        asker, witness = self.asker, self.witness()
        assert isinstance(asker, Asker)
        chosen = [place for place in range(len(cases) - 1, -1, -WITNESSED) if answers[place].again]
        with self.tally.timed("asking"):
            others = witness.ask([cases[place] for place in chosen], until=until)
        self.tally.questions += len(others)
        for turn, (place, other) in enumerate(zip(chosen, others, strict=False)):
            if alike(answers[place], other) or other.failure is not None or answers[place].failure is not None:
                continue
            case = cases[place]
            mine = until_case(self.histories, case)
            theirs = [(cases[earlier], False) for earlier in chosen[:turn]]
            why, before = unlike(asker, witness, case, ((asker, mine), (witness, theirs)))
            finding = finding_of("deterministic", (why, WORDS[why].format(len(before))), case, other)
            return [replace(finding, before=before, reduced=why != UNKNOWN)]
        return []

    def examine(self, cases: Sequence[FuzzCase], *, every: int = 1, until: float | None = None) -> list[BrokenProperty]:
        """Ask every case, and one in `every` of them twice and with everything pinned.

        After `until` (`Answering`) no more of them.
        """
        answers = self._asked(cases, again=False, until=until)
        self.histories = getattr(self.asker, "histories", ((),))
        cases = cases[: len(answers)]
        self.tally.programs += len(cases)
        self._note(len(cases))
        found = self._judged(cases, self._described(cases), answers)
        some = cases[::every]
        for kind in self.kinds:
            found += self._told_more(some, kind, until=until)
        if "deterministic" in self.rows:
            answers = self._asked(some, again=True, until=until)
            self._note(len(answers), again=True)
            again = self._judged(some, batches(some[: len(answers)]), answers)
            found += (finding for finding in again if finding.breaks == "deterministic")
            found += self._witnessed(some[: len(answers)], answers, until=until)
        for name in self.laws:
            found += self._pairs(few(cases), name)
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def examine_whole(
        self, batch: Batch, *, thorough: bool = True, every: int = AGAIN, until: float | None = None
    ) -> list[BrokenProperty]:
        """Ask for a plan of a batch as the one program it is, and for each suspect alone.

        One by one where there is none.

        `thorough`: ask it twice, and with everything pinned. `every` and `until` as for `examine`.
        """
        again = thorough and "deterministic" in self.rows
        plain = Cut(batch, in_parts=bool(getattr(self.asker, "in_parts", False)))
        (answer,) = self._asked([plain.whole], again=again)
        if answer.plan is None:
            return self.examine(Cut(batch), every=every, until=until)
        self._count(batch)
        self._note(len(batch))
        self._note(len(batch) * again, again=True)
        self._described(plain)
        found = self._closer(plain, answer, answer.plan)
        for kind in self.kinds if thorough else ():
            told = plain.told(kind)
            (answer,) = self._asked([told.whole], again=False)
            if answer.plan is None:
                found += self._told_more(plain, kind, until=until)
            else:
                self._note(len(batch), kind=kind)
                self._tell(told.batch, told.whole)
                found += self._closer(told, answer, answer.plan)
        for name in self.laws if thorough else ():
            found += self._pairs(few(plain), name)
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def _told(self, case: FuzzCase) -> list[FuzzCase]:
        """Return the case as one that is told something, of one kind after the other in turn; one
        in `GAPPED` is its lives with gaps.
        """
        turn, kinds = self.tally.programs, self.kinds
        often = [kind for kind in kinds if kind != "gapped"] or kinds
        kind = (
            "gapped" if "gapped" in kinds and turn % GAPPED == GAPPED - 1 else often[turn % len(often)] if often else ""
        )
        return [TELLINGS[kind](case.program)] if kind else []

    def _told_more(self, cases: Sequence[FuzzCase], kind: str, *, until: float | None) -> list[BrokenProperty]:
        """Ask cases that are told something."""
        told = [TELLINGS[kind](case.program) for case in cases]
        told = [case for case in told if case.kind == kind]
        answers = self._asked(told, again=False, until=until)
        self._note(len(answers), kind=kind)
        return self._judged(told, batches(told[: len(answers)]), answers)

    @property
    def laws(self) -> list[str]:
        """The properties that compare answers to two cases."""
        return [name for name, row in self.rows.items() if row.law is not None]

    def _pairs(self, cases: Sequence[FuzzCase], name: str) -> list[BrokenProperty]:
        """Ask cases as a pair of a law, one pair of each."""
        found = [self._unlawful(self._based(case, name), name, most=1) for case in cases]
        self.tally.judged[name] += len(cases)
        return [finding for finding in found if finding is not None]

    def _based(self, case: FuzzCase, name: str) -> FuzzCase:
        """Return the case that a law speaks of: the lives of a program, or the program."""
        return TELLINGS["gapped"](case.program) if self.rows[name].of == "gapped" else FuzzCase(program=case.program)

    def _unlawful(self, case: FuzzCase, name: str, *, most: int) -> BrokenProperty | None:
        """Return the finding if one of some pairs of a case breaks a law."""
        law = self.rows[name].law
        assert law is not None
        for pair in law.pairs(case, most):
            one, other = self._asked([pair.one, pair.other], again=False)
            why = law.broken(pair, one, other)
            if why is not None:
                return finding_of(name, why, case, Answer())
        return None

    def _tell(self, batch: Batch, whole: FuzzCase) -> None:
        """Count what the programs of a batch are told."""
        if whole.kind != "plain":
            self.tally.told.update(told_in(whole, batch.buffer_starts))
            self.tally.pairs.update(met(batch, whole))

    def _note(self, programs: int, *, kind: str = "plain", again: bool = False) -> None:
        """Count programs judged by the properties of a kind of cases, or of those asked twice."""
        for name, row in self.rows.items():
            if row.law is None and (row.of or "plain") == kind and (name == "deterministic") == again:
                self.tally.judged[name] += programs

    @property
    def kinds(self) -> list[str]:
        """The kinds of cases beyond plain ones that some property speaks of."""
        spoken = {row.of for row in self.rows.values() if row.law is None}
        return [kind for kind in TELLINGS if kind in spoken]

    def _count(self, batch: Batch) -> None:
        self.tally.programs += len(batch)
        self.tally.plans += len(batch) - 1
        self.tally.questions += len(batch) - 1

    def _closer(self, cases: Cut, answer: Answer, plan: Plan) -> list[BrokenProperty]:
        """Return what is found of the suspects of a batch's plan, each asked alone: of one answered
        in two ways, all its programs.
        """
        whole = cases.whole
        found: list[BrokenProperty] = []
        with self.tally.timed("judging"):
            for name, suspects in self._suspects(cases.batch, plan, whole).items():
                close = range(len(cases)) if name == "deterministic" and not answer.again else suspects
                sure, innocent = enough(
                    spread(close),
                    lambda place: self.find(cases[place], name),  # noqa: B023 - called at once
                    cases.lengths,
                )
                found += sure.values()
                if name in IN_A_BATCH - AS_ONE:
                    self.tally.broken["only in a batch"] += innocent
                self._note_as_one(name, whole, answer, found_any=bool(sure), innocent=innocent)
            return found

    def _note_as_one(self, name: str, whole: FuzzCase, answer: Answer, *, found_any: bool, innocent: int) -> None:
        """Count a batch that breaks a property of `AS_ONE` as one program, where none of its
        programs does alone.
        """
        if name in AS_ONE and innocent and not found_any:
            self.tally.broken["only in a batch"] += self.rows[name].broken(whole, answer) is not None

    def find(self, case: FuzzCase, name: str) -> BrokenProperty | None:
        """Ask one case and judge it by one property: what a reducer asks, over and over.

        Of a law all pairs of the case are asked.
        """
        if self.rows[name].law is not None:
            return self._unlawful(case, name, most=MOST)
        (answer,) = self.asker.ask([case], again=name == "deterministic")
        return self._sure(name, case, answer)

    # ----------------------------------------------------------------------------------------------

    def _described(self, cases: Sequence[FuzzCase]) -> Joined:
        """Count the features of programs, and return them in batches."""
        with self.tally.timed("describing"):
            joined = batches(cases)
            for batch, _ in joined:
                self.tally.features.update(tallied(marks(batch)))
                self.tally.pairs.update(met(batch, FuzzCase(program=batch.program)))
                self.tally.sizes.update(sizes_of(batch.program))
        return joined

    def _judged(self, cases: Sequence[FuzzCase], joined: Joined, answers: Sequence[Answer]) -> list[BrokenProperty]:
        """Return what is wrong with answers: failures, and what a closer look at a batch shows."""
        found: dict[tuple[int, int], BrokenProperty] = {}
        with self.tally.timed("judging"):
            odd = {index for index, answer in enumerate(answers) if answer.plan is None or not answer.again}
            for rank, name in enumerate(self.rows):
                looked = ((index, self._sure(name, cases[index], answers[index])) for index in sorted(odd))
                found |= {(index, rank): finding for index, finding in looked if finding is not None}
            lengths = [len(case.program.ops) for case in cases] if not isinstance(cases, Cut) else cases.lengths
            for batch, members, plan in planned(joined, answers):
                whole = whole_of(batch, [cases[index] for index in members])
                self._tell(batch, whole)
                suspected = self._suspects(batch, plan, whole)
                for rank, name in enumerate(self.rows):
                    any_sure, innocents = False, 0
                    for close in of_one_size(batch, suspected.get(name, ())):
                        sure, innocent = enough(
                            [members[place] for place in spread(close) if members[place] not in odd],
                            lambda index: self._sure(name, cases[index], answers[index]),  # noqa: B023 - called at once
                            lengths,
                        )
                        found |= {(index, rank): finding for index, finding in sure.items()}
                        any_sure, innocents = any_sure or bool(sure), innocents + innocent
                    self._note_as_one(name, whole, Answer(plan=plan), found_any=any_sure, innocent=innocents)
        return [found[key] for key in sorted(found)]

    def _asked(self, cases: Sequence[FuzzCase], *, again: bool, until: float | None = None) -> list[Answer]:
        tally = self.tally
        with tally.timed("asking"):
            answers = self.asker.ask(cases, again=again, until=until)
        tally.spend("planning", sum(answer.seconds for answer in answers))
        tally.questions += len(answers) * (1 + again)
        tally.plans += sum(answer.plan is not None for answer in answers)
        tally.refusals += sum(answer.refused is not None for answer in answers)
        return answers

    def _suspects(self, batch: Batch, plan: Plan, whole: FuzzCase) -> dict[str, Sequence[int]]:
        """Return by property which programs of a batch to look at closer: those of its kind."""
        named = {name: row for name, row in self.rows.items() if row.law is None and speaks_of(row, whole)}
        done: dict[Suspects, Sequence[int]] = {}
        judged = replace(batch, plain=self.plain)
        for row in named.values():
            if row.suspects not in done:
                done[row.suspects] = row.suspects(judged, plan, whole)
        return {name: done[row.suspects] for name, row in named.items()}

    def _sure(self, name: str, case: FuzzCase, answer: Answer) -> BrokenProperty | None:
        """Return the finding if this answer breaks this property.

        Pins and gaps are to blame for what is not there without them, and only for that.
        """
        if not speaks_of(self.rows[name], case):
            return None
        why = self.rows[name].broken(case, answer)
        if why is None:
            return None
        if case.believed is not None and name == "gaps":
            bare = FuzzCase(program=case.program, believed=replace(case.believed, gaps={}))
            (untold,) = self.asker.ask([bare])
            if self.rows[name].broken(bare, untold) is not None:
                return None
        if name in WITHOUT:
            plain = FuzzCase(program=case.program)
            (untold,) = self.asker.ask([plain])
            if unsound(plain, untold) is not None:
                return None
        return finding_of(name, why, case, answer)


def few(cases: Sequence[FuzzCase]) -> list[FuzzCase]:
    """Return `FEW` cases from all over a batch."""
    return [cases[place] for place in range(0, len(cases), max(len(cases) // FEW, 1))][:FEW]


def until_case(histories: Sequence[Questions], case: FuzzCase) -> Questions:
    """Return the questions before a case that the process was asked which was asked it last; all
    that the last process was asked where none was asked it.
    """
    for questions in reversed(histories):
        places = [place for place, (question, _) in enumerate(questions) if question.program is case.program]
        if places:
            return questions[: places[0]]
    return histories[-1]


def finding_of(name: str, why: Why, case: FuzzCase, answer: Answer) -> BrokenProperty:
    """Return a finding with its document: the case, and the plan if there is one."""
    plan = answer.plan
    if plan is not None and case.believed is not None:
        plan = replace(plan, problem=case.believed)
    document = case.document() if plan is None else Document.of(plan)
    return BrokenProperty(breaks=name, cause=why[0], message=why[1], document=document, case=case)


def bits(execute: Execute, tally: Tally) -> Property:
    """Return the row that runs plans: results under a plan are those without reuse, bit for bit.

    A batch is run as one program, which costs little more than running a few. Unsound plans are not
    this row's business, nor is what the engine has no kernels for.
    """

    def broken(case: FuzzCase, answer: Answer) -> Why | None:
        if answer.plan is None or PROPERTIES["sound"].broken(case, answer) is not None:
            return None
        with suppress(EngineError), tally.timed("executing"):
            words = execute(answer.plan)
            tally.executed += 1
            return None if words is None else ("other results than without reuse", words)
        return None

    def among(batch: Batch, plan: Plan, _: FuzzCase) -> Sequence[int]:
        with suppress(EngineError), tally.timed("executing"):
            if execute(plan) is None:
                tally.executed += len(batch)
                return ()
        return range(len(batch))

    return Property(claim="results are bit for bit those without reuse", broken=broken, suspects=among)


def sizes_of(program: Program) -> dict[str, int]:
    """Return what there is in a program, or in the programs of a batch, in numbers."""
    ops = program.ops
    return {
        "ops": len(ops),
        "buffers": len(program.buffers),
        "operands": len(ops.operands),
        "results": len(ops.results),
        "doublings": int(np.log2(np.maximum(program.buffers.nbytes, 1)).sum()),
    }


def speaks_of(row: Property, case: FuzzCase) -> bool:
    """Return whether a property speaks of cases of this one's kind."""
    return row.of in {"", case.kind}


def whole_of(batch: Batch, cases: Sequence[FuzzCase]) -> FuzzCase:
    """Return the cases whose programs a batch joins as one; all are told the same kind of thing."""
    if cases[0].kind in {"plain", "free"}:
        return FuzzCase(program=batch.program, free=cases[0].free)
    if cases[0].kind == "gapped":
        believed = [case.believed for case in cases if case.believed is not None]
        return FuzzCase(program=batch.program, believed=join_problems(batch, believed))
    told = [case.constraints for case in cases]
    fixed = {
        int(batch.buffer_starts[place]) + buffer: offset
        for place, constraints in enumerate(told)
        for buffer, offset in constraints.fixed.items()
    }
    return FuzzCase(
        program=batch.program,
        pinned=np.concatenate([constraints.pinned for constraints in told]),
        own=None if cases[0].kind == "pinned" else np.concatenate([constraints.own for constraints in told]),
        fixed=fixed,
    )


def spread(suspects: Sequence[int]) -> Iterator[int]:
    """Yield all suspects, the first `CLOSE` of them from all over the batch."""
    stride = max(len(suspects) // CLOSE, 1)
    return (place for begin in range(stride) for place in suspects[begin::stride])


def of_one_size(batch: Batch, suspects: Sequence[int]) -> Iterable[list[int]]:
    """Return the suspects of a batch in lists of as many arenas and streams."""
    found: dict[tuple[int, int] | None, list[int]] = {}
    for place in suspects:
        found.setdefault(batch.own[place] if batch.own else None, []).append(place)
    return found.values()


def enough(
    places: Iterable[int], look: Callable[[int], BrokenProperty | None], lengths: Sequence[int]
) -> tuple[dict[int, BrokenProperty], int]:
    """Look at places until there are `CLOSE` findings; at those of `LONG` ops and more only where
    there is none among the others.

    Return these, and how many were looked at for nothing.
    """
    sure: dict[int, BrokenProperty] = {}
    innocent = 0
    for place in sorted(places, key=lambda place: lengths[place] >= LONG):
        if len(sure) == CLOSE or (sure and lengths[place] >= LONG):
            break
        finding = look(place)
        if finding is None:
            innocent += 1
            continue
        sure[place] = finding
    return sure, innocent


def batches(cases: Sequence[FuzzCase]) -> Joined:
    """Return the programs of cases in batches: those of one stream, and those of several whose
    names go together, which takes longer to judge.

    Those cut from one batch as that batch.
    """
    if isinstance(cases, Cut) and not cases.first:
        return [(cases.batch, range(len(cases)))]
    longest = sorted({case.program.streams for case in cases}, key=len, reverse=True)
    home = {
        streams: next(one for one in longest if one[: len(streams)] == streams and (len(one) > 1) == (len(streams) > 1))
        for streams in longest
    }
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault(home[case.program.streams], []).append(index)
    return [(join([cases[index].program for index in members]), members) for members in groups.values()]


def planned(joined: Joined, answers: Sequence[Answer]) -> Iterator[tuple[Batch, Sequence[int], Plan]]:
    """Yield the batches again with one plan of each, without the programs that have none.

    Those with a belief apart from those without, and from those that state other lists.
    """
    for batch, members in joined:
        groups: dict[frozenset[str] | None, list[int]] = {}
        for index in members:
            if (plan := answers[index].plan) is not None:
                groups.setdefault(None if plan.problem is None else plan.problem.stated, []).append(index)
        for group in groups.values():
            plans = [plan for index in group if (plan := answers[index].plan) is not None]
            left = batch if len(group) == len(members) else join([plan.program for plan in plans])
            yield left, group, join_plans(left, plans)
