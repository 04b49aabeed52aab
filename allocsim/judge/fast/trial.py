"""Number the runs of a judged document, and collect the findings of the checks.

* Runs are numbered in order, with or without a session. Programs, plans and problems are numbered
  by their index in the document.
* `Findings` counts every defect of each kind, and keeps the first `limit` records of each kind. A
  check must report each kind in order of (run, step), so that the kept records are the first
  records of that kind. `listed` then merges the kinds.
* A record is built only if it is kept: `report` takes a function that makes the record.

This module does not find defects; the checks do, with one file for each family of defects.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.accesses import Accesses, Extents
from allocsim.judge.fast.contract import Contract, KindsTable
from allocsim.judge.fast.s_in_place import HandOvers, Sharing, Touches, as_planned, permissible
from allocsim.judge.fast.selector import Selector
from allocsim.judge.violations import KINDS, Violation, in_order
from allocsim.model import Document, Plan, Problem, Program, waited_for
from allocsim.model.layout import PACKED_LIMIT

COUNT_LIMIT = 1_000_000
"""The largest number of defects counted exactly (docs/format.md); beyond it, counts are lower
bounds."""


Made = TypeVar("Made")

OVERLAPPING: Final = 1 << 15
"""The largest number of runs if some run does not wait for all earlier runs; their bits take 128
MiB."""

WORK: Final = 500_000
"""The number of steps, of about ten microseconds each, to spend on suspects. Steps are counted, not
timed, so that a document has the same result on any machine. A read that is
found right at once costs no step of its own, but `s_dataflow.ACCESSES` replayed accesses together
cost one step."""


@dataclass(slots=True)
class Work:
    """The steps left for suspects, and the parts not examined after all steps were spent."""

    left: int | None = None
    """The number of steps left; None if unlimited."""
    unexamined: list[str] = field(default_factory=list)

    def take(self, steps: int) -> None:
        """Count steps; `left` may become negative, because work in progress is completed."""
        if self.left is not None:
            self.left -= steps

    @property
    def over(self) -> bool:
        """Whether all steps are spent."""
        return self.left is not None and self.left <= 0

    def leave(self, what: str, run: int, runs: int, op: int = 0) -> None:
        """Record that `what` is not examined from `op` of `run` on."""
        place = f"run {run}" if not op else f"op {op} of run {run}"
        self.unexamined.append(f"{what} from {place} on, of {runs} run{'s'[: runs != 1]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One run of the document, with its program, plan, skipped uploads and waits."""

    index: int
    program: Program
    program_index: int
    plan: Plan
    plan_index: int
    skip: frozenset[int]
    after: tuple[int, ...] | None
    """The runs that this run names in `after`; None if it waits for all earlier runs."""
    waits: int | None
    """The runs that this run waits for, transitively, as bits; None if it waits for all earlier
    runs."""
    read_after: int | None
    """The run after which the `host.read` ops of this run read; None if they are not delayed."""
    accesses: Accesses
    problem: Problem | None
    """The beliefs that are used instead of accesses if the program has no ops; else None."""

    @property
    def alike(self) -> tuple[int, int, frozenset[int]]:
        """A key; runs with equal keys have the same accesses at the same addresses."""
        return self.plan_index, self.program_index, self.skip

    @property
    def unit(self) -> int:
        """The number of memory units in one byte (`TrialDocument.unit`)."""
        return self.accesses.extents.unit

    def record(self, kind: str, *, op: int | None, **fields: Any) -> Violation:
        """Return a violation at op `op` of this run."""
        about = {"program": self.program_index, "plan": self.plan_index, "run": self.index, "step": op, "op": op}
        return Violation(kind=kind, **{**about, **fields})


class TrialDocument:
    """A document with its runs. Accesses are computed once for each (program, skipped uploads)."""

    def __init__(
        self, document: Document, selector: Selector, kinds: KindsTable | None = None, work: int | None = None
    ) -> None:
        self.document = document
        self.work = Work(work)
        """The steps for suspect reads (`s_dataflow`)."""
        self.tag_work = Work(None if work is None else work // 4, self.work.unexamined)
        """The steps for comparing tags of buffers (`s_tags`)."""
        self.write_work = Work(None if work is None else work // 2, self.work.unexamined)
        """The steps for comparing results of one op that may share bytes (`s_writes`)."""
        self.selector = selector
        self.kinds = kinds
        self.unit = _unit(document)
        """The number of memory units in one byte: 8 if some value covers a byte partly, else 1. All
        addresses are in these units."""
        self.joined = document.session is not None
        """Whether the document has a session, so that runs share one memory."""
        self._kept: dict[tuple[Any, ...], Any] = {}
        programs = self._programs = _indices(document.programs)
        plans = _indices(document.plans)
        self.problem_programs = [programs[id(problem.program)] for problem in document.problems]
        """For each problem, the index of its program."""
        self.trials: list[Trial] = []
        known = _waits(document)
        for index, run in enumerate(document.runs):
            skip = frozenset(run.skip)
            waits = None if known is None or known[index] == (1 << index) - 1 else known[index]
            trial = Trial(
                index=index,
                program=run.program,
                program_index=programs[id(run.program)],
                plan=run.plan,
                plan_index=plans[id(run.plan)],
                skip=skip,
                after=None if waits is None else run.after,
                waits=waits,
                read_after=run.read_after,
                accesses=self.accesses(run.program, skip),
                problem=problem_of(run.program, run.plan, document.problems),
            )
            self.trials.append(trial)

    def accesses(self, program: Program, skip: frozenset[int] = frozenset()) -> Accesses:
        """Return the accesses of `program` if the host leaves out the uploads of `skip`."""

        def facts() -> tuple[Extents, Contract]:
            return Extents(program, self.unit), Contract.of(program, self.kinds)

        def made() -> Accesses:
            return Accesses(*self.kept(("facts", id(program)), facts), skip)

        return self.kept(("accesses", id(program), skip), made)

    def permissible(self, accesses: Accesses) -> Sharing:
        """Return the pairs of a program that may be at one address under some plan. Pairs that a
        `same` joins are returned only if some problem states them.
        """

        def made() -> Sharing:
            believed = [one.may_share for one in self.document.problems if one.program is accesses.program]
            pairs = np.unique(np.concatenate([np.empty((0, 2), dtype=np.int64), *believed]), axis=0)
            return permissible(self.hand_overs(accesses), (pairs[:, 0], pairs[:, 1]))

        return self.kept(("permissible", id(accesses)), made)

    def hand_overs(self, accesses: Accesses) -> HandOvers:
        """Return the hand-overs of a program: live segments, and accesses that can hand over a
        buffer.
        """
        return self.kept(("hand-overs", id(accesses)), lambda: HandOvers(accesses))

    def program_index(self, program: Program) -> int:
        """Return the index of a program in the document."""
        return self._programs[id(program)]

    def kept(self, key: tuple[Any, ...], make: Callable[[], Made]) -> Made:
        """Return the cached result of `make`, which is called once for each key."""
        if key not in self._kept:
            self._kept[key] = make()
        found: Made = self._kept[key]
        return found

    def group(self, trial: Trial) -> list[Trial]:
        """Return all runs that share the memory of a run."""
        return self.trials if self.joined else [trial]

    def touches(self, trial: Trial) -> Touches:
        """Return the pairs of operand and result that share bytes in a run as planned."""
        return self.kept(("touches", trial.alike), lambda: as_planned(trial.accesses, trial.plan))


class Findings:
    """The findings of the checks: counts, and the first `limit` records of each kind."""

    def __init__(self, limit: int, *, strict: bool = False, warned: bool = True) -> None:
        self.limit = limit
        self.strict = strict
        self.warned = warned
        """Whether the records of warnings are kept; warnings are always counted."""
        self.counts: Counter[str] = Counter()
        self.records: list[Violation] = []
        self.bounded = False
        """Whether some count is only a lower bound."""

    def report(self, kind: str, make: Callable[[], Violation]) -> None:
        """Count one defect, and keep its record if there is room for it."""
        if self.room(kind):
            self.records.append(make())
        self.counts[kind] += 1

    def report_all(self, kind: str, defects: Sequence[Any], make: Callable[[Any], Violation]) -> None:
        """Count defects of one kind, and keep as many records as there is room for."""
        if defects:
            self.records += map(make, defects[: self.room(kind)])
            self.counts[kind] += len(defects)

    def more(self, kind: str, count: int) -> None:
        """Count `count` further defects that were not reported one by one. There may be more, so
        the count becomes a lower bound.
        """
        self.counts[kind] += count
        self.bounded = True

    def room(self, kind: str) -> int:
        """Return the number of records of `kind` that may still be kept."""
        return max(self.limit - self.counts[kind], 0) if self.warned or self.severity(kind) == "violation" else 0

    def severity(self, kind: str) -> str:
        """Return `violation` or `warning`; for a strict judge, `AssumedInPlace` is a violation."""
        return "violation" if self.strict and kind == "AssumedInPlace" else KINDS[kind][0]

    def count(self, severity: str) -> int:
        """Return the number of defects of one severity."""
        return sum(count for kind, count in self.counts.items() if self.severity(kind) == severity)

    def listed(self, severity: str, *, of_each_kind: bool = False) -> tuple[Violation, ...]:
        """Return the first `limit` records of one severity, in order of (run, step, kind), nulls
        first. With `of_each_kind`, return the first `limit` records of each kind.
        """
        chosen = in_order(record for record in self.records if self.severity(record.kind) == severity)
        return chosen if of_each_kind else chosen[: self.limit]


def _unit(document: Document) -> int:
    """Return 8 if a value covers a byte partly, else 1; raise ModelError if addresses overflow."""
    if not any(program.values.ragged.any() for program in document.programs if program.values.packed.any()):
        return 1
    reach = [
        int(np.abs(column).max(initial=0)) for p in document.programs for column in (p.values.hulls, p.buffers.nbytes)
    ]
    reach += [int((np.abs(plan.offset) + plan.nbytes).max(initial=0)) for plan in document.plans]
    if max(reach, default=0) > PACKED_LIMIT:
        rule = f"addresses reach up to byte {max(reach)}; at most {PACKED_LIMIT} is supported if packed values share a byte"
        raise ModelError("programs", rule)
    return 8


def _waits(document: Document) -> list[int] | None:
    """Return the runs that each run waits for, as bits, or None if all wait for all earlier runs.

    Raises ModelError if more runs overlap than are supported.
    """
    runs = document.runs
    if all(run.after is None for run in runs):
        return None
    if len(runs) > OVERLAPPING:
        rule = f"{len(runs)} runs are given; at most {OVERLAPPING} runs are supported if some overlap"
        raise ModelError("session", rule)
    return waited_for(runs)


def _indices(items: Sequence[object]) -> dict[int, int]:
    found: dict[int, int] = {}
    for index, item in enumerate(items):
        found.setdefault(id(item), index)
    return found


def problem_of(program: Program, plan: Plan, problems: tuple[Problem, ...]) -> Problem | None:
    """Return the problem for judging a program without ops: the plan's own problem if it has this
    program, else the first problem with this program.
    """
    if len(program.ops):
        return None
    if plan.problem is not None and plan.problem.program is program:
        return plan.problem
    return next((problem for problem in problems if problem.program is program), None)
