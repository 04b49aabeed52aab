"""`allocsim audit`: run kernels with their results over their operands, and compare what is measured with what is declared.

Without a target: the engine's own kernels, those its runtime takes (`--variants` adds the ones kept for scenarios). With `--ggml`: every op
of a real library's in-place list. With `package.module:KERNELS`: a table of your own, kind -> variant -> `engine.kernels.Kernel`; kinds that
are not the engine's need cases, a `CASES` beside the table (`engine.audit.Case`).

Exit status 0 where every declared alias is safe, 1 where one is not, 2 for bad usage or a library that is missing or refused.

What this module does not see: how kernels are run (`engine.audit`, `engine.ggml.audit`).
"""

import importlib
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim import document as native
from allocsim.cli.output import print_json, print_line, print_table, show_path
from allocsim.errors import AllocsimError, EngineError, OutputError, UnknownNameError
from allocsim.model import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one audit found."""

    of: str
    rows: list[dict[str, Any]]
    more: dict[str, Any] = field(default_factory=dict)
    """What could not be measured, by heading."""
    documents: dict[str, Document] = field(default_factory=dict)
    """File name -> the smallest graph of an unsafe pair, as planned."""


def audit(
    target: Annotated[
        str | None, typer.Argument(metavar="[MODULE:KERNELS]", help="A table of kernels; default the engine's.")
    ] = None,
    *,
    ggml: Annotated[str | None, typer.Option(help="before, after, or the path of a libggml: audit its kernels.")] = None,
    variants: Annotated[bool, typer.Option("--variants", help="All variants of a kernel, not the default one alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="DIR", help="Write the graph of each unsafe pair here.")
    ] = None,
) -> int:
    """Exit status: 0 declared and measured agree, 1 they differ, 2 bad usage or a library that is refused."""
    if ggml is not None and (target is not None or variants):
        raise typer.BadParameter("--ggml audits a library; it takes neither a table nor --variants")
    found = _of_ggml(ggml) if ggml is not None else _of_table(target, every=variants or target is not None)
    wrong = [row for row in found.rows if row["declared"] and row["measured"] == "unsafe"]
    if out is not None:
        _write(found.documents, out)
    if as_json:
        print_json({"audit": found.of, "agree": not wrong, "rows": found.rows, **found.more})
    else:
        _print(found, wrong)
        for name in found.documents if out is not None else ():
            print_line(f"wrote {show_path(out / name)}" if out is not None else "")
    return int(bool(wrong))


def _of_ggml(which: str) -> Measured:
    from engine.ggml.audit import audit as measure  # noqa: PLC0415  # needs a library
    from engine.ggml.capture import document  # noqa: PLC0415
    from engine.ggml.probe import open_library  # noqa: PLC0415

    with open_library(which) as child:
        found = measure(child)
    return Measured(
        of=f"ggml {found.version} ({which})",
        rows=[{**row, "max_error": _finite(row["max_error"])} for row in found.rows],
        more={"refused": found.refused, "unaudited": found.unaudited},
        documents={f"{op.lower()}-{source}.json": document(rows) for (op, source), rows in found.graphs.items()},
    )


def _of_table(target: str | None, *, every: bool) -> Measured:
    from engine.audit import audit as measure  # noqa: PLC0415  # compiles kernels
    from engine.audit import default_cases  # noqa: PLC0415
    from engine.audit_reach import alias_plan, reachable  # noqa: PLC0415
    from engine.kernels import KERNELS  # noqa: PLC0415

    kernels, cases = (KERNELS, None) if target is None else _load(target)
    table = kernels if every else {kind: dict([next(iter(options.items()))]) for kind, options in kernels.items()}
    known = list(default_cases(table)) if cases is None else cases
    rows, documents = [], {}
    for row in measure(kernels=table, cases=known):
        if row.measured == "not applicable":
            continue
        kernel = table[row.kind][row.variant]
        case = row.smallest or _first(known, row.kind, row.operand, row.result)
        rows.append(
            {
                "op": row.kind, "variant": row.variant, "source": row.operand, "result": row.result, "declared": row.declared,
                "measured": row.measured, "max_error": _finite(row.max_error), "cases": row.cases,
                "reachable": case is not None and reachable(case, kernel, row.operand, row.result),
            }
        )  # fmt: skip
        if row.broken and case is not None:
            documents[f"{row.kind}-{row.variant}-{row.operand}.json"] = Document.of(alias_plan(case, kernel, row.operand)[0])
    return Measured(of=target or "the engine's kernels", rows=rows, documents=documents)


def _first(cases: Iterable[Any], kind: str, operand: int, result: int) -> Any:
    """Return the first case in which the operand is laid out as the result."""
    for case in cases:
        if case.kind == kind and operand < len(case.operands) and result < len(case.results):
            one, other = case.operands[operand], case.results[result]
            if (one.dtype, one.shape, one.strides) == (other.dtype, other.shape, other.strides):
                return case
    return None


def _load(target: str) -> tuple[Mapping[str, Any], list[Any] | None]:
    """Return a user's table and cases; raise EngineError where there is none."""
    from engine.kernels import Kernel  # noqa: PLC0415

    module_name, colon, name = target.partition(":")
    if not colon or not re.fullmatch(r"[\w.]+", module_name):
        raise EngineError(f"{target!r} is no table of kernels; write package.module:KERNELS")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise EngineError(f"{target}: module {error.name!r} does not exist") from None
    except AllocsimError:
        raise
    except Exception as error:  # noqa: BLE001  # a stranger's module may raise anything
        raise EngineError(f"{target}: importing {module_name} failed: {type(error).__name__}: {error}") from None
    if not hasattr(module, name):
        raise UnknownNameError(f"name in {module_name}", name, [word for word in vars(module) if not word.startswith("_")])
    table = getattr(module, name)
    right = isinstance(table, Mapping) and all(
        isinstance(options, Mapping) and options and all(isinstance(kernel, Kernel) for kernel in options.values())
        for options in table.values()
    )
    if not right or not table:
        raise EngineError(f"{target}: is no table of kernels: a mapping of kind to variant to engine.kernels.Kernel")
    cases = getattr(module, "CASES", None)
    return table, None if cases is None else list(cases)


def _write(documents: Mapping[str, Document], folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder}: {error.strerror or error}") from None
    for name, document in documents.items():
        native.write(document, folder / name)


def _finite(error: float) -> float | None:
    return error if isfinite(error) else None


def _print(found: Measured, wrong: list[dict[str, Any]]) -> None:
    declared = sum(row["declared"] for row in found.rows)
    print_line(f"{found.of}: {len(wrong)} of {declared} declared aliases {'is' if len(wrong) == 1 else 'are'} unsafe")
    columns = ("op", "source", "declared", "measured", "error", "cases", "reachable")
    ordered = sorted(found.rows, key=lambda row: row not in wrong)
    print_table(columns, [_cells(row) for row in ordered], right=("source", "error", "cases"))
    for row in wrong:
        if row.get("graph"):
            print_line(f"{row['op']} over source {row['source']}: {row['graph']}")
    for refused in found.more.get("refused", ()):
        print_line(f"not measured: {refused['op']} on {refused['types']}: {refused['said']}")
    for op in found.more.get("unaudited", ()):
        print_line(f"not measured: {op}: no case is known for it")


def _cells(row: dict[str, Any]) -> tuple[Any, ...]:
    variant = f" ({row['variant']})" if "variant" in row else ""
    error = "none" if row["measured"] == "safe" else "infinite" if row["max_error"] is None else f"{row['max_error']:.3g}"
    return (
        f"{row['op']}{variant}", row["source"], "declared" if row["declared"] else "", row["measured"], error, row["cases"],
        "reachable" if row["reachable"] else "never",
    )  # fmt: skip
