"""`allocsim bisect NAME-or-FILE`: the smallest cure, and the smallest program that still fails.

A file is judged, cured and reduced by the checks alone, but for a captured graph under a legal
plan: its kernels are measured where it came from (the service `examine_capture`), and a kernel's
fault is named and cured, not reduced. Where the engine has kernels for its ops, the price of the
cure is measured in time too. A scenario is run first, small unless told otherwise; a kernel that is
wrong under a legal plan is reduced by executing it. Exit status: 0 if both were found, 1 if nothing
is wrong or something was not found, 2 for bad usage or input.

`--out DIR` writes `smallest.json` (a native document), `smallest.png` (its memory),
`test_smallest.py` (a test file to paste) and `bisect.json` (what `--json` prints); for a file that
could be cured also `cured.json`.

What this module does not see: how cures are found (`allocsim.cure`) and documents reduced
(`allocsim.reduction`), and scenarios (the service `bisect_scenario`).
"""

import json
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim import document as native
from allocsim.allocators import exact, find
from allocsim.allocators.planner import Allocator
from allocsim.cli.output import print_json, print_line, show_path
from allocsim.cli.pictures import draw_beside
from allocsim.cure import Cure
from allocsim.cure.apart import all_apart
from allocsim.errors import EngineError, NotInstalledError
from allocsim.files.folders import Content, replace_files, working_in
from allocsim.files.gate import is_file
from allocsim.files.sizes import in_growth
from allocsim.model import Document, Plan
from allocsim.outcomes.description import describe
from allocsim.plugins import service
from allocsim.reduction import Reduction, reduce, script
from allocsim.systems import load
from allocsim.verdict import Cause, judge
from allocsim.verdict.attribution import leading
from allocsim.verdict.causes import cure_all

LAYERS, SEQ = 2, 16
"""Size at which scenarios are run unless told otherwise: what goes wrong at thirty layers does at
two.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisected:
    """What one target came to."""

    record: dict[str, Any]
    """As `--json` prints it."""
    lines: list[str] = field(default_factory=list)
    smallest: Document | None = None
    test: str = ""
    cured: Document | None = None


def bisect(
    target: Annotated[
        str, typer.Argument(metavar="NAME-or-FILE", help="A scenario (A+B for two), or a file with a plan.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Write document, test and picture here.")
    ] = None,
    allocator: Annotated[
        str | None, typer.Option(help="What places cured beliefs; for a file, 'amended' keeps the plan as it is.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop reducing after this long, with the best so far.")
    ] = None,
    layers: Annotated[int, typer.Option(help="Layers of a scenario's transformer.")] = LAYERS,
    seq: Annotated[int, typer.Option(help="Positions of a scenario's sequence.")] = SEQ,
    steps: Annotated[int, typer.Option(help="Training steps of a scenario.")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="Seed of a scenario's weights and data.")] = 0,
    fixed: Annotated[bool, typer.Option("--fixed", help="Bisect a scenario's repaired twin.")] = False,
    ggml: Annotated[
        str | None,
        typer.Option(help="Of a captured graph: the libggml whose kernels are run; before, after or a path."),
    ] = None,
) -> int:
    """Exit status: 0 cure and smaller program found, 1 nothing is wrong or one of them was not
    found.

    Example: allocsim bisect plan.json
    """
    with nullcontext() if out is None else working_in(out):
        if is_file(target):
            found = _file(target, allocator, seconds, ggml)
        else:
            sizes = {"layers": layers, "seq": seq, "steps": steps, "seed": seed, "fixed": fixed}
            found = service("bisect_scenario")(
                target, sizes | ({} if allocator is None else {"allocator": allocator}), seconds
            )
        if out is not None:
            _write(found, out)
    if as_json:
        print_json(found.record)
    else:
        for line in found.lines:
            print_line(line)
        if out is not None:
            print_line(f"written to {show_path(out)}")
    return int(not found.record["found"])


def _file(path: str, allocator: str | None, seconds: float | None, ggml: str | None) -> Bisected:
    document = load(path)
    cause = leading(document)
    if cause is None:
        return _by_kernels(path, document, ggml)
    cured = cure_all(document, planner=_planner(allocator))
    reduced = reduce(document, seconds=seconds)
    cure = None
    if cured is not None:
        cure = _cure_entry(document, cured)
    cause_record = {
        "class": cause.class_,
        "fault": cause.fault,
        "kind": cause.violation.kind,
        "message": cause.violation.message,
    }
    record = {
        "target": path,
        "found": cure is not None,
        "cause": cause_record,
        "cure": cure,
        "smallest": smallest_entry(reduced.document, reduced, sum(len(program.ops) for program in document.programs)),
    }
    return Bisected(
        record=record,
        lines=[
            f"{show_path(path)}: {in_short(cause_record)}{cause.violation.message}",
            *cure_lines(cure),
            *smallest_lines(record),
            *cause_lines(reduced),
        ],
        smallest=reduced.document,
        test=script(reduced.document, title=f"The smallest program found with the fault of {Path(path).name}."),
        cured=cured.document if cured is not None else None,
    )


def _cure_entry(document: Document, cured: Cure) -> dict[str, Any]:
    return {
        "elements": list(cured.words),
        "bytes": cured.nbytes,
        "pin_all_bytes": cured.pin_all_bytes,
        "minimal": cured.minimal,
        "trials": cured.trials,
        "placement": cured.placement,
        **_times(_timed(document, cured)),
    }


def _by_kernels(path: str, document: Document, ggml: str | None) -> Bisected:
    """Return what K and D say of a captured graph whose plan is legal.

    Of any other document, that nothing is wrong with it.
    """
    record: dict[str, Any] = {"target": path, "found": False, "cause": None, "cure": None, "smallest": None}
    try:
        examined = service("examine_capture")(document, library=ggml)
    except NotInstalledError:
        examined = None
    if examined is None:
        return Bisected(record=record, lines=[f"{show_path(path)}: nothing is wrong with it"])
    evidence, whys, _ = examined
    verdict = judge(evidence)
    missing = [
        f"{letter} not run: {whys[letter]}" for letter in "KD" if verdict.detectors[letter]["status"] == "not run"
    ]
    if not verdict.causes:
        word = "the plan is legal; a fault of a kernel is not excluded" if missing else "nothing is wrong with it"
        return Bisected(record=record, lines=[f"{show_path(path)}: {word}", *missing])
    first, cured = verdict.causes[0], verdict.cure
    record["cause"] = {"class": first.class_, "fault": first.party, "kind": first.evidence, "message": first.text}
    record["cure"] = None if cured is None else _cure_entry(evidence.document, cured)
    return Bisected(
        record=record,
        lines=[
            f"{show_path(path)}: {in_short(record['cause'])}{first.text}",
            *cure_lines(record["cure"]),
            (
                f"smallest program: not sought; `allocsim audit --ggml {ggml or 'NAME'}{_ops(first)} -o DIR` "
                "writes the graph of one op"
            ),
            *missing,
        ],
        cured=None if cured is None else cured.document,
    )


def _ops(cause: Cause) -> str:
    """Return the option that has the audit look at the kernel of a cause, "" where it is none's."""
    kind = cause.change.op_kind
    return f" --ops {kind.upper()}" if cause.party == "kernel" and kind else ""


def _planner(name: str | None) -> Allocator | None:
    """Return the allocator asked for, None for the plan's own maker or for the plan as it is."""
    if name is None or name == "amended":
        return None
    found = find(name)
    return (
        found
        if isinstance(found, Allocator)
        else Allocator(name=found.name, belief=exact.believe, placement=found.place)
    )


def _timed(document: Document, cured: Cure) -> dict[str, Plan | None]:
    """Return the first plan that the cure changes, what it becomes, and the same with every buffer
    apart.
    """
    changed = next(
        (n for n, (a, b) in enumerate(zip(document.plans, cured.document.plans, strict=False)) if a is not b), 0
    )
    before, after = document.plans[changed], cured.document.plans[changed]
    pinned = all_apart(Document.of(before))
    return {"default": before, "cured": after, "pinned": None if pinned is None else pinned[0]}


def _times(plans: Mapping[str, Plan | None]) -> dict[str, Any]:
    """Measure a run by each plan on the engine, or say why it cannot."""
    try:
        seconds_of = service("time_plan")
        return {
            "seconds": {name: seconds_of(plan) for name, plan in plans.items() if plan is not None},
            "why_no_seconds": None,
        }
    except (EngineError, NotInstalledError) as error:
        return {"seconds": None, "why_no_seconds": str(error)}


def smallest_entry(document: Document, reduced: Any, before: int) -> dict[str, Any]:
    """Return the entry `smallest` of the record: sizes, trials and the document itself."""
    return {
        "ops": reduced.ops,
        "ops_before": before,
        "buffers": sum(len(program.buffers) for program in document.programs),
        "runs": len(document.runs),
        "complete": reduced.complete,
        "trials": reduced.trials,
        "document": json.loads(native.dumps(document)),
    }


def in_short(cause: dict[str, Any]) -> str:
    """Return class and party of a cause, as a line begins with them.

    Empty for one without a class.
    """
    return f"{cause['class']}, fault of the {cause['fault']}: " if cause["class"] is not None else ""


def cure_lines(cure: dict[str, Any] | None) -> list[str]:
    """Return the lines about the entry `cure` of a record."""
    if cure is None:
        return ["cure: none was found"]
    lines = [f"cure ({cure['placement']}): {'; '.join(cure['elements'])}"]
    price = f"  {in_growth(cure['bytes'])}"
    if cure["pin_all_bytes"] is not None:
        price += f", against {in_growth(cure['pin_all_bytes'])} for pinning everything"
    lines.append(
        f"{price}; {cure['trials']} plan{'s'[: cure['trials'] != 1]} "
        f"tried{'' if cure['minimal'] else ', not shown minimal'}"
    )
    if cure["seconds"]:
        lines.append(
            "  a run takes " + ", ".join(f"{seconds * 1e3:.3g} ms {name}" for name, seconds in cure["seconds"].items())
        )
    else:
        lines.append(f"  time was not measured: {cure['why_no_seconds']}")
    return lines


def smallest_lines(record: dict[str, Any]) -> list[str]:
    """Return the lines about the entry `smallest` of a record."""
    smallest = record["smallest"]
    if smallest is None:
        return ["smallest: no smaller program has this fault"]
    ended = "" if smallest["complete"] else "; the time was up"
    what = (
        f"{smallest['ops']} of {smallest['ops_before']} ops, {smallest['buffers']} buffers, {smallest['runs']} "
        f"run{'s'[: smallest['runs'] != 1]}"
    )
    return [f"smallest: {what} ({smallest['trials']} trials{ended})"]


def cause_lines(reduced: Reduction) -> list[str]:
    """Return the description of what is still wrong with a reduced document."""
    if reduced.cause is None:
        return []
    return [
        f"  {line}" for line in describe(reduced.document, reduced.cause.violation, cause=reduced.cause).splitlines()
    ]


def _write(found: Bisected, out: Path) -> None:
    files: dict[str, Content] = {}
    if found.smallest is not None:
        run = len(found.smallest.runs) - 1
        files["smallest.json"] = native.dumps(found.smallest)
        files["test_smallest.py"] = found.test.encode()
        files["smallest.png"] = partial(draw_beside, "the smallest program", found.smallest, run=run)
    if found.cured is not None:
        files["cured.json"] = native.dumps(found.cured)
    files["bisect.json"] = json.dumps(found.record, indent=1, ensure_ascii=False).encode() + b"\n"
    replace_files(out, files)
