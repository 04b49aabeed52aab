"""Real bugs as scenarios, each with the verdict that it must get.

    result = repro.run_scenario(repro.find("ggml-1501"), repro.EngineOptions(layers=4))
    result.matches, result.verdict.text, result.as_json()

`Scenario`, `SmallScenario` and `Training` are records of data, defined in `repro.scenario`. The
module `repro.scenarios` has the table of scenarios. `run_scenario` is another name of
`repro.run.run`. Each name is imported when it is first used.
"""

from importlib import import_module
from typing import Any, Final

_HOMES: Final = {
    "EngineOptions": ("repro.options", "EngineOptions"),
    "EngineResult": ("repro.run", "EngineResult"),
    "Role": ("allocsim.model", "Role"),
    "Scenario": ("repro.scenario", "Scenario"),
    "SmallDocument": ("repro.small.small_document", "SmallDocument"),
    "SmallScenario": ("repro.scenario", "SmallScenario"),
    "Training": ("repro.scenario", "Training"),
    "every": ("repro.scenarios", "every"),
    "find": ("repro.scenarios", "find"),
    "join": ("repro.scenario", "join"),
    "repaired": ("repro.scenario", "repaired"),
    "run_scenario": ("repro.run", "run"),
    "trial": ("repro.own_models", "trial"),
}

__all__ = [
    "EngineOptions", "EngineResult", "Role", "Scenario", "SmallDocument", "SmallScenario", "Training",
    "every", "find", "join", "repaired", "run_scenario", "trial",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
