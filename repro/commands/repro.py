"""`allocsim repro`: list, show and run scenarios of real bugs.

The exit status of `run` is 0 if every verdict is the expected one, 1 if not, and 2 for bad usage.
With `--json`, standard output has one JSON document and nothing else. Progress is shown on standard
error if standard error is a terminal. A report folder is checked before the first run, and written
when its scenario is done. If `--all` is interrupted, the reports that were written remain.

`--all` runs every scenario and its twin at a small size and prints a matrix. If a library of ggml
is missing, `--all` skips the runs on that library and prints the reason. If a scenario that needs a
missing library is given by name, the exit status is 2. A path that ends in .py is a user's own
scenario: the file is run as code.

What this module does not see: how a scenario is run (`repro.run`) and drawn (`reports`).
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.cli.output import print_json, print_line, print_table, show_path
from allocsim.cli.progress import counting
from allocsim.errors import EngineError, OutputError
from allocsim.files import replacing
from allocsim.outcomes.telling import wrapped
from allocsim.verdict import CLASSES
from repro import scenarios, small_runs
from repro.commands import repro_ggml, scenario_pages, scenario_words, showing, small_words
from repro.commands.jobs import Job, run_all
from repro.commands.matrix import Task, run_matrix
from repro.commands.mode_tables import sections
from repro.options import EngineOptions, LibraryOptions
from repro.run import run
from repro.scenario import GgmlFault, Scenario, SmallScenario
from repro.scenarios import AnyScenario

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


class RunsOn(StrEnum):
    """The runtimes that can execute a scenario."""

    ENGINE = "engine"
    GGML = "ggml"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_scenarios(*, as_json: AsJson = False) -> int:
    """List the scenarios, each with the first cause that its verdict must name.

    Example: allocsim repro list
    """
    every: list[AnyScenario] = [*scenarios.every(), *scenarios.every_on_ggml(), *scenarios.every_small()]
    if as_json:
        print_json({"scenarios": [_entry(scenario) for scenario in every]})
        return 0
    print_table(
        ("name", "runs on", "class", "fault", "what goes wrong"),
        [(s.name, s.runtime, *s.expected[0], s.title) for s in every],
    )
    return 0


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A scenario, or several joined by +, or a Python file, which is run.")],
    *,
    as_json: AsJson = False,
    plot: Annotated[
        str | None, typer.Option(metavar="X.png", help="Draw the ops near the fault, without the defect and with it.")
    ] = None,
) -> int:
    """Print the story of a scenario, and the ops near the fault without the defect and with it.

    The command runs the scenario; a scenario of the engine is run at a small size. With --json and
    no --plot, nothing is run.

    Example: allocsim repro show ggml-1501
    """
    if plot is not None:
        from reports import check_suffix

        check_suffix(plot)
    scenario = scenarios.named(name)
    both = None if as_json and plot is None else _sides(scenario, needed=plot is not None)
    if plot is not None and both is not None and not isinstance(both, str):
        from reports import plot_figure

        plot_figure(lambda: showing.picture(scenario, both), plot)
    if as_json:
        print_json(_entry(scenario))
        return 0
    for line in _told(scenario, both):
        print_line(line)
    if plot is not None:
        print_line(f"wrote {show_path(plot)}")
    return 0


def _told(scenario: AnyScenario, both: showing.Sides | str | None) -> Iterator[str]:
    yield from (*wrapped(f"{scenario.name}: {scenario.title}"), scenario.source, "", *wrapped(scenario.story), "")
    if isinstance(both, str):
        yield f"the ops near the fault are not shown: {both}"
        yield ""
    elif both is not None:
        yield from showing.graph(both)
    if isinstance(scenario, SmallScenario):
        yield from small_words.tale(scenario)
    else:
        yield from wrapped(f"the defect: {'; '.join(scenario_words.defects(scenario)) or 'none'}")
    yield ""
    for class_, fault in scenario.expected:
        yield from wrapped(f"expected: {class_}, fault of the {fault}: {CLASSES.get(class_, class_)}")
    if not scenario.expected:
        yield "expected: nothing wrong"
    for letter, kinds in scenario_words.answers(scenario).items():
        said = "not run" if kinds is None else kinds or "nothing"
        yield f"  {letter} {scenario_words.DETECTOR_NAMES[letter]:<18}  {said}"
    for line in scenario_words.otherwise(scenario):
        yield from ("", *wrapped(line))
    if scenario.caught:
        yield from ("", *wrapped(f"what would have caught it: {scenario.caught}"))


def _sides(scenario: AnyScenario, *, needed: bool) -> showing.Sides | str:
    """Run both sides; if a fault of ggml cannot run and no picture is `needed`, return why."""
    try:
        return showing.sides(scenario)
    except EngineError as error:
        if needed or not isinstance(scenario, GgmlFault):
            raise
        return str(error)


@app.command()
def gallery(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Scenarios; all of them by default.")
    ] = None,
    *,
    workers: Annotated[int, typer.Option("--jobs", min=1, help="Processes.")] = 1,
    out: Annotated[str, typer.Option("-o", "--out", metavar="X.html", help="The page, the only file written.")],
) -> int:
    """Run the scenarios, and write one page with the story and the picture of each.

    Example: allocsim repro gallery -o gallery.html
    """
    if Path(out).suffix.lower() not in {".html", ".htm"}:
        raise OutputError(f"{out}: the suffix {Path(out).suffix!r} names no page; .html does")
    chosen = names or [*scenarios.MODULES, *scenarios.ON_GGML, *scenarios.SMALL]
    for name in names or ():
        scenarios.named(name)  # an unknown name is refused before the first run
    with replacing(out) as place, counting("scenarios", len(chosen)) as count:
        place.write_bytes(scenario_pages.page(chosen, workers, lambda: count(1)))
    print_line(f"wrote {show_path(out)}")
    return 0


@app.command("run", epilog="Exit status: 0 every verdict is the expected one, 1 one is not, 2 bad usage.")
def run_scenarios(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Scenarios; A+B has the defects of both. A path that ends in .py is run as code.",
        ),
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Run every scenario and its twin at a small size; print a matrix.")
    ] = False,
    workers: Annotated[int, typer.Option("--jobs", min=1, help="With --all: the number of processes.")] = 1,
    layers: Annotated[int | None, typer.Option(help="Layers of the transformer.", show_default="30")] = None,
    seq: Annotated[int | None, typer.Option(help="Positions of the sequence.", show_default="64")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="20")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of weights and data.")] = 0,
    threads: Annotated[
        int,
        typer.Option(
            min=0, help="Threads of the matrix products, 0 for all cores; their number can change last digits."
        ),
    ] = 1,
    pin_leafs: Annotated[bool, typer.Option("--pin-leafs", help="The pinned run pins inputs too.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed", help="Run the repaired twin; its verdict must be sound.")] = False,
    allocator: Annotated[str, typer.Option(help="The planner under test: a name or package.module:function.")] = "ggml",
    modes: Annotated[
        str,
        typer.Option(
            metavar="MODE,...", help="Compare these too: float64, pin:backward, deny, deny:KIND, an allocator, A+B."
        ),
    ] = "",
    gguf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Train on these weights: a GGUF, or safetensors with config.json."),
    ] = None,
    runtime: Annotated[RunsOn, typer.Option(help="The runtime; faults of ggml always run on ggml.")] = RunsOn.ENGINE,
    ggml: Annotated[
        str | None, typer.Option(help="before, after, or the path of a libggml.", show_default="both")
    ] = None,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="With --all: full size. With --runtime ggml: the width of SmolLM2-135M, which takes minutes.",
        ),
    ] = False,
    as_json: AsJson = False,
    plot: Annotated[str | None, typer.Option(metavar="X.png", help="With --all: draw the matrix.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The folder of the report; several reports go into folders below it."),
    ] = None,
) -> int:
    """Train in three modes, run every detector, and print the verdict.

    Example: allocsim repro run ggml-1501 --out out/ggml-1501
    """
    if bool(names) == every:
        raise typer.BadParameter("give names of scenarios or --all" + (", not both" if names else ""))
    if workers > 1 and not every:
        raise typer.BadParameter("--jobs goes with --all")
    if plot is not None and not every:
        raise typer.BadParameter("--plot goes with --all")
    sized = full or gguf is not None or any(size is not None for size in (layers, seq, steps))
    chosen = [scenarios.named(name) for name in names or (*scenarios.MODULES, *scenarios.ON_GGML, *scenarios.SMALL)]
    on_engine = [s for s in chosen if isinstance(s, Scenario) and runtime is RunsOn.ENGINE]
    small = [s for s in chosen if isinstance(s, SmallScenario) and (runtime is RunsOn.ENGINE or not every)]
    if small and not every and (runtime is RunsOn.GGML or (sized and len(small) == len(chosen))):
        raise typer.BadParameter("a small scenario has one size and runs on the engine; leave out sizes and --runtime")
    options = EngineOptions(
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
    left = [s for s in chosen if isinstance(s, GgmlFault) or (isinstance(s, Scenario) and runtime is RunsOn.GGML)]
    jobs: list[Job] = []
    tasks: list[Task] = []
    skipped: list[dict[str, Any]] = []
    if left:
        asked = repro_ggml.GgmlRunOptions(
            options=LibraryOptions(layers=layers, seq=seq, steps=steps, seed=seed, threads=threads or _cores(), full=full),
            fixed=fixed, every=every,
            refused={
                "--allocator": allocator != "ggml", "--pin-leafs": pin_leafs, "--modes": bool(modes), "--gguf": gguf is not None,
            } if runtime is RunsOn.GGML else {},
        )  # fmt: skip
        if every:
            tasks, skipped = repro_ggml.tasks(left, ggml, asked)
        else:
            jobs, skipped = repro_ggml.jobs(left, ggml, asked)
    elif ggml is not None:
        raise typer.BadParameter("--ggml goes with --runtime ggml and with faults of ggml")
    if every:
        both = (True,) if fixed else (False, True)
        trained = [
            _engine_task(s, replace(options if sized else showing.small(s, options), fixed=twin))
            for s in on_engine
            for twin in both
        ]
        tasks = [*trained, *tasks, *(_small_task(s, fixed=fixed) for s in small)]
        return run_matrix(tasks, skipped, out, workers, as_json=as_json, plot=plot)
    jobs = [
        *(engine_job(scenario, options) for scenario in on_engine),
        *jobs,
        *(small_job(scenario, fixed=fixed) for scenario in small),
    ]
    return run_all(jobs, skipped, out, as_json=as_json)


def small_job(scenario: SmallScenario, *, fixed: bool) -> Job:
    """Return the job that runs a small scenario and its twin."""
    return Job(
        name=scenario.name,
        folder=(scenario.name,),
        go=lambda _progress: small_runs.run(scenario, fixed=fixed),
        more=small_words.answers,
    )


def _small_task(scenario: SmallScenario, *, fixed: bool) -> Task:
    return Task(
        name=_titled(scenario.name, fixed=fixed),
        folder=(scenario.name,),
        go=partial(small_runs.run, scenario, fixed=fixed),
    )


def _engine_task(scenario: Scenario, options: EngineOptions) -> Task:
    name = _titled(scenario.name, fixed=options.fixed)
    return Task(name=name, folder=(name.replace(" (fixed)", "-fixed"),), go=partial(run, scenario, options))


def _titled(name: str, *, fixed: bool) -> str:
    return f"{name} (fixed)" if fixed else name


def engine_job(scenario: Scenario, options: EngineOptions) -> Job:
    """Return the job that runs a scenario on the engine."""
    return Job(
        name=scenario.name,
        folder=(scenario.name,),
        go=lambda progress: run(scenario, options, progress=progress),
        more=lambda result: sections(result.differential),
    )


def _entry(scenario: AnyScenario) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "runtime": scenario.runtime,
        "source": scenario.source,
        "story": scenario.story,
        "defects": list(scenario_words.defects(scenario)),
        "expected": [{"class": class_, "fault": fault} for class_, fault in scenario.expected],
        "caught": scenario.caught,
        "reasons": dict(scenario.reasons),
        **(small_words.entry(scenario) if isinstance(scenario, SmallScenario) else {}),
    }


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
