"""Cases and answers: what a planner is asked, and what it returns.

A case is a program and what the planner is told of it besides: which buffers are pinned, by default
those a `host.read` of the program reads; which lie in memory of their own, by default parameters
and states; which offsets are decided, by default none. It travels as a native document with one
program and one problem, whose `pinned`, `own` and `fixed` are what the planner is told (format.md),
so a kept case is a file like any other, and a reducer of documents reduces cases.

A case may also be a belief, of a program without ops: lives, gaps, pins, offsets and pairs that are
to be placed as they are stated, as in a solver's instance.

An answer is exactly one of three: a plan; a refusal, which is a `CapacityError` the planner raised
itself; or a failure, one of `FAILURES` with words. Nothing a planner does is anything else.

What this module does not see: planners, and how cases are made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from allocsim.allocators import Constraints, pin_reads
from allocsim.errors import ModelError
from allocsim.model import Bools, Document, Plan, Problem, Program

if TYPE_CHECKING:
    from allocsim.fuzzing.batch import Batch

HANGS: Final = "hangs"

FAILURES: Final[dict[str, str]] = {
    "raises": "it raised an exception",
    "rubbish": "what it returned is no plan of the program",
    "exceeds": "it returned a plan beyond an arena's capacity instead of refusing",
    HANGS: "it did not answer in time",
    "memory": "it asked for more memory than it may have",
    "dies": "it ended its process",
    "processes": "it began more processes than it may have",
}
"""How a planner can fail to answer."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FuzzCase:
    """What a planner is asked to plan."""

    program: Program
    pinned: Bools | None = None
    """Buffers the planner is told are read after the run; None: those that a `host.read` reads."""
    own: Bools | None = None
    """Buffers the planner is told to keep in memory of their own; None: parameters and states."""
    fixed: Mapping[int, int] = field(default_factory=dict)
    """Buffer -> offset in bytes that the planner is told is decided."""
    believed: Problem | None = None
    """What is to be placed as stated, of a program without ops; None: it believes what it will."""
    free: bool = False
    """Whether ops of several streams wait for what their values need alone, so that the order of
    the list is one of several.
    """
    parts: "Batch | None" = None
    """Where the program is many joined as one, to be planned each by itself: these."""

    @property
    def kind(self) -> str:
        """What is told: nothing but what follows from the program (`plain`), pins alone (`pinned`),
        memory of its own and offsets too (`told`), a whole belief (`gapped`), or nothing, of a
        program whose streams are `free`.
        """
        if self.free:
            return "free"
        if self.believed is not None:
            return "gapped"
        if self.own is not None or self.fixed:
            return "told"
        return "plain" if self.pinned is None else "pinned"

    @property
    def constraints(self) -> Constraints:
        """What the planner is told besides the program."""
        if self.believed is not None:
            return Constraints.from_problem(self.believed)
        return Constraints.of(self.program, pins=self.pinned, own=self.own, fixed=self.fixed)

    @property
    def problem(self) -> Problem:
        """What the planner is told, as a problem that states nothing else."""
        told = self.constraints
        return Problem.of(self.program, pinned=told.pinned, own=told.own, fixed=told.fixed)

    def document(self) -> Document:
        """Return the case as a document; `of` reads it back."""
        if self.kind in {"plain", "free"}:
            return Document(programs=(self.program,))
        if self.believed is not None:
            return Document(programs=(self.program,), problems=(self.believed,))
        told = Problem.of(self.program, pinned=self.constraints.pinned, own=self.own, fixed=self.fixed)
        return Document(programs=(self.program,), problems=(told,))

    @classmethod
    def of(cls, document: Document) -> "FuzzCase":
        """Return a document's case: its program and what its problem tells; or ModelError."""
        if len(document.programs) != 1:
            raise ModelError("programs", f"there are {len(document.programs)}; a case has one")
        program = document.programs[0]
        if not document.problems:
            return cls(program=program)
        told = document.problems[0]
        if "stop" in told.stated and not len(program.ops):
            return cls(program=program, believed=told)
        own = told.own if "own" in told.stated else None
        return cls(program=program, pinned=told.pinned | pin_reads(program), own=own, fixed=told.fixed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How a planner failed to answer."""

    kind: str
    """A key of `FAILURES`."""
    words: str
    """What it said, in one line."""
    where: str = ""
    """The innermost place in the target's own code, `file:function`, or a signal: in the cause."""


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

    @property
    def late(self) -> bool:
        """Whether there was none in time."""
        return self.failure is not None and self.failure.kind == HANGS


def same_plan(one: Plan, other: Plan) -> bool:
    """Return whether two plans put every buffer in the same place by the same events."""
    return all(
        np.array_equal(getattr(one, column), getattr(other, column))
        for column in ("arena", "offset", "nbytes", "events")
    )
