"""Run scenarios one after another; after each run, print its result and write its report.

Report folders are checked and locked before the first run. If the series is interrupted, the
reports that were written remain.

What this module does not see: which runs the user requested, and how a scenario is run.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocsim.cli.output import Section, in_bytes, print_json, print_line, print_table
from allocsim.cli.progress import stepping
from allocsim.files.folders import working_in
from allocsim.verdict.evidence import files_of
from engine.d_differential.side_comparison import Progress
from reports.folder import check_folder, write_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run of a scenario, on the engine or on one library of ggml."""

    name: str
    folder: tuple[str, ...]
    """The path of the report below the folder of `--out`, before `shortened` drops levels."""
    go: Callable[[Progress], Any]
    """A function that runs the scenario and returns a result of `repro`."""
    more: Callable[[Any], list[Section]] = lambda _result: []
    """A function that returns the further tables to print for this kind of result."""


def run_all(jobs: list[Job], skipped: list[dict[str, Any]], out: Path | None, *, as_json: bool) -> int:
    """Run the jobs, write their reports, and print each result and then the skipped runs; return 1
    if any result is not the expected one, else 0.
    """
    places = shortened([job.folder for job in jobs])
    folders = [None if out is None else out.joinpath(*place) for place in places]
    entries: list[dict[str, Any]] = []
    with ExitStack() as claims:
        for place in filter(None, folders):
            check_folder(place)
        for place in filter(None, folders):
            claims.enter_context(working_in(place))
        for job, folder in zip(jobs, folders, strict=True):
            with stepping(job.name) as progress:
                result = job.go(progress)
                entries.append(result.as_json())
                if folder is not None:
                    progress("report", 0, 1)
                    write(result, folder)
            if not as_json:
                print_result(result, job.more(result))
                print_line(_ending(result))
                print_folder(folder)
    for entry in skipped if not as_json else ():
        print_line(f"{entry['scenario']} on {entry['library']['name']}: skipped: {entry['skipped']}")
    if as_json:
        print_json({"runs": entries, **({"skipped": skipped} if skipped else {})})
    return int(not all(entry["matches"] for entry in entries))


def shortened(folders: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the paths without the levels at which all are equal; a single path becomes empty."""
    levels = [
        level
        for level in range(max(map(len, folders), default=0))
        if len({folder[level : level + 1] for folder in folders}) > 1
    ]
    return [tuple(folder[level] for level in levels if level < len(folder)) for folder in folders]


def write(result: Any, folder: Path) -> None:
    """Write the report of a result, and its evidence, into a folder."""
    write_report(result.as_json(), result.evidence.document, folder, files_of(result.evidence))


def print_result(result: Any, more: list[Section]) -> None:
    """Print losses, gradients and arenas, the answer of each detector, and the verdict."""
    print_line(result.title)
    if result.modes:
        _print_training(result.modes)
    for section in more:
        _section(*section, words=True)
    _section(
        "detectors",
        ("", "says", "count", "why"),
        [(name, says["status"], says["count"], _note(says)) for name, says in result.verdict.detectors.items()],
    )
    print_line("")
    first, *others = result.verdict.clauses
    print_line(f"verdict: {first}")
    for clause in others:
        print_line(f"  {clause}")


def print_folder(folder: Path | None) -> None:
    """Print the path of the report; print nothing if `folder` is None."""
    if folder is not None:
        print_line(f"report: {folder / 'report.md'}")


def _print_training(modes: Mapping[str, Any]) -> None:
    default = modes["default"]
    _section(
        "loss by step",
        ("step", *modes),
        [(step + 1, *(_number(mode.loss[step]) for mode in modes.values())) for step in range(len(default.loss))],
    )
    step = default.first_difference or 1
    shown = [g for g in default.gradients if g.step == step]
    tensors = list(dict.fromkeys(_within_layer(g.tensor) for g in shown))
    by_layer: dict[int | None, dict[str, str]] = {}
    for g in shown:
        by_layer.setdefault(g.layer, {})[_within_layer(g.tensor)] = (
            f"{_number(g.ratio, '.4g')} / {_number(g.cosine, '.3f')}"
        )
    if shown:
        _section(
            f"gradients of step {step}, default against reference: length ratio / cosine",
            ("layer", *tensors),
            [
                (layer, *(row.get(name, "") for name in tensors))
                for layer, row in sorted(by_layer.items(), key=lambda x: x[0] or 0)
            ],
        )
    _section("arenas", ("plan", "bytes"), [(name, in_bytes(mode.arena_bytes)) for name, mode in modes.items()])


def _section(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], *, words: bool = False) -> None:
    print_line("")
    print_line(title)
    print_table(columns, rows, right=columns[1:] if columns[0] and not words else ())


def _within_layer(tensor: str) -> str:
    return tensor.split(".", 2)[-1] if tensor.startswith("layer.") else tensor


def _number(value: float | None, form: str = ".6f") -> str:
    return "null" if value is None else format(value, form)


def _note(says: Any) -> str:
    unsafe = says.get("unsafe") or ()
    return str(says.get("why") or (f"first: {says['first']}" if says.get("first") else ", ".join(unsafe)))


def _ending(result: Any) -> str:
    if result.matches:
        return "as expected"
    count = len(getattr(result, "differs", ()))
    if count:
        return f"NOT as expected: {count} {'answer differs' if count == 1 else 'answers differ'} (above)"
    return f"NOT as expected: {_expected(result.expected)}"


def _expected(expected: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{class_} by the {fault}" for class_, fault in expected) or "nothing wrong"
