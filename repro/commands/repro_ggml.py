"""`allocsim repro run` on real ggml: choose the libraries, make the runs, and print their tables.

Without `--ggml` every scenario runs on both libraries of the extra `ggml`, called `before` and
`after`. If a library is missing, a scenario given by name is refused before the first run. With
`--all`, the runs on a missing library are skipped, and the reason is printed.

What this module does not see: how a scenario is run (`repro.on_ggml`, `repro.ggml_faults`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import typer

from allocsim.cli.output import Section
from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import WHEELS, find
from allocsim.systems.ggml.access.probe import open_library
from engine.d_differential.side_comparison import Progress
from repro import ggml_faults, on_ggml
from repro.commands.jobs import Job
from repro.commands.matrix import Task
from repro.options import LibraryOptions
from repro.scenario import GgmlFault, Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class GgmlRunOptions:
    """The options of `repro run` for runs on real ggml."""

    options: LibraryOptions
    fixed: bool
    every: bool
    """Whether `--all` was given: a run that is not possible is then skipped instead of refused."""
    refused: Mapping[str, bool]
    """An option that has no meaning on real ggml -> whether it was given."""

    @property
    def sized(self) -> bool:
        """Whether an option gives a size or a number of steps."""
        options = self.options
        return options.full or any(size is not None for size in (options.layers, options.seq, options.steps))


def jobs(
    chosen: Sequence[Scenario | GgmlFault], ggml: str | None, asked: GgmlRunOptions
) -> tuple[list[Job], list[dict[str, Any]]]:
    """Return the jobs to run, and an entry for each run that is skipped.

    Raises EngineError for a library that is missing, and BadParameter of typer for options that
    exclude each other.
    """
    pairs, skipped = _pairs(chosen, ggml, asked)
    return [_job(scenario, which, asked) for scenario, which in pairs], skipped


def tasks(
    chosen: Sequence[Scenario | GgmlFault], ggml: str | None, asked: GgmlRunOptions
) -> tuple[list[Task], list[dict[str, Any]]]:
    """Return the tasks for the rows of the matrix, and the skipped runs, as `jobs` does.

    A fault of ggml has a task for the fault and a task for its twin; with `--fixed`, only the last.
    """
    pairs, skipped = _pairs(chosen, ggml, asked)
    return [task for scenario, which in pairs for task in _tasks(scenario, which, asked)], skipped


def _tasks(scenario: Scenario | GgmlFault, which: str, asked: GgmlRunOptions) -> Iterator[Task]:
    library = which if which in WHEELS else Path(which).name
    if isinstance(scenario, Scenario):
        go = partial(on_ggml.run, scenario, asked.options, which)
        yield Task(name=f"{scenario.name} on {library}", folder=(scenario.name, library), go=go)
        return
    for fixed in (True,) if asked.fixed else (False, True):
        name = f"{scenario.name}{' (fixed)' if fixed else ''} on {library}"
        folder = (f"{scenario.name}-fixed" if fixed else scenario.name, library)
        yield Task(name=name, folder=folder, go=partial(ggml_faults.run, scenario, which, fixed=fixed))


def _pairs(
    chosen: Sequence[Scenario | GgmlFault], ggml: str | None, asked: GgmlRunOptions
) -> tuple[list[tuple[Scenario | GgmlFault, str]], list[dict[str, Any]]]:
    """Return the (scenario, library) pairs that can run, and an entry for each pair that cannot."""
    if asked.every:
        chosen = [scenario for scenario in chosen if isinstance(scenario, GgmlFault) or scenario.on_ggml is not None]
    else:
        _check_usage(chosen, asked)
    libraries = list(WHEELS) if ggml is None else [ggml]
    reasons = {which: _reason(which, all_of_it=asked.every) for which in libraries}
    skipped = [
        {"scenario": scenario.name, "library": {"name": which}, "skipped": reason}
        for scenario in chosen
        for which, reason in reasons.items()
        if reason is not None
    ]
    return [(scenario, which) for scenario in chosen for which in libraries if reasons[which] is None], skipped


def _check_usage(chosen: Sequence[Scenario | GgmlFault], asked: GgmlRunOptions) -> None:
    trained = [scenario for scenario in chosen if isinstance(scenario, Scenario)]
    for option, given in asked.refused.items():
        if given:
            raise typer.BadParameter(f"{option} is for the engine only; real ggml has its own planner and pins nodes")
    if trained and asked.fixed:
        raise typer.BadParameter(
            "--fixed is for the engine only; on real ggml the repaired twin is a newer library (--ggml after)"
        )
    if asked.sized and not trained and any(isinstance(scenario, GgmlFault) for scenario in chosen):
        raise typer.BadParameter("a fault of ggml has one size; --layers, --seq, --steps and --full do not change it")
    for scenario in trained:
        on_ggml.require(scenario)


def _reason(which: str, *, all_of_it: bool) -> str | None:
    """Return the reason why a library cannot be used, or None if it can.

    Without `all_of_it` the library is only looked up, and EngineError is raised if it is missing.
    """
    if not all_of_it:
        find(which)
        return None
    try:
        open_library(which).close()
    except EngineError as error:
        return str(error)
    return None


def _job(scenario: Scenario | GgmlFault, which: str, asked: GgmlRunOptions) -> Job:
    folder = (scenario.name, which if which in WHEELS else Path(which).name)
    if isinstance(scenario, GgmlFault):
        run = partial(ggml_faults.run, scenario, which, fixed=asked.fixed)
        return Job(name=scenario.name, folder=folder, go=lambda _progress: run(), more=_numbers)

    def go(progress: Progress) -> on_ggml.LibraryResult:
        return on_ggml.run(scenario, asked.options, which, progress=progress)

    return Job(name=f"{scenario.name} ({which})", folder=folder, go=go, more=_claims)


def _numbers(result: ggml_faults.FaultResult) -> list[Section]:
    rows = [
        ("found", f"{result.found:.6g}"),
        ("wanted", f"{result.wanted:.6g}"),
        *((key, value) for key, value in result.detail.items()),
    ]
    return [("what the host read", ("", "number"), rows)]


def _claims(result: on_ggml.LibraryResult) -> list[Section]:
    claims = [
        (claim.text, _yes(claim.found), "as expected" if claim.holds else f"expected {_yes(claim.expected)}")
        for claim in result.claims
    ]
    smokes = [
        (smoke.name, "not run" if smoke.agrees is None else _yes(smoke.agrees), smoke.said) for smoke in result.smokes
    ]
    return [
        (f"what ggml {result.version} must show", ("claim", "found", ""), claims),
        ("with only backward nodes pinned", ("", "verdict"), [("", result.partial.text)]),
        ("smoke tests of the report", ("", "default equals reference", "why it cannot see the bug"), smokes),
    ]


def _yes(fact: bool) -> str:  # noqa: FBT001 - a word for a fact
    return "yes" if fact else "no"
