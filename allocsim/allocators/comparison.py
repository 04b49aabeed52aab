"""Planners against problems: peak, ratio to the lower bound, processor time, fragmentation, and
whether the plan is sound.

    rows = compare(document, ["greedy_by_size", "exact"])     # and the plans the document brings along, under their own names

Every planner is told what the document's first problem for a program tells (pins, memory of its
own, fixed offsets) and believes the rest by itself; a program without ops is placed by its problem.
All are measured against one bound, that of the exact belief (`allocsim.allocators.lower_bounds`),
or the judge's own where a sound plan goes below that one; and judged by `allocsim.judge`, beliefs
included. A plan of the document that names its own problem is measured against that one. A peak
below what the judge counts as live at once is never sound, whatever else it finds: bytes that lie
in no arena are in no peak.

* `seconds`: processor time of the planner alone, belief and placement, after one call on a tiny
  problem that pays for imports and compilation. A plan that came with the document has none.
* `fragmentation`: of the bytes below the highest live one, the share that nothing live lies in,
  averaged over the steps (0 is perfect).

What this module does not see: how the rows are printed or drawn.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from allocsim.allocators import ALLOCATORS, Constraints, Planner, exact, find, plan_program
from allocsim.allocators.branch_and_bound import proof
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.diagnostics import check
from allocsim.errors import PlannerError
from allocsim.model import HOST_READ, HOST_WRITE, OWN, Document, Plan, Problem, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.builder import ProgramBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerRow:
    """One planner on one program."""

    program: str
    planner: str
    bound_bytes: int
    """Bytes below which no sound plan goes."""
    peak_bytes: int | None = None
    """None where there is no plan."""
    seconds: float | None = None
    """Processor time; None for a plan that came with the document."""
    fragmentation: float | None = None
    sound: bool | None = None
    """Whether the judge finds nothing and the peak is not below the bound.

    The answer is None where there is no plan.
    """
    proved: bool = False
    """Whether the planner proved its peak to be the least."""
    finding: str = ""
    """The first violation, or why there is no plan."""

    @property
    def ratio(self) -> float | None:
        """Peak over bound, 1.0 where both are nothing; None where there is no plan."""
        if self.peak_bytes is None:
            return None
        return self.peak_bytes / self.bound_bytes if self.bound_bytes else 1.0 if not self.peak_bytes else float("inf")

    @property
    def good(self) -> bool:
        """Whether there is a plan and it is sound."""
        return bool(self.sound)


def compare(document: Document, allocators: Iterable[str] = tuple(ALLOCATORS)) -> list[PlannerRow]:
    """Return a row for each program and planner, the document's own plans of it first.

    Raises UnknownNameError for a name unknown.
    """
    planners = [find(name) for name in allocators]
    for planner in planners:
        _warm(planner)
    rows: list[PlannerRow] = []
    for program in document.programs:
        told = next((problem for problem in document.problems if problem.program is program), None)
        problem = _belief(program, told)
        measure = _measure(problem)
        own = [plan for plan in document.plans if plan.program is program]
        mine = [_brought(measure, plan, told) for plan in own]
        mine += (_measured(measure, planner, told) for planner in planners)
        rows += _as_shown(mine, measure)
    return rows


def _as_shown(rows: list[PlannerRow], measure: "_Measure") -> list[PlannerRow]:
    """Return rows of one program, with what a sound plan refutes taken back: a bound that it goes
    below, a proof that less will not do.
    """
    least = min((row.peak_bytes for row in rows if row.good and row.peak_bytes is not None), default=measure.bound)
    bound = measure.bound if least >= measure.bound else measure.least
    return [
        replace(
            row,
            proved=row.proved and row.peak_bytes == least,
            bound_bytes=bound if row.bound_bytes == measure.bound else row.bound_bytes,
        )
        for row in rows
    ]


def fragmentation(problem: Problem, plan: Plan) -> float:
    """Return the share of bytes below the highest live one that nothing live lies in, averaged over
    steps and weighed by their bytes.

    O(n log n). Buffers that share bytes in place count once for the step they share.
    """
    idle = whole = 0.0
    for arena in range(len(problem.program.arenas)):
        rows = np.flatnonzero((plan.arena == arena) & (plan.nbytes > 0) & (problem.stop > problem.start))
        end = int(problem.stop[rows].max(initial=0))
        stop = np.where(problem.pinned[rows], end, problem.stop[rows])
        used, reached = _swept(
            problem.start[rows], stop, plan.offset[rows] + (plan.nbytes[rows] - 1), plan.nbytes[rows]
        )
        idle += max(reached - used, 0.0)
        whole += reached
    return idle / whole if whole else 0.0


def _swept(start: Int64s, stop: Int64s, last: Int64s, nbytes: Int64s) -> tuple[float, float]:
    """Return (bytes x steps that live, bytes x steps up to the highest live byte).

    `last` are the last bytes: ends may be 2^63.
    """
    order = np.argsort(start, kind="stable")
    marks = np.unique(np.concatenate([start, stop])).tolist()
    alive: list[tuple[int, int]] = []
    following, reached = 0, 0.0
    for mark, after in pairwise(marks):
        while following < len(order) and start[order[following]] <= mark:
            heappush(alive, (-int(last[order[following]]) - 1, int(stop[order[following]])))
            following += 1
        while alive and alive[0][1] <= mark:
            heappop(alive)
        reached += -float(alive[0][0]) * (after - mark) if alive else 0.0
    used = float(((stop - start).astype(np.float64) * nbytes).sum())
    return used, reached


def _belief(program: Program, told: Problem | None) -> Problem:
    """Return the problem that all planners are measured by."""
    if told is not None and not len(program.ops):
        return told
    return exact.believe(program, Constraints.of(program) if told is None else Constraints.from_problem(told))


def _measured(measure: "_Measure", planner: Planner, told: Problem | None) -> PlannerRow:
    program = measure.problem.program
    began = time.process_time()
    try:
        plan = plan_program(planner, program, believed=told)
    except PlannerError as error:
        seconds = time.process_time() - began
        return PlannerRow(
            program=program.name, planner=planner.name, bound_bytes=measure.bound, seconds=seconds, finding=str(error)
        )
    return _row(measure, planner.name, plan, time.process_time() - began)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """What plans of one problem are measured by."""

    problem: Problem
    bound: int
    least: int
    """The judge's own bound, if every buffer that was not told otherwise has a slot."""


def _measure(problem: Problem) -> _Measure:
    return _Measure(problem=problem, bound=lower_bound(problem), least=_live_at_once(problem))


def _brought(measure: _Measure, plan: Plan, told: Problem | None) -> PlannerRow:
    """Measure a plan that came with the document, by the problem it was made from where it names
    one.
    """
    if plan.problem is not None and plan.problem is not told:
        measure = _measure(_belief(plan.program, plan.problem))
    return _row(measure, plan.source or "file", plan, None)


def _row(measure: _Measure, name: str, plan: Plan, seconds: float | None) -> PlannerRow:
    report = check(Document.of(plan), limit=1)
    return PlannerRow(
        program=plan.program.name,
        planner=name,
        bound_bytes=measure.bound,
        peak_bytes=plan.peak_bytes,
        seconds=seconds,
        fragmentation=fragmentation(measure.problem, plan),
        sound=report.clean and plan.peak_bytes >= measure.least,
        proved=seconds is not None and bool(proof(plan).get("proved")),  # what a file says of its plan proves nothing
        finding=report.violations[0].message if report.violations else _lacking(measure, plan),
    )


def _live_at_once(problem: Problem) -> int:
    """Return the judge's own bound, if every buffer that was not told otherwise has a slot."""
    buffers = problem.program.buffers
    arena = np.where(problem.own, OWN, buffers.arena).astype(np.int32)
    slots = Plan(program=problem.program, problem=problem, arena=arena, offset=_apart(problem), nbytes=buffers.nbytes)
    return check(Document.of(slots), limit=0).stats.lower_bound_bytes


def _apart(problem: Problem) -> Int64s:
    """Return offsets at which no two buffers share a byte.

    All 0 where they would be beyond 2^62.
    """
    ends = np.cumsum(np.maximum(problem.nbytes, problem.program.buffers.nbytes).astype(np.float64))
    if len(ends) and ends[-1] >= LIMIT:
        return np.zeros(len(ends), dtype=np.int64)
    sizes = np.maximum(problem.nbytes, problem.program.buffers.nbytes)
    offsets: Int64s = np.cumsum(sizes) - sizes
    return offsets


def _lacking(measure: _Measure, plan: Plan) -> str:
    """Say of a plan with fewer bytes than live at once, in which the judge finds nothing, where the
    others are.
    """
    problem, lack = measure.problem, measure.least - plan.peak_bytes
    if lack <= 0:
        return ""
    lacking = f"{lack} bytes below the bound"
    rows = np.flatnonzero((plan.arena < 0) & ~problem.own & (problem.nbytes > 0) & (problem.start < problem.stop))
    if not len(rows):
        return f"{lacking}: no plan that keeps every buffer takes so few"
    first, nbytes = int(rows[0]), int(problem.nbytes[rows].sum())
    name = problem.program.buffers.names[first]
    return f"{lacking}: {len(rows)} buffers of {nbytes} bytes lie in no arena, untold, buffer {first} {name!r} first"


def _warm(planner: Planner) -> None:
    """Let a planner of the table import and compile what it needs."""
    if planner.name not in ALLOCATORS:
        return
    from allocsim.allocators import placement_kernels, search_kernel  # noqa: F401, PLC0415 - numba

    builder = ProgramBuilder("tiny")
    values = [builder.tensor(name, "f32", (64,)) for name in "ab"]
    builder.op(HOST_WRITE, (), values)
    builder.op(HOST_READ, values, ())
    planner.plan(builder.build())
