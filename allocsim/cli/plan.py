"""`allocsim plan FILE --allocator A`: make a plan for every program of a document.

What the document's first problem for a program pins, keeps apart and fixes is what the planner is
told; the rest it believes anew; a program without ops (a solver's instance) is placed by its
problem as it stands. Without a problem, what a `host.read` reads is pinned. `--pin` with a policy
replaces those pins, with values adds to them. A session of the document is kept, its runs now under
the new plans. What is written says in its `meta` which program and pins each plan was made for
(`allocsim.programs.fingerprints`).

What this module does not see: how plans are made (`allocsim.allocators`) and whether they are sound
(`allocsim check`).
"""

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import typer

from allocsim.allocators import PINS, Constraints, Planner, find, limited, lower_bounds, pin_values, plan_program
from allocsim.allocators.branch_and_bound import proof
from allocsim.cli.output import in_bytes, print_error, print_json, print_line
from allocsim.errors import CapacityError, DocumentError, UnknownNameError
from allocsim.files.sizes import bytes_of
from allocsim.liveness import lower_bound
from allocsim.model import Bools, Document, Plan, Problem, Program
from allocsim.programs.fingerprints import fingerprint_of, stamped
from allocsim.systems import load, save


def plan(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document with programs.")],
    *,
    allocator: Annotated[str, typer.Option(help='A name, or "package.module:function".')],
    out: Annotated[
        str | None,
        typer.Option(
            "-o", "--out", metavar="OUT", help="What to write, as of `convert`: .json is the native document."
        ),
    ] = None,
    max_peak: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Fail above this peak: 4096, 64MiB, 2G.")
    ] = None,
    pin: Annotated[
        list[str] | None, typer.Option(metavar="POLICY|VALUE", help=f"{', '.join(PINS)}, or a value.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Processor time `exact` may search; its best is the answer."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 planned, 1 over capacity or --max-peak (nothing is written then), 2 bad
    input.

    Example: allocsim plan program.json --allocator greedy_by_size -o plan.json
    """
    budget = None if max_peak is None else bytes_of(max_peak)
    planner = find(allocator) if seconds is None else limited(allocator, seconds)
    document = load(file)
    if not document.programs:
        raise DocumentError(file, "programs", "there is none to plan")
    try:
        plans = [_plan(planner, document, program, pin or []) for program in document.programs]
    except CapacityError as error:
        print_error(str(error))
        return 1
    over = [made for made in plans if budget is not None and made.peak_bytes > budget]
    _print(plans, allocator, as_json=as_json)
    for made in over:
        print_error(f"program {made.program.name!r} needs {made.peak_bytes} bytes; {budget} are allowed")
    if out is not None and not over:
        save(_replanned(document, [stamped(made) for made in plans]), out)
    return int(bool(over))


def _plan(planner: Planner, document: Document, program: Program, pins: list[str]) -> Plan:
    told = next((problem for problem in document.problems if problem.program is program), None)
    return plan_program(planner, program, believed=told, constraints=_constraints(document, program, told, pins))


def _constraints(document: Document, program: Program, told: Problem | None, pins: list[str]) -> Constraints:
    base = Constraints.of(program) if told is None else Constraints.from_problem(told)
    policies = [PINS[name] for name in pins if name in PINS]
    mask = np.zeros(len(program.buffers), dtype=np.bool_) if policies else base.pinned.copy()
    for policy in policies:
        mask |= policy(program)
    for name in pins:
        if name not in PINS:
            mask |= _pin_value(document, program, name)
    return replace(base, pinned=mask)


def _pin_value(document: Document, program: Program, name: str) -> Bools:
    """Pin the values of that name (or of that index) where this program has one.

    Some program must.
    """
    if not any(name in other.values.names for other in document.programs):
        if not name.isdecimal():
            known = {value for other in document.programs for value in other.values.names}
            raise UnknownNameError("pin policy or value", name, known | set(PINS))
        return pin_values(program, [int(name)])
    return pin_values(program, [index for index, value in enumerate(program.values.names) if value == name])


def _replanned(document: Document, plans: list[Plan]) -> Document:
    if document.session is None:
        return Document(programs=document.programs, problems=_problems(plans), plans=tuple(plans), meta=document.meta)
    new = {id(made.program): made for made in plans}
    runs = tuple(replace(run, plan=new[id(run.plan.program)]) for run in document.session)
    return Document(
        programs=document.programs, problems=_problems(plans), plans=tuple(plans), session=runs, meta=document.meta
    )


def _problems(plans: list[Plan]) -> tuple[Any, ...]:
    return tuple(made.problem for made in plans if made.problem is not None)


def _bound(made: Plan) -> int:
    """Return bytes no plan goes below that does as it was told.

    Of a program without ops, by its problem.
    """
    if made.problem is not None and not len(made.program.ops):
        return lower_bounds.lower_bound(made.problem)
    return lower_bound(made.program, counted=made.placed if made.problem is None else ~made.problem.own)


def _print(plans: list[Plan], allocator: str, *, as_json: bool) -> None:
    rows: list[dict[str, Any]] = [
        {
            "program": made.program.name,
            "allocator": allocator,
            "buffers": len(made.program.buffers),
            "fingerprint": fingerprint_of(made),
            "peak_bytes": made.peak_bytes,
            "lower_bound_bytes": _bound(made),
            **({"proved": said["proved"], "nodes": said["nodes"]} if (said := proof(made)) else {}),
        }
        for made in plans
    ]
    if as_json:
        print_json({"plans": rows})
        return
    for row in rows:
        bound, plural = in_bytes(row["lower_bound_bytes"]), "s"[: row["buffers"] != 1]
        sizes = f"peak {in_bytes(row['peak_bytes'])} ({row['peak_bytes']}), lower bound {bound}"
        proved = (
            f", {'proved optimal' if row['proved'] else 'not proved'} in {row['nodes']} nodes"
            if "proved" in row
            else ""
        )
        print_line(f"{row['program']}: {row['buffers']} buffer{plural} by {allocator}, {sizes}{proved}")
        if row["peak_bytes"] < row["lower_bound_bytes"]:
            print_line(
                "  below the bound: buffers that live at once share bytes, or lie in no arena; allocsim check "
                "says which"
            )
