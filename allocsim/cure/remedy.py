"""The smallest cure of a document, without an engine: suspects from what the judge found, trials by placing and judging again.

    found = remedy(document, "ggml")          # the placement that made the plan, by name
    found = remedy(document)                  # or none: the plan stays as it is but for what the cure moves

Suspects are those the records name: a late read asks for a longer life (or, across runs, a pin), an undeclared or impermissible pair
for its being denied, a race for a wait; `allocsim.cure` makes the set 1-minimal. An edited plan is right if the judge finds nothing wrong
with it; beliefs are edited only as far as the plan needs it, and do not count.

Without a placement (`AMENDED`) every buffer keeps its slot except those that the cure is about: they get the lowest bytes that nobody
else needs while they live, found by the lifetimes the accesses demand. That is a cure for any plan, whoever made it, at a price a
planner might beat.

What this module does not see: kernels (`repro.bisection`), and defects that no change of belief or order can mend: sizes, arenas, stale plans, and
what is wrong with the program itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from allocsim import cure
from allocsim.allocators import find
from allocsim.allocators.planner import Allocator
from allocsim.checks import check
from allocsim.checks.violations import Violation
from allocsim.errors import AllocsimError, PlannerError
from allocsim.liveness import lifetimes
from allocsim.model import OWN, Document, Plan, Problem, Program
from allocsim.model.layout import Int64s
from allocsim.reduction.parts import rebuilt
from allocsim.verdict.attribution import causes, leading
from allocsim.verdict.case import BELIEF_KINDS

AMENDED: Final = "amended"
"""Name of the placement that leaves the plan as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A cure of one plan of a document, and what it costs."""

    plan: int
    """Index of the plan cured."""
    placement: str
    cure: cure.Cure
    """Without elements where planning anew is enough."""
    nbytes: int
    """Growth of the peak, in bytes; negative where it shrank."""
    pinned: Plan | None
    """The plan that pins everything, where that can be made,"""
    pin_all_bytes: int | None
    """and how much the peak grows by it."""
    document: Document
    """The document with the cured plan."""

    @property
    def elements(self) -> tuple[str, ...]:
        """The changes in words."""
        program = self.cure.plan.program
        return tuple(element.describe(program) for element in self.cure.elements) or (f"plan it anew with {self.placement!r}",)


def remedy(document: Document, placement: str | None = None) -> Remedy | None:
    """Return a 1-minimal cure for the plan of the first fault, None where there is none.

    Args:
        document: a document in which something is wrong.
        placement: an allocator by name; None for the plan's own maker if it is one of ours and gives this plan, else `AMENDED`.

    Raises:
        UnknownNameError: no such allocator.
        PlannerError: it has only a placement, and the plan carries no belief that it could place.
    """
    index = _plan_at_fault(document)
    if index is None:
        return None
    plan = document.plans[index]
    name, place, problem = _start(plan, placement)
    base = index, document
    trial = _placed(place, problem)
    if trial is not None and _right(*base, trial):
        anew = cure.Cure(elements=(), problem=problem, plan=trial, minimal=True, trials=1)
        return _remedy(base, name, anew, place)

    def right(candidate: Plan) -> bool:
        return _right(*base, candidate)

    suspects, others = suspects_of(document, index)
    try:
        found = cure.find(problem, place, suspects=suspects, others=others, right=right)
    except PlannerError:  # does not fit any more
        return None
    return None if found is None else _remedy(base, name, found, place)


def suspects_of(document: Document, plan: int) -> tuple[list[cure.Element], list[cure.Element]]:
    """Return the changes that the records about one plan suggest, and others that could matter, each in order of the records.

    As the checks, plus O(records).
    """
    made = document.plans[plan]
    program = made.program
    span = _spans(program)
    found: dict[cure.Element, None] = {}
    for violation in check(document).violations:
        if violation.plan in (plan, None) and (violation.program is None or document.programs[violation.program] is program):
            found.update(dict.fromkeys(_suspected(program, span, violation)))
    used = (element for donor, recipient in cure.used_pairs(made) for element in cure.pair_class(program, donor, recipient))
    pins = (cure.Pin(element.buffer) for element in found if isinstance(element, cure.Extend | cure.Begin))
    others: dict[cure.Element, None] = dict.fromkeys((*used, *pins))
    return list(found), [element for element in others if element not in found]


def amended(plan: Plan, problem: Problem) -> cure.Placement:
    """Return the placement that keeps `plan` but for the buffers that an edited problem is about. O(edited * buffers) a call."""
    span = _spans(plan.program)
    used = cure.used_pairs(plan if plan.problem is not None else replace(plan, problem=problem))

    def place(edited: Problem) -> Plan:
        moved = (edited.pinned & ~problem.pinned) | (edited.stop != problem.stop) | (edited.start != problem.start)
        kept = {(int(d), int(r)) for d, r in edited.may_share}
        for donor, recipient in used:
            moved[recipient] |= (donor, recipient) not in kept
        offset, live = plan.offset.copy(), span.copy()
        live[edited.pinned & ~problem.pinned] = 0, len(plan.program.ops)
        settled = plan.placed & ~moved
        for buffer in np.flatnonzero(moved & plan.placed).tolist():
            offset[buffer] = _lowest(plan, offset, live, settled, buffer)
            settled[buffer] = True
        return replace(plan, program=edited.program, problem=None, offset=offset)

    return place


def _lowest(plan: Plan, offset: Int64s, live: Int64s, settled: Int64s, buffer: int) -> int:
    """Return the lowest aligned offset whose bytes nobody needs while the buffer lives."""
    start, stop = live[buffer]
    beside = settled & (plan.arena == plan.arena[buffer]) & (live[:, 0] < stop) & (start < live[:, 1])
    rows = sorted((int(offset[other]), int(offset[other]) + int(plan.nbytes[other])) for other in np.flatnonzero(beside))
    step, size, at = int(plan.program.buffers.alignment[buffer]), int(plan.nbytes[buffer]), 0
    for low, high in rows:
        if at + size <= low:
            break
        at = max(at, -(-high // step) * step)
    return at


def _suspected(program: Program, span: Int64s, v: Violation) -> Iterator[cure.Element]:
    if v.kind == "StaleRead" and v.buffer is not None and v.op is not None:
        earlier = v.want_run is not None and v.run is not None and v.want_run < v.run
        yield cure.Pin(v.buffer) if earlier else cure.Extend(v.buffer, v.op + 1)
    elif v.kind in {"LifetimeTooShort", "MissingPin", "Overlap"}:
        for buffer in (v.buffer, v.other_buffer):
            if buffer is not None and span[buffer, 0] < span[buffer, 1]:
                yield cure.Extend(buffer, int(span[buffer, 1]))
                yield cure.Begin(buffer, int(span[buffer, 0]))
    elif v.kind in {"UnsafeInPlace", "BadShare"} and v.buffer is not None and v.other_buffer is not None:
        yield from cure.pair_class(program, v.buffer, v.other_buffer)
        yield from cure.pair_class(program, v.other_buffer, v.buffer)
    elif v.kind == "Race" and v.op is not None and v.other_op is not None and v.op != v.other_op and v.run == v.other_run:
        yield cure.Wait(max(v.op, v.other_op), min(v.op, v.other_op))


def _plan_at_fault(document: Document) -> int | None:
    """Return the plan of the first fault that lies in a plan: one made for the program that runs."""
    first = leading(document)
    _, found = causes(document)
    for violation in (*([first.violation] if first is not None else ()), *(cause.violation for cause in found)):
        if violation.plan is None or violation.program is None or violation.kind in BELIEF_KINDS:
            continue
        if document.plans[violation.plan].program is document.programs[violation.program]:
            found_in: int = violation.plan
            return found_in
    return None


def _start(plan: Plan, name: str | None) -> tuple[str, cure.Placement, Problem]:
    """Return the placement to cure with, by name and as a function, and the belief that cures edit."""
    if name == AMENDED or (name is None and not _made_by(plan, plan.source)):
        problem = _blank(plan)
        return AMENDED, amended(plan, problem), problem
    planner = find(plan.source if name is None else name)
    if plan.problem is not None:
        return planner.name, planner.place, plan.problem
    if isinstance(planner, Allocator):
        return planner.name, planner.place, planner.believe(plan.program)
    raise PlannerError(f"the plan says nothing of what was believed, and {planner.name!r} has no belief of its own to cure")


def _made_by(plan: Plan, name: str) -> bool:
    """Return whether the planner of that name makes this very plan of its belief."""
    if plan.problem is None or not name:
        return False
    try:
        again = find(name).place(plan.problem)
    except AllocsimError:
        return False
    return np.array_equal(again.offset, plan.offset) and np.array_equal(again.arena, plan.arena)


def _blank(plan: Plan) -> Problem:
    """Return a belief that knows of no lifetime, so that every edit of one shows."""
    born = _spans(plan.program)[:, 0]
    known = plan.problem.may_share if plan.problem is not None else ()
    return Problem.of(plan.program, start=born, stop=born, own=plan.arena == OWN, may_share=known)


def _placed(place: cure.Placement, problem: Problem) -> Plan | None:
    try:
        return place(problem)
    except PlannerError:
        return None


def _with_plan(index: int, document: Document, plan: Plan) -> Document:
    """Return the document with another plan in place of one, and the program and belief it comes with."""
    old = document.plans[index]
    programs = [plan.program if program is old.program else program for program in document.programs]
    plans = [plan if one is old else one for one in document.plans]
    problems = [plan.problem if one is old.problem else one for one in document.problems]
    if old.problem is None:
        plans = [replace(one, problem=None) if one is plan else one for one in plans]
    return rebuilt(document, programs=programs, plans=plans, problems=problems)


def _right(index: int, document: Document, plan: Plan) -> bool:
    report = check(_with_plan(index, document, plan))
    return report.count <= len(report.violations) and not any(
        v.kind not in BELIEF_KINDS and v.plan in (index, None) for v in report.violations
    )


def _remedy(base: tuple[int, Document], name: str, found: cure.Cure, place: cure.Placement) -> Remedy:
    index, document = base
    before = document.plans[index].peak_bytes
    everything = cure.apply(found.problem, map(cure.Pin, np.flatnonzero(~found.problem.own).tolist()))
    pinned = _placed(place, everything)
    return Remedy(
        plan=index,
        placement=name,
        cure=found,
        nbytes=found.plan.peak_bytes - before,
        pinned=pinned,
        pin_all_bytes=None if pinned is None else pinned.peak_bytes - before,
        document=_with_plan(index, document, found.plan),
    )


def _spans(program: Program) -> Int64s:
    """Return the derived lifetimes, int64 (buffers, 2)."""
    return lifetimes(program)
