"""How much work a search may take, counted in steps and not in seconds: it ends at the same place
on any machine.

A step is about what an op costs to judge. Whoever searches takes steps before or behind what costs
them; where all are spent, the search ends with what it has, and says so.

What this module does not see: what is searched.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.cure.defects import RuledJudge
from allocsim.judge.violations import Report
from allocsim.model import Document

RUN: Final = 150
"""Steps that a run costs to judge besides its ops: what is done once for each."""

STREAMS: Final = 8
"""Streams up to which a listed race costs what any violation does. What each stream knows is told
of it: three more cost a step.
"""

FEW: Final = 1000
"""Listed violations of which each costs no more than half a step."""

PART: Final = 4
"""Steps that a plan or a belief costs to make anew and to judge, however small."""

LARGE: Final = 2_000_000
"""Steps beyond which nothing is begun: what is begun is ended, and would take seconds."""

DRAFT: Final = 6
"""Steps that a move of slots costs to price, besides its buffers."""


class SpentError(Exception):
    """All steps are spent; caught where the search was begun."""


@dataclass(slots=True)
class Effort:
    """The steps set for a search, and those taken."""

    budget: int
    spent: int = 0
    cut: bool = False
    """Whether something was left undone."""

    @property
    def over(self) -> bool:
        """Whether all steps are spent."""
        return self.spent >= self.budget

    def begin(self, steps: int = 0) -> None:
        """Say that something is about to be done that takes so many steps at least.

        SpentError where no step is left for it, or it takes more than `LARGE`.
        """
        if self.over or steps > LARGE:
            self.cut = True
            raise SpentError

    def take(self, steps: int) -> None:
        """Count steps; what was begun is ended, whatever it takes."""
        self.spent += steps

    def judged(self, judge: RuledJudge, document: Document) -> Report:
        """Judge a document in counted steps; SpentError where no step is left for it."""
        self.begin(steps_of_a_judgement(document))
        report = judge(document, sizes=False)
        self.take(steps_of_a_judgement(document, report))
        return report


def steps_of_a_judgement(document: Document, report: Report | None = None) -> int:
    """Return what judging a document costs: `RUN` and the ops of each run, `PART` for each plan and
    belief, an eighth for each of the buffers and operands, half of what is listed, or all but `FEW`
    where that is more, and a step for each race and three streams beyond `STREAMS`.

    An op with many results costs as many ops, one with many operands half as many. Without a
    report nothing is listed.
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
    """Return what a move of slots costs to find and to price."""
    return DRAFT + sum(len(plan.arena) for plan in document.plans) // 32
