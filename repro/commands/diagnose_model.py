"""Services that train a user's own model in three modes and run every detector on it.

`engine.diagnose` calls `diagnose_model`. `allocsim diagnose NAME` calls `diagnose_named` for a
training file, and for a name `package.module:attribute` of a scenario or of a model with an example
batch. No verdict is expected: the exit status is 0 if nothing wrong was found, and 1 otherwise.

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
"""The number of training steps, unless the caller or a scenario gives another number."""


def diagnose_model(
    model: Model, data: Any, *, steps: int = STEPS, out: str | Path | None = None, **asked: Any
) -> EngineResult:
    """Return the three runs, the evidence and the verdict; with `out`, also write a report folder.

    `asked` has arguments of `repro.trial` and fields of `EngineOptions`. Raises the errors of
    `repro.trial` and `repro.run_scenario`.
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
    """Run the model, scenario or training file called `name`, print the result, and write a report.

    Return 0 if nothing wrong was found, else 1. `asked` has the options that were given on the
    command line: `data`, `loss`, `optimizer`, and fields of `EngineOptions`. Without `out`, no
    report is written.
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
    """Check the folder of a report and lock it for this command; do nothing if `out` is None."""
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
    """Return a table of the predicted and measured memory at the fullest step, by category; no
    table if `memory` is None.
    """
    if memory is None:
        return []
    predicted, measured = memory.predicted.at_fullest, memory.measured.at_fullest
    rows = [(name, in_bytes(predicted[name]), in_bytes(measured[name])) for name in CATEGORIES]
    rows.append(("together", in_bytes(sum(predicted.values())), in_bytes(sum(measured.values()))))
    title = f"memory at the fullest step, by category; with gaps, the default run took {in_bytes(memory.nbytes)}"
    return [(title, ("", "predicted", "measured"), rows)]
