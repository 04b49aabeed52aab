"""The effort of a search, counted in steps and not in seconds, so that a search ends at the same
place on every machine.

A step is about the cost of judging one op. A search counts the steps of each piece of work. When
its steps are spent, it ends with the best result so far and reports that it was cut.

This module does not examine the searches.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.cure.defects import RuledJudge
from allocsim.judge.violations import Report
from allocsim.model import Document

RUN: Final = 150
"""Steps for judging a run, besides its ops: work that is done once for each run."""

STREAMS: Final = 8
"""With up to this many streams, a listed race costs as much as any violation. Each three streams
more cost another step, since a race says what each stream knows.
"""

FEW: Final = 1000
"""Listed violations cost half a step each, or a step for each beyond this many if that is more."""

PART: Final = 4
"""Steps for making and judging one plan or belief, besides its size."""

LARGE: Final = 2_000_000
"""A piece of work with more steps is not begun: once begun it is finished, and takes seconds."""

DRAFT: Final = 6
"""Steps for pricing a move of slots, besides its buffers."""


class SpentError(Exception):
    """All steps are spent; the function that began the search catches it."""


@dataclass(slots=True)
class Effort:
    """The steps set for a search, and those taken."""

    budget: int
    spent: int = 0
    cut: bool = False
    """Whether some work was refused."""

    @property
    def over(self) -> bool:
        """Whether all steps are spent."""
        return self.spent >= self.budget

    def begin(self, steps: int = 0) -> None:
        """Ask for leave to begin a piece of work that takes at least `steps`.

        Raise SpentError if no step is left, or if the work takes more than `LARGE`.
        """
        if self.over or steps > LARGE:
            self.cut = True
            raise SpentError

    def take(self, steps: int) -> None:
        """Count `steps` as spent; the budget may be exceeded."""
        self.spent += steps

    def judged(self, judge: RuledJudge, document: Document) -> Report:
        """Judge a document and count its steps; raise SpentError if no step is left."""
        self.begin(steps_of_a_judgement(document))
        report = judge(document, sizes=False)
        self.take(steps_of_a_judgement(document, report))
        return report


def steps_of_a_judgement(document: Document, report: Report | None = None) -> int:
    """Return the steps for judging a document: `RUN` and the ops of each run, `PART` for each plan
    and belief, an eighth for each buffer and operand, and those for the listed violations (`FEW`).
    A listed race also costs a step for each three streams beyond `STREAMS`.

    Ops count by their results, or by half their operands, if that is more.
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
