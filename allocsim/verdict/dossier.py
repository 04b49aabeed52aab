"""The dossier holds the evidence, and computes each fact that charging and naming need only once.

Only the judge (`allocsim.judge.fast`) decides what is wrong. The dossier passes it the document
itself and changed copies: with every buffer apart, with no upload left out, with a plan on its own
program, and with one run in which only a few buffers may share bytes. The other methods look facts
up in the tables.

This module does not examine classes and parties.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from allocsim.cure.defects import Key, RuledJudge, key_of, listed
from allocsim.cure.effort import Effort
from allocsim.cure.pairs import used_pairs
from allocsim.cure.ranks import ranks, ranks_of
from allocsim.cure.room import programs_under
from allocsim.diagnostics import told
from allocsim.judge.fast import Report, Violation
from allocsim.liveness import lifetimes
from allocsim.model import HOST_READ, OWN, VIEW, Document, Plan, Problem, Program, Role, Run
from allocsim.model.layout import Int64s
from allocsim.programs.access_steps import first_and_last
from allocsim.programs.fingerprints import same_program
from allocsim.verdict.carries import HandedOn, handed_on, moved_before
from allocsim.verdict.doings import Doings, once
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.records import Witness
from allocsim.verdict.report_facts import BELIEF_KINDS
from allocsim.verdict.stream_order import StreamBook

QUESTIONS: Final = 80_000
"""The number of steps (`allocsim.cure.effort`) for judging runs in which few buffers may share
bytes. Once these steps are spent, a stale read is charged to the writer that the judge found, and
`Cause.asked` is False."""


class Dossier:
    """The evidence, with methods that compute each needed fact once."""

    def __init__(self, evidence: Evidence, report: Report | None = None, judged: RuledJudge = listed) -> None:
        self.judged = judged
        """The judge with the rules that produced `report`."""
        self.evidence = evidence
        self.document: Document = evidence.document
        self.runs = self.document.runs
        self.report = told(judged(self.document), self.document) if report is None else report
        self.static = tuple(v for v in self.report.violations if v.kind not in BELIEF_KINDS)
        self.races = tuple(v for v in self.static if v.kind == "Race")
        self.beliefs = tuple(v for v in self.report.violations if v.kind in BELIEF_KINDS)
        self.history = tuple(v for v in self.report.warnings if v.kind == "HistoryRead")
        self.answers: dict[Key, Any] = {}
        self.effort = Effort(QUESTIONS)
        """The steps for `alone` and `without_slot`; `cut` is True if a call needed more steps."""
        self.asked: set[Key] = set()
        """The (run, buffers) that were tried with `alone` for stale reads with several possible
        causes."""

    def run(self, violation: Violation) -> Run | None:
        """Return the run of a violation; None if the violation belongs to no run."""
        return self.runs[violation.run] if violation.run is not None else None

    def program(self, violation: Violation) -> Program:
        """Return the program that the indices of a violation refer to."""
        run = self.run(violation)
        if run is not None:
            return run.program
        return self.document.programs[violation.program or 0]

    def problem(self, violation: Violation) -> Problem | None:
        """Return the belief from which the plan of a violation was made, if it is known."""
        run = self.run(violation)
        if run is not None:
            return run.plan.problem
        return self.document.problems[violation.problem] if violation.problem is not None else None

    @once
    def doings(self, program: Program) -> Doings:
        """Return the `Doings` of a program, made once."""
        return Doings(program)

    def kind(self, run: int | None, step: int | None) -> str | None:
        """Return the kind of an op of a run; None if `run` or `step` is None (content without a
        writer).
        """
        return self.doings(self.runs[run].program).kind(step) if run is not None and step is not None else None

    def other_buffer(self, violation: Violation) -> int | None:
        """Return `other_buffer` of a violation as an index of the program of the violation's run.

        `other_buffer` is an index of the program of `other_run`, or of the program of `run` if
        `other_run` is None. Return None if these two programs differ.
        """
        run = self.run(violation)
        if run is None or violation.other_run is None or self.runs[violation.other_run].program is run.program:
            return violation.other_buffer
        return None

    def share_bytes(self, v: Violation) -> bool:
        """Whether the slots of a violation's two buffers share a byte under its plan."""
        pair = [v.buffer or 0, self.other_buffer(v) or 0]
        plan = self.document.plans[v.plan or 0]
        low, arena = plan.offset[pair], plan.arena[pair]
        last = low + (np.maximum(plan.nbytes[pair], self.program(v).buffers.nbytes[pair]) - 1)  # an end may be 2^63
        return bool(arena[0] == arena[1] >= 0 and low.max() <= last.min())

    @once
    def handed(self, plan: Plan, program: Program) -> frozenset[int]:
        """Return the inputs that gave their address to an output by a believed pair, and these
        outputs.
        """
        outputs, role = self.doings(program).outputs, program.buffers.role
        pairs = [pair for pair in used_pairs(plan) if pair[1] in outputs and role[pair[0]] == Role.INPUT]
        return frozenset(buffer for pair in pairs for buffer in pair)

    @once
    def handed_on(self, program: Program, plan: Plan | None) -> tuple[HandedOn, ...]:
        """Return for each loop the buffers that one turn passes to the next under a plan."""
        return tuple(handed_on(loop, plan) for loop in self.doings(program).loops)

    @once
    def strange(self, plan: int, program: int) -> bool:
        """Whether a plan was made for another program than program number `program`."""
        return not same_program(self.document.plans[plan].program, self.document.programs[program])

    def rule_kept(self, race: Violation) -> bool:
        """Whether the allocator kept its rule at a race within one run. The rule: the bytes were
        freed, in stream order, before the allocator reused them (`allocsim.verdict.stream_order`).
        """
        if race.plan is None or race.program is None or race.other_run not in {None, race.run}:
            return False
        book = self._book(race.plan, race.program)
        return book is not None and book.kept_rule(race.other_buffer or 0, race.buffer or 0)

    @once
    def _book(self, plan: int, program: int) -> StreamBook | None:
        return StreamBook.of(self.document.plans[plan], self.document.programs[program])

    @cached_property
    def left_out(self) -> tuple[frozenset[int], ...]:
        """For each run, the buffers with an upload that the host left out."""
        return tuple(
            frozenset(
                int(run.program.values.buffer[value]) for step in run.skip for value in run.program.ops[step].results
            )
            for run in self.runs
        )

    @once
    def aliases(self, plan: Plan, program: Program) -> frozenset[tuple[int, int, int]]:
        """Return (op, operand position, result position) of values at one address under a plan."""
        values, ops = program.values, program.ops
        placed = plan.placed[values.buffer]
        address = np.where(placed, plan.offset[values.buffer], 0) + values.offset
        # each buffer outside the arenas is its own address space, numbered after the arenas
        space = np.where(placed, plan.arena[values.buffer], len(program.arenas) + values.buffer)
        address_of, space_of = address.tolist(), space.tolist()
        filled = (values.hulls[:, 1] > values.hulls[:, 0]).tolist()
        views = ops.is_kind(VIEW).tolist()
        operands, operand_starts = ops.operands.tolist(), ops.operand_starts.tolist()
        results, result_starts = ops.results.tolist(), ops.result_starts.tolist()
        found: set[tuple[int, int, int]] = set()
        for step in range(len(ops)):
            if views[step]:
                continue
            for r, result in enumerate(results[result_starts[step] : result_starts[step + 1]]):
                for o, operand in enumerate(operands[operand_starts[step] : operand_starts[step + 1]]):
                    same = address_of[result] == address_of[operand] and space_of[result] == space_of[operand]
                    if same and filled[result] and filled[operand]:
                        found.add((step, o, r))
        return frozenset(found)

    # what the judge finds in a changed document ---------------------------------------------------

    def _judged(self, document: Document) -> frozenset[Key]:
        return frozenset(key_of(v) for v in self.judged(document, sizes=False).violations)

    @cached_property
    def apart(self) -> frozenset[Key]:
        """Keys of the violations that exist with every buffer apart, so no plan causes them."""
        return self._judged(
            replace(self._with_plans({i: _apart(p, ()) for i, p in enumerate(self.document.plans)}), problems=())
        )

    def without_slot(self, plan: int, buffer: int) -> frozenset[Key]:
        """Return the violations' keys with one buffer of a plan apart; SpentError without steps
        left.
        """
        old = self.document.plans[plan]
        arena = old.arena.copy()
        arena[buffer] = OWN
        mended = self._with_plans({plan: replace(old, arena=arena)})
        return frozenset(map(key_of, self.effort.judged(self.judged, mended).violations))

    def _with_plans(self, changed: Mapping[int, Plan]) -> Document:
        """Return the document with some of its plans replaced, given by their indices."""
        old = self.document.plans
        plans = tuple(changed.get(index, plan) for index, plan in enumerate(old))
        made = {id(plan): new for plan, new in zip(old, plans, strict=True)}
        session = self.document.session
        runs = None if session is None else tuple(replace(run, plan=made[id(run.plan)]) for run in session)
        return replace(self.document, plans=plans, session=runs)

    @cached_property
    def _in_time(self) -> frozenset[Key]:
        """Keys of the violations that remain if the host reads each output before a later run
        begins.
        """
        runs = tuple(replace(run, read_after=None) for run in self.runs)
        return self._judged(replace(self.document, session=runs))

    def looked_late(self, violation: Violation) -> bool:
        """Whether a host read is wrong only because the host reads after a later run."""
        run = self.run(violation)
        return run is not None and run.read_after is not None and key_of(violation) not in self._in_time

    @cached_property
    def uploaded(self) -> frozenset[Key]:
        """Keys of the violations that remain if the host leaves out no upload."""
        if self.document.session is None:
            return frozenset(key_of(v) for v in self.report.violations)
        return self._judged(
            replace(self.document, session=tuple(replace(run, skip=()) for run in self.document.session))
        )

    @once
    def on_own_program(self, plan: int) -> frozenset[Key]:
        """Return the violations, as kind and buffers, of a plan on the program it was made for."""
        over = {"Overlap", "UnsafeInPlace", "ResultsOverlap", "StaleRead"}
        return frozenset(
            (v.kind, v.buffer) if v.other_buffer is None else (v.kind in over, frozenset((v.buffer, v.other_buffer)))
            for v in self.judged(Document.of(self.document.plans[plan]), sizes=False).violations
        )

    def alone(self, run: int, buffers: Collection[int]) -> frozenset[Key]:
        """Return (kind, op, value, buffer) of a run's violations with all buffers but `buffers`
        apart.

        Raise SpentError if no step is left.
        """
        made = self.runs[run]
        return self._alone(made.plan, made.program, made.skip, frozenset(buffers))

    @once
    def _alone(self, plan: Plan, program: Program, skip: tuple[int, ...], buffers: frozenset[int]) -> frozenset[Key]:
        run = Run(plan=_apart(plan, buffers), program=program, skip=skip)
        report = self.effort.judged(self.judged, Document.of(run))
        return frozenset((v.kind, v.op, v.value, v.buffer) for v in report.violations)

    # look-ups -------------------------------------------------------------------------------------

    @once
    def ranks(self, plan: int) -> Int64s:
        """Return sort keys of a plan's buffers, independent of their indices: int64 (buffers,)."""
        return ranks_of(self.document.plans[plan].program, programs_under(self.document)[plan])

    def rank(self, plan: int, buffer: int) -> tuple[int, int]:
        """Return a sort key for a slot among the slots of several plans."""
        return plan, int(self.ranks(plan)[buffer])

    @once
    def lives(self, program: Program) -> tuple[Int64s, Int64s]:
        """Return the lifetime of each buffer of a program, and its lifetime if the host read
        nothing. Both are arrays of half-open ranges of steps, int64 (buffers, 2).
        """
        whole = lifetimes(program)
        unread = whole.copy()
        _, last = first_and_last(program, skip=np.flatnonzero(program.ops.is_kind(HOST_READ)).tolist())
        passing = ~program.buffers.persistent
        unread[passing, 1] = last[passing] + 1
        return whole, unread

    @cached_property
    def short(self) -> frozenset[tuple[int | None, int | None]]:
        """The (problem, buffer) of each believed lifetime that leaves out an access."""
        return frozenset((v.problem, v.buffer) for v in self.beliefs if v.kind in {"LifetimeTooShort", "MissingPin"})

    @cached_property
    def bad_pairs(self) -> frozenset[tuple[int, int, int]]:
        """The (problem, donor, recipient) of each believed pair that may not share bytes."""
        return frozenset(
            (v.problem, v.buffer, v.other_buffer)
            for v in self.beliefs
            if v.kind == "BadShare" and v.problem is not None and v.buffer is not None and v.other_buffer is not None
        )

    def way(self, plan: Plan, one: int, other: int) -> tuple[tuple[int, int], ...] | None:
        """Return the chain of believed pairs by which one buffer took over the bytes of the other,
        or None. A chain from the earlier buffer to the later buffer is preferred.
        """
        first = ranks(plan.program)
        early, late = sorted((one, other), key=lambda buffer: int(first[buffer]))
        for donor, recipient in ((early, late), (late, early)):
            found = climb(self._donors(plan), donor, recipient)
            if found is not None:
                return found
        return None

    @once
    def _donors(self, plan: Plan) -> dict[int, tuple[int, ...]]:
        donors: dict[int, dict[int, None]] = defaultdict(dict)
        for donor, recipient in used_pairs(plan):
            donors[recipient][donor] = None
        return {recipient: tuple(found) for recipient, found in donors.items()}

    def lasts(self, v: Violation) -> bool:
        """Whether the buffer of a violation is a parameter or a state."""
        return v.buffer is not None and bool(self.program(v).buffers.persistent[v.buffer])

    def over(self, v: Violation) -> AbstractSet[int]:
        """Return the buffers that an `Overlap` reports together with the buffer of a violation."""
        return self._over.get((v.plan, v.program, v.buffer), frozenset())

    @cached_property
    def _over(self) -> Mapping[tuple[object, ...], AbstractSet[int]]:
        """For each (plan, program, buffer), the other buffers of its `Overlap` violations."""
        found: dict[tuple[object, ...], set[int]] = defaultdict(set)
        for v in self.static:
            if v.kind == "Overlap":
                found[v.plan, v.program, v.buffer].add(v.other_buffer or 0)
                found[v.plan, v.program, v.other_buffer].add(v.buffer or 0)
        return found

    def lost_to(self, v: Violation) -> AbstractSet[int]:
        """Return the buffers over a stale read's buffer that earlier `same` ops of its row wrote.

        The set is empty for other violations.
        """
        over = self.over(v)
        moving = bool(over) and v.kind == "StaleRead" and v.op is not None
        return over & moved_before(self.program(v), v.op or 0) if moving else frozenset()

    def witness(
        self,
        run: int | None,
        step: int | None,
        *,
        home: int | None = None,
        program: Program | None = None,
        value: int | None = None,
        buffer: int | None = None,
        ranges: tuple[tuple[int, int], ...] = (),
    ) -> Witness:
        """Return the witness for the op at `step` of `run`, with a value or buffer of run `home`
        (by default `run`). `program` is used only if both runs are None.
        """
        home, plan = run if home is None else home, None
        if home is not None:
            plan, program = self.runs[home].plan, self.runs[home].program
        assert program is not None
        tables = program if run is None else self.runs[run].program
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


def _apart(plan: Plan, kept: Collection[int]) -> Plan:
    """Return a plan with all buffers but `kept` in their own memory, without problem and events."""
    arena = np.full(len(plan.arena), OWN, dtype=np.int32)
    arena[list(kept)] = plan.arena[list(kept)]
    return replace(plan, problem=None, arena=arena, events=plan.events[:0])


def climb(donors: Mapping[int, tuple[int, ...]], top: int, start: int) -> tuple[tuple[int, int], ...] | None:
    """Return a chain of (donor, recipient) pairs that leads from `top` to `start`.

    `donors` maps each recipient to its donors. Return None if there is no such chain.
    """
    came: dict[int, tuple[int, int]] = {}
    open_ = [start]
    while open_ and top not in came:
        buffer = open_.pop()
        for donor in donors.get(buffer, ()):
            if donor != start and donor not in came:
                came[donor] = donor, buffer
                open_.append(donor)
    if top not in came:
        return None
    path = [came[top]]
    while path[-1][1] != start:
        path.append(came[path[-1][1]])
    return tuple(path)
