"""`allocsim replay NAME-or-FILE`: judge and execute what a plan allows beyond one run.

A scenario is run small unless told otherwise (`--layers 30 --seq 64` is its full size); every case
is judged, and executed beside the reference where that can tell more (the service
`replay_scenario`). So is a file with a plan, where the engine has a kernel for each of its ops (the
service `replay_executor`); where it has not, S alone judges it, and the reason is printed. Single
pins take a planner: that of the plan's `source`, or `--allocator`.

`--out DIR` keeps `replay.jsonl`, one line for each case as soon as it is known, below a line that
says what was replayed; a replay into the same folder goes on where the last one ended. Exit status:
0 if every case that must hold holds, 1 if one does not, 2 for bad usage or input.

What this module does not see: the cases (`allocsim.r_replay`) and how they are executed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

import typer

from allocsim.allocators import Planner, find, find_installed
from allocsim.cli.output import print_error, print_json, print_line, print_table, show_path
from allocsim.errors import DocumentError, NotInstalledError, PlannerError, UnknownNameError
from allocsim.files.folders import working_in
from allocsim.files.gate import is_file
from allocsim.files.journal import Journal
from allocsim.model import Plan
from allocsim.plugins import service
from allocsim.programs.fingerprints import fingerprint_of
from allocsim.r_replay import GROUPS, ReplayCase, failed, judged, not_run, row_of, session_cases
from allocsim.r_replay.other_programs import program_cases
from allocsim.r_replay.pins import COVERED, Chosen, pin_cases
from allocsim.systems import load

LAYERS, SEQ = 2, 16
"""Size at which scenarios are replayed unless told otherwise."""

LOG: Final = "replay.jsonl"
SHOWN: Final = 20
"""Pin cases with a finding that are printed."""

Row = dict[str, Any]


StaticRow = TypedDict(
    "StaticRow",
    {
        "status": str, "count": int, "class": str | None, "fault": str | None, "kind": str | None, "run": int | None,
        "message": str | None,
    },
)  # fmt: skip
"""What S says of a case (`Static.as_json`)."""


class FirstRow(TypedDict):
    """Where an execution first differs (`numbers_of`)."""

    run: int
    op: int
    name: str
    kind: str
    what: str
    ulp: int | None
    relative: float | None


class NumbersRow(TypedDict):
    """What an execution says of a case."""

    status: str
    why: str | None
    first: FirstRow | None


class ReplayRow(TypedDict):
    """A line of the log (`allocsim.r_replay.row_of`)."""

    case: str
    group: str
    promised: bool
    fits: bool
    fingerprint: str
    peak_bytes: int
    S: StaticRow
    D: NumbersRow


class Group(StrEnum):
    """Sorts of cases."""

    SESSION = "session"
    PROGRAM = "program"
    SHAPE = "shape"
    PINS = "pins"


def replay(
    target: Annotated[
        str, typer.Argument(metavar="NAME-or-FILE", help="A scenario (A+B for two), or a file with a plan.")
    ],
    *,
    group: Annotated[
        list[Group] | None, typer.Option(help="Only these cases; may be repeated.", show_default="all")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many pin cases.")] = None,
    every: Annotated[
        int, typer.Option(min=0, help="Execute every n-th pin case that need not be; 1 all, 0 none.")
    ] = 500,
    allocator: Annotated[str | None, typer.Option(help="The planner: a name or package.module:function.")] = None,
    layers: Annotated[int, typer.Option(help="Layers of a scenario's transformer.")] = LAYERS,
    seq: Annotated[int, typer.Option(help="Positions of a scenario's sequence.")] = SEQ,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a scenario's weights and data.")] = 0,
    fixed: Annotated[bool, typer.Option("--fixed", help="Replay a scenario's repaired twin.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Keep what is known here, and go on from it.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 every case that must hold holds, 1 one does not, 2 bad usage or input.

    Example: allocsim replay plan.json
    """
    groups = tuple(group) if group else GROUPS
    sizes = {"layers": layers, "seq": seq, "seed": seed, "fixed": fixed}
    job = _of_file if is_file(target) else service("replay_scenario")
    with job(target, allocator, sizes) as (head, rows), nullcontext() if out is None else working_in(out):
        log: Journal[Row] | None = None if out is None else Journal(out / LOG, head, ReplayRow, what="replay")
        found = [row for row in (() if log is None else log.rows) if row["group"] in groups]
        for row in rows(groups, limit, every, {row["case"] for row in found}):
            found.append(row)
            if log is not None:
                log.add(row)
    failures = [row for row in found if failed(row)]
    if as_json:
        print_json({"target": target, **head, "cases": found, "failed": len(failures)})
        return int(bool(failures))
    _print(target, head, found)
    if log is not None:
        print_line(f"kept in {show_path(log.path)}")
    return int(bool(failures))


Rows = Callable[[tuple[str, ...], int | None, int, set[str]], Iterable[Row]]


@contextmanager
def _of_file(path: str, allocator: str | None, _sizes: dict[str, Any]) -> Iterator[tuple[Row, Rows]]:
    document = load(path)
    if not document.plans:
        raise DocumentError(path, "plans", "there is none to replay")
    plan = document.plans[0]
    planner = _planner(plan, allocator)
    kernels, execute = _executor(plan)
    maker = None if planner is None else planner.name
    head = {"replay": 1, "planner": maker, "fingerprint": fingerprint_of(plan), "kernels": kernels}

    def rows(groups: tuple[str, ...], limit: int | None, every: int, done: set[str]) -> Iterator[Row]:
        cases: list[Iterable[ReplayCase]] = []
        if "session" in groups:
            cases.append(session_cases(plan))
        if "program" in groups:
            cases.append(program_cases(plan))
        for case in (case for some in cases for case in some if case.name not in done):
            yield row_of(case, judged(case), execute(case))
        if "pins" in groups and planner is not None:
            chosen = Chosen(plan.program, every)
            for case in islice(pin_cases(plan.program, planner), limit):
                tells = chosen(case)
                if case.name not in done:
                    static = judged(case)
                    yield row_of(case, static, execute(case) if tells or static.count else COVERED)

    yield head, rows


def _executor(plan: Plan) -> tuple[Row | str, Callable[[ReplayCase], Row]]:
    """Return the kernels of a plan's program and what executes a case of it.

    Where it cannot be executed, why not.
    """
    try:
        found: tuple[Row | str, Callable[[ReplayCase], Row]] = service("replay_executor")(plan)
    except NotInstalledError as error:
        why = str(error)
        return why, lambda _case: not_run("not run", why)
    return found


def _planner(plan: Plan, name: str | None) -> Planner | None:
    if name is not None:
        return find(name)
    try:
        return find_installed(plan.source) if plan.source else None
    except UnknownNameError:
        return None
    except PlannerError as error:  # the file is replayed without it, and the line says how to have it
        print_error(f"pins are not tried: {error}")
        return None


def _print(target: str, head: Row, found: list[Row]) -> None:
    print_line(f"{show_path(target)}: plan of {head['planner'] or 'unknown'}, fingerprint {head['fingerprint']}")
    if isinstance(head["kernels"], str):
        print_line(f"not executed: {head['kernels']}")
    rows = [row for row in found if row["group"] != "pins"]
    columns = ("case", "must hold", "fits", "S", "D")
    print_table(columns, [_cells(row) for row in rows])
    pins = [row for row in found if row["group"] == "pins"]
    if pins:
        status = Counter(row["D"]["status"] for row in pins)
        clean = sum(row["S"]["status"] == "clean" for row in pins)
        numbers = ", ".join(f"{count} {name}" for name, count in sorted(status.items()))
        print_line(f"pins: {len(pins)} plans; S: {clean} clean, {len(pins) - clean} not; D: {numbers}")
        wrong = [row for row in pins if failed(row)]
        print_table(columns, [_cells(row) for row in wrong[:SHOWN]])
        if len(wrong) > SHOWN:
            print_line(f"  {len(wrong) - SHOWN} more are not shown (--json)")
    failures = sum(map(failed, found))
    print_line(
        f"{failures} of {sum(row['promised'] for row in found)} cases that must hold do not hold"
        if failures
        else "every case that must hold holds"
    )


def _cells(row: Row) -> tuple[str, ...]:
    s, d = row["S"], row["D"]
    party = f"{s['class']}, fault of the {s['fault']}: " if s["class"] else ""
    where = "" if s["run"] is None else f" in run {s['run']}"
    static = "clean" if s["status"] == "clean" else f"{party}{s['kind']}{where} ({s['count']} in all)"
    first = d["first"]
    numbers = (
        d["status"]
        if first is None
        else f"differs: {first['name']} (op {first['op']}, {first['what']}, run {first['run']})"
    )
    return (
        row["case"],
        "yes" if row["promised"] else "no",
        "yes" if row["fits"] else "no",
        static,
        numbers + (f": {d['why']}" if d["status"] == "refused" else ""),
    )


__all__ = ["replay"]
