"""Tasks for a child process, which makes graph, weights and inputs from a `TrainingRecipe`."""

from dataclasses import dataclass
from typing import Any

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.d_lockstep import Departure
from allocsim.systems.ggml.lora_training import training_steps as on_library
from allocsim.systems.ggml.lora_training.forward_lowering import forward
from allocsim.systems.ggml.lora_training.training_steps import Steps
from engine.models.llama import LlamaConfig
from repro import lora_setup
from repro.scenario import Training


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRecipe:
    """The data from which a child process makes graph, weights and inputs."""

    training: Training
    base: LlamaConfig
    layers: int
    seq: int
    seed: int


def train_task(library: Library, recipe: TrainingRecipe, mode: str, **options: Any) -> Steps:
    """Run `allocsim.systems.ggml.lora_training.training_steps.train_steps` on a recipe."""
    setup = _set_up(recipe)
    return on_library.train_steps(library, forward(setup.loss), setup.parameters, setup.inputs, mode, **options)


def origins_task(library: Library, recipe: TrainingRecipe, mode: str, **options: Any) -> list[Departure]:
    """Run `allocsim.systems.ggml.lora_training.training_steps.origins` on a recipe."""
    setup = _set_up(recipe)
    return on_library.origins(library, forward(setup.loss), setup.parameters, setup.inputs, mode, **options)


def _set_up(recipe: TrainingRecipe) -> lora_setup.Setup:
    return lora_setup.set_up(recipe.training, layers=recipe.layers, seq=recipe.seq, seed=recipe.seed, base=recipe.base)
