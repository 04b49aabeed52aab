"""Limit the effort of a search by steps, not by seconds, so that a search ends at the same point on
every machine.

A step is about the cost of judging one op. A search counts the steps of each piece of work. When
its steps are spent, the search ends with the best result so far and reports that it was cut.

This module does not define the searches themselves.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.cure.defects import RuledJudge
from allocsim.judge.violations import Report
from allocsim.model import Document

RUN: Final = 150
"""The steps for judging a run, in addition to its ops: the work done once for each run."""

STREAMS: Final = 8
"""With up to 8 streams, a race in the list takes as many steps as any other violation. Every three
further streams add a step, because a race is judged by clocks with a number for each stream."""

FEW: Final = 1000
"""Listed violations cost half a step each, or a step for each one beyond 1,000 if that is more."""

PART: Final = 4
"""The steps for making and judging one plan or belief, in addition to its size."""

LARGE: Final = 2_000_000
"""Work with more steps than this is not begun; it would take seconds and cannot be stopped."""

DRAFT: Final = 6
"""The steps for pricing a move of slots, in addition to the plans' buffers."""


class SpentError(Exception):
    """Raised if all steps are spent; the function that began the search catches this exception."""


@dataclass(slots=True)
class Effort:
    """The steps allowed for a search, and the steps taken so far."""

    budget: int
    spent: int = 0
    cut: bool = False
    """Whether some work was refused because of the limits."""

    @property
    def over(self) -> bool:
        """Whether all steps are spent."""
        return self.spent >= self.budget

    def begin(self, steps: int = 0) -> None:
        """Check that a piece of work of at least `steps` steps may begin.

        Raise SpentError if no step is left, or if `steps` is more than `LARGE`.
        """
        if self.over or steps > LARGE:
            self.cut = True
            raise SpentError

    def take(self, steps: int) -> None:
        """Count `steps` as spent; the budget may be exceeded."""
        self.spent += steps

    def judged(self, judge: RuledJudge, document: Document) -> Report:
        """Judge a document and count the steps; raise SpentError if `begin` refuses the work."""
        self.begin(steps_of_a_judgement(document))
        report = judge(document, sizes=False)
        self.take(steps_of_a_judgement(document, report))
        return report


def steps_of_a_judgement(document: Document, report: Report | None = None) -> int:
    """Return the steps for judging a document. The sum has `RUN` and the ops for each run, `PART`
    for each plan and belief, 1/8 for each buffer and operand, and the steps for listed violations
    (`FEW`). A listed race also costs one step for every three streams beyond `STREAMS`.

    The number of results, or half the number of operands, replaces the number of ops if larger.
    """
    listed = () if report is None else report.violations
    races = sum(violation.kind == "Race" for violation in listed)
    runs = document.runs
    programs = {id(run.program): run.program for run in runs}
    ops = {
        at: max(len(program.ops), len(program.ops.results), len(program.ops.operands) // 2)
        for at, program in programs.items()
    }
    wide = max((len(program.streams) for program in programs.values()), default=0)
    return (
        sum(RUN + ops[id(run.program)] for run in runs)
        + sum(len(program.buffers) + len(program.ops.operands) for program in programs.values()) // 8
        + PART * (len(document.plans) + len(document.problems))
        + max(len(listed) // 2, len(listed) - FEW)
        + races * max(wide - STREAMS, 0) // 3
    )


def steps_of_a_move(document: Document) -> int:
    """Return the steps for finding and pricing one move of slots."""
    return DRAFT + sum(len(plan.arena) for plan in document.plans) // 32
