"""The options of a run: the size of the model, the number of steps, and the planner.

What this module does not see: how a scenario is run.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.errors import ModelError
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from repro.scenario import Scenario

MOST_STEPS: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSizes:
    """The size of the model and the number of steps; None stands for the scenario's own value."""

    layers: int | None = None
    seq: int | None = None
    steps: int | None = None
    seed: int = 0
    threads: int = 1

    def steps_of(self, scenario: Scenario) -> int:
        """Return the number of training steps.

        Raises ModelError for more than `MOST_STEPS`, and for fewer than the `least_steps` of the
        scenario, after which its fault shows.
        """
        steps = self.steps if self.steps is not None else scenario.training.steps
        if steps > MOST_STEPS:
            raise ModelError("steps", f"{steps}; at most {MOST_STEPS} can be run")
        if steps < scenario.least_steps:
            least = scenario.least_steps
            raise ModelError("steps", f"{steps}; {scenario.name} needs at least {least} step{'s'[: least != 1]}")
        return steps


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions(RunSizes):
    """The options of a run on the engine."""

    pin_leafs: bool = False
    """Whether the mode `pinned` pins the leafs too."""
    fixed: bool = False
    """Whether the repaired twin is run instead of the scenario."""
    allocator: str = "ggml"
    online: str | None = None
    """The name of an allocator that gives out memory while the steps run, instead of a planner
    (`allocsim.online.find`); for a user's own model only."""
    modes: tuple[str, ...] = ()
    """Further modes (`repro.mode_words`), each of which is compared with the reference."""
    weights: str | None = None
    """The path of a llama (`engine.models.weights`) to train; None for random weights."""
    base: LlamaConfig = SMOLLM2_135M
    """The shape of the model."""
    measure: bool = False
    """Whether to measure the memory of the first step under the default plan, by category."""

    def check_own(self) -> None:
        """Raise ModelError if a size, a seed or weights are given; a user's own model sets them."""
        for name, given in (
            ("layers", self.layers is not None),
            ("seq", self.seq is not None),
            ("seed", self.seed != 0),
            ("gguf", self.weights is not None),
        ):
            if given:
                raise ModelError(name, "a user's own model sets its sizes, weights and data; only steps can be chosen")


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryOptions(RunSizes):
    """The options of a run on a library of ggml."""

    full: bool = False
    """Whether the model has the width of SmolLM2-135M instead of that of `repro.on_ggml.SMALL`."""
