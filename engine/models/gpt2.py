"""GPT-2 as llm.c trains it.

It has learned positions, layer norm with gain and bias, a fused q, k, v projection, and gelu.

Shapes: B sequences of T positions, C channels, H heads of hd = C / H, V vocabulary. Weights are
`[out, in]`. A layer is

    h    = layer_norm(x; attn_norm)
    qkv  = attn_qkv(h) [B T, 3 C]              q, k, v are views of it, [B, H, T, hd]
    a    = soft_max(mul_mat(k, q), mask; 1 / sqrt(hd)) [B, H, T, T]
    x    = x + attn_output(merge(mul_mat(v, a)))
    x    = x + ffn_down(gelu(ffn_up(layer_norm(x; ffn_norm))))

and the logits are `mul_mat(token_embd, layer_norm(x; output_norm))`. Names follow GGUF's for this
architecture (`layer.0` for `blk.0`). Source: Radford et al., Language Models are Unsupervised
Multitask Learners, 2019; gelu is the tanh form.

What this module does not see: files (`engine.models.weights`), kernels, plans.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.graph import Graph, Tensor
from engine.models.trainable import Model, Shapes

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPT2Config:
    """Sizes of the model."""

    layers: int = 2
    channels: int = 64
    heads: int = 4
    vocab: int = 96
    positions: int = 64
    """Longest sequence."""
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Raise EngineError unless the sizes fit together."""
        for name in ("layers", "channels", "heads", "vocab", "positions"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.channels % self.heads:
            raise EngineError(f"{self.heads} heads do not divide {self.channels} channels")


def gpt2(config: GPT2Config, parameters: Mapping[str, Array]) -> Model:
    """Return the model that trains all weights on `tokens` and `labels` [B, T] of integers."""
    return Model(
        name=f"gpt2-{config.layers}L",
        build=lambda graph, shapes: _forward(graph, config, shapes["tokens"]),
        parameters=parameters,
        constants=_constants,
    )


def init_parameters(config: GPT2Config, *, seed: int) -> dict[str, Array]:
    """Return seeded f32 weights.

    Normal with 0.02, projections into the residual by 1 / sqrt(2 layers) smaller, gains 1, biases
    0.
    """
    generator = np.random.default_rng(seed)
    graph = Graph("parameters")
    _forward(graph, config, (1, 1))
    made: dict[str, Array] = {}
    for tensor in graph.tensors:
        if tensor.role != Role.PARAMETER:
            continue
        if len(tensor.shape) == 1:
            made[tensor.name] = np.full(tensor.shape, float(tensor.name.endswith(".gain")), dtype=np.float32)
            continue
        residual = tensor.name.endswith(("attn_output.weight", "ffn_down.weight"))
        width = 0.02 / sqrt(2 * config.layers) if residual else 0.02
        made[tensor.name] = (width * generator.standard_normal(tensor.shape)).astype(np.float32)
    return made


def _constants(shapes: Shapes) -> Mapping[str, Array]:
    _, steps = shapes["tokens"]
    return {
        "positions": np.arange(steps, dtype=np.int32),
        "mask": np.triu(np.full((steps, steps), -np.inf, dtype=np.float32), 1),
    }


def _forward(graph: Graph, config: GPT2Config, shape: tuple[int, ...]) -> Tensor:
    sequences, steps = shape
    if steps > config.positions:
        raise EngineError(f"sequences of {steps} positions; the model has {config.positions}")
    tokens = graph.input("tokens", (sequences * steps,), "i32")
    positions = graph.input("positions", (steps,), "i32")
    mask = graph.input("mask", (steps, steps))
    table = graph.parameter("token_embd", (config.vocab, config.channels), trainable=True)
    places = graph.parameter("position_embd", (config.positions, config.channels), trainable=True)
    where = graph.op("get_rows", places, positions, name="position")
    x = graph.op("add", graph.op("get_rows", table, tokens, name="token"), where, name="embd")
    for layer in range(config.layers):
        with graph.scope(f"layer.{layer}", layer=layer):
            x = graph.op("add", x, _attention(graph, config, x, mask, sequences), name="attn_residual")
            h = graph.op(
                "gelu",
                _linear(graph, _norm(graph, config, x, "ffn_norm"), "ffn_up", 4 * config.channels),
                name="ffn_gelu",
            )
            x = graph.op("add", x, _linear(graph, h, "ffn_down", config.channels), name="ffn_residual")
    return graph.op("mul_mat", table, _norm(graph, config, x, "output_norm"), name="logits")


def _attention(graph: Graph, config: GPT2Config, x: Tensor, mask: Tensor, sequences: int) -> Tensor:
    rows, channels = x.shape
    steps, size = rows // sequences, channels // config.heads
    qkv = _linear(graph, _norm(graph, config, x, "attn_norm"), "attn_qkv", 3 * channels)
    wide = 3 * channels

    def part(index: int, name: str, *, turned: bool = False) -> Tensor:
        shape, strides = (sequences, config.heads, steps, size), (steps * wide, size, wide, 1)
        if turned:
            shape, strides = (*shape[:2], size, steps), (*strides[:2], 1, wide)
        return graph.op("view", qkv, shape=shape, strides=strides, offset=index * channels, name=name)

    q, k, v = part(0, "q"), part(1, "k"), part(2, "v", turned=True)
    weights = graph.op("soft_max", graph.op("mul_mat", k, q, name="kq"), mask, scale=1 / sqrt(size), name="kq_soft_max")
    back = graph.op("permute", graph.op("mul_mat", v, weights, name="kqv"), axes=(0, 2, 1, 3))
    merged = graph.op("cont", back, shape=(rows, channels), name="kqv_merged")
    return _linear(graph, merged, "attn_output", channels)


def _linear(graph: Graph, x: Tensor, name: str, width: int) -> Tensor:
    weight = graph.parameter(f"{name}.weight", (width, x.shape[-1]), trainable=True)
    bias = graph.parameter(f"{name}.bias", (width,), trainable=True)
    return graph.op("add", graph.op("mul_mat", weight, x, name=f"{name}.product"), bias, name=name)


def _norm(graph: Graph, config: GPT2Config, x: Tensor, name: str) -> Tensor:
    gain = graph.parameter(f"{name}.gain", (config.channels,), trainable=True)
    bias = graph.parameter(f"{name}.bias", (config.channels,), trainable=True)
    scaled = graph.op("mul", graph.op("norm", x, eps=config.eps, name=f"{name}.normed"), gain, name=f"{name}.scaled")
    return graph.op("add", scaled, bias, name=f"{name}.out")
