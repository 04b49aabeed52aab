"""`allocsim repro run --all`: compare the answers of the detectors with the expected ones.

The matrix has one row for each run of a scenario and one column for each detector. A cell says
whether the detector reported something, reported nothing, or could not run. A cell differs if the
scenario expects another answer. For a small scenario, the reported kinds and the answers about the
twin are compared too. If a scenario expects causes but states no `reports`, only its verdict is
compared.

With several workers, each worker process makes one row at a time; the matrix and the order of its
rows do not change.

What this module does not see: which scenarios the user requested.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from allocsim.cli.output import print_json, print_line, print_table
from allocsim.cli.progress import counting
from allocsim.files.folders import working_in
from reports import check_suffix, plot_record
from reports.folder import check_folder
from repro.commands.jobs import write
from repro.commands.workers import mapping
from repro.run_records import causes_in_words
from repro.small.answers import DETECTORS
from repro.small_runs import SmallResult

MARKS: Final = {True: "●", False: "·", None: "-"}
"""The answer of a detector -> the sign of its cell; None: the detector could not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The work for one row; `go` can be pickled, because another process may call it."""

    name: str
    folder: tuple[str, ...]
    go: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRow:
    """The answers of the detectors about one scenario."""

    name: str
    runtime: str
    causes: tuple[tuple[str, str], ...]
    """The (class, fault) pairs that the verdict names."""
    cells: dict[str, bool | None]
    """Detector -> whether it reports; None if it could not run."""
    differs: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `matrix` in `repro run --all --json`."""
        words = {True: "reports", False: "nothing", None: "not run"}
        return {
            "scenario": self.name,
            "runtime": self.runtime,
            "causes": [{"class": class_, "fault": fault} for class_, fault in self.causes],
            "answers": {letter: words[cell] for letter, cell in self.cells.items()},
            "differs": list(self.differs),
        }


def run_matrix(
    tasks: Sequence[Task],
    skipped: list[dict[str, Any]],
    out: Path | None,
    workers: int,
    *,
    as_json: bool,
    plot: str | None = None,
) -> int:
    """Run the tasks, print the matrix, and draw it into `plot`; return 1 if a row differs, else 0.

    Raises OutputError before the first run if the suffix of `plot` names no picture format.
    """
    if plot is not None:
        check_suffix(plot)
    folders = [None if out is None else out.joinpath(*task.folder) for task in tasks]
    for folder in filter(None, folders):
        check_folder(folder)
    rows: list[MatrixRow] = []
    entries: list[dict[str, Any]] = []
    with (
        nullcontext() if out is None else working_in(out),
        mapping(min(workers, len(tasks))) as mapped,
        counting("scenarios", len(tasks)) as count,
    ):
        for entry, row in mapped(_done, tasks, folders):
            entries.append(entry)
            rows.append(row)
            count(1)
    wrong = [row for row in rows if row.differs]
    if plot is not None:
        plot_record("verdicts", [row.as_json() for row in rows], plot)
    if as_json:
        matrix = [row.as_json() for row in rows]
        print_json({"runs": entries, "matrix": matrix, **({"skipped": skipped} if skipped else {})})
        return int(bool(wrong))
    _print(rows, skipped)
    return int(bool(wrong))


def _done(task: Task, folder: Path | None) -> tuple[dict[str, Any], MatrixRow]:
    result = task.go()
    entry = result.as_json()
    if folder is not None:
        write(result, folder)
    return entry, row_of(result, task.name)


def row_of(result: Any, name: str) -> MatrixRow:
    """Return the row for the result of any kind of scenario."""
    status = {letter: result.verdict.detectors[letter]["status"] for letter in DETECTORS}
    row = partial(MatrixRow, name=name, causes=tuple((cause.class_, cause.party) for cause in result.verdict.joint))
    if isinstance(result, SmallResult):
        said = result.shown.said
        cells = {letter: None if said[letter] is None else bool(said[letter]) for letter in DETECTORS}
        return row(runtime="small", cells=cells, differs=result.differs)
    cells = {letter: None if status[letter] == "not run" else status[letter] == "violations" for letter in DETECTORS}
    runtime = "ggml" if hasattr(result, "which") else "engine"
    return row(runtime=runtime, cells=cells, differs=tuple(_differing(result, cells)))


def _differing(result: Any, cells: dict[str, bool | None]) -> Iterator[str]:
    """Yield a line for each unexpected cell, and for an unexpected verdict."""
    stated, expected = result.scenario, result.expected
    without = ""
    if hasattr(result, "which") and hasattr(stated, "on_ggml"):  # training on ggml, no row of ggml's faults
        stated, without = stated.on_ggml, stated.on_ggml.reports_fixed
    reports = (stated.reports if expected else without).split()
    known = bool(reports) or not expected
    words = {True: "reports", False: "reports nothing", None: "is not run"}
    for letter in DETECTORS if known else ():
        wanted = None if letter in stated.not_run.split() else letter in reports
        if cells[letter] is not wanted:
            yield f"{letter} {words[cells[letter]]}, expected: {words[wanted]}"
    if not result.matches:
        found = tuple((cause.class_, cause.party) for cause in result.verdict.joint)
        yield f"the verdict names {causes_in_words(found)}, expected {causes_in_words(expected)}"


def _print(rows: Sequence[MatrixRow], skipped: Sequence[dict[str, Any]]) -> None:
    print_table(
        ("scenario", "runs on", *DETECTORS, "the verdict names", ""),
        [
            (
                row.name,
                row.runtime,
                *(MARKS[row.cells[letter]] for letter in DETECTORS),
                causes_in_words(row.causes),
                "DIFFERS" if row.differs else "",
            )
            for row in rows
        ],
    )
    print_line(f"{MARKS[True]} reports, {MARKS[False]} ran and found nothing, {MARKS[None]} could not run")
    for entry in skipped:
        print_line(f"{entry['scenario']} on {entry['library']['name']}: skipped: {entry['skipped']}")
    for row in rows:
        for text in row.differs:
            print_line(f"{row.name}: {text}")
    small = sum(row.runtime == "small" for row in rows)
    wrong = sum(bool(row.differs) for row in rows)
    cells = len(rows) * len(DETECTORS)
    print_line(
        f"{len(rows)} rows of {len(DETECTORS)} detectors, {cells} cells; {small} small scenarios, each with its twin; "
        + (f"{wrong} rows differ from what is expected" if wrong else "none differs from what is expected")
    )
