"""Make the graph, weights and inputs of a training run from a scenario's `Training`.

The model has the shape of SmolLM2-135M by default, with LoRA on q and v.

Weights and data are drawn from seeds. Every step trains on the same batch, by default of one
sequence. Both LoRA factors are non-zero, so every gradient is non-zero at the first step.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError, ModelError
from engine.graph import Graph, Tensor
from engine.kernels.binding import Array
from engine.models import weights as files
from engine.models.llama import HYPER, SMOLLM2_135M, LlamaConfig, batch, init_adapters, init_parameters, training_graph
from repro.scenario import Training

MOST_LAYERS: Final = 1_000
"""The largest number of layers; the weights of more layers take more than 14 GiB."""

MOST_POSITIONS: Final = 32_768
"""The largest sequence length; the logits of a longer sequence take more than 6 GiB."""

MOST_SEQUENCES: Final = 1_000

TRAINED_ON_SEED: Final = 1
"""A number added to the seed of the weights, so that the data are drawn independently of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A training run ready to be lowered."""

    config: LlamaConfig
    graph: Graph
    loss: Tensor
    gradients: Mapping[Tensor, Tensor]
    """Parameter -> its gradient, before the optimiser uses the gradient."""
    parameters: Mapping[str, Array]
    inputs: Mapping[str, Array]


def set_up(
    training: Training,
    *,
    layers: int | None = None,
    seq: int | None = None,
    sequences: int = 1,
    seed: int = 0,
    base: LlamaConfig = SMOLLM2_135M,
    weights: str | None = None,
    accumulate: bool = False,
) -> Setup:
    """Return the graph, weights and inputs of a training run of a model of the shape `base`.

    `layers` and `seq` replace the scenario's numbers; a batch has `sequences` sequences. `weights`
    is the path of a llama (`engine.models.weights`): shape and weights are then those of its first
    `layers` layers (all by default), and only the LoRA adapters are drawn. With `accumulate`,
    gradients add up in state tensors that the host may reset, and no parameter is updated, as for
    the small batches that make up a large one.

    Raises ModelError for a size out of range, and EngineError for a file that has no llama.
    """
    found = None if weights is None else _found(weights)
    if found is not None:
        base = replace(base, **_shape(found[0]))
        layers = base.layers if layers is None else layers
        if layers > base.layers:
            raise ModelError("layers", f"{layers}; {weights} has {base.layers} layers")
    layers = layers if layers is not None else training.layers
    seq = seq if seq is not None else training.seq
    for name, size, most in (
        ("layers", layers, MOST_LAYERS),
        ("seq", seq, MOST_POSITIONS),
        ("sequences", sequences, MOST_SEQUENCES),
    ):
        if not 1 <= size <= most:
            raise ModelError(name, f"{size} is not between 1 and {most}")
    config = replace(base, layers=layers, seq=seq, batch=sequences, alpha=training.lora_alpha)
    step = training_graph(
        config, accumulate=accumulate, update=not accumulate, seed_before_labels=training.seed_before_labels
    )
    named = {tensor.name: tensor for tensor in step.graph.leafs}
    drawn = _weights(config, training, seed) if found is None else _adapted(found[1], config, training, seed)
    return Setup(
        config=config,
        graph=step.graph,
        loss=step.loss,
        gradients={named[name]: gradient for name, gradient in step.gradients.items()},
        parameters={name: weight for name, weight in drawn.items() if name in named},
        inputs=batch(config, seed=seed + TRAINED_ON_SEED),
    )


def _found(path: str) -> tuple[LlamaConfig, Mapping[str, Array]]:
    found = files.read(path)
    if not isinstance(found.config, LlamaConfig):
        raise EngineError(f"{path}: the architecture is {found.architecture}; the scenarios train a llama")
    return found.config, found.weights


def _shape(config: LlamaConfig) -> dict[str, Any]:
    sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "rope_theta", "eps", "tied")
    return {name: getattr(config, name) for name in sizes}


def _adapted(weights: Mapping[str, Array], config: LlamaConfig, training: Training, seed: int) -> dict[str, Array]:
    """Return the weights of the layers that are used, and drawn factors for every LoRA adapter.

    Neither factor is zero; `training` has the standard deviations of both.
    """
    made = {name: array for name, array in weights.items() if _layer(name) < config.layers}
    drawn = init_adapters(config, seed=seed, std=(1.0, 1.0))
    stds = {".lora_a": training.lora_a_std, ".lora_b": training.lora_b_std}
    for name, array in drawn.items():
        width = np.float32(stds[name[name.rindex(".") :]])
        made[name] = array * width
    return made | {HYPER: np.array([training.rate, 0.0], dtype=np.float32)}


def _layer(name: str) -> int:
    return int(name.split(".")[1]) if name.startswith("layer.") else -1


def _weights(config: LlamaConfig, training: Training, seed: int) -> dict[str, Array]:
    weights = init_parameters(
        config, seed=seed, embedding_std=training.embedding_std, lora_std=1.0, learning_rate=training.rate
    )
    gains = {
        ".attn_q.weight": training.attention_gain,
        ".attn_k.weight": training.attention_gain,
        ".attn_output.weight": training.output_gain,
        ".ffn_down.weight": training.down_gain,
        ".lora_a": training.lora_a_std,
        ".lora_b": training.lora_b_std,
    }
    for name, weight in weights.items():
        for ending, gain in gains.items():
            if name.endswith(ending):
                np.multiply(weight, np.float32(gain), out=weight)
    return weights
