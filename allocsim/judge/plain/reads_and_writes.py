"""Who reads and writes what in a run.

Ops of kind `view`, and the `host.write` ops that a run leaves out, are no accesses; nor is a result
of a `same` that lies where its operand does, in one buffer: nothing moves. A value without bytes is
accessed all the same.

What this module does not see: slots and addresses.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from allocsim.judge.plain.document_records import OpRecord, ProgramRecord
from allocsim.judge.plain.layouts import pieces


@dataclass(frozen=True)
class TouchedBytes:
    """The ops of a program that touch memory, uploads left out."""

    program: ProgramRecord
    skip: frozenset[int]

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The steps of ops that are accesses."""
        ops = enumerate(self.program.ops)
        return tuple(step for step, op in ops if op.kind != "view" and step not in self.skip)

    @cached_property
    def of_buffer(self) -> dict[int, dict[int, tuple[list[int], list[int]]]]:
        """Buffer -> step -> (values read, values written), steps in order."""
        found: dict[int, dict[int, tuple[list[int], list[int]]]] = {}
        for step in self.steps:
            op = self.program.ops[step]
            for side, values in enumerate((op.operands, self.written(step))):
                for value in values:
                    of_step = found.setdefault(self.program.values[value].buffer, {})
                    of_step.setdefault(step, ([], []))[side].append(value)
        return found

    def op(self, step: int) -> OpRecord:
        """Return the op of a step."""
        return self.program.ops[step]

    def written(self, step: int) -> list[int]:
        """Return the results that an op writes, by position."""
        op = self.program.ops[step]
        return [value for place, value in enumerate(op.results) if not (op.same and rests(self.program, op, place))]

    def producer(self, value: int) -> int | None:
        """Return the op that writes a value in this run; None for a view, and for what nothing
        writes.
        """
        step = self.program.made_by.get(value)
        return None if step is None or step in self.skip or self.program.ops[step].kind == "view" else step


def chunks(program: ProgramRecord, op: OpRecord, position: int) -> Iterator[tuple[int, int, int]]:
    """Yield (bit of the operand, bit of the result, how many) in row-major order, for one pair of a
    `same`.
    """
    sources = pieces(program.values[op.operands[position]])
    targets = pieces(program.values[op.results[position]])
    i, j, done_i, done_j = 0, 0, 0, 0
    while i < len(sources) and j < len(targets):
        (low, high), (to, end) = sources[i], targets[j]
        length = min(high - low - done_i, end - to - done_j)
        yield low + done_i, to + done_j, length
        done_i, done_j = done_i + length, done_j + length
        if low + done_i == high:
            i, done_i = i + 1, 0
        if to + done_j == end:
            j, done_j = j + 1, 0


def rests(program: ProgramRecord, op: OpRecord, position: int) -> bool:
    """Return whether both sides of one pair of a `same` are one place in one buffer."""
    one, other = program.values[op.operands[position]].buffer, program.values[op.results[position]].buffer
    return one == other and all(low == to for low, to, _ in chunks(program, op, position))
