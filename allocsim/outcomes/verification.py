"""Functions that judge a plan without the engine: each builds a document and checks it.

    assert allocsim.verify(program, plan).clean          # one line of a test; `assert_clean` says more if it fails

| there is | call |
|---|---|
| anything below, a document, or a plan | `verify(what)` or `verify(what, plan)` |
| a problem and a plan for it (a minimalloc CSV) | `verify(problem, plan)` |
| a program and a plan (a captured graph, a user's op list, a networkx DiGraph) | `verify_program(program, plan)` |
| a program and what an analysis believes of it | `verify_lifetimes(program, problem)` |
| several runs over the same memory | `verify_session([...])` |

A plan may be a `Plan` or offsets by buffer (`allocsim.plan_of`). A program may be a networkx
DiGraph with the documented attributes. A bad plan raises nothing: the `Report` lists its
violations. ModelError means that the arguments contradict each other (a plan for another number of
buffers), or are none of the above.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from allocsim.diagnostics import check
from allocsim.errors import ModelError
from allocsim.judge.violations import Report
from allocsim.model import Document, Plan, Problem, Program, Run
from allocsim.programs.networkx_graph import as_program
from allocsim.programs.placed_plans import Slots, part_of, placed


def verify(what: Document | Plan | Problem | Sequence[Run | Plan] | Any, plan: Slots | None = None) -> Report:
    """Judge `what` alone, or `what` with a plan.

    Args:
        what: a program (or networkx DiGraph) or a problem, to be judged with `plan`; by itself a
            document, a plan, a problem, or runs over the same memory.
        plan: a plan, or an offset for each buffer.

    A plan is judged together with the problem it was made from. A program without ops is judged by
    the problem alone: its believed lifetimes, sizes, gaps and pairs are used instead of derived
    ones. Raises ModelError if `what` and `plan` do not fit together.
    """
    return check(document_of(what, plan))


def document_of(what: Any, plan: Any = None) -> Document:
    """Return the document that `verify` judges for the same arguments.

    Raise ModelError if `what` and `plan` do not fit together.
    """
    if plan is not None:
        if isinstance(what, Problem):
            return Document.of(replace(placed(what.program, plan), problem=what))
        return Document.of(placed(what, plan))
    if isinstance(what, Document):
        return what
    if isinstance(what, Plan | Problem):
        return Document.of(what)
    if isinstance(what, list | tuple) and what and all(isinstance(run, Run | Plan) for run in what):
        return Document.of(*(run if isinstance(run, Run) else Run.of(run) for run in what))
    raise ModelError(
        "", f"a {type(what).__name__} alone cannot be judged; give a document, a plan, runs, or a program with a plan"
    )


def verify_program(program: Program | Any, plan: Slots) -> Report:
    """Judge a plan by the reads and writes of the program.

    `program` may be a networkx DiGraph.

    The problem of the plan (`plan.problem`), if it has one, is judged, too.
    """
    return check(document_of(program, plan))


def verify_lifetimes(program: Program | Any, problem: Problem | Mapping[str, Any]) -> Report:
    """Judge the lifetimes of a liveness analysis by the reads and writes of the program.

    `program` may be a networkx DiGraph.

    `problem` is a `Problem`, or its columns by name as `Problem.of` takes them (`start`, `stop`,
    ...).
    """
    judged = as_program(program)
    belief = problem if isinstance(problem, Problem) else Problem.of(judged, **problem)
    return check(Document.of(part_of(judged, belief)))


def verify_session(runs: Iterable[Run | Plan]) -> Report:
    """Judge several runs over the same memory, in order.

    A `Plan` in `runs` stands for one run of its own program.
    """
    return check(document_of(list(runs)))
