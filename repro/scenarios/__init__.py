"""Every scenario by name, and those of one's own by `package.module:attribute`.

A new one is a file in this folder with a `SCENARIO`, and a row here.
"""

from importlib import import_module
from typing import Final

from allocsim.errors import ModelError, UnknownNameError
from repro.scenario import GgmlFault, Scenario, join

MODULES: Final[dict[str, str]] = {
    "ggml-1501": "ggml_1501",
    "ggml-1501-as-reported": "ggml_1501_as_reported",
    "ggml-1501-seed": "ggml_1501_seed",
    "parallel-branches": "parallel_branches",
}
"""Run on the engine."""

ON_GGML: Final[dict[str, str]] = {
    "ggml-stale-plan": "ggml_stale_plan",
    "ggml-late-output": "ggml_late_output",
    "ggml-none-view": "ggml_none_view",
    "ggml-output-on-view": "ggml_output_on_view",
    "ggml-shared-gradient": "ggml_shared_gradient",
    "ggml-opt-accumulators": "ggml_opt_accumulators",
    "ggml-forward-backward": "ggml_forward_backward",
}
"""Run on real ggml: the faults it has by itself."""


def find(name: str) -> Scenario:
    """Return the scenario called `name`, or several joined by `+`.

    Raises UnknownNameError for a name that is not in the table, ModelError where two cannot be
    joined.
    """
    parts = [part.strip() for part in name.split("+")]
    for part in parts:
        if part in ON_GGML:
            raise ModelError(
                "", f"{part} is a fault of real ggml; it cannot be joined with another scenario or run on the engine"
            )
        if part not in MODULES:
            raise UnknownNameError("scenario", part, {**MODULES, **ON_GGML})
    if len(set(parts)) != len(parts):
        raise ModelError("", f"{name}: a scenario is joined with itself")
    found: Scenario = import_module(f"repro.scenarios.{MODULES[parts[0]]}").SCENARIO
    for part in parts[1:]:
        found = join(found, import_module(f"repro.scenarios.{MODULES[part]}").SCENARIO)
    return found


def find_any(name: str) -> Scenario | GgmlFault:
    """Return the scenario called `name` of either table, or what a person calls
    `package.module:attribute` (`repro.own_models`); errors as there and as `find`.
    """
    if ":" in name:
        from repro.own_models import find_own  # noqa: PLC0415 - a stranger's import may be anything

        return find_own(name)
    if name not in ON_GGML:
        return find(name)
    found: GgmlFault = import_module(f"repro.scenarios.{ON_GGML[name]}").SCENARIO
    return found


def every() -> tuple[Scenario, ...]:
    """Return all scenarios of the engine in the order of the table."""
    return tuple(find(name) for name in MODULES)


def every_on_ggml() -> tuple[GgmlFault, ...]:
    """Return all faults of real ggml in the order of the table."""
    return tuple(fault for name in ON_GGML if isinstance(fault := find_any(name), GgmlFault))
