"""Look up the facts that sentences use (`asked_facts`) in the records that the plain judge reads.
This module needs only the standard library.

This module does not examine violations and makes no words.
"""

from collections.abc import Sequence

from allocsim.diagnostics.asked_facts import BufferBelief, BufferPlace
from allocsim.judge.plain.document_records import OWN, DocumentRecord, ProgramRecord


class PlainFacts:
    """The facts of a document as the plain judge has read the document."""

    def __init__(self, document: DocumentRecord) -> None:
        self.document = document

    def program(self, index: int) -> ProgramRecord:
        return self.document.programs[index]

    def ran(self, run: int) -> ProgramRecord:
        return self.document.programs[self.document.runs[run].program]

    def arena(self, program: ProgramRecord, index: int) -> tuple[str, int | None]:  # noqa: ARG002 - all programs share them
        arena = self.document.arenas[index]
        return arena.name, arena.capacity

    def op(self, program: ProgramRecord, step: int) -> tuple[str, str, str]:
        op = program.ops[step]
        return op.name, program.streams[op.stream], op.kind

    def steps(self, program: ProgramRecord) -> int:
        return len(program.ops)

    def sides(self, program: ProgramRecord, step: int) -> tuple[Sequence[int], Sequence[int]]:
        op = program.ops[step]
        return op.operands, op.results

    def value(self, program: ProgramRecord, index: int) -> tuple[str, int]:
        value = program.values[index]
        return value.name, value.buffer

    def buffer(self, program: ProgramRecord, index: int) -> tuple[str, int, int]:
        buffer = program.buffers[index]
        return buffer.name, buffer.alignment, buffer.arena

    def nbytes(self, program: ProgramRecord, index: int, end: int | None) -> int:
        buffer = program.buffers[index]
        ends = buffer.nbytes_range
        return buffer.nbytes if ends is None or end is None else ends[end]

    def slot(self, plan: int, buffer: int) -> BufferPlace:
        made = self.document.plans[plan].slots[buffer]
        return BufferPlace(arena=made.arena, own=made.arena == OWN, offset=made.offset, nbytes=made.nbytes)

    def belief(self, problem: int, buffer: int, end: int | None) -> BufferBelief:
        made = self.document.problems[problem]
        free = "nbytes" not in made.stated and end is not None
        return BufferBelief(
            start=made.start[buffer],
            stop=made.stop[buffer],
            nbytes=self.nbytes(self.document.programs[made.program], buffer, end) if free else made.nbytes[buffer],
            pinned=buffer in made.pinned,
            fixed=made.fixed.get(buffer),
            gaps=made.gaps.get(buffer, ()),
        )

    def stated(self, problem: int) -> frozenset[str]:
        return self.document.problems[problem].stated

    def problem_of(self, program: int, plan: int) -> int | None:
        if self.document.programs[program].ops:
            return None
        own, problems = self.document.plans[plan].problem, self.document.problems
        if own is not None and problems[own].program == program:
            return own
        return next((index for index, problem in enumerate(problems) if problem.program == program), None)
