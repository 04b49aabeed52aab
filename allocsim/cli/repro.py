"""`allocsim repro`: list, show and run scenarios of real bugs.

Exit status of `run`: 0 if every verdict is the expected one, 1 if not, 2 for bad usage. With `--json` standard output holds one
JSON document and nothing else. Progress is shown on standard error, and only if that is a terminal. A report folder is
checked before the work begins and written when a scenario is done; an interrupted `--all` keeps the reports it has made. `--all` skips
what runs on real ggml, with the reason, where no library is installed; what is named by hand exits with 2.

What this module does not see: how a scenario is run (`repro.run`) and drawn (`reports`).
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.cli.modes import sections
from allocsim.cli.output import in_bytes, print_json, print_line, print_table
from allocsim.evidence import save
from repro import scenarios
from repro.bench import Options, Progress
from repro.run import run
from repro.scenario import GgmlFault, Scenario

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)

Section = tuple[str, tuple[str, ...], list[tuple[Any, ...]]]
"""Title, columns and rows."""


class Runtime(StrEnum):
    """What executes a scenario."""

    ENGINE = "engine"
    GGML = "ggml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One run: of a scenario, on the engine or on one library."""

    name: str
    folder: tuple[str, ...]
    """Where its report lies below the folder asked for, if there are several."""
    go: Callable[[Progress], Any]
    """Runs it and returns a result of `repro`."""
    more: Callable[[Any], list[Section]] = lambda _result: []
    """What is printed of this kind of result beside what all have."""


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_scenarios(*, as_json: AsJson = False) -> int:
    """List the scenarios with the verdict each must get."""
    every: list[Scenario | GgmlFault] = [*scenarios.every(), *scenarios.every_on_ggml()]
    if as_json:
        print_json({"scenarios": [_entry(scenario) for scenario in every]})
        return 0
    print_table(
        ("name", "runs on", "class", "fault", "what one sees"), [(s.name, s.runtime, *s.expected[0], s.title) for s in every]
    )
    return 0


@app.command()
def show(name: Annotated[str, typer.Argument(help="A scenario, or several joined by +.")], *, as_json: AsJson = False) -> int:
    """Show what a scenario does and what must be found."""
    scenario = scenarios.find_any(name)
    if as_json:
        print_json(_entry(scenario))
        return 0
    for line in (f"{scenario.name}: {scenario.title}", scenario.source, scenario.story):
        print_line(line)
    print_line("defects: " + "; ".join(_defects(scenario)))
    print_line("expected: " + ", ".join(f"{class_}, fault of the {fault}" for class_, fault in scenario.expected))
    return 0


@app.command("run")
def run_scenarios(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Scenarios; A+B has both defects.")] = None,
    *,
    run_all: Annotated[bool, typer.Option("--all", help="Run every scenario.")] = False,
    layers: Annotated[int | None, typer.Option(help="Layers of the transformer.", show_default="30")] = None,
    seq: Annotated[int | None, typer.Option(help="Positions of the sequence.", show_default="64")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="20")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and data.")] = 0,
    threads: Annotated[int, typer.Option(min=0, help="Of the matrix products; 0 takes all cores. Last digits depend on it.")] = 1,
    pin_leafs: Annotated[bool, typer.Option("--pin-leafs", help="The pinned run pins inputs too.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed", help="Run the repaired twin, which must come out clean.")] = False,
    allocator: Annotated[str, typer.Option(help="The planner under test: a name or package.module:function.")] = "ggml",
    modes: Annotated[
        str,
        typer.Option(metavar="MODE,...", help="Compare these too: float64, pin:backward, deny, deny:KIND, an allocator, A+B."),
    ] = "",
    gguf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Train on these weights: a GGUF, or safetensors with config.json.")
    ] = None,
    runtime: Annotated[Runtime, typer.Option(help="What executes; faults of ggml always run on ggml.")] = Runtime.ENGINE,
    ggml: Annotated[str | None, typer.Option(help="before, after, or the path of a libggml.", show_default="both")] = None,
    full: Annotated[bool, typer.Option("--full", help="With --runtime ggml: the width of SmolLM2-135M, in minutes.")] = False,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write the report here; below it if there are several.")] = None,
) -> int:
    """Train three ways, ask every detector, and print the verdict."""
    if bool(names) == run_all:
        raise typer.BadParameter("name scenarios or give --all" + (", not both" if names else ""))
    chosen = [scenarios.find_any(name) for name in names or (*scenarios.MODULES, *scenarios.ON_GGML)]
    jobs: list[Job] = []
    skipped: list[dict[str, Any]] = []
    if runtime is Runtime.ENGINE:
        options = Options(
            layers=layers,
            seq=seq,
            steps=steps,
            seed=seed,
            threads=threads or _cores(),
            pin_leafs=pin_leafs,
            fixed=fixed,
            allocator=allocator,
            modes=tuple(filter(None, modes.split(","))),
            weights=None if gguf is None else str(gguf),
        )
        jobs += [engine_job(scenario, options) for scenario in chosen if isinstance(scenario, Scenario)]
    left = [scenario for scenario in chosen if runtime is Runtime.GGML or isinstance(scenario, GgmlFault)]
    if left:
        from allocsim.cli import repro_ggml  # noqa: PLC0415  # only where real ggml is asked for

        asked = repro_ggml.Asked(
            layers=layers, seq=seq, steps=steps, seed=seed, threads=threads or _cores(), full=full, fixed=fixed, every=run_all,
            refused={
                "--allocator": allocator != "ggml", "--pin-leafs": pin_leafs, "--modes": bool(modes), "--gguf": gguf is not None,
            } if runtime is Runtime.GGML else {},
        )  # fmt: skip
        more, skipped = repro_ggml.jobs(left, ggml, asked)
        jobs += more
    elif ggml is not None or full:
        raise typer.BadParameter("--ggml and --full go with --runtime ggml and with faults of ggml")
    return _run_all(jobs, skipped, out, as_json=as_json)


def engine_job(scenario: Scenario, options: Options) -> Job:
    """Return the run of a scenario on the engine."""
    return Job(
        name=scenario.name,
        folder=(scenario.name,),
        go=lambda progress: run(scenario, options, progress=progress),
        more=lambda result: sections(result.differential),
    )


def _run_all(jobs: list[Job], skipped: list[dict[str, Any]], out: Path | None, *, as_json: bool) -> int:
    """Run the jobs in order, print each, write their reports; 1 if one is not as expected. What was skipped comes last."""
    places = shortened([job.folder for job in jobs])
    folders = [None if out is None else out.joinpath(*place) for place in places]
    _check_folders(folders)
    entries: list[dict[str, Any]] = []
    for job, folder in zip(jobs, folders, strict=True):
        with _progress(job.name) as progress:
            result = job.go(progress)
            entries.append(result.as_json())
            if folder is not None:
                progress("report", 0, 1)
                _write(result, folder)
        if not as_json:
            _print(result, folder, job.more(result))
    for entry in skipped if not as_json else ():
        print_line(f"{entry['scenario']} on {entry['library']['name']}: skipped: {entry['skipped']}")
    if as_json:
        print_json({"runs": entries, **({"skipped": skipped} if skipped else {})})
    return int(not all(entry["matches"] for entry in entries))


def shortened(folders: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Leave out what all folders have in common: one run lies in the folder asked for itself."""
    levels = [
        level for level in range(max(map(len, folders), default=0)) if len({folder[level : level + 1] for folder in folders}) > 1
    ]
    return [tuple(folder[level] for level in levels if level < len(folder)) for folder in folders]


def _check_folders(folders: list[Path | None]) -> None:
    from reports.folder import check_folder  # noqa: PLC0415  # only where a report is wanted

    for folder in folders:
        if folder is not None:
            check_folder(folder)


def _write(result: Any, folder: Path) -> None:
    from reports.folder import write_report  # noqa: PLC0415  # as above

    write_report(result.as_json(), result.evidence.document, folder)
    save(result.evidence, folder)


def _print(result: Any, folder: Path | None, more: list[Section]) -> None:
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
    print_line("as expected" if result.matches else f"NOT as expected: {_expected(result.expected)}")
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
        by_layer.setdefault(g.layer, {})[_within_layer(g.tensor)] = f"{_number(g.ratio)} / {_number(g.cosine)}"
    _section(
        f"gradients of step {step}, default against reference: length ratio / cosine",
        ("layer", *tensors),
        [(layer, *(row.get(name, "") for name in tensors)) for layer, row in sorted(by_layer.items(), key=lambda x: x[0] or 0)],
    )
    _section("arenas", ("plan", "bytes"), [(name, in_bytes(mode.arena_bytes)) for name, mode in modes.items()])


def _section(title: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], *, words: bool = False) -> None:
    print_line("")
    print_line(title if sys.stdout.isatty() else f"{title} ({', '.join(filter(None, columns))})")
    print_table(columns, rows, right=columns[1:] if columns[0] and not words else ())


def _within_layer(tensor: str) -> str:
    return tensor.split(".", 2)[-1] if tensor.startswith("layer.") else tensor


def _number(value: float | None) -> str:
    return "null" if value is None else f"{value:.6f}"


def _note(says: Any) -> str:
    unsafe = says.get("unsafe") or ()
    return str(says.get("why") or (f"first: {says['first']}" if says.get("first") else ", ".join(unsafe)))


def _expected(expected: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{class_} by the {fault}" for class_, fault in expected) or "nothing wrong"


def _entry(scenario: Scenario | GgmlFault) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "runtime": scenario.runtime,
        "source": scenario.source,
        "story": scenario.story,
        "defects": list(_defects(scenario)),
        "expected": [{"class": class_, "fault": fault} for class_, fault in scenario.expected],
    }


def _defects(scenario: Scenario | GgmlFault) -> Iterator[str]:
    if isinstance(scenario, GgmlFault):
        yield f"real ggml, as it is: {scenario.fault}"
        return
    for kind, variant in scenario.kernels.items():
        yield f"the kernel of {kind} in its {variant} form"
    if scenario.belief is not None:
        yield f"a wrong belief: {(scenario.belief.__doc__ or '').strip().splitlines()[0]}"
    for name in scenario.write_once:
        yield f"{name} is written before the first run only"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(name: str) -> Iterator[Progress]:
    """Give a bar on standard error if that is a terminal, and silence otherwise."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415  # only on a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # as above
    from rich.progress import Progress as Bar  # noqa: PLC0415  # as above

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None)
        yield lambda what, done, total: bar.update(task, description=f"{name}: {what}", completed=done, total=total)
