"""`allocsim check FILE...`: judge every plan, belief and event in files of any supported format, or
folders of evidence.

The answer comes first: what is wrong, one entry for each cause with class, party, places, cure and
price; then what was examined; then the violations under their causes. Exit status 0 where all files
pass, 1 where one has violations that are not known or needs more bytes than `--max-peak`, 2 where
one cannot be judged: it cannot be read, has no plan, or a detector that `--require` names did not
run; the others are judged all the same. What was not examined changes the status in
no other way.

`--json` prints the document of format.md:
`{"files": [{"file", "clean", "count", "truncated", "violations", "warnings", "stats", "causes", "examined"}]}`,
and `{"file", "error"}` for a file that cannot be read; with `--baseline` or `--max-peak` an entry
also says what is `new` and whether it `passes`. Plans laid beside another program than they were
made for are named (`misfits`, `allocsim.programs.fingerprints`); what that does to any byte is for
the judge to say.

`--explore` also runs every plan of a program on several streams, on the engine and with data drawn
from `--seed`, in other orders that its streams allow, and shows the first number that comes out
wrong (the service `explore_orders`). A file whose ops the engine cannot run is refused.

Where something is found, each plan is also run with opaque kernels (`allocsim.opaque`), and every
cause is told with the numbers that differ, or that none did; `--replay` runs what is clean as well,
and what is large.

`--certificate` writes which write each read must find (`allocsim.certificates`), whatever is found
here: `allocsim certify` says whether it is so.

What this module does not see: how plans are judged (`allocsim.judge`) and what is said of it
(`allocsim.outcomes.telling`).
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from allocsim.certificates import certificate_of, certificate_text, terms_of
from allocsim.cli import BAD_INPUT
from allocsim.cli.output import print_error, print_json, print_line, show_path
from allocsim.errors import AllocsimError, DocumentError, ModelError
from allocsim.files import write_atomic
from allocsim.files.gate import CEILINGS, content, record_of
from allocsim.files.sizes import bytes_of
from allocsim.judge.fast.facts import rows_of
from allocsim.judge.violations import NO_MORE, Report, Violation
from allocsim.model import Document
from allocsim.outcomes import JudgeRules, Outcome, baseline, cause_table, denial, judge_file, junit, replayed, sarif
from allocsim.outcomes import github as github_lines
from allocsim.outcomes.description import describe
from allocsim.outcomes.examined import DETECTORS
from allocsim.outcomes.examined import as_json as examined_json
from allocsim.outcomes.telling import lines_of, wrapped
from allocsim.plugins import service
from allocsim.programs.fingerprints import misfits
from allocsim.systems import remarks_on

DEFAULT_LIMIT = 10_000

LISTED: Final = re.compile(r"  (?:  |> )[ \d]*")
"""Where a line of a story begins that stands in columns: an op with its number, or what it did."""

Plain = Annotated[bool, typer.Option("--plain", help="Judge by the plain judge alone: interval by interval, slower.")]
Strict = Annotated[bool, typer.Option("--strict", help="An alias that nobody vouches for is a violation.")]
Kinds = Annotated[
    Path | None, typer.Option("--kinds", metavar="TABLE", help="JSON: which pairs of a kind are safe in place.")
]
Unbounded = Annotated[bool, typer.Option("--unbounded", help="Examine everything, however long it takes.")]
Required = Annotated[
    str, typer.Option("--require", metavar="S,L,K", help="Detectors that must have run; else exit status 2.")
]


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Documents, files of another format, evidence folders, or - for a document on standard input.",
        ),
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="Violations listed for each file.")] = DEFAULT_LIMIT,
    explain: Annotated[
        int, typer.Option(min=0, metavar="N", help="Tell the story of the first N, with the ops round them.")
    ] = 0,
    require: Required = "",
    plain: Plain = False,
    strict: Strict = False,
    kinds: Kinds = None,
    unbounded: Unbounded = False,
    max_peak: Annotated[
        str | None, typer.Option(metavar="BYTES", help="No plan may need more, as 4096 or 1.5MiB.")
    ] = None,
    known: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Known violations, which do not count.")
    ] = None,
    write_baseline: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what is found as known.")] = None,
    junit_file: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    sarif_file: Annotated[Path | None, typer.Option("--sarif", metavar="FILE", help="Write SARIF 2.1.0.")] = None,
    findings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a row for each cause: .csv, or .json as columns.")
    ] = None,
    github: Annotated[bool, typer.Option("--github", help="Annotations and a job summary for GitHub.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what each read must find, for `allocsim certify`.")
    ] = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Run other legal orders of streams on the engine.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the data and the orders of --explore.")] = 0,
    replay: Annotated[
        bool, typer.Option("--replay", help="Run each plan with opaque kernels; say which numbers differ.")
    ] = False,
) -> int:
    """Exit status: 0 nothing found, 1 something found that is not known or a peak too high, 2 a
    file cannot be judged, or a required detector did not run.

    Example: allocsim check plan.json --explain 1
    """
    most = None if max_peak is None else bytes_of(max_peak)
    marks = frozenset[str]() if known is None else baseline.read(known)
    required = letters_of(require)
    table = None if findings is None else table_for(findings)
    if certificate is not None and len(files) != 1:
        raise AllocsimError(f"--certificate: one certificate is of one file; {len(files)} are given")
    if github and as_json:
        raise AllocsimError("--github: annotations are lines beside the text; leave out --json")
    off, on = github_lines.switch()
    if github:
        print_line(off)
    rules = JudgeRules(limit=limit, plain=plain, strict=strict, kinds=kinds_table(kinds), unbounded=unbounded)
    orders = service("explore_orders") if explore else None
    entries: list[dict[str, Any]] = []
    outcomes: list[Outcome] = []
    for path in files:
        outcome = judge_file(path, rules=rules, known=marks, max_peak=most, cures=True, required=required)
        outcome, explored = explored_orders(outcome, orders, seed)
        outcome = replayed(outcome, rules, asked=replay)
        outcomes.append(outcome)
        print_errors(outcome, untold=as_json)
        if outcome.report is None or outcome.document is None:
            entries.append({"file": path, "error": outcome.error})
        elif as_json:
            gates = {} if known is None and most is None else {"new": outcome.new, "passes": outcome.passes}
            entries.append(file_entry(outcome, outcome.document, gates, explored))
        else:
            print_judged(outcome, outcome.document, explored, explain)
    if as_json:
        print_json({"files": entries})
    wanted = [(write_baseline, baseline.dumps), (junit_file, junit.dumps), (sarif_file, sarif.dumps), (findings, table)]
    for target, dumps in wanted:
        if target is not None and dumps is not None:
            write_atomic(target, dumps(outcomes))
    write_certificate(certificate, outcomes[0])
    if github:
        print_line(on)
        print_for_github(outcomes)
    status = max(outcome.status for outcome in outcomes)
    return status if write_baseline is None or status == BAD_INPUT else 0


def print_errors(outcome: Outcome, *, untold: bool) -> None:
    """Print why a file was not judged; errors of this program too where no text tells them."""
    told = [outcome.failed, denial(outcome) if outcome.denied else None] if untold else []
    for error in filter(None, (outcome.error, *told)):
        print_error(error)


def explored_orders(outcome: Outcome, orders: Any, seed: int) -> tuple[Outcome, list[dict[str, Any]] | None]:
    """Return a judged file with what other legal orders of streams gave, None where they were not
    run: `orders` runs them, None where nobody asked. What cannot be run is the file's error.
    """
    if orders is None or outcome.document is None:
        return outcome, None
    try:
        return outcome, orders(outcome.document, seed)
    except AllocsimError as error:
        return Outcome(file=outcome.file, error=str(error)), None


def file_entry(
    outcome: Outcome, document: Document, gates: Mapping[str, Any], explored: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return a judged file as an entry of `files`, with all that is said of it."""
    strange = misfits(document)
    return {
        **outcome_entry(outcome),
        **gates,
        **({} if explored is None else {"explore": explored}),
        **({"misfits": strange} if strange else {}),
        **remarks_on(document, outcome.causes),
    }


def print_judged(outcome: Outcome, document: Document, explored: list[dict[str, Any]] | None, shown: int) -> None:
    """Print what is said of a judged file, with the stories of the first violations."""
    for line in (*lines_of(outcome), *(part for text in misfits(document) for part in wrapped(text, "  ", "    "))):
        print_line(line)
    print_remarks(remarks_on(document, outcome.causes))
    for entry in explored or []:
        print_line(f"  plan {entry['plan']}: {entry['says']}")
    print_gates(outcome)
    print_explained(document, outcome, shown)


def write_certificate(target: Path | None, outcome: Outcome) -> None:
    """Write what each read of a judged file must find, where a file for that is named."""
    if target is not None and outcome.document is not None:
        write_atomic(target, certificate_text(certificate_of(terms_of(outcome.document))).encode())


def kinds_table(path: Path | None) -> Any:
    """Return the table of kinds in a file, None without one.

    Raises DocumentError for what is no table, or cannot be read.
    """
    if path is None:
        return None
    table: dict[str, Any] = record_of(
        content(path, CEILINGS["record"]), dict[str, Any], str(path), what="table of kinds"
    )
    try:
        rows_of(table)
    except ModelError as error:
        raise DocumentError(str(path), error.place, error.rule) from None
    return table


def letters_of(text: str) -> str:
    """Return the letters of detectors that `--require` names, as `S,L,K`.

    Raises AllocsimError for one that there is not.
    """
    letters = [letter.strip().upper() for letter in text.split(",") if letter.strip()]
    for letter in letters:
        if letter not in DETECTORS or len(letter) != 1:
            raise AllocsimError(f"--require: {letter!r} is no detector; they are {', '.join(DETECTORS)}")
    return "".join(dict.fromkeys(letters))


def outcome_entry(outcome: Outcome) -> dict[str, Any]:
    """Return a judged file as an entry of `files`."""
    assert outcome.report is not None
    return {
        "file": outcome.file,
        **report_entry(outcome.report),
        "causes": [cause.as_json(patched=True) for cause in outcome.causes],
        "examined": examined_json(outcome.examined),
        **({"failed": outcome.failed} if outcome.failed else {}),
        **({} if outcome.confirmation is None else {"confirmed": outcome.confirmation.as_json()}),
        **({"denied": [record(violation) for violation in outcome.denied]} if outcome.denied else {}),
        **({} if outcome.replay is None else {"replay": outcome.replay.as_json()}),
    }


def table_for(path: Path) -> Callable[[Iterable[Outcome]], bytes]:
    """Return what writes a table of causes. Raises AllocsimError for a suffix that it has not."""
    made = {".csv": cause_table.as_csv, ".json": cause_table.as_columns}.get(path.suffix.lower())
    if made is None:
        raise AllocsimError(f"--findings: {show_path(path)}: a table of causes is .csv or .json")
    return made


def print_for_github(outcomes: Iterable[Outcome]) -> None:
    """Print the annotations, and add the summary to the file of the job, where there is one."""
    for line in github_lines.annotations(outcomes):
        print_line(line)
    target = os.environ.get(github_lines.STEP_SUMMARY)
    if target:
        with Path(target).open("a", encoding="utf-8") as file:  # the file is the job's: others add to it too
            file.write(github_lines.summary(outcomes))


def print_remarks(remarks: Mapping[str, list[str]]) -> None:
    """Print hints, and what was assumed."""
    for name, texts in remarks.items():
        for text in texts:
            for line in wrapped(f"{name.removesuffix('s')}: {text}", "  ", "    "):
                print_line(line)


def print_gates(outcome: Outcome) -> None:
    """Print how many of the violations were known."""
    known = sum(finding.known for finding in outcome.findings)
    if known:
        print_line(f"  {known} violation{'s'[: known != 1]} known, {outcome.new} new")


def print_explained(document: Document, outcome: Outcome, shown: int) -> None:
    """Print the stories of the first violations that are not known, late reads first."""
    fresh = [finding for finding in outcome.findings if not finding.known]
    late_first = sorted(fresh, key=lambda finding: finding.violation.kind != "StaleRead")
    for finding in late_first[:shown]:
        print_line("")
        head, *story = describe(document, finding.violation, cause=finding.cause).splitlines()
        for line in wrapped(head, "", "  "):
            print_line(line)
        for line in story:
            stand = LISTED.match(line)
            start = "" if stand is None else stand[0]
            indents = (start, f"{' ' * len(start)}  ") if start else ("  ", "    ")
            for part in wrapped(line.removeprefix(start).strip(), *indents):
                print_line(part)


def report_entry(report: Report) -> dict[str, Any]:
    """Return a report as the JSON object of format.md."""
    return {
        "clean": report.clean,
        "count": report.count,
        "truncated": report.truncated,
        **({"unexamined": list(report.unexamined)} if report.unexamined else {}),
        "violations": [record(violation) for violation in report.violations],
        "warnings": [record(warning) for warning in report.warnings],
        "stats": asdict(report.stats),
    }


def record(violation: Violation) -> dict[str, Any]:
    """Return a violation as the JSON object of format.md: indices, null where they do not apply,
    with the names beside them.
    """
    fields: dict[str, Any] = asdict(replace(violation, more=NO_MORE))
    del fields["more"]
    names: dict[str, Any] = fields.pop("names")
    race = {name: fields.pop(name) for name in ("in_apart", "hazards", "schedule")}
    fields["bytes"] = [list(run) for run in violation.bytes]
    return fields | names | (race if violation.kind == "Race" else {})
