"""`allocsim repro`: list, show and run scenarios of real bugs.

Exit status of `run`: 0 if every verdict is the expected one, 1 if not, 2 for bad usage. With
`--json` standard output holds one JSON document and nothing else. Progress is shown on standard
error, and only if that is a terminal. A report folder is checked before the work begins and written
when a scenario is done; an interrupted `--all` keeps the reports it has made. `--all` skips what
runs on real ggml, with the reason, where no library is installed; what is named by hand exits with
2.

What this module does not see: how a scenario is run (`repro.run`) and drawn (`reports`).
"""

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.cli.output import print_json, print_line, print_table
from repro import scenarios
from repro.commands import repro_ggml
from repro.commands.jobs import Job, run_all
from repro.commands.mode_tables import sections
from repro.options import EngineOptions, LibraryOptions
from repro.run import run
from repro.scenario import GgmlFault, Scenario

app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)


class RunsOn(StrEnum):
    """What executes a scenario."""

    ENGINE = "engine"
    GGML = "ggml"


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command("list")
def list_scenarios(*, as_json: AsJson = False) -> int:
    """List the scenarios with the verdict each must get."""
    every: list[Scenario | GgmlFault] = [*scenarios.every(), *scenarios.every_on_ggml()]
    if as_json:
        print_json({"scenarios": [_entry(scenario) for scenario in every]})
        return 0
    print_table(
        ("name", "runs on", "class", "fault", "what one sees"),
        [(s.name, s.runtime, *s.expected[0], s.title) for s in every],
    )
    return 0


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A scenario, or several joined by +.")], *, as_json: AsJson = False
) -> int:
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


@app.command("run", epilog="Exit status: 0 every verdict is the expected one, 1 one is not, 2 bad usage.")
def run_scenarios(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Scenarios; A+B has both defects.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Run every scenario.")] = False,
    layers: Annotated[int | None, typer.Option(help="Layers of the transformer.", show_default="30")] = None,
    seq: Annotated[int | None, typer.Option(help="Positions of the sequence.", show_default="64")] = None,
    steps: Annotated[int | None, typer.Option(help="Training steps.", show_default="20")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights and data.")] = 0,
    threads: Annotated[
        int, typer.Option(min=0, help="Of the matrix products; 0 takes all cores. Last digits depend on it.")
    ] = 1,
    pin_leafs: Annotated[bool, typer.Option("--pin-leafs", help="The pinned run pins inputs too.")] = False,
    fixed: Annotated[bool, typer.Option("--fixed", help="Run the repaired twin, which must come out clean.")] = False,
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
    runtime: Annotated[RunsOn, typer.Option(help="What executes; faults of ggml always run on ggml.")] = RunsOn.ENGINE,
    ggml: Annotated[
        str | None, typer.Option(help="before, after, or the path of a libggml.", show_default="both")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="With --runtime ggml: the width of SmolLM2-135M, in minutes.")
    ] = False,
    as_json: AsJson = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the report here; below it if there are several.")
    ] = None,
) -> int:
    """Train three ways, ask every detector, and print the verdict."""
    if bool(names) == every:
        raise typer.BadParameter("name scenarios or give --all" + (", not both" if names else ""))
    chosen = [scenarios.find_any(name) for name in names or (*scenarios.MODULES, *scenarios.ON_GGML)]
    jobs: list[Job] = []
    skipped: list[dict[str, Any]] = []
    if runtime is RunsOn.ENGINE:
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
        jobs += [engine_job(scenario, options) for scenario in chosen if isinstance(scenario, Scenario)]
    left = [scenario for scenario in chosen if runtime is RunsOn.GGML or isinstance(scenario, GgmlFault)]
    if left:
        asked = repro_ggml.GgmlRunOptions(
            options=LibraryOptions(layers=layers, seq=seq, steps=steps, seed=seed, threads=threads or _cores(), full=full),
            fixed=fixed, every=every,
            refused={
                "--allocator": allocator != "ggml", "--pin-leafs": pin_leafs, "--modes": bool(modes), "--gguf": gguf is not None,
            } if runtime is RunsOn.GGML else {},
        )  # fmt: skip
        more, skipped = repro_ggml.jobs(left, ggml, asked)
        jobs += more
    elif ggml is not None or full:
        raise typer.BadParameter("--ggml and --full go with --runtime ggml and with faults of ggml")
    return run_all(jobs, skipped, out, as_json=as_json)


def engine_job(scenario: Scenario, options: EngineOptions) -> Job:
    """Return the run of a scenario on the engine."""
    return Job(
        name=scenario.name,
        folder=(scenario.name,),
        go=lambda progress: run(scenario, options, progress=progress),
        more=lambda result: sections(result.differential),
    )


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
