"""The parts of a document mended, but for its slots: waits of programs, uploads of runs, and
beliefs, every reference between them kept right.

What this module does not see: where buffers lie (`allocsim.cure.drafting`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from allocsim.cure.cured import Demand
from allocsim.cure.elements import Element, Lifetime, Pair, Pin, Place, Wait
from allocsim.cure.mends import Mend
from allocsim.liveness import lifetimes
from allocsim.model import Document, Plan, Problem, Program
from allocsim.programs.streams import with_waits


def with_more_waits(document: Document, waits: Sequence[Wait]) -> Document:
    """Return the document with these waits. O(ops)."""
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for wait in waits:
        rows[wait.program].append((wait.op, wait.after))
    if not rows:
        return document
    programs = [with_waits(program, rows[n]) if n in rows else program for n, program in enumerate(document.programs)]
    return with_parts(document, programs=programs)


def with_uploads(document: Document, mends: Sequence[Mend]) -> Document:
    """Return the document whose runs leave out none of these uploads."""
    done = {(mend.program, mend.op) for mend in mends}
    if not done or document.session is None:
        return document
    place = {id(program): index for index, program in enumerate(document.programs)}
    session = tuple(
        replace(run, skip=tuple(step for step in run.skip if (place[id(run.program)], step) not in done))
        for run in document.session
    )
    return replace(document, session=session)


def with_beliefs(document: Document, demands: Sequence[Demand]) -> tuple[Document, list[Element]]:
    """Return the document with its beliefs mended, and the elements."""
    elements: list[Element] = []
    mended: dict[int, _Beliefs] = {}
    for demand in demands:
        mend = demand.mend
        if mend.kind in {"lifetime", "pair", "pin"} and mend.problem is None and mend.buffer is not None:
            elements.append(_unstated(document, mend))
        if mend.problem is None or mend.buffer is None:
            continue
        if mend.problem not in mended:
            mended[mend.problem] = _Beliefs(document.problems[mend.problem])
        elements += mended[mend.problem].mend(demand)
    if not mended:
        return document, elements
    problems = [mended[n].mended() if n in mended else problem for n, problem in enumerate(document.problems)]
    plans = [
        plan if plan.problem is None else with_book(plan, problems[index_of_part(document.problems, plan.problem)])
        for plan in document.plans
    ]
    return with_parts(document, problems=problems, plans=plans), elements


def with_book(plan: Plan, problem: Problem) -> Plan:
    """Return a plan whose book gives each buffer whose believed life grew its bytes for all of
    it.
    """
    old = plan.problem
    if old is None or not len(plan.events):
        return plan
    end = len(plan.program.ops)
    stop = np.where(problem.pinned, end, problem.stop)
    grown = (old.start != problem.start) | (old.stop != problem.stop) | (old.pinned != problem.pinned)
    step, action, buffer = plan.events.T
    mine, freed = grown[buffer], action == 1
    if not mine.any():
        return plan
    step = np.where(mine & freed, np.maximum(step, stop[buffer] - 1), step)
    step = np.where(mine & ~freed, np.minimum(step, problem.start[buffer]), step)
    rank = np.where(mine, np.where(freed, 1, -1), 0)
    events = np.stack([step, action, buffer], axis=1).astype(plan.events.dtype)
    return replace(plan, events=events[np.lexsort((np.arange(len(step)), rank, step))])


def _unstated(document: Document, mend: Mend) -> Element:
    """Return the element of a belief that a plan does not state."""
    assert mend.plan is not None
    assert mend.buffer is not None
    plan, buffer = document.plans[mend.plan], mend.buffer
    if mend.kind == "pair":
        assert mend.other is not None
        return Pair(problem=None, plan=mend.plan, donor=buffer, recipient=mend.other)
    start, stop = (int(step) for step in lifetimes(plan.program)[buffer])
    return Lifetime(problem=None, plan=mend.plan, buffer=buffer, start=start, stop=stop)


class _Beliefs:
    """The beliefs of a problem while mends are made, one after another."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.span = problem, lifetimes(problem.program)
        self.start, self.stop, self.nbytes = (c.copy() for c in (problem.start, problem.stop, problem.nbytes))
        self.pinned = problem.pinned.copy()
        self.gaps, self.apart = dict(problem.gaps), set[tuple[int, int]]()

    def mend(self, demand: Demand) -> list[Element]:
        """Make one mend, and return its elements."""
        mend, buffer = demand.mend, demand.mend.buffer
        assert buffer is not None
        elements: list[Element] = []
        pairs = {
            (v.buffer, v.other_buffer)
            for v in demand.violations
            if v.kind == "BadShare"
            and v.problem == mend.problem
            and v.buffer is not None
            and v.other_buffer is not None
        }
        if mend.kind in {"lifetime", "pin"}:
            elements.append(self._alive(mend, buffer))
        elif mend.kind == "pair":
            assert mend.other is not None
            pairs.add((buffer, mend.other))
        elif mend.kind == "size":
            self.nbytes[buffer] = self.problem.program.buffers.nbytes[buffer]
            elements.append(Place(problem=mend.problem, buffer=buffer, nbytes=int(self.nbytes[buffer])))
        self.apart |= pairs
        return elements + [Pair(problem=mend.problem, plan=None, donor=d, recipient=r) for d, r in sorted(pairs)]

    def _alive(self, mend: Mend, buffer: int) -> Element:
        """Let a buffer live for as long as it is in use, or keep it until the run's end."""
        start, stop, (first, past) = self.start, self.stop, self.span[buffer]
        begins, ends = bool(start[buffer] > first), bool(stop[buffer] < past)
        start[buffer], stop[buffer] = min(start[buffer], first), max(stop[buffer], past)
        self.gaps.pop(buffer, None)
        if mend.kind == "pin":
            self.pinned[buffer] = True
            return Pin(problem=mend.problem, plan=None, buffer=buffer)
        return Lifetime(
            problem=mend.problem,
            plan=None,
            buffer=buffer,
            start=int(start[buffer]),
            stop=int(stop[buffer]),
            begins=begins,
            ends=ends or not begins,
        )

    def mended(self) -> Problem:
        """Return the problem as it is now believed."""
        told = self.problem.may_share
        keep = np.array([(d, r) not in self.apart for d, r in told.tolist()], dtype=np.bool_)
        return replace(
            self.problem,
            start=self.start,
            stop=self.stop,
            pinned=self.pinned,
            nbytes=self.nbytes,
            gaps=self.gaps,
            may_share=told[keep] if len(keep) else told,
        )


def with_parts(
    document: Document,
    *,
    programs: Sequence[Program] | None = None,
    problems: Sequence[Problem] | None = None,
    plans: Sequence[Plan] | None = None,
) -> Document:
    """Return the document with parts replaced, every reference between them kept right."""
    new_programs = list(document.programs if programs is None else programs)
    program_of = {id(old): new for old, new in zip(document.programs, new_programs, strict=True)}
    new_problems = [
        replace(new, program=program_of[id(old.program)])
        for old, new in zip(document.problems, document.problems if problems is None else problems, strict=True)
    ]
    problem_of = {id(old): new for old, new in zip(document.problems, new_problems, strict=True)}
    new_plans = [
        replace(
            new,
            program=program_of[id(old.program)],
            problem=None if old.problem is None else problem_of[id(old.problem)],
        )
        for old, new in zip(document.plans, document.plans if plans is None else plans, strict=True)
    ]
    plan_of = {id(old): new for old, new in zip(document.plans, new_plans, strict=True)}
    session = document.session
    if session is not None:
        session = tuple(
            replace(run, plan=plan_of[id(run.plan)], program=program_of[id(run.program)]) for run in session
        )
    return replace(
        document, programs=tuple(new_programs), problems=tuple(new_problems), plans=tuple(new_plans), session=session
    )


def edges_of(document: Document, demand: Demand) -> dict[int, set[tuple[int, int]]]:
    """Return the pairs of buffers of each plan that the violations of a mend are about."""
    runs = document.runs
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for v in demand.violations:
        if v.plan is None or v.buffer is None or v.other_buffer is None or v.other_buffer == v.buffer:
            continue
        if v.run is not None and v.other_run is not None and runs[v.other_run].program is not runs[v.run].program:
            continue
        found[v.plan].add((min(v.buffer, v.other_buffer), max(v.buffer, v.other_buffer)))
    return found


def plans_of(document: Document, mend: Mend) -> tuple[int, ...]:
    """Return the plans that a mend is about."""
    if mend.plan is not None:
        return (mend.plan,)
    if mend.problem is not None:
        problem = document.problems[mend.problem]
        return tuple(index for index, plan in enumerate(document.plans) if plan.problem is problem)
    program = document.programs[mend.program or 0]
    return tuple(index for index, plan in enumerate(document.plans) if plan.program is program)


def index_of_part(parts: Sequence[Any], part: object) -> int:
    """Return the place of a part, by identity."""
    return next(index for index, one in enumerate(parts) if one is part)


__all__ = ["edges_of", "index_of_part", "plans_of", "with_beliefs", "with_more_waits", "with_parts", "with_uploads"]
