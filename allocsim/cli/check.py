"""`allocsim check FILE...`: judge every plan, belief and event in files of any supported format.

Exit status 0 where all files are clean, 1 where one has violations, 2 where one cannot be read; the others are judged all the
same. `--json` prints the document of format.md: `{"files": [{"file", "clean", "count", "truncated", "violations", "warnings",
"stats"}]}`, and `{"file", "error"}` for a file that cannot be read.

`--explore` also runs every plan of a program on several streams, on the engine and with data drawn from `--seed`, in other orders that its streams
allow, and shows the first number that comes out wrong (`engine.explore`). A file whose ops the engine cannot run is refused.

What this module does not see: how plans are judged (`allocsim.checks`).
"""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from allocsim.checks import check as judge
from allocsim.checks.violations import Report, Violation
from allocsim.cli import BAD_INPUT, os_error_line
from allocsim.cli.exploring import explore_document, print_explored
from allocsim.cli.output import in_bytes, print_error, print_json, print_line, print_table, show_path
from allocsim.errors import AllocsimError
from allocsim.formats import load

DEFAULT_LIMIT = 10_000


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Native documents, or files of another format.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Violations listed for each file.")] = DEFAULT_LIMIT,
    explore: Annotated[bool, typer.Option("--explore", help="Run other legal orders of streams on the engine.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the data and the orders of --explore.")] = 0,
) -> int:
    """Exit status: 0 all clean, 1 violations, 2 a file cannot be read."""
    entries: list[dict[str, Any]] = []
    for path in files:
        try:
            document = load(path)
            report = judge(document, limit=limit)
            explored = explore_document(document, seed=seed) if explore else None
        except AllocsimError as error:
            entries.append({"file": path, "error": str(error)})
        except OSError as error:
            entries.append({"file": path, "error": os_error_line(error)})
        else:
            entries.append({"file": path, **report_entry(report)} | ({"explore": explored} if explored is not None else {}))
            if not as_json:
                print_report(path, report)
                print_explored(explored or [])
        if "error" in entries[-1]:
            print_error(entries[-1]["error"])
    if as_json:
        print_json({"files": entries})
    if any("error" in entry for entry in entries):
        return BAD_INPUT
    return int(not all(entry["clean"] for entry in entries))


def report_entry(report: Report) -> dict[str, Any]:
    """Return a report as the JSON object of format.md."""
    return {
        "clean": report.clean,
        "count": report.count,
        "truncated": report.truncated,
        "violations": [record(violation) for violation in report.violations],
        "warnings": [record(warning) for warning in report.warnings],
        "stats": asdict(report.stats),
    }


def record(violation: Violation) -> dict[str, Any]:
    """Return a violation as the JSON object of format.md: indices, null where they do not apply, with the names beside them."""
    fields: dict[str, Any] = asdict(violation)
    names: dict[str, Any] = fields.pop("names")
    race = {name: fields.pop(name) for name in ("in_apart", "hazards", "schedule")}
    fields["bytes"] = [list(run) for run in violation.bytes]
    return fields | names | (race if violation.kind == "Race" else {})


def print_report(path: str, report: Report) -> None:
    """Print what was found in one file: a line, and a line for each violation and warning."""
    stats = report.stats
    sizes = f"peak {in_bytes(stats.peak_bytes)}, lower bound {in_bytes(stats.lower_bound_bytes)}"
    verdict = "clean" if report.clean else f"{'over ' if report.truncated else ''}{_count(report.count, 'violation')}"
    warned = f", {_count(len(report.warnings), 'warning')}" if report.warnings else ""
    print_line(f"{show_path(path)}: {verdict}{warned}  ({stats.ops} ops, {stats.buffers} buffers, {sizes})")
    print_table(("kind", "run", "op", "buffer", "what"), [_row(found) for found in report.violations + report.warnings])
    if report.count > len(report.violations):
        print_line(f"  {report.count - len(report.violations)} more are not listed (--limit)")


def _row(found: Violation) -> tuple[Any, ...]:
    kind = found.kind if found.severity == "violation" else f"{found.kind} (warning)"
    return (
        kind,
        found.run,
        _named(found.op, found.names.get("op_name")),
        _named(found.buffer, found.names.get("buffer_name")),
        found.message,
    )


def _named(index: int | None, name: str | None) -> str:
    return "" if index is None else f"{index} {name!r}" if name else str(index)


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
