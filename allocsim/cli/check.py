"""`allocsim check FILE...`: judge every plan, belief and event in files of any supported format.

Exit status 0 where all files pass, 1 where one has violations that are not known or needs more bytes than `--max-peak`, 2 where one
cannot be read; the others are judged all the same. `--json` prints the document of format.md: `{"files": [{"file", "clean", "count",
"truncated", "violations", "warnings", "stats"}]}`, and `{"file", "error"}` for a file that cannot be read; with `--baseline` or
`--max-peak` an entry also says what is `new` and whether it `passes`. Plans laid beside another program than they were made for are named
(`misfits`, `allocsim.programs.fingerprints`); what that does to any byte is for the judge to say.

`--explore` also runs every plan of a program on several streams, on the engine and with data drawn from `--seed`, in other orders that its streams
allow, and shows the first number that comes out wrong (the service `explore_orders`). A file whose ops the engine cannot run is refused.

What this module does not see: how plans are judged (`allocsim.checks`).
"""

import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.checks.violations import Report, Violation
from allocsim.cli import BAD_INPUT
from allocsim.cli.output import in_bytes, print_error, print_json, print_line, print_table, show_path
from allocsim.errors import AllocsimError
from allocsim.files import write_atomic
from allocsim.files.sizes import bytes_of
from allocsim.model import Document
from allocsim.outcomes import Outcome, baseline, judge_file, junit, sarif
from allocsim.outcomes.description import describe
from allocsim.plugins import service
from allocsim.programs.fingerprints import misfits

DEFAULT_LIMIT = 10_000
EXPLAINED_ON_TERMINAL = 3

OptionalFile = Annotated[Path | None, typer.Option(metavar="FILE")]


def check(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Native documents, or files of another format.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Violations listed for each file.")] = DEFAULT_LIMIT,
    explain: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Show the first N with the ops round them; 3 on a terminal, else 0.")
    ] = None,
    max_peak: Annotated[str | None, typer.Option(metavar="BYTES", help="No plan may need more, as 4096 or 1.5MiB.")] = None,
    known: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Known violations, which do not count.")
    ] = None,
    write_baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what is found as known.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    sarif_file: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")] = None,
    explore: Annotated[bool, typer.Option("--explore", help="Run other legal orders of streams on the engine.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the data and the orders of --explore.")] = 0,
) -> int:
    """Exit status: 0 all pass, 1 violations that are not known or a peak too high, 2 a file cannot be read."""
    most = None if max_peak is None else bytes_of(max_peak)
    marks = frozenset[str]() if known is None else baseline.read(known)
    shown = explain if explain is not None else EXPLAINED_ON_TERMINAL * sys.stdout.isatty()
    attributed = bool(shown) or any(option is not None for option in (known, write_baseline, junit_file, sarif_file))
    orders = service("explore_orders") if explore else None
    entries: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    for path in files:
        outcome = judge_file(path, limit=limit, known=marks, max_peak=most, causes_too=attributed)
        document, explored = outcome.document, None
        if orders is not None and document is not None:
            try:
                explored = orders(document, seed)
            except AllocsimError as error:
                outcome = Outcome(file=path, error=str(error))
        outcomes.append(outcome)
        if outcome.report is None or document is None:
            entries.append({"file": path, "error": outcome.error})
            print_error(outcome.error or "")
            continue
        gates = {} if known is None and most is None else {"new": outcome.new, "passes": outcome.passes}
        other = {} if explored is None else {"explore": explored}
        strange = misfits(document)
        entries.append(
            {"file": path, **report_entry(outcome.report), **gates, **other, **({"misfits": strange} if strange else {})}
        )
        if not as_json:
            print_report(path, outcome.report)
            for line in strange:
                print_line(f"  {line}")
            for entry in explored or []:
                print_line(f"  plan {entry['plan']}: {entry['says']}")
            _print_gates(outcome)
            _print_explained(document, outcome, shown)
    if as_json:
        print_json({"files": entries})
    for target, dumps in _written(write_baseline, junit_file, sarif_file):
        write_atomic(target, dumps(outcomes))
    if any(outcome.error is not None for outcome in outcomes):
        return BAD_INPUT
    return int(write_baseline is None and not all(outcome.passes for outcome in outcomes))


def _written(
    known: Path | None, junit_file: Path | None, sarif_file: Path | None
) -> list[tuple[Path, Callable[[Iterable[Outcome]], bytes]]]:
    wanted = ((known, baseline.dumps), (junit_file, junit.dumps), (sarif_file, sarif.dumps))
    return [(path, dumps) for path, dumps in wanted if path is not None]


def _print_gates(outcome: Outcome) -> None:
    known = sum(finding.known for finding in outcome.findings)
    if known:
        print_line(f"  {_count(known, 'violation')} known, {outcome.new} new")
    if outcome.over_peak and outcome.report is not None and outcome.max_peak is not None:
        peak, most = outcome.report.stats.peak_bytes, outcome.max_peak
        print_line(f"  the plan needs {in_bytes(peak)} ({peak} bytes); at most {in_bytes(most)} ({most} bytes) are allowed")


def _print_explained(document: Document, outcome: Outcome, shown: int) -> None:
    fresh = [finding for finding in outcome.findings if not finding.known]
    late_first = sorted(fresh, key=lambda finding: finding.violation.kind != "StaleRead")
    for finding in late_first[:shown]:
        print_line("")
        for line in describe(document, finding.violation, cause=finding.cause).splitlines():
            print_line(line)


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
