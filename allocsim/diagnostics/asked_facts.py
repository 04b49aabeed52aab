"""What a sentence asks of a document, by index.

    DocumentFacts(document)       of a document in memory

A program is handed about as it comes; nobody but these classes looks into it.

Complexity: O(1) each, but `sides` O(operands of the op).

What this module does not see: records and words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from allocsim.model import OWN, Document, Program

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlace:
    """Where a plan puts a buffer."""

    arena: int
    """Below 0 in memory of its own, or nowhere."""
    own: bool
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferBelief:
    """What a problem states of one buffer."""

    start: int
    stop: int
    nbytes: int
    pinned: bool
    fixed: int | None
    gaps: Ranges


class AskedFacts(Protocol):
    """What a sentence may ask; indices are those of the document."""

    def program(self, index: int) -> Any:
        """Return a program."""

    def ran(self, run: int) -> Any:
        """Return the program of a run."""

    def arena(self, program: Any, index: int) -> tuple[str, int | None]:
        """Return name and capacity of an arena."""

    def op(self, program: Any, step: int) -> tuple[str, str]:
        """Return name of an op and name of its stream."""

    def steps(self, program: Any) -> int:
        """Return how many ops there are."""

    def sides(self, program: Any, step: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the operands and the results of an op."""

    def value(self, program: Any, index: int) -> tuple[str, int]:
        """Return name and buffer of a value."""

    def buffer(self, program: Any, index: int) -> tuple[str, int, int]:
        """Return name, alignment and arena of a buffer."""

    def nbytes(self, program: Any, index: int, end: int | None) -> int:
        """Return the size of a buffer, at the low (0) or the high (1) end where it has ends."""

    def slot(self, plan: int, buffer: int) -> BufferPlace:
        """Return where a plan puts a buffer."""

    def belief(self, problem: int, buffer: int, end: int | None) -> BufferBelief:
        """Return what a problem states of a buffer."""

    def stated(self, problem: int) -> frozenset[str]:
        """Return which lists of a problem the document gives."""

    def problem_of(self, program: int, plan: int) -> int | None:
        """Return the problem by which a program without ops is judged."""


class DocumentFacts:
    """The facts of a document in memory."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def program(self, index: int) -> Program:
        return self.document.programs[index]

    def ran(self, run: int) -> Program:
        return self.document.runs[run].program

    def arena(self, program: Program, index: int) -> tuple[str, int | None]:
        arena = program.arenas[index]
        return arena.name, arena.capacity

    def op(self, program: Program, step: int) -> tuple[str, str]:
        return program.ops.names[step], program.streams[program.ops.stream[step]]

    def steps(self, program: Program) -> int:
        return len(program.ops)

    def sides(self, program: Program, step: int) -> tuple[Sequence[int], Sequence[int]]:
        op = program.ops[step]
        return op.operands, op.results

    def value(self, program: Program, index: int) -> tuple[str, int]:
        return program.values.names[index], int(program.values.buffer[index])

    def buffer(self, program: Program, index: int) -> tuple[str, int, int]:
        buffers = program.buffers
        return buffers.names[index], int(buffers.alignment[index]), int(buffers.arena[index])

    def nbytes(self, program: Program, index: int, end: int | None) -> int:
        ends = program.buffers.nbytes_range.get(index)
        return int(program.buffers.nbytes[index]) if ends is None or end is None else ends[end]

    def slot(self, plan: int, buffer: int) -> BufferPlace:
        made = self.document.plans[plan]
        arena = int(made.arena[buffer])
        return BufferPlace(
            arena=arena, own=arena == OWN, offset=int(made.offset[buffer]), nbytes=int(made.nbytes[buffer])
        )

    def belief(self, problem: int, buffer: int, end: int | None) -> BufferBelief:
        made = self.document.problems[problem]
        free = "nbytes" not in made.stated and end is not None
        return BufferBelief(
            start=int(made.start[buffer]),
            stop=int(made.stop[buffer]),
            nbytes=self.nbytes(made.program, buffer, end) if free else int(made.nbytes[buffer]),
            pinned=bool(made.pinned[buffer]),
            fixed=made.fixed.get(buffer),
            gaps=made.gaps.get(buffer, ()),
        )

    def stated(self, problem: int) -> frozenset[str]:
        return self.document.problems[problem].stated

    def problem_of(self, program: int, plan: int) -> int | None:
        judged, problems = self.document.programs[program], self.document.problems
        if len(judged.ops):
            return None
        own = self.document.plans[plan].problem
        if own is not None and own.program is judged:
            return next(index for index, problem in enumerate(problems) if problem is own)
        return next((index for index, problem in enumerate(problems) if problem.program is judged), None)
