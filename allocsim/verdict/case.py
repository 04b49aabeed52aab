"""The evidence of one case, with what the rows of the table ask of it computed once.

What this module does not see: classes and parties.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from allocsim.checks import Violation, check
from allocsim.evidence import Evidence
from allocsim.model import VIEW, Op, Problem, Program, Run
from allocsim.verdict.records import Witness

BELIEF_KINDS: Final = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong"})
"""What L says; everything else a report lists is S."""


class Case:
    """The evidence with what the rows ask of it, computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.runs = evidence.document.runs
        self.report = check(evidence.document)
        self.static = tuple(v for v in self.report.violations if v.kind not in BELIEF_KINDS)
        self.beliefs = tuple(v for v in self.report.violations if v.kind in BELIEF_KINDS)

    def run(self, violation: Violation) -> Run | None:
        """The run a violation belongs to, if any."""
        return self.runs[violation.run] if violation.run is not None else None

    def program(self, violation: Violation) -> Program:
        """The program whose tables the indices of a violation mean."""
        run = self.run(violation)
        if run is not None:
            return run.program
        return self.evidence.document.programs[violation.program or 0]

    def problem(self, violation: Violation) -> Problem | None:
        """The belief the plan of a violation was made from."""
        run = self.run(violation)
        if run is not None:
            return run.plan.problem
        return self.evidence.document.problems[violation.problem] if violation.problem is not None else None

    def op(self, run: int | None, step: int | None) -> Op | None:
        """An op of a run; None for content laid before the session."""
        return self.runs[run].program.ops[step] if run is not None and step is not None else None

    @cached_property
    def bad_recipients(self) -> frozenset[tuple[int, int]]:
        """(problem, buffer) of the recipients of pairs that are not permitted."""
        problems = self.evidence.document.problems
        pairs = (v for v in self.beliefs if v.kind == "BadShare" and v.problem is not None)
        recipients = set()
        for v in pairs:
            assert v.problem is not None
            recipients.add((id(problems[v.problem]), v.other_buffer if v.other_buffer is not None else -1))
        return frozenset(recipients)

    @cached_property
    def short_lifetimes(self) -> Mapping[tuple[int, int], Violation]:
        """(problem, buffer) -> the belief that ends too early or starts too late."""
        problems = self.evidence.document.problems
        return {
            (id(problems[v.problem]), v.buffer): v
            for v in self.beliefs
            if v.kind in ("LifetimeTooShort", "MissingPin") and v.problem is not None and v.buffer is not None
        }

    @cached_property
    def aliases(self) -> tuple[frozenset[tuple[int, int, int]], ...]:
        """For each run, the (op, operand position, result position) whose bytes start at one address as planned."""
        known: dict[tuple[int, int], frozenset[tuple[int, int, int]]] = {}
        for run in self.runs:
            key = (id(run.plan), id(run.program))
            if key not in known:
                known[key] = frozenset(_aliases(run))
        return tuple(known[id(run.plan), id(run.program)] for run in self.runs)

    def witness(
        self,
        run: int | None,
        step: int | None,
        *,
        program: Program,
        value: int | None = None,
        buffer: int | None = None,
        ranges: tuple[tuple[int, int], ...] = (),
    ) -> Witness:
        """Gather what can be said of one party: the op at `step` of `run`, and a value or buffer of `program`."""
        if run is not None and 0 <= run < len(self.runs):
            program = self.runs[run].program
        if buffer is None and value is not None:
            buffer = int(program.values.buffer[value])
        plan = self.runs[run].plan if run is not None and 0 <= run < len(self.runs) else None
        placed = plan is not None and buffer is not None and bool(plan.placed[buffer])
        return Witness(
            run=run,
            op=step,
            op_name=program.ops.names[step] if step is not None else None,
            kind=program.ops.kinds[program.ops.kind[step]] if step is not None else None,
            value=value,
            value_name=program.values.names[value] if value is not None else None,
            buffer=buffer,
            buffer_name=program.buffers.names[buffer] if buffer is not None else None,
            bytes=ranges,
            address=int(plan.offset[buffer]) if plan is not None and placed and buffer is not None else None,
        )


def _aliases(run: Run) -> Iterator[tuple[int, int, int]]:
    program, plan = run.program, run.plan
    values, ops = program.values, program.ops
    placed = plan.placed[values.buffer]
    address = np.where(placed, plan.offset[values.buffer], 0) + values.offset
    # buffers outside the arenas are address spaces of their own, numbered behind the arenas
    space = np.where(placed, plan.arena[values.buffer], len(program.arenas) + values.buffer)
    address_of, space_of = address.tolist(), space.tolist()
    filled = (values.hulls[:, 1] > values.hulls[:, 0]).tolist()
    views = ops.is_kind(VIEW).tolist()
    operands, operand_starts = ops.operands.tolist(), ops.operand_starts.tolist()
    results, result_starts = ops.results.tolist(), ops.result_starts.tolist()
    for step in range(len(ops)):
        if views[step]:
            continue
        for r, result in enumerate(results[result_starts[step] : result_starts[step + 1]]):
            for o, operand in enumerate(operands[operand_starts[step] : operand_starts[step + 1]]):
                same = address_of[result] == address_of[operand] and space_of[result] == space_of[operand]
                if same and filled[result] and filled[operand]:
                    yield step, o, r
