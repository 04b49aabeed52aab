"""Scenario runs at small size, each made once for all tests of a process."""

from functools import cache

from repro import scenarios
from repro.options import EngineOptions
from repro.run import EngineResult, run

PAIRS = ("ggml-1501+ggml-1501-as-reported", "ggml-1501+ggml-1501-seed", "ggml-1501-as-reported+ggml-1501-seed")
ALL = (*scenarios.MODULES, *PAIRS)
THREE = ("ggml-1501", "ggml-1501-as-reported", "ggml-1501-seed")
"""One symptom, three culprits."""


@cache
def small(name: str, *, layers: int = 2, seq: int = 8, steps: int = 2, **options: object) -> EngineResult:
    """Return the result of a scenario with few layers and steps."""
    return run(scenarios.find(name), EngineOptions(layers=layers, seq=seq, steps=steps, **options))  # type: ignore[arg-type]
