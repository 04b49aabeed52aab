"""`allocsim audit`: compare what kernels declare, planners believe and runs measure about aliasing.

Every kernel is run with its results over its operands.

Without a target: the engine's own kernels, those its runtime takes (`--variants` adds the ones kept
for scenarios). With `--ggml`: every op of a real library's in-place list, then the contract of
every op that it has (`engine.commands.audit_contracts`); of several libraries, a table of pair by
version. With `package.module:KERNELS`: kernels of your own (`engine.k_audit.kernel_tables` has the
forms), in a process that may crash or hang: both are findings. A row is a kernel, an operand and a
layout (`engine.k_audit.arrangements`).

Exit status 0 where every layout that is declared, or believed by a planner, is safe, and no kernel
breaks its contract; 1 where one is not; 2 for bad usage or a library that is missing or refused.

What this module does not see: how kernels are run (`engine.k_audit`,
`allocsim.systems.ggml.k_audit.library_audit`), and pictures (the service `plot_audit`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim import document as native
from allocsim.cli.output import print_json, print_line, print_table, show_path
from allocsim.errors import UnknownNameError
from allocsim.files.folders import replace_files
from allocsim.model import Document
from allocsim.plugins import service
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture_evidence import examine
from allocsim.systems.ggml.k_audit import library_audit
from allocsim.systems.ggml.k_audit.library_cases import UNMEASURED
from allocsim.verdict.evidence import Evidence, files_of
from engine import k_audit
from engine.commands.audit_contracts import contracts, print_contracts
from engine.commands.audit_versions import EVERY, print_versions
from engine.k_audit.isolated import audit_isolated
from engine.k_audit.planner_reach import alias_plan, believers, reachable
from engine.kernels import KERNELS


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one audit found."""

    of: str
    rows: list[dict[str, Any]]
    layouts: tuple[str, ...]
    """Those asked for, in the order of columns."""
    more: dict[str, Any] = field(default_factory=dict)
    """What could not be measured, by heading."""
    documents: dict[str, Document] = field(default_factory=dict)
    """File name -> the smallest graph of an unsafe pair, as planned."""
    evidence: dict[str, Evidence] = field(default_factory=dict)
    """Folder name -> the same with what K and D measured of it."""


def audit(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:KERNELS]", help="A table of kernels; default the engine's.")
    ] = None,
    *,
    ggml: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="before, after, or the path of a libggml; all, or several: pair by version."),
    ] = None,
    variants: Annotated[
        bool, typer.Option("--variants", help="All variants of a kernel, not the default one alone.")
    ] = False,
    layouts: Annotated[
        str,
        typer.Option(metavar="A,B", help="Layouts to measure: all, or some of apart, duplicate, over, shifted, ..."),
    ] = "all",
    ops: Annotated[str, typer.Option(metavar="A,B", help="With --ggml: only these of its ops.")] = "",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data.")] = 0,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds one layout of a kernel of your own may take.")
    ] = 60.0,
    graphs: Annotated[
        int, typer.Option("--fuzz", metavar="N", min=0, help="With several --ggml: fuzz each with N graphs.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="With several --ggml: a table for a page.")] = False,
    picture: Annotated[
        str | None, typer.Option(metavar="X.png", help="Draw the matrix: PNG, SVG or PDF, by its suffix.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Write the graph of each unsafe pair here.")
    ] = None,
) -> int:
    """Exit status: 0 declared and measured agree, 1 they differ, 2 bad usage or a library that is
    refused.

    Example: allocsim audit
    """
    several = ggml is not None and (ggml == EVERY or "," in ggml)
    for misused, rule in (
        (ggml is not None and (target is not None or variants), "--ggml audits a library; it takes neither a table nor --variants"),
        (ggml is None and ops, "--ops chooses from the ops of a library; it needs --ggml"),
        (several and (picture is not None or out is not None), "--picture and --out are of one library; give one --ggml"),
        (as_markdown and not several, "--markdown is of several libraries; give --ggml all or several"),
        (graphs and not several, "--fuzz goes with several --ggml; `allocsim fuzz ggml --ggml NAME` fuzzes one"),
    ):  # fmt: skip
        if misused:
            raise typer.BadParameter(rule)
    wanted = [op.strip().upper() for op in ops.split(",") if op.strip()] or None
    if several:
        assert ggml is not None
        return print_versions(ggml, wanted, graphs, as_json=as_json, as_markdown=as_markdown)
    if ggml is not None:
        found = _of_ggml(ggml, layouts, wanted)
    else:
        found = _of_table(target, layouts, every=variants, seed=seed, timeout=timeout)
    wrong = [row for row in found.rows if row["verdict"] in WRONG]
    broken = [row for row in found.more.get("contracts", ()) if row["measured"] == "unsafe"]
    if out is not None:
        _write(found, out)
    if picture is not None:
        service("plot_audit")(found.rows, found.of, picture)
    if as_json:
        print_json({"audit": found.of, "agree": not (wrong or broken), "rows": found.rows, **found.more})
    else:
        _print(found, wrong)
        written: list[Path | str] = (
            [out / name for name in (*found.documents, *found.evidence)] if out is not None else []
        )
        for path in [*written, *([picture] if picture is not None else [])]:
            print_line(f"wrote {show_path(path)}")
    return int(bool(wrong or broken))


WRONG = ("broken", "assumed")
"""Verdicts that make the exit status 1."""


def verdict(row: Mapping[str, Any]) -> str:
    """Return what declared, believed and measured say together.

    `broken`: declared, and not safe. `assumed`: not declared, not safe, and a planner would do it.
    `spare`: safe, and declared nowhere. `kept`: declared and safe. Else nothing, or how far the
    measurement came.
    """
    bad = row["measured"] in {"unsafe", "crashed", "hung"}
    if row["declared"]:
        return "broken" if bad else "kept" if row["measured"] == "safe" else row["measured"]
    if bad:
        return "assumed" if row["believed"] else "unsafe"
    return "spare" if row["measured"] == "safe" else row["measured"]


def _chosen(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return the layouts that are meant, in their own order."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known and name != "all":
            raise UnknownNameError("layout", name, known)
    return tuple(name for name in known if name in names or "all" in names)


def _of_ggml(which: str, layouts: str, wanted: list[str] | None) -> Measured:
    with open_library(which) as child:
        chosen = _chosen(layouts, library_audit.LAYOUTS)
        found = library_audit.audit(child, ops=wanted, layouts=chosen)
        documents = {f"{op.lower()}-{source}": document(rows) for (op, source), rows in found.graphs.items()}
        evidence = {name: examine(graph, child=child)[0] for name, graph in documents.items()}
        measured = contracts(child, wanted, found.rows)
    rows = [{**row, "max_error": _finite(row["max_error"])} for row in found.rows]
    return Measured(
        of=f"ggml {found.version} ({which})",
        rows=[{**row, "verdict": verdict(row)} for row in rows],
        layouts=chosen,
        more={"refused": found.refused, "unaudited": found.unaudited, "unmeasured": UNMEASURED, **measured},
        documents={f"{name}.json": graph for name, graph in documents.items()},
        evidence=evidence,
    )


def _of_table(target: str | None, layouts: str, *, every: bool, seed: int, timeout: float) -> Measured:
    chosen = _chosen(layouts, k_audit.LAYOUTS)
    if target is None:
        table = KERNELS if every else {kind: dict([next(iter(options.items()))]) for kind, options in KERNELS.items()}
        found: Iterator[Any] = k_audit.audit(kernels=table, layouts=chosen, seed=seed)
    else:
        found = audit_isolated(target, layouts=chosen, seed=seed, seconds=timeout)
    rows, documents = [], {}
    for row in found:
        if row.measured == "not applicable":
            continue
        case = row.sample
        lain = row.layout in {"over", "duplicate over"} and case is not None
        entry = {
            "op": row.kind, "variant": row.variant, "source": row.operand, "result": row.result, "layout": row.layout,
            "declared": row.declared,
            "believed": list(believers(case, row, row.operand, row.result, row.layout)) if lain else [],
            "measured": row.measured, "max_error": _finite(row.max_error), "cases": row.cases, "runs": row.runs,
            "unsafe_runs": row.unsafe, "by_size": [list(size) for size in row.by_size],
            "by_data": [list(data) for data in row.by_data], "dtypes": list(row.dtypes), "words": row.words,
            "reachable": row.layout == "over" and lain and reachable(case, row, row.operand, row.result),
        }  # fmt: skip
        rows.append({**entry, "verdict": verdict(entry)})
        if row.broken and row.layout == "over" and case is not None:
            name = "-".join(part for part in (row.kind, row.variant, str(row.operand)) if part)
            documents[f"{name}.json"] = Document.of(alias_plan(case, row, row.operand)[0])
    return Measured(of=target or "the engine's kernels", rows=rows, layouts=chosen, documents=documents)


def _write(found: Measured, folder: Path) -> None:
    files = {name: native.dumps(planned) for name, planned in found.documents.items()}
    for folder_name, evidence in found.evidence.items():
        files |= {f"{folder_name}/{name}": data for name, data in files_of(evidence).items()}
    replace_files(folder, files)


def _finite(error: float) -> float | None:
    return error if isfinite(error) else None


def _print(found: Measured, wrong: list[dict[str, Any]]) -> None:
    declared = [row for row in found.rows if row["declared"]]
    kernels = len({(row["op"], row.get("variant")) for row in found.rows})
    broken = sum(row["verdict"] == "broken" for row in wrong)
    print_line(
        f"{found.of}: {kernels} kernels; {broken} of {len(declared)} declared layouts {'is' if broken == 1 else 'are'} unsafe"
    )
    there = {row["layout"] for row in found.rows}
    layouts = [layout for layout in found.layouts if layout in there]
    lines: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in sorted(found.rows, key=lambda row: row not in wrong):
        place = row["op"], row.get("variant", ""), row["source"], row.get("result", 0)
        lines.setdefault(place, {})[row["layout"]] = row
    print_table(
        ("kernel", "operand", *layouts),
        [_cells(place, cells, layouts) for place, cells in lines.items()],
        right=("operand",),
    )
    print_line(
        "+ safe, ! unsafe, ? never depended on it, - does not apply; in brackets: declared [+], believed by a planner (+), by nobody +"
    )
    for row in wrong:
        print_line(
            f"{row['verdict']}: {_name(row)} {row['layout']} operand {row['source']}: {row['measured']}{_size(row)}; {row['words']}"
        )
        if row.get("races_at"):
            print_line(
                f"{row['op']} over source {row['source']}: unsafe at {row['races_at']} threads where it is safe with fewer (a race)"
            )
        if row.get("graph"):
            print_line(f"{row['op']} over source {row['source']}: {row['graph']}")
    spare = [
        f"{_name(row)} over {row['source']}"
        for row in found.rows
        if row["verdict"] == "spare" and row["layout"] == "over"
    ]
    if spare:
        print_line(f"safe in place, and not declared: {', '.join(spare)}")
    for refused in found.more.get("refused", ()):
        print_line(f"not measured: {refused['op']} on {refused['types']}: {refused['said']}")
    for what, why in found.more.get("unmeasured", {}).items():
        print_line(f"not measured: {what}: {why}")
    for op in found.more.get("unaudited", ()):
        print_line(f"not measured: {op}: no case is known for it")
    if "contracts" in found.more:
        print_contracts(found.more)


MARKS = {"safe": "+", "unsafe": "!", "crashed": "! crashed", "hung": "! hung", "not reached": "?"}


def _cells(place: tuple[Any, ...], cells: Mapping[str, Mapping[str, Any]], layouts: Iterable[str]) -> tuple[Any, ...]:
    op, variant, source, result = place
    words = [f"{op} ({variant})" if variant else str(op), f"{source}" if not result else f"{source} to {result}"]
    for layout in layouts:
        row = cells.get(layout)
        if row is None:
            words.append("-")
            continue
        mark = MARKS[row["measured"]]
        words.append(f"[{mark}]" if row["declared"] else f"({mark})" if row["believed"] else mark)
    return tuple(words)


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['op']} ({row['variant']})" if row.get("variant") else str(row["op"])


def _size(row: Mapping[str, Any]) -> str:
    """Return how often and from which size on it is unsafe."""
    sizes = [size for size, _, unsafe in row.get("by_size", ()) if unsafe]
    fine = [size for size, _, unsafe in row.get("by_size", ()) if not unsafe]
    error = (
        ""
        if row["measured"] != "unsafe"
        else ", error " + ("infinite" if row["max_error"] is None else f"{row['max_error']:.3g}")
    )
    if not sizes:
        return error
    where = (
        f", at {sizes[0]} elements and more"
        if not fine or max(fine) < sizes[0]
        else f", at {', '.join(map(str, sizes))} elements"
    )
    return f"{error} in {row['unsafe_runs']} of {row['runs']} runs{where}"
