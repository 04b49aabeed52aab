"""Every scenario by name. A new one is a file beside this with a `SCENARIO`, and a row here."""

from importlib import import_module
from typing import Final

from allocsim.errors import ModelError, UnknownNameError
from repro.scenario import Scenario, join

MODULES: Final[dict[str, str]] = {
    "ggml-1501": "ggml_1501",
    "ggml-1501-as-reported": "ggml_1501_as_reported",
    "ggml-1501-seed": "ggml_1501_seed",
    "parallel-branches": "parallel_branches",
}


def find(name: str) -> Scenario:
    """Return the scenario called `name`, or several joined by `+`.

    Raises UnknownNameError for a name that is not in the table, ModelError where two cannot be joined.
    """
    parts = [part.strip() for part in name.split("+")]
    for part in parts:
        if part not in MODULES:
            raise UnknownNameError("scenario", part, MODULES)
    if len(set(parts)) != len(parts):
        raise ModelError("", f"{name}: a scenario is joined with itself")
    found: Scenario = import_module(f"repro.scenarios.{MODULES[parts[0]]}").SCENARIO
    for part in parts[1:]:
        found = join(found, import_module(f"repro.scenarios.{MODULES[part]}").SCENARIO)
    return found


def every() -> tuple[Scenario, ...]:
    """Return all scenarios in the order of the table."""
    return tuple(find(name) for name in MODULES)
