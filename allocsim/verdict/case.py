"""The evidence of one case, with what the rows of the table ask of it computed once.

What this module does not see: classes and parties.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from allocsim.checks import Violation, check
from allocsim.cure import used_pairs
from allocsim.evidence import Evidence
from allocsim.model import VIEW, Op, Plan, Problem, Program, Run
from allocsim.verdict.calls import Call, homes
from allocsim.verdict.records import Witness

BELIEF_KINDS: Final = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong"})
"""What L says; `Race` is H's, everything else a report lists is S's."""


class Case:
    """The evidence with what the rows ask of it, computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.runs = evidence.document.runs
        self.report = check(evidence.document)
        self.static = tuple(v for v in self.report.violations if v.kind not in BELIEF_KINDS)
        self.races = tuple(v for v in self.static if v.kind == "Race")
        self.beliefs = tuple(v for v in self.report.violations if v.kind in BELIEF_KINDS)
        self.history = tuple(v for v in self.report.warnings if v.kind == "HistoryRead")
        self._donors: dict[int, Mapping[int, tuple[int, ...]]] = {}
        self._reads: dict[int, Mapping[int, tuple[tuple[int, bool], ...]]] = {}
        self._homes: dict[int, Mapping[int, Call]] = {}

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

    def other_buffer(self, violation: Violation) -> int | None:
        """`other_buffer` in the tables of the violation's own run; None if it is a buffer of another program.

        It comes numbered as in the program of the write found, and for content (no run) as in the reader's.
        """
        run = self.run(violation)
        if run is None or violation.other_run is None or self.runs[violation.other_run].program is run.program:
            return violation.other_buffer
        return None

    @cached_property
    def bad_pairs(self) -> frozenset[tuple[int, int, int]]:
        """(id of the problem, donor, recipient) of the pairs believed that are not permitted."""
        problems = self.evidence.document.problems
        return frozenset(
            (id(problems[v.problem]), v.buffer, v.other_buffer)
            for v in self.beliefs
            if v.kind == "BadShare" and v.problem is not None and v.buffer is not None and v.other_buffer is not None
        )

    @cached_property
    def short_lifetimes(self) -> Mapping[tuple[int, int], Violation]:
        """(id of the problem, buffer) -> the belief that ends too early or starts too late."""
        problems = self.evidence.document.problems
        return {
            (id(problems[v.problem]), v.buffer): v
            for v in self.beliefs
            if v.kind in ("LifetimeTooShort", "MissingPin") and v.problem is not None and v.buffer is not None
        }

    def donors(self, plan: Plan) -> Mapping[int, tuple[int, ...]]:
        """Recipient -> the donors whose place the plan gave it, as its belief allows."""
        if id(plan) not in self._donors:
            found: dict[int, tuple[int, ...]] = {}
            for donor, recipient in used_pairs(plan):
                found[recipient] = (*found.get(recipient, ()), donor)
            self._donors[id(plan)] = found
        return self._donors[id(plan)]

    def reads(self, program: Program, buffer: int) -> tuple[tuple[int, bool], ...]:
        """(step, through a view?) of every op that reads a buffer, in order; through a view if no operand is the buffer's own."""
        if id(program) not in self._reads:
            self._reads[id(program)] = _reads(program)
        return self._reads[id(program)].get(buffer, ())

    def home(self, program: Program, buffer: int) -> Call | None:
        """The inlined call or branch a buffer belongs to; None where the program says nothing of calls or no op accesses it."""
        if id(program) not in self._homes:
            self._homes[id(program)] = homes(program)
        return self._homes[id(program)].get(buffer)

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
        home: int | None = None,
        value: int | None = None,
        buffer: int | None = None,
        ranges: tuple[tuple[int, int], ...] = (),
    ) -> Witness:
        """Gather what can be said of one party: the op at `step` of `run`, and a value or buffer of run `home` (by default `run`).

        `program` has the tables of what belongs to no run: a plan, a belief, content laid before the session.
        """
        op = self.op(run, step) if run is not None else program.ops[step] if step is not None else None
        home = run if home is None else home
        plan = self.runs[home].plan if home is not None else None
        if home is not None:
            program = self.runs[home].program
        if buffer is None and value is not None:
            buffer = int(program.values.buffer[value])
        placed = plan is not None and buffer is not None and bool(plan.placed[buffer])
        return Witness(
            run=run,
            op=step,
            op_name=op.name if op is not None else None,
            kind=op.kind if op is not None else None,
            value=value,
            value_name=program.values.names[value] if value is not None else None,
            buffer=buffer,
            buffer_name=program.buffers.names[buffer] if buffer is not None else None,
            bytes=ranges,
            address=int(plan.offset[buffer]) if plan is not None and placed and buffer is not None else None,
        )


def _reads(program: Program) -> Mapping[int, tuple[tuple[int, bool], ...]]:
    values, ops = program.values, program.ops
    steps = np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts))
    keep = ~ops.is_kind(VIEW)[steps]
    own = own_values(program)[ops.operands]
    found: dict[int, dict[int, bool]] = {}
    for step, buffer, direct in zip(
        steps[keep].tolist(), values.buffer[ops.operands[keep]].tolist(), own[keep].tolist(), strict=True
    ):
        at = found.setdefault(buffer, {})
        at[step] = at.get(step, True) and not direct
    return {buffer: tuple(sorted(at.items())) for buffer, at in found.items()}


def own_values(program: Program) -> NDArray[np.bool_]:
    """Return which values are their buffer's own; the others are views of it. Mask over values, O(values).

    Own is what an op other than `view` makes, and, in a buffer no such op writes (content), what no op makes.
    """
    producer, buffer = program.producer, program.values.buffer
    view = np.append(program.ops.is_kind(VIEW), False)[producer]
    made = (producer >= 0) & ~view
    written = np.zeros(len(program.buffers), dtype=np.bool_)
    written[buffer[made]] = True
    persistent = program.buffers.persistent[buffer]
    mask: NDArray[np.bool_] = made | ((producer < 0) & (~written[buffer] | persistent))
    return mask


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
