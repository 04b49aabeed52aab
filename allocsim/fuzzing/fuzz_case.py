"""Cases and answers: what a planner is asked, and what it returns.

A case is a program and the buffers that are pinned, by default those a `host.read` of the program
reads. It travels as a native document with one program and one problem, whose `pinned` and `own`
are what the planner is told (format.md), so a kept case is a file like any other, and a reducer of
documents reduces cases.

An answer is exactly one of three: a plan; a refusal, which is a `CapacityError` the planner raised
itself; or a failure, one of `FAILURES` with words. Nothing a planner does is anything else.

What this module does not see: planners, and how cases are made.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from allocsim.allocators import Constraints
from allocsim.errors import ModelError
from allocsim.model import Bools, Document, Plan, Problem, Program

FAILURES: Final[dict[str, str]] = {
    "raises": "it raised an exception",
    "rubbish": "what it returned is no plan of the program",
    "exceeds": "it returned a plan beyond an arena's capacity instead of refusing",
    "hangs": "it did not answer in time",
    "memory": "it asked for more memory than it may have",
    "dies": "it ended its process",
}
"""How a planner can fail to answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FuzzCase:
    """What a planner is asked to plan."""

    program: Program
    pinned: Bools | None = None
    """Buffers the planner is told are read after the run; None: those that a `host.read` reads."""

    @property
    def constraints(self) -> Constraints:
        """What the planner is told besides the program."""
        return Constraints.of(self.program, pins=self.pinned)

    def document(self) -> Document:
        """Return the case as a document; `of` reads it back."""
        if self.pinned is None:
            return Document(programs=(self.program,))
        return Document(programs=(self.program,), problems=(Problem.of(self.program, pinned=self.pinned),))

    @classmethod
    def of(cls, document: Document) -> "FuzzCase":
        """Return the case a document holds: its one program, and what its problem says is pinned.

        Raises ModelError.
        """
        if len(document.programs) != 1:
            raise ModelError("programs", f"there are {len(document.programs)}; a case has one")
        pinned = document.problems[0].pinned if document.problems else None
        return cls(program=document.programs[0], pinned=pinned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a planner failed to answer."""

    kind: str
    """A key of `FAILURES`."""
    words: str
    """What it said, in one line."""
    where: str = ""
    """The innermost place in the target's own code, `file:function`, or a signal.

    Part of the cause.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a planner says to a case."""

    plan: Plan | None = None
    refused: str | None = None
    """The words of its refusal."""
    failure: Failure | None = None
    again: bool = True
    """Whether it answered the same when asked a second time; True where it was not asked."""
    seconds: float = field(default=0.0, compare=False)
    """CPU seconds it took."""


def same_plan(one: Plan, other: Plan) -> bool:
    """Return whether two plans put every buffer in the same place by the same events."""
    return all(
        np.array_equal(getattr(one, column), getattr(other, column))
        for column in ("arena", "offset", "nbytes", "events")
    )
