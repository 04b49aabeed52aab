"""Services: a model of one's own, judged by three runs and every detector.

`diagnose_model` is behind `engine.diagnose`, `diagnose_named` behind `allocsim diagnose NAME` for a
name `package.module:attribute` (a model with an example batch, or a scenario) and for a training
file. Nothing is expected of the verdict: the exit status is 0 where nothing wrong was found, and 1
otherwise.

What this module does not see: how a scenario is run (`repro.run`) and drawn (`reports`).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from allocsim.cli.output import Section, in_bytes, print_json
from allocsim.cli.progress import stepping
from allocsim.files.folders import working_in
from allocsim.liveness.memory_categories import CATEGORIES
from engine.models.trainable import Model
from engine.training.measured_memory import MemoryOfRun
from reports.folder import check_folder
from repro.commands.jobs import print_folder, print_result, write
from repro.commands.mode_tables import sections
from repro.options import EngineOptions
from repro.own_models import HOW, find_own, find_trained, trial
from repro.run import EngineResult, run
from repro.scenario import Scenario

STEPS: Final = 5
"""Trained where nobody says how many, and no scenario does."""


def diagnose_model(
    model: Model, data: Any, *, steps: int = STEPS, out: str | Path | None = None, **asked: Any
) -> EngineResult:
    """Return three runs, the evidence of every detector and the verdict; with `out` a report folder
    too.

    `asked` are arguments of `repro.trial` and fields of `EngineOptions`; errors as there.
    """
    how = {key: value for key, value in asked.items() if key not in EngineOptions.__dataclass_fields__}
    options = {key: value for key, value in asked.items() if key not in how}
    with _kept(None if out is None else Path(out)):
        scenario = trial(model, model.example if data is None else data, steps=steps, **how)
        result = run(scenario, EngineOptions(measure=True, **options))
        if out is not None:
            write(result, Path(out))
    return result


def diagnose_named(name: str, asked: Mapping[str, Any], out: Path | None, *, as_json: bool) -> int:
    """Run what a person named, print it, write the report if there is a folder; 0 where nothing
    wrong was found, else 1.

    `asked` holds what was given on the command line of `data`, `loss`, `optimizer`, and of the
    fields of `EngineOptions`.
    """
    how = {key: value for key, value in asked.items() if key in HOW}
    scenario = _scenario(name, how)
    options = EngineOptions(measure=True, **{key: value for key, value in asked.items() if key not in how})
    with _kept(out), stepping(scenario.name) as progress:
        result = run(scenario, options, progress=progress)
        if out is not None:
            progress("report", 0, 1)
            write(result, out)
    if as_json:
        print_json({"runs": [result.as_json()]})
    else:
        print_result(result, [*memory_table(result.memory), *sections(result.differential)])
        print_folder(out)
    return int(not result.verdict.sound)


@contextmanager
def _kept(out: Path | None) -> Iterator[None]:
    """Check the folder of a report and keep it to this command, where one is asked for."""
    if out is None:
        yield
        return
    check_folder(out)
    with working_in(out):
        yield


def _scenario(name: str, how: Mapping[str, Any]) -> Scenario:
    if name.endswith(".toml"):
        return find_trained(Path(name), how, steps=STEPS)
    return find_own(name, how, steps=STEPS)


def memory_table(memory: MemoryOfRun | None) -> list[Section]:
    """Return memory by category at the fullest step as predicted and as measured, as a table; none
    where it was not measured.
    """
    if memory is None:
        return []
    predicted, measured = memory.predicted.at_fullest, memory.measured.at_fullest
    rows = [(name, in_bytes(predicted[name]), in_bytes(measured[name])) for name in CATEGORIES]
    rows.append(("together", in_bytes(sum(predicted.values())), in_bytes(sum(measured.values()))))
    title = f"memory at the fullest step, by category; the default run took {in_bytes(memory.nbytes)} with gaps"
    return [(title, ("", "predicted", "measured"), rows)]
