"""Four questions that need no engine, each answered by the judge: build a document, hand it to `allocsim.checks.check`.

| there is | call |
|---|---|
| a problem and a plan for it (a minimalloc CSV) | `verify(problem, plan)` |
| a program and a plan (a captured graph, a user's op list, a networkx DiGraph) | `verify_program(program, plan)` |
| a program and what an analysis believes of it | `verify_lifetimes(program, problem)` |
| several runs over the same memory | `verify_session([...])` |

A plan may be a `Plan` or, as a stranger has it, offsets by buffer (`allocsim.plan_of`). Wherever a program is asked for, a
networkx DiGraph with the documented attributes will do. Nothing is raised for a bad plan: the `Report` lists what is wrong
with it. ModelError means that the question contradicts itself (a plan for another number of buffers).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allocsim.builder import plan_of
from allocsim.checks import check
from allocsim.checks.violations import Report
from allocsim.errors import ModelError
from allocsim.interchange import as_program
from allocsim.model import Document, Plan, Problem, Program, Run

Slots = Plan | Mapping[int, int] | Sequence[int | str | None]
"""A plan, or an offset for each buffer ("own" and None as in a document)."""


def verify(problem: Problem, plan: Slots) -> Report:
    """Judge a plan together with the belief it was made from.

    A program without ops is judged by the problem alone: believed lifetimes, sizes, gaps and pairs stand in for derived ones.
    """
    return check(Document.of(replace(_plan(problem.program, plan), problem=problem)))


def verify_program(program: Program | Any, plan: Slots) -> Report:
    """Judge a plan by what the program really reads and writes; `program` may be a networkx DiGraph.

    The belief a plan carries (`plan.problem`) is judged beside it.
    """
    return check(Document.of(_plan(as_program(program), plan)))


def verify_lifetimes(program: Program | Any, problem: Problem | Mapping[str, Any]) -> Report:
    """Judge a liveness analysis by what the program really reads and writes; `program` may be a networkx DiGraph.

    `problem` is a `Problem`, or its columns by name as `Problem.of` takes them (`start`, `stop`, ...).
    """
    judged = as_program(program)
    belief = problem if isinstance(problem, Problem) else Problem.of(judged, **problem)
    return check(Document.of(_of(judged, belief)))


def verify_session(runs: Iterable[Run | Plan]) -> Report:
    """Judge several runs over the same memory, in order; a bare plan is one run of its own program."""
    return check(Document.of(*(run if isinstance(run, Run) else Run.of(run) for run in runs)))


def plan_for(program: Program | Any, plan: Slots) -> Plan:
    """Return a plan of `program` from a plan or offsets; ModelError where they were made for another number of buffers."""
    return _plan(as_program(program), plan)


def _plan(program: Program, plan: Slots) -> Plan:
    if not isinstance(plan, Plan):
        return plan_of(program, plan)
    if plan.program is program:
        return plan
    made: Plan = _of(program, plan, problem=None if plan.problem is None else _of(program, plan.problem))
    return made


def _of(program: Program, part: Any, **columns: Any) -> Any:
    """Return a plan or problem as one of `program`; raise ModelError if it was made for another number of buffers."""
    if part.program is program:
        return part
    if len(part.program.buffers) != len(program.buffers):
        rule = f"was made for a program with {len(part.program.buffers)} buffers; this one has {len(program.buffers)}"
        raise ModelError(type(part).__name__.lower(), rule)
    return replace(part, program=program, **columns)
