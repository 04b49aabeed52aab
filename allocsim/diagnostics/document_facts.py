"""Look up the facts that sentences use (`asked_facts`) in a document in memory.

This module does not examine violations and makes no words.
"""

from collections.abc import Sequence

from allocsim.diagnostics.asked_facts import BufferBelief, BufferPlace
from allocsim.model import OWN, Document, Program


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

    def op(self, program: Program, step: int) -> tuple[str, str, str]:
        ops = program.ops
        return ops.names[step], program.streams[ops.stream[step]], ops.kinds[ops.kind[step]]

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
