"""How large a run of a scenario is, how long, and how it is planned.

What this module does not see: how anything is run.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.errors import ModelError
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from repro.scenario import Scenario

MOST_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSizes:
    """How large a run is, and how long; None takes what the scenario states."""

    layers: int | None = None
    seq: int | None = None
    steps: int | None = None
    seed: int = 0
    threads: int = 1

    def steps_of(self, scenario: Scenario) -> int:
        """Return how many steps are trained.

        Raises ModelError for more than `MOST_STEPS`, and for fewer than the fault of the scenario
        takes to show.
        """
        steps = self.steps if self.steps is not None else scenario.training.steps
        if steps > MOST_STEPS:
            raise ModelError("steps", f"{steps}; at most {MOST_STEPS} are run")
        if steps < scenario.least_steps:
            least = scenario.least_steps
            raise ModelError(
                "steps", f"{steps}; {scenario.name} takes at least {least} step{'s'[: least != 1]} to show"
            )
        return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(RunSizes):
    """How a scenario is run on the engine."""

    pin_leafs: bool = False
    """The mode `pinned` pins the leafs too."""
    fixed: bool = False
    """Run the repaired twin."""
    allocator: str = "ggml"
    online: str | None = None
    """An allocator that gives out memory while steps run (`allocsim.online.find`), in place of a
    planner; of a model of one's own."""
    modes: tuple[str, ...] = ()
    """Further modes to compare with the reference (`repro.mode_words`); none: no comparison."""
    weights: str | None = None
    """A file with a llama (`engine.models.weights`) to train instead of random weights."""
    base: LlamaConfig = SMOLLM2_135M
    """The shape of the model."""
    measure: bool = False
    """Measure the memory of the first step under the default plan, by category."""

    def check_own(self) -> None:
        """Raise ModelError for a size beside a model of one's own, which states them all."""
        for name, given in (
            ("layers", self.layers is not None),
            ("seq", self.seq is not None),
            ("seed", self.seed != 0),
            ("gguf", self.weights is not None),
        ):
            if given:
                raise ModelError(name, "a model of one's own has its sizes, weights and data; only steps can be chosen")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryOptions(RunSizes):
    """How a scenario is run on a library of ggml."""

    full: bool = False
    """The width of SmolLM2-135M instead of `repro.on_ggml.SMALL`."""
