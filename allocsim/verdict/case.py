"""The evidence of one case, with what the rows of the table ask of it computed once.

What this module does not see: classes and parties.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

import numpy as np

from allocsim.checks import KINDS, Violation, check
from allocsim.checks.s_promises import PROMISE_KINDS
from allocsim.cure import used_pairs
from allocsim.model import VIEW, Plan, Problem, Program, Role, Run
from allocsim.programs.fingerprints import same_program
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.programs import Doings
from allocsim.verdict.records import Witness
from allocsim.verdict.ways import Ways

BELIEF_KINDS: Final = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong"})
"""What L says; `Race` is H's, everything else a report lists is S's."""


class Case:
    """The evidence with what the rows ask of it, computed once."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.runs = evidence.document.runs
        self.report = check(evidence.document, of_each_kind=True)
        found = tuple(v for v in self.report.violations if v.kind not in BELIEF_KINDS)
        self.static = tuple(v for v in found if v.kind not in PROMISE_KINDS)
        self.promises = tuple(v for v in found if v.kind in PROMISE_KINDS)
        self.races = tuple(v for v in self.static if v.kind == "Race")
        self.beliefs = tuple(v for v in self.report.violations if v.kind in BELIEF_KINDS)
        self.history = tuple(v for v in self.report.warnings if v.kind == "HistoryRead")
        self.beliefs_count = sum(self.report.counts.get(kind, 0) for kind in BELIEF_KINDS if KINDS[kind][0] == "violation")
        """How many wrong beliefs there are, listed or not."""
        self.promises_count = sum(self.report.counts.get(kind, 0) for kind in PROMISE_KINDS)
        self._doings: dict[int, Doings] = {}
        self._ways: dict[int, Ways] = {}
        self._pairs: dict[int, frozenset[int]] = {}
        self._strange: dict[tuple[int, int], bool] = {}
        self._handed: dict[tuple[int, int], frozenset[int]] = {}

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

    def doings(self, program: Program) -> Doings:
        """What a program does."""
        if id(program) not in self._doings:
            self._doings[id(program)] = Doings(program)
        return self._doings[id(program)]

    def kind(self, run: int | None, step: int | None) -> str | None:
        """The kind of an op of a run; None for content laid before the session."""
        return self.doings(self.runs[run].program).kind(step) if run is not None and step is not None else None

    def crosses(self, run: int | None, step: int | None) -> bool:
        """Whether an op of a run carries bytes from one arena to another."""
        return run is not None and step is not None and self.doings(self.runs[run].program).crosses(step)

    def other_buffer(self, violation: Violation) -> int | None:
        """`other_buffer` in the tables of the violation's own run; None if it is a buffer of another program.

        It comes numbered as in the program of the write found, and for content (no run) as in the reader's.
        """
        run = self.run(violation)
        if run is None or violation.other_run is None or self.runs[violation.other_run].program is run.program:
            return violation.other_buffer
        return None

    @cached_property
    def short_lifetimes(self) -> Mapping[tuple[int, int], Violation]:
        """(id of the problem, buffer) -> the belief that ends too early or starts too late."""
        problems = self.evidence.document.problems
        return {
            (id(problems[v.problem]), v.buffer): v
            for v in self.beliefs
            if v.kind in ("LifetimeTooShort", "MissingPin") and v.problem is not None and v.buffer is not None
        }

    def ways(self, plan: Plan) -> Ways:
        """Who took whose place in a plan, as its belief allows."""
        if id(plan) not in self._ways:
            problems = self.evidence.document.problems
            bad = {
                (v.buffer, v.other_buffer)
                for v in self.beliefs
                if v.kind == "BadShare" and problems[v.problem or 0] is plan.problem
            }
            self._ways[id(plan)] = Ways(plan, bad)
        return self._ways[id(plan)]

    def may_share(self, problem: Problem, one: int, other: int) -> bool:
        """Whether a belief says that one of two buffers may take the place of the other."""
        count = len(problem.start)
        if id(problem) not in self._pairs:
            donor, recipient = problem.may_share.T.astype(np.int64)
            self._pairs[id(problem)] = frozenset((donor * count + recipient).tolist())
        return not self._pairs[id(problem)].isdisjoint((one * count + other, other * count + one))

    def handed(self, run: Run) -> frozenset[int]:
        """Inputs of a run whose place an output took along a believed pair, and these outputs."""
        key = id(run.plan), id(run.program)
        if key not in self._handed:
            outputs, role = self.doings(run.program).outputs, run.program.buffers.role
            pairs = [pair for pair in used_pairs(run.plan) if pair[1] in outputs and role[pair[0]] == Role.INPUT]
            self._handed[key] = frozenset(buffer for pair in pairs for buffer in pair)
        return self._handed[key]

    def strange(self, plan: int, program: int) -> bool:
        """Whether a plan was made for another program than this one."""
        if (plan, program) not in self._strange:
            document = self.evidence.document
            self._strange[plan, program] = not same_program(document.plans[plan].program, document.programs[program])
        return self._strange[plan, program]

    @cached_property
    def left_out(self) -> tuple[frozenset[int], ...]:
        """For each run the buffers into which the host left out an upload."""
        return tuple(
            frozenset(int(run.program.values.buffer[value]) for step in run.skip for value in run.program.ops[step].results)
            for run in self.runs
        )

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
        tables = self.runs[run].program if run is not None else program
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
            op_name=tables.ops.names[step] if step is not None else None,
            kind=self.doings(tables).kind(step) if step is not None else None,
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
