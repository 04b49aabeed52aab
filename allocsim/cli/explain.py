"""`allocsim explain FILE [BUFFER]`: why a buffer lives when it does, and what long lifetimes cost.

The belief is the problem that the plan was made from, else the file's problem for the program;
`--belief NAME` takes that planner's belief instead.

What this module does not see: how that is found out (`allocsim.liveness.explanation`,
`allocsim.liveness.waste`).
"""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from allocsim.allocators import Allocator, find
from allocsim.cli.output import in_bytes, print_json, print_line, print_table
from allocsim.errors import DocumentError, PlannerError
from allocsim.liveness.explanation import LISTED
from allocsim.liveness.explanation import explain as explain_buffer
from allocsim.liveness.waste import waste
from allocsim.model import Document, Problem, Program
from allocsim.systems import load


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document, with or without a plan.")],
    buffer: Annotated[
        str | None,
        typer.Argument(metavar="[BUFFER]", help="Name or index of a buffer; without one, what lifetimes waste."),
    ] = None,
    *,
    program: Annotated[int, typer.Option(min=0, help="Which program of the document.")] = 0,
    plan: Annotated[int | None, typer.Option(min=0, help="Which plan; default the first for that program.")] = None,
    allocator: Annotated[str, typer.Option(help="Who plans anew, to measure waste.")] = "greedy_by_size",
    belief: Annotated[
        str | None, typer.Option(help="Measure what this planner believes, not what the file says.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A buffer's name goes before its index where both would do.

    Example: allocsim explain plan.json logits
    """
    document = load(file)
    chosen = _at(document, file, "programs", program)
    if plan is not None:
        made = _at(document, file, "plans", plan)
    else:
        made = next((one for one in document.plans if one.program is chosen), None)
    told = next((one for one in document.problems if one.program is chosen), None)
    problem = made.problem if made is not None and made.problem is not None else told
    if belief is not None:
        problem = _believed(chosen, belief)
    if buffer is None:
        return _waste(file, problem, allocator, as_json=as_json)
    found = explain_buffer(chosen, buffer, made, problem)
    if as_json:
        print_json(asdict(found))
    else:
        for line in found.text.splitlines():
            print_line(line)
    return 0


def _believed(program: Program, name: str) -> Problem:
    planner = find(name)
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {name!r} has no belief of its own to measure")
    return planner.believe(program)


def _waste(file: str, problem: Problem | None, allocator: str, *, as_json: bool) -> int:
    if problem is None:
        raise DocumentError(
            file,
            "problems",
            "the file has no problem for this program, so there are no believed lifetimes to measure; name a "
            "buffer, or a planner with --belief",
        )
    if not len(problem.program.ops):
        raise DocumentError(file, "programs", "the program has no ops, so the liveness of its buffers is not known")
    found = waste(problem, find(allocator))
    if as_json:
        print_json(asdict(found) | {"buffers": [asdict(row) | {"wasted": row.wasted} for row in found.buffers]})
        return 0
    count = len(found.buffers)
    print_line(
        f"{count} buffer{'s are' if count != 1 else ' is'} believed to live too long: {found.wasted} bytes "
        "times steps wasted"
    )
    print_line(
        f"most bytes alive at a step: {in_bytes(found.live_believed)} as believed, {in_bytes(found.live)} with "
        "these cut"
    )
    print_line(
        f"{allocator} needs {in_bytes(found.peak_believed or 0)} as believed, {in_bytes(found.peak or 0)} with "
        "these cut"
    )
    if found.short:
        print_line(
            f"{found.short} buffer{'s are' if found.short != 1 else ' is'} believed to live too short, so more may be "
            "needed (`allocsim check` says which)"
        )
    rows = [
        (row.name, in_bytes(row.nbytes), "[{}, {})".format(*row.believed), "[{}, {})".format(*row.derived), row.wasted)
        for row in found.buffers[:LISTED]
    ]
    print_table(("buffer", "size", "believed", "is", "wasted"), rows, right=("size", "wasted"))
    if count > LISTED:
        print_line(f"and {count - LISTED} more")
    return 0


def _at(document: Document, file: str, table: str, index: int) -> Any:
    rows = getattr(document, table)
    if index >= len(rows):
        raise DocumentError(file, table, f"there is no {table[:-1]} {index}; there are {len(rows)}")
    return rows[index]
