"""Mend the parts of a document other than slots: the waits of a program, the uploads by the host
before a run, and the beliefs of a planner. References between the parts stay correct.

This module does not examine the slots (`allocsim.cure.drafting`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from allocsim.cure.changes import Change, Charges
from allocsim.judge.violations import Violation
from allocsim.liveness import lifetimes
from allocsim.model import Document, Plan, Problem
from allocsim.programs.streams import with_waits


def with_more_waits(document: Document, waits: Iterable[Change]) -> Document:
    """Return the document with these waits added. O(ops)."""
    rows: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for wait in waits:
        rows[wait.program or 0].append((wait.op or 0, wait.after or 0))
    if not rows:
        return document
    programs = [with_waits(program, rows[n]) if n in rows else program for n, program in enumerate(document.programs)]
    return document.with_parts(programs=programs)


def with_uploads(document: Document, uploads: Iterable[Change]) -> Document:
    """Return the document changed so that no run leaves out one of these uploads."""
    done = {(upload.program, upload.op) for upload in uploads}
    if not done or document.session is None:
        return document
    place = {id(program): index for index, program in enumerate(document.programs)}
    session = tuple(
        replace(run, skip=tuple(step for step in run.skip if (place[id(run.program)], step) not in done))
        for run in document.session
    )
    return replace(document, session=session)


def with_beliefs(document: Document, asked: Charges) -> tuple[Document, list[Change]]:
    """Return the document with the beliefs of `asked` mended, and the list of changes made."""
    made: list[Change] = []
    mended: dict[int, _Beliefs] = {}
    for change, violations in asked.items():
        if change.buffer is None:
            continue
        if change.problem is not None:
            if change.problem not in mended:
                mended[change.problem] = _Beliefs(document.problems[change.problem])
            made += mended[change.problem].mend(change, change.buffer, violations)
        elif change.kind == "pair":
            made.append(change)
        elif change.kind in {"lifetime", "pin"} and change.plan is not None:
            start, stop = lifetimes(document.plans[change.plan].program)[change.buffer].tolist()
            made.append(replace(change, kind="lifetime", start=start, stop=stop))
    if not mended:
        return document, made
    problems = [mended[n].mended() if n in mended else problem for n, problem in enumerate(document.problems)]
    plans = [
        plan if plan.problem is None else with_book(plan, problems[index_of_part(document.problems, plan.problem)])
        for plan in document.plans
    ]
    return document.with_parts(problems=problems, plans=plans), made


def with_book(plan: Plan, problem: Problem) -> Plan:
    """Return the plan with its events adapted to the new lives of buffers with a changed belief."""
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


class _Beliefs:
    """The beliefs of a problem while changes are applied to them one by one."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.span = problem, lifetimes(problem.program)
        self.start, self.stop, self.nbytes = (c.copy() for c in (problem.start, problem.stop, problem.nbytes))
        self.pinned = problem.pinned.copy()
        self.gaps, self.apart = dict(problem.gaps), set[tuple[int, int]]()

    def mend(self, change: Change, buffer: int, violations: Sequence[Violation]) -> list[Change]:
        """Make one change of a belief, and return all changes that this required."""
        made: list[Change] = []
        pairs = {
            (v.buffer, v.other_buffer)
            for v in violations
            if v.kind == "BadShare"
            and v.problem == change.problem
            and v.buffer is not None
            and v.other_buffer is not None
        }
        if change.kind in {"lifetime", "pin"}:
            made.append(self._alive(change, buffer))
        elif change.kind == "pair":
            assert change.other is not None
            pairs.add((buffer, change.other))
        elif change.kind == "size":
            self.nbytes[buffer] = self.problem.program.buffers.nbytes[buffer]
            made.append(replace(change, kind="place", nbytes=int(self.nbytes[buffer])))
        self.apart |= pairs
        return made + [Change(kind="pair", problem=change.problem, buffer=d, other=r) for d, r in sorted(pairs)]

    def _alive(self, change: Change, buffer: int) -> Change:
        """Extend a believed lifetime to all accesses, and pin the buffer if `change` is a `pin`.
        Return the change with its new values.
        """
        start, stop, (first, past) = self.start, self.stop, self.span[buffer]
        begins, ends = bool(start[buffer] > first), bool(stop[buffer] < past)
        start[buffer], stop[buffer] = min(start[buffer], first), max(stop[buffer], past)
        self.gaps.pop(buffer, None)
        if change.kind == "pin":
            self.pinned[buffer] = True
            return change
        low, high = int(start[buffer]), int(stop[buffer])
        return replace(change, start=low, stop=high, begins=begins, ends=ends or not begins)

    def mended(self) -> Problem:
        """Return the problem with the mended beliefs."""
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


def edges_of(document: Document, violations: Iterable[Violation]) -> dict[int, set[tuple[int, int]]]:
    """Return for each plan the buffer pairs that violations name, with the lower index first."""
    runs = document.runs
    found: dict[int, set[tuple[int, int]]] = defaultdict(set)
    for v in violations:
        if v.plan is None or v.buffer is None or v.other_buffer is None or v.other_buffer == v.buffer:
            continue
        if v.run is not None and v.other_run is not None and runs[v.other_run].program is not runs[v.run].program:
            continue
        found[v.plan].add((min(v.buffer, v.other_buffer), max(v.buffer, v.other_buffer)))
    return found


def plans_of(document: Document, change: Change) -> tuple[int, ...]:
    """Return the indices of the plans that a change concerns."""
    if change.plan is not None:
        return (change.plan,)
    if change.problem is not None:
        problem = document.problems[change.problem]
        return tuple(index for index, plan in enumerate(document.plans) if plan.problem is problem)
    program = document.programs[change.program or 0]
    return tuple(index for index, plan in enumerate(document.plans) if plan.program is program)


def index_of_part(parts: Sequence[Any], part: object) -> int:
    """Return the index of the object `part` in `parts`, compared by identity."""
    return next(index for index, one in enumerate(parts) if one is part)
