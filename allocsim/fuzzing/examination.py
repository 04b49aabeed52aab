"""The examiner: it asks the target, judges the answers by every property, and confirms suspects.

    examiner = Examiner(asker, properties=asked_of(asker.guarantees))
    findings = examiner.examine(cases)                      # or one by one: hold(case), and judge_held() in the end

Judging is done on all answers at once, as one batch for each number of arenas and streams; only
suspects are looked at one by one. Every finding has been decided by `Property.broken` on the very
case it shows.

What this module does not see: where cases come from, and what becomes of findings.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from allocsim.allocators import pin_all
from allocsim.errors import EngineError
from allocsim.fuzzing.batch import Batch, join, join_plans
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.bulk import Cut
from allocsim.fuzzing.features import marks, tallied
from allocsim.fuzzing.fuzz_case import Answer, FuzzCase
from allocsim.fuzzing.properties import PROPERTIES, Property, Suspects, Why
from allocsim.fuzzing.tally import Tally
from allocsim.model import Bools, Document, Plan

Execute = Callable[[Plan], str | None]
"""Runs a plan's program under it and without reuse.

Says in words which result differs, None if none does. Raises EngineError for what it cannot run."""

AGAIN: Final = 8
"""One in so many programs of a batch from bulk mode is asked twice and once more with everything
pinned; each that Hypothesis draws.
"""

TOGETHER: Final = 50
"""Cases that are asked one by one and judged at once."""

CLOSE: Final = 50
"""So many findings of a property in one batch are enough, more are much the same.

Suspects that are none do not count, or a rare fault is missed.
"""

AS_ONE: Final = {"deterministic", "bits"}
"""Properties that suspect a batch as a whole: of its programs one at least should be found."""

IN_A_BATCH: Final = {"sound", "pins", "kept", "no_worse", *AS_ONE}
"""Properties whose suspects in a plan of a whole batch should be found again alone.

What is not is counted as `only in a batch`.
"""

Joined = Sequence[tuple[Batch, Sequence[int]]]
"""Batches of cases, each with the places of its programs among the cases."""


class Answering(Protocol):
    """Whoever answers cases: a target in a process of its own (`target.Asker`), or a planner of
    ours in this one.
    """

    def ask(self, cases: Sequence[FuzzCase], *, again: bool = False, until: float | None = None) -> list[Answer]:
        """Return the answer to each case.

        With `again`, each is asked twice and the answers are compared.

        From `until` on, a time of `time.time`, there are no more answers: to the last cases there
        is none.
        """
        ...


class Examiner:
    """One target under examination."""

    def __init__(self, asker: Answering, *, properties: Sequence[str], execute: Execute | None = None) -> None:
        self.asker = asker
        self.tally = Tally()
        self.rows: dict[str, Property] = {name: PROPERTIES[name] for name in properties}
        self.held: list[tuple[list[FuzzCase], list[Answer]]] = []
        """Cases whose answers wait to be judged: plain and pinned."""
        if execute is not None:
            self.rows["bits"] = bits(execute, self.tally)

    def hold(self, case: FuzzCase) -> tuple[Answer, list[BrokenProperty]]:
        """Ask a case, twice and with everything pinned.

        Return its answer, and what was found by now.

        `TOGETHER` cases are judged at a time, which takes a fraction of the time it takes one by
        one; what is no plan is judged at once, with all that waits. `judge_held` judges the rest.
        """
        asked = [case, replace(case, pinned=pin_all(case.program))] if self.with_pins else [case]
        self.tally.programs += 1
        answers = self._asked(asked, again="deterministic" in self.rows)
        self.held.append((asked, answers))
        wrong = any(answer.failure is not None or not answer.again for answer in answers)
        return answers[0], self.judge_held() if wrong or len(self.held) == TOGETHER else []

    def judge_held(self) -> list[BrokenProperty]:
        """Judge the answers that wait."""
        held, self.held = self.held, []
        joined = self._described([asked[0] for asked, _ in held])
        self._note(len(held))
        self._note(len(held), again=True)
        self._note(len(held), pinned=True)
        found: list[BrokenProperty] = []
        for pins in range(2 if self.with_pins else 1):
            found += self._judged([asked[pins] for asked, _ in held], joined, [answers[pins] for _, answers in held])
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def examine(self, cases: Sequence[FuzzCase], *, every: int = 1, until: float | None = None) -> list[BrokenProperty]:
        """Ask every case, and one in `every` of them twice and with everything pinned.

        After `until` (`Answering`) no more of them.
        """
        answers = self._asked(cases, again=False, until=until)
        cases = cases[: len(answers)]
        self.tally.programs += len(cases)
        self._note(len(cases))
        found = self._judged(cases, self._described(cases), answers)
        some = cases[::every]
        if self.with_pins:
            found += self._with_pins(some, until=until)
        if "deterministic" in self.rows:
            answers = self._asked(some, again=True, until=until)
            self._note(len(answers), again=True)
            again = self._judged(some, batches(some[: len(answers)]), answers)
            found += (finding for finding in again if finding.breaks == "deterministic")
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
        (answer,) = self._asked([FuzzCase(program=batch.program)], again=again)
        if answer.plan is None:
            return self.examine(Cut(batch), every=every, until=until)
        self._count(batch)
        self._note(len(batch))
        self._note(len(batch) * again, again=True)
        plain = Cut(batch)
        self._described(plain)
        found = self._closer(plain, answer, answer.plan)
        if thorough and self.with_pins:
            pinned = plain.with_all_pinned()
            (answer,) = self._asked([FuzzCase(program=batch.program, pinned=pinned.pinned)], again=False)
            if answer.plan is None:
                found += self._with_pins(plain, until=until)
            else:
                self._note(len(batch), pinned=True)
                found += self._closer(pinned, answer, answer.plan)
        self.tally.broken.update(finding.breaks for finding in found)
        return found

    def _with_pins(self, cases: Sequence[FuzzCase], *, until: float | None) -> list[BrokenProperty]:
        """Ask cases with everything pinned."""
        pinned = [replace(case, pinned=pin_all(case.program)) for case in cases]
        answers = self._asked(pinned, again=False, until=until)
        self._note(len(answers), pinned=True)
        return self._judged(pinned, batches(pinned[: len(answers)]), answers)

    def _note(self, programs: int, *, pinned: bool = False, again: bool = False) -> None:
        """Count programs as judged by the properties of plain cases, of those with everything
        pinned, or of those that were asked twice.
        """
        for name, row in self.rows.items():
            if (row.of == "pinned") == pinned and (name == "deterministic") == again:
                self.tally.judged[name] += programs

    @property
    def with_pins(self) -> bool:
        """Whether some property speaks of pins beyond what the host reads."""
        return any(row.of == "pinned" for row in self.rows.values())

    def _count(self, batch: Batch) -> None:
        self.tally.programs += len(batch)
        self.tally.plans += len(batch) - 1
        self.tally.questions += len(batch) - 1

    def _closer(self, cases: Cut, answer: Answer, plan: Plan) -> list[BrokenProperty]:
        """Return what is found of the suspects of a batch's plan, each asked alone: of one answered
        in two ways, all its programs.
        """
        whole = FuzzCase(program=cases.batch.program, pinned=cases.pinned)
        found: list[BrokenProperty] = []
        with self.tally.timed("judging"):
            for name, suspects in self._suspects(cases.batch, plan, cases.pinned).items():
                close = range(len(cases)) if name == "deterministic" and not answer.again else suspects
                sure, innocent = enough(spread(close), lambda place: self.find(cases[place], name))  # noqa: B023 - called at once
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
        """Ask one case and judge it by one property: what a reducer asks, over and over."""
        (answer,) = self.asker.ask([case], again=name == "deterministic")
        return self._sure(name, case, answer)

    # ----------------------------------------------------------------------------------------------

    def _described(self, cases: Sequence[FuzzCase]) -> Joined:
        """Count the features of programs, and return them in batches."""
        with self.tally.timed("describing"):
            joined = batches(cases)
            for batch, _ in joined:
                self.tally.features.update(tallied(marks(batch)))
        return joined

    def _judged(self, cases: Sequence[FuzzCase], joined: Joined, answers: Sequence[Answer]) -> list[BrokenProperty]:
        """Return what is wrong with answers: all that are no plans, and what a batch shows, looked
        at closer.
        """
        found: dict[tuple[int, int], BrokenProperty] = {}
        with self.tally.timed("judging"):
            odd = {index for index, answer in enumerate(answers) if answer.plan is None or not answer.again}
            for rank, name in enumerate(self.rows):
                looked = ((index, self._sure(name, cases[index], answers[index])) for index in sorted(odd))
                found |= {(index, rank): finding for index, finding in looked if finding is not None}
            for batch, members, plan in planned(joined, answers):
                pinned = pins_of(cases, members)
                whole = FuzzCase(program=batch.program, pinned=pinned)
                suspected = self._suspects(batch, plan, pinned)
                for rank, name in enumerate(self.rows):
                    close = (members[place] for place in spread(suspected.get(name, ())))
                    sure, innocent = enough(
                        [index for index in close if index not in odd],
                        lambda index: self._sure(name, cases[index], answers[index]),  # noqa: B023 - called at once
                    )
                    found |= {(index, rank): finding for index, finding in sure.items()}
                    self._note_as_one(name, whole, Answer(plan=plan), found_any=bool(sure), innocent=innocent)
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

    def _suspects(self, batch: Batch, plan: Plan, pinned: Bools | None) -> dict[str, Sequence[int]]:
        """Return which programs of a batch to look at closer, by property: those that speak of
        plain cases, or of pinned ones.
        """
        named = {name: row for name, row in self.rows.items() if speaks_of(row, pinned)}
        done: dict[Suspects, Sequence[int]] = {}
        for row in named.values():
            if row.suspects not in done:
                done[row.suspects] = row.suspects(batch, plan, pinned)
        return {name: done[row.suspects] for name, row in named.items()}

    def _sure(self, name: str, case: FuzzCase, answer: Answer) -> BrokenProperty | None:
        """Return the finding if this answer breaks this property.

        Pins are to blame for what is not there without them, and only for that.
        """
        if not speaks_of(self.rows[name], case.pinned):
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


def finding_of(name: str, why: Why, case: FuzzCase, answer: Answer) -> BrokenProperty:
    """Return a finding with its document: the case, and the plan if there is one."""
    document = case.document() if answer.plan is None else Document.of(answer.plan)
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

    def among(batch: Batch, plan: Plan, _: Bools | None) -> Sequence[int]:
        with suppress(EngineError), tally.timed("executing"):
            if execute(plan) is None:
                tally.executed += len(batch)
                return ()
        return range(len(batch))

    return Property(claim="results are bit for bit those without reuse", broken=broken, suspects=among)


def speaks_of(row: Property, pinned: Bools | None) -> bool:
    """Return whether a property speaks of cases that are plain, or that have these pins."""
    return row.of != ("plain" if pinned is not None else "pinned")


def pins_of(cases: Sequence[FuzzCase], members: Sequence[int]) -> Bools | None:
    """Return what is pinned in some cases, one after another; all of them have pins, or none."""
    if cases[0].pinned is None:
        return None
    mask: Bools = np.concatenate([cases[index].pinned for index in members])
    return mask


def spread(suspects: Sequence[int]) -> Iterator[int]:
    """Yield all suspects, the first `CLOSE` of them from all over the batch."""
    stride = max(len(suspects) // CLOSE, 1)
    return (place for begin in range(stride) for place in suspects[begin::stride])


def enough(
    places: Iterable[int], look: Callable[[int], BrokenProperty | None]
) -> tuple[dict[int, BrokenProperty], int]:
    """Look at places until there are `CLOSE` findings.

    Return these, and how many were looked at for nothing.
    """
    sure: dict[int, BrokenProperty] = {}
    innocent = 0
    for place in places:
        finding = look(place)
        if finding is None:
            innocent += 1
            continue
        sure[place] = finding
        if len(sure) == CLOSE:
            break
    return sure, innocent


def batches(cases: Sequence[FuzzCase]) -> Joined:
    """Return the programs of cases in batches of as many arenas and equal streams.

    Those cut from one batch as that batch.
    """
    if isinstance(cases, Cut) and not cases.first:
        return [(cases.batch, range(len(cases)))]
    groups: dict[tuple[int, tuple[str, ...]], list[int]] = {}
    for index, case in enumerate(cases):
        groups.setdefault((len(case.program.arenas), case.program.streams), []).append(index)
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
