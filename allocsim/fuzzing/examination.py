"""Cases in, findings out: ask the target, judge its answers by every property, and make sure of what looks wrong.

    examiner = Examiner(asker, properties=asked_of(asker.guarantees))
    findings = examiner.examine(cases)

Judging is done on all answers at once, as one batch for each set of arenas and streams; only suspects are looked at one by one. Every
finding has been decided by `Property.broken` on the very case it shows.

What this module does not see: where cases come from, and what becomes of findings.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from allocsim.allocators import pin_all
from allocsim.errors import EngineError
from allocsim.fuzzing.batch import Batch, join, join_plans
from allocsim.fuzzing.bulk import Cut
from allocsim.fuzzing.case import Answer, Case
from allocsim.fuzzing.features import marks, tallied
from allocsim.fuzzing.finding import Finding
from allocsim.fuzzing.properties import PROPERTIES, Property, Why
from allocsim.fuzzing.tally import Tally
from allocsim.model import Arena, Document, Plan, Program

Execute = Callable[[Plan], str | None]
"""Runs a plan's program under it and without reuse; says in words which result differs, None if none does. Raises EngineError for
what it cannot run."""

AGAIN: Final = 8
"""One in so many cases of a long list is asked twice and once more with everything pinned; each case, if asked one by one."""

CLOSE: Final = 16
"""About so many suspects of a property in one batch are looked at closer; where there are more, they are much the same."""


class Answering(Protocol):
    """Whoever answers cases: a target in a process of its own (`target.Asker`), or a planner of ours in this one."""

    def ask(self, cases: Sequence[Case], *, again: bool = False) -> list[Answer]:
        """Return the answer to each case; with `again`, each is asked twice and the answers are compared."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What came of some cases."""

    answers: list[Answer]
    """One for each case, in order."""
    findings: list[Finding]
    """What is wrong, by kind of question, then in order of the cases."""


class Examiner:
    """One target under examination."""

    def __init__(self, asker: Answering, *, properties: Sequence[str], execute: Execute | None = None) -> None:
        self.asker = asker
        self.tally = Tally()
        self.rows: dict[str, Property] = {name: PROPERTIES[name] for name in properties}
        if execute is not None:
            self.rows["bits"] = bits(execute, self.tally)

    def examine(self, cases: Sequence[Case]) -> Examined:
        """Ask every case, some of them twice and with everything pinned."""
        self.tally.programs += len(cases)
        with self.tally.timed("describing"):
            for batch in batches(cases):
                self.tally.features.update(tallied(marks(batch)))
        some = cases if len(cases) < AGAIN else cases[::AGAIN]
        again = "deterministic" in self.rows
        if some is cases:
            pinned = [replace(case, pinned=pin_all(case.program)) for case in cases] if "pins" in self.rows else []
            answers, found = self._judged([*cases, *pinned], again=again)
        else:
            answers, found = self._judged(cases, again=False)
            if "pins" in self.rows:
                found += self._judged([replace(case, pinned=pin_all(case.program)) for case in some], again=False)[1]
            if again:
                found += (finding for finding in self._judged(some, again=True)[1] if finding.breaks == "deterministic")
        answers = answers[: len(cases)]
        self.tally.broken.update(finding.breaks for finding in found)
        return Examined(answers=answers, findings=found)

    def examine_whole(self, batch: Batch, *, thorough: bool = True) -> list[Finding]:
        """Ask for a plan of a batch as the one program it is, and for each suspect alone; one by one where there is none.

        `thorough`: ask it twice, and with everything pinned.
        """
        (answer,) = self._asked([Case(program=batch.program)], again=thorough and "deterministic" in self.rows)
        if answer.plan is None:
            return self.examine(Cut(batch)).findings
        self._count(batch)
        with self.tally.timed("describing"):
            self.tally.features.update(tallied(marks(batch)))
        plain = Cut(batch)
        found = self._closer(plain, answer.plan, [name for name in self.rows if name != "pins"], all_of_them=not answer.again)
        if thorough and "pins" in self.rows:
            pinned = plain.with_all_pinned()
            (answer,) = self._asked([Case(program=batch.program, pinned=pinned.pinned)], again=False)
            if answer.plan is not None:
                found += self._closer(pinned, answer.plan, ["pins"])
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def _count(self, batch: Batch) -> None:
        self.tally.programs += len(batch)
        self.tally.plans += len(batch) - 1
        self.tally.questions += len(batch) - 1

    def _closer(self, cases: Cut, plan: Plan, names: Sequence[str], *, all_of_them: bool = False) -> list[Finding]:
        """Return what is found of the suspects of a batch's plan, each asked alone."""
        with self.tally.timed("judging"):
            found = []
            done: dict[Callable[[Batch, Plan], Sequence[int]], Sequence[int]] = {}
            for name in names:
                row = self.rows[name]
                if row.suspects not in done:
                    done[row.suspects] = row.suspects(cases.batch, plan)
                suspects = range(len(cases)) if all_of_them and name == "deterministic" else done[row.suspects]
                for place in suspects[:: max(len(suspects) // CLOSE, 1)]:
                    finding = self.find(cases[place], name)
                    found += [finding] if finding is not None else []
                    self.tally.broken["only in a batch"] += finding is None and name in {"sound", "pins", "no_worse"}
            return found

    def find(self, case: Case, name: str) -> Finding | None:
        """Ask one case and judge it by one property: what a reducer asks, over and over."""
        (answer,) = self.asker.ask([case], again=name == "deterministic")
        return self._sure(name, case, answer)

    # ----------------------------------------------------------------------------------------------------------------------

    def _judged(self, cases: Sequence[Case], *, again: bool) -> tuple[list[Answer], list[Finding]]:
        answers = self._asked(cases, again=again)
        with self.tally.timed("judging"):
            sure = (self._sure(name, cases[index], answers[index]) for index, name in self._suspects(cases, answers))
            found = [finding for finding in sure if finding is not None]
        return answers, found

    def _asked(self, cases: Sequence[Case], *, again: bool) -> list[Answer]:
        tally = self.tally
        with tally.timed("asking"):
            answers = self.asker.ask(cases, again=again)
        tally.spend("planning", sum(answer.seconds for answer in answers))
        tally.questions += len(cases) * (1 + again)
        tally.plans += sum(answer.plan is not None for answer in answers)
        tally.refusals += sum(answer.refused is not None for answer in answers)
        return answers

    def _suspects(self, cases: Sequence[Case], answers: Sequence[Answer]) -> list[tuple[int, str]]:
        """Return which answers to look at closer, by which properties: all that are no plans, and what a batch shows."""
        names = list(self.rows)
        wanting = [index for index, a in enumerate(answers) if a.plan is None or not a.again]
        suspects = {(index, name) for index in wanting for name in names}
        for group in alike(cases, answers):
            if len(group) == 1:
                suspects |= {(group[0], name) for name in names}
                continue
            plans = [plan for index in group if (plan := answers[index].plan) is not None]
            batch = cases.batch if isinstance(cases, Cut) and len(group) == len(cases.batch) else join([p.program for p in plans])
            plan = join_plans(batch, plans)
            done: dict[Callable[[Batch, Plan], Sequence[int]], Sequence[int]] = {}
            for name, row in self.rows.items():
                if row.suspects not in done:
                    done[row.suspects] = row.suspects(batch, plan)
                close = done[row.suspects]
                suspects |= {(group[place], name) for place in close[:: max(len(close) // CLOSE, 1)]}
        return sorted(suspects, key=lambda pair: (pair[0], names.index(pair[1])))

    def _sure(self, name: str, case: Case, answer: Answer) -> Finding | None:
        """Return the finding if this answer breaks this property. Pins are to blame for what is not there without them, and only for that."""
        if (name == "sound" and case.pinned is not None) or (name == "pins" and case.pinned is None):
            return None
        why = self.rows[name].broken(case, answer)
        if why is None:
            return None
        if name == "pins":
            plain = replace(case, pinned=None)
            (unpinned,) = self.asker.ask([plain])
            if self.rows["pins"].broken(plain, unpinned) is not None:
                return None
        return finding_of(name, why, case, answer)


def finding_of(name: str, why: Why, case: Case, answer: Answer) -> Finding:
    """Return a finding with its document: the case, and the plan if there is one."""
    document = case.document() if answer.plan is None else Document.of(answer.plan)
    return Finding(breaks=name, cause=why[0], message=why[1], document=document, case=case)


def bits(execute: Execute, tally: Tally) -> Property:
    """Return the row that runs plans: results under a plan are those without reuse, bit for bit.

    A batch is run as one program, which costs little more than running a few. Unsound plans are not this row's business, nor is what
    the engine has no kernels for.
    """

    def broken(case: Case, answer: Answer) -> Why | None:
        if answer.plan is None or PROPERTIES["sound"].broken(case, answer) is not None:
            return None
        with suppress(EngineError), tally.timed("executing"):
            words = execute(answer.plan)
            tally.executed += 1
            return None if words is None else ("other results than without reuse", words)
        return None

    def among(batch: Batch, plan: Plan) -> Sequence[int]:
        with suppress(EngineError), tally.timed("executing"):
            if execute(plan) is None:
                tally.executed += len(batch)
                return ()
        return range(len(batch))

    return Property(claim="results are bit for bit those without reuse", broken=broken, suspects=among)


def alike(cases: Sequence[Case], answers: Sequence[Answer]) -> list[list[int]]:
    """Return the cases answered by a plan in groups that can be joined: of equal arenas and streams, with a belief or without."""
    groups: dict[tuple[tuple[Arena, ...], tuple[str, ...], bool], list[int]] = {}
    for index, (case, answer) in enumerate(zip(cases, answers, strict=True)):
        if answer.plan is not None:
            key = case.program.arenas, case.program.streams, answer.plan.problem is None
            groups.setdefault(key, []).append(index)
    return list(groups.values())


def batches(cases: Sequence[Case]) -> Iterator[Batch]:
    """Yield the programs of cases in batches of equal arenas and streams; those cut from one batch as that batch."""
    if isinstance(cases, Cut) and not cases.first:
        yield cases.batch
        return
    groups: dict[tuple[tuple[Arena, ...], tuple[str, ...]], list[Program]] = {}
    for case in cases:
        groups.setdefault((case.program.arenas, case.program.streams), []).append(case.program)
    yield from map(join, groups.values())
