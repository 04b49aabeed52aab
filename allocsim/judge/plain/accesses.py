"""Who reads and writes what in a run.

Ops of kind `view`, and the `host.write` ops that a run leaves out, are no accesses. A value without
bytes is accessed all the same.

What this module does not see: slots and addresses.
"""

from dataclasses import dataclass
from functools import cached_property

from allocsim.judge.plain.records import Op, Program


@dataclass(frozen=True)
class Accesses:
    """The ops of a program that touch memory, uploads left out."""

    program: Program
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
            for side, values in enumerate((op.operands, op.results)):
                for value in values:
                    of_step = found.setdefault(self.program.values[value].buffer, {})
                    of_step.setdefault(step, ([], []))[side].append(value)
        return found

    def op(self, step: int) -> Op:
        """Return the op of a step."""
        return self.program.ops[step]

    def producer(self, value: int) -> int | None:
        """Return the op that writes a value in this run; None for a view, and for what nothing
        writes.
        """
        step = self.program.made_by.get(value)
        return None if step is None or step in self.skip or self.program.ops[step].kind == "view" else step
