"""A llama-shaped transformer with LoRA, as the graph that ggml builds for it.

Each run does forward, loss, backward and one SGD step.

Shapes: T positions, D hidden, F feed-forward, H query heads and K key/value heads of hd elements, V
vocabulary, r rank. Weights are `[out, in]` as `mul_mat` wants them. A layer is

    h    = mul(rms_norm(x), attn_norm)
    q    = rope(reshape(attn_q(h), [T, H, hd]))                   k likewise with K heads
    v    = cont(permute(reshape(attn_v(h), [T, K, hd]))) [K, hd, T]
    kq   = soft_max(mul_mat(k, q), mask; 1 / sqrt(hd)) [H, T, T]
    x    = x + attn_output(cont(permute(mul_mat(v, kq))))
    x    = x + ffn_down(silu(ffn_gate(g)) * ffn_up(g))     where g = mul(rms_norm(x), ffn_norm)

With `attention="fused"` the middle of it is one op (`engine.ops.fused`), and neither scores nor
weights, [H, T, T], are kept for backward:

    x    = x + attn_output(cont(permute(attention(q, k, v, mask; 1 / sqrt(hd), causal))))     v a permuted view [K, T, hd]

A mask that lets a row see what follows it makes that row NaN then.

With `experts` the last line is a mixture (`engine.models.experts`): a router, `ffn_router.weight`
[E, D], scores the rows g, and gate, up and down are of as many experts, [E, F, D] and [E, D, F],
their adapters too. `balance` times what says how unevenly rows choose is added to the loss
(`Graph.penalties`).

With several sequences (B > 1) rows are those of all sequences, one after the other, and heads have
a leading axis of B.

And an adapted projection `p(h)` is
`mul_mat(p, h) + scale(mul_mat(p.lora_b, mul_mat(p.lora_a, h)), alpha / r)`. Node for node, with the
order, it is the graph of the captured ggml plans (a test compares them), unless attention is fused.

Names: `token_embd`, `layer.3.attn_norm`, `layer.3.attn_q.weight`, `layer.3.attn_q.lora_a`,
`output_norm`, `sgd.hp`; results of projections `layer.3.attn_q`. What this module does not see:
data layout in memory, kernels, plans.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.autodiff import SEED, backward
from engine.autodiff.recomputation import crossing
from engine.graph import Graph, Tensor
from engine.models.experts import mixture, slots
from engine.models.labels import one_hot
from engine.models.trainable import KEY, Model, Shapes
from engine.runtime.plan_memory import together

Array = NDArray[Any]
Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q [rows, H, hd], k and v [rows, K, hd] of a layer, turned -> what attention makes of them, in the
order of [rows, H, hd]."""

HYPER: Final = "sgd.hp"
"""Parameter that holds learning rate and weight decay."""

PROJECTIONS: Final = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
"""Target of an adapter -> name of the projection."""

_DTYPES: Final = {"f32": np.float32, "f64": np.float64}


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """Sizes of the model and of the run."""

    layers: int = 2
    hidden: int = 64
    ffn: int = 128
    heads: int = 4
    kv_heads: int = 2
    vocab: int = 96
    seq: int = 8
    """Positions of a sequence (T)."""
    batch: int = 1
    """Sequences (B)."""
    rope_theta: float = 10000.0
    eps: float = 1e-5
    tied: bool = True
    """Whether the output projection is the embedding table."""
    rank: int = 4
    """Rank of the adapters; 0 makes the projections themselves trainable."""
    alpha: float = 8.0
    """Adapters are scaled by alpha / rank."""
    targets: tuple[str, ...] = ("q", "v")
    """Which of q, k, v, o, gate, up and down are adapted."""
    dropout: float = 0.0
    """Share of what adapters read that is left out in training, drawn anew each step."""
    full: bool = False
    """Whether every weight is trained, not only adapters or targets."""
    glu: Literal["swiglu", "silu"] = "swiglu"
    """One fused op, or silu and mul."""
    attention: Literal["parts", "fused"] = "parts"
    """Products and a soft maximum, as ggml's graph has it; or one op, in less memory. The same
    weights, and to rounding the same numbers."""
    dtype: Literal["f32", "f64"] = "f32"
    experts: int = 0
    """Of the feed-forward part; 0 for one that every position takes."""
    active: int = 2
    """Experts of a position."""
    capacity: float = 1.25
    """Positions that an expert takes, over its even share; the others go past it."""
    balance: float = 0.01
    """How much of the balance of the experts of a layer is added to the loss."""

    def __post_init__(self) -> None:
        """Raise EngineError unless the sizes fit together."""
        for name in ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab", "seq", "batch"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.hidden % self.heads or self.heads % self.kv_heads or (self.hidden // self.heads) % 2:
            sizes = f"hidden {self.hidden}, heads {self.heads}, kv_heads {self.kv_heads}"
            raise EngineError(f"{sizes}: heads must divide hidden into even parts, and kv_heads must divide heads")
        if self.rank < 0 or not self.targets or not set(self.targets) <= set(PROJECTIONS):
            known = ", ".join(PROJECTIONS)
            raise EngineError(
                f"rank {self.rank} and targets {self.targets}: at least one of {known}, and no negative rank"
            )
        if self.rank and not 0 < self.alpha < inf:
            raise EngineError(f"alpha is {self.alpha}; adapters are scaled by a number above 0")
        if not 0 <= self.dropout < 1 or (self.dropout and not self.rank):
            raise EngineError(
                f"dropout {self.dropout} with rank {self.rank}: of what adapters read, at least 0 and below 1"
            )
        if self.glu not in ("swiglu", "silu") or self.dtype not in _DTYPES:
            raise EngineError(f"glu {self.glu!r} or dtype {self.dtype!r} is unknown")
        if self.attention not in ("parts", "fused"):
            raise EngineError(f"attention {self.attention!r} is none of parts, fused")
        finite = 0 < self.capacity < inf and 0 <= self.balance < inf
        if self.experts and not (finite and 0 < self.active <= self.experts):
            said = f"active {self.active}, capacity {self.capacity}, balance {self.balance}"
            raise EngineError(
                f"{self.experts} experts with {said}: 1 to all active, a finite capacity above 0, a finite balance from 0"
            )

    @property
    def head_size(self) -> int:
        """Elements of one head."""
        return self.hidden // self.heads


SMOLLM2_135M: Final = LlamaConfig(
    layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, vocab=49152, seq=64, rope_theta=1e5, rank=8, alpha=16.0
)
"""The shape of SmolLM2-135M with rank-8 adapters on q and v."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class TrainingStep:
    """A training step as a graph, and its landmarks."""

    config: LlamaConfig
    graph: Graph
    loss: Tensor
    logits: Tensor
    gradients: Mapping[str, Tensor]
    """Parameter name -> gradient, before the optimiser takes it."""
    updates: Mapping[str, Tensor]
    """Parameter name -> its value after the step."""
    inputs: tuple[str, ...] = ("tokens", "positions", "mask", "labels", SEED)


def training_graph(
    config: LlamaConfig,
    *,
    accumulate: bool = False,
    update: bool = True,
    seed_before_labels: bool = False,
    checkpoints: bool = False,
    classes: bool = False,
) -> TrainingStep:
    """Return forward, backward and, with `update`, one `opt_step_sgd` for each trainable parameter.

    The order is ggml's.

    With `accumulate`, gradients add up in state tensors until the host resets them
    (`engine.autodiff`). With `seed_before_labels` the caller declares the gradient of the loss
    before the labels, so that its leaf comes before theirs and not last; the nodes are the same.
    With `checkpoints` backward keeps the outputs of layers and computes the rest of each again.
    With `classes` labels are one class number for each row, as PyTorch and JAX have them; ggml's
    are rows of as many numbers as there are classes.
    """
    graph = Graph(f"llama-{config.layers}L")
    logits = _forward(graph, config)
    seed: Tensor | None = None
    if seed_before_labels:
        graph.expand(logits)
        seed = graph.input(SEED, (1,), config.dtype)
        graph.expand(seed)
    rows = config.batch * config.seq
    if classes:
        loss = graph.op("cross_entropy_classes", logits, graph.input("labels", (rows,), "i32"), name="loss")
    else:
        labels = graph.input("labels", (rows, config.vocab), config.dtype)
        loss = graph.op("cross_entropy_loss", logits, labels, name="loss")
    loss = graph.penalized(loss)
    graph.expand(loss)
    kept = crossing(graph) if checkpoints else None
    gradients = backward(graph, loss, seed=seed, accumulate=accumulate, checkpoints=kept)
    updates: dict[str, Tensor] = {}
    if update:
        hyper = graph.parameter(HYPER, (2,), config.dtype)
        for parameter, gradient in gradients.items():
            with graph.scope("new", layer=parameter.layer, stage="update"):
                updates[parameter.name] = graph.op("opt_step_sgd", parameter, gradient, hyper, name=parameter.name)
            graph.expand(updates[parameter.name])
    return TrainingStep(
        config=config,
        graph=graph,
        loss=loss,
        logits=logits,
        gradients={parameter.name: gradient for parameter, gradient in gradients.items()},
        updates=updates,
    )


def init_parameters(
    config: LlamaConfig,
    *,
    seed: int,
    embedding_std: float = 1.0,
    lora_std: float | None = None,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
) -> dict[str, Array]:
    """Return an array for every parameter of `training_graph(config)`.

    Seeded normal weights, gains of 1.

    Args:
        config: sizes and dtype; the drawn numbers are those of f32 for both dtypes.
        seed: of the generator; the same seed gives the same arrays.
        embedding_std: of the token table; projections have 1 / sqrt(fan in).
        lora_std: of both adapter factors (neither is zero, so that every gradient is non-zero); 1 /
            sqrt(fan in) by default.
        learning_rate: first entry of `sgd.hp`.
        weight_decay: second entry.
    """
    generator = np.random.default_rng(seed)
    dtype = _DTYPES[config.dtype]
    graph = Graph("parameters")
    _forward(graph, config)
    wanted = [tensor for tensor in graph.tensors if tensor.role == Role.PARAMETER]
    arrays = together({tensor.name: tensor.shape for tensor in wanted}, dtype)
    for tensor in wanted:
        array = arrays[tensor.name]
        if array.ndim == 1:
            array[...] = 1
            continue
        given = embedding_std if tensor.name == "token_embd" else lora_std if ".lora_" in tensor.name else None
        width = 1 / sqrt(tensor.shape[-1]) if given is None else given
        draw = array if array.dtype == np.float32 else np.empty(array.shape, np.float32)
        generator.standard_normal(dtype=np.float32, out=draw)
        draw *= np.float32(width)
        if draw is not array:
            array[...] = draw
    return {HYPER: np.array([learning_rate, weight_decay], dtype=dtype), **arrays}


def init_adapters(config: LlamaConfig, *, seed: int, std: tuple[float | None, float] = (None, 0.0)) -> dict[str, Array]:
    """Return seeded normal factors for every adapter.

    `std` of `lora_a` (1 / sqrt(fan in) by default) and of `lora_b`.

    With zeros for `lora_b` training starts from the weights as they are (Hu et al., LoRA, 2021).
    """
    generator = np.random.default_rng(seed)
    graph = Graph("adapters")
    _forward(graph, config)
    made: dict[str, Array] = {}
    for tensor in graph.tensors:
        if tensor.name.endswith((".lora_a", ".lora_b")):
            width = std[tensor.name.endswith(".lora_b")]
            drawn = generator.standard_normal(tensor.shape, dtype=np.float32)
            drawn *= np.float32(1 / sqrt(tensor.shape[-1]) if width is None else width)
            made[tensor.name] = drawn.astype(_DTYPES[config.dtype], copy=False)
    return made


def batch(config: LlamaConfig, *, seed: int, classes: bool = False) -> dict[str, Array]:
    """Return the inputs of one run.

    Seeded sequences, their next tokens as labels (one-hot, or `classes`), a causal mask, the loss
    seed 1.
    """
    dtype = _DTYPES[config.dtype]
    sequences = np.random.default_rng(seed).integers(0, config.vocab, (config.batch, config.seq + 1), dtype=np.int32)
    labels = following = sequences[:, 1:].ravel()
    if not classes:
        labels = one_hot(following, config.vocab, dtype)
    return {"tokens": sequences[:, :-1].ravel(), **constants(config), "labels": labels, SEED: np.ones(1, dtype=dtype)}


def constants(config: LlamaConfig) -> dict[str, Array]:
    """Return the inputs of every batch: positions of all rows, and the causal mask [T, T]."""
    steps = config.seq
    return {
        "positions": np.tile(np.arange(steps, dtype=np.int32), config.batch),
        "mask": np.triu(np.full((steps, steps), -np.inf, dtype=_DTYPES[config.dtype]), 1),
    }


def llama(config: LlamaConfig, parameters: Mapping[str, Array]) -> Model:
    """Return the model that trains on `tokens` and `labels` [B, T] of integers, for any B and T."""

    def as_it_runs(config: LlamaConfig) -> Model:
        def sized(shapes: Shapes) -> LlamaConfig:
            sequences, steps = shapes["tokens"]
            return replace(config, batch=sequences, seq=steps)

        return Model(
            name=f"llama-{config.layers}L",
            build=lambda graph, shapes: _forward(graph, sized(shapes)),
            parameters={name: array for name, array in parameters.items() if name != HYPER},
            constants=lambda shapes: constants(sized(shapes)),
        )

    used = as_it_runs(replace(config, dropout=0.0))
    return replace(as_it_runs(config), evaluation=used) if config.dropout else used


def _forward(graph: Graph, config: LlamaConfig) -> Tensor:
    def mixed() -> Mix:
        return _within_batch(config, graph.input("mask", (config.seq, config.seq), config.dtype))

    return forward(graph, config, config.batch * config.seq, mixed)


def forward(
    graph: Graph,
    config: LlamaConfig,
    rows: int,
    mixed: Callable[[], Mix],
    picked: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Return the logits of `rows` positions; inputs `tokens` and `positions`, each [rows].

    Args:
        graph: takes inputs, parameters and nodes.
        config: the sizes; `seq` and `batch` are not looked at.
        rows: positions, of any number of sequences.
        mixed: makes, once the inputs stand, what mixes positions.
        picked: rows of the last layer that get logits; all by default.
    """
    tokens = graph.input("tokens", (rows,), "i32")
    positions = graph.input("positions", (rows,), "i32")
    mix = mixed()
    if config.dropout:
        graph.input(KEY, (1,), "i32")
    table = graph.parameter("token_embd", (config.vocab, config.hidden), config.dtype, trainable=config.full)
    x = graph.op("get_rows", table, tokens, name="embd")
    for layer in range(config.layers):
        with graph.scope(f"layer.{layer}", layer=layer):
            x = graph.op("add", x, _attention(graph, config, x, positions, mix), name="attn_residual")
            x = graph.op("add", x, _feed_forward(graph, config, x), name="ffn_residual")
    x = _norm(graph, config, x if picked is None else picked(x), "output_norm")
    if config.tied:
        return graph.op("mul_mat", table, x, name="logits")
    head = graph.parameter("output.weight", (config.vocab, config.hidden), config.dtype, trainable=config.full)
    return graph.op("mul_mat", head, x, name="logits")


def _attention(graph: Graph, config: LlamaConfig, x: Tensor, positions: Tensor, mix: Mix) -> Tensor:
    size, rows = config.head_size, x.shape[0]
    h = _norm(graph, config, x, "attn_norm")

    def heads(target: str, count: int) -> Tensor:
        return graph.op("reshape", _project(graph, config, h, target, count * size), shape=(rows, count, size))

    def rotated(target: str, count: int) -> Tensor:
        return graph.op(
            "rope", heads(target, count), positions, base=config.rope_theta, dims=size, name=f"{target}_rope"
        )

    mixed = mix(rotated("q", config.heads), rotated("k", config.kv_heads), heads("v", config.kv_heads))
    merged = graph.op("cont", mixed, shape=(rows, config.hidden), name="kqv_merged")
    return _project(graph, config, merged, "o", config.hidden)


def _within_batch(config: LlamaConfig, mask: Tensor) -> Mix:
    """Return what mixes the positions of each sequence of a batch, as training has them."""

    def arranged(x: Tensor, axes: tuple[int, int, int]) -> Tensor:
        """Return [T, heads, hd] permuted, each sequence for itself."""
        if config.batch == 1:
            return x.graph.op("permute", x, axes=axes)
        apart = x.graph.op("reshape", x, shape=(config.batch, config.seq, *x.shape[1:]))
        return x.graph.op("permute", apart, axes=(0, *(axis + 1 for axis in axes)))

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, fused = arranged(q, (1, 0, 2)), arranged(k, (1, 0, 2)), config.attention == "fused"
        mixed = (
            attended(q, k, arranged(v, (1, 0, 2)), mask, causal=True)
            if fused
            else _by_parts(q, k, arranged(v, (1, 2, 0)), mask)
        )
        return q.graph.op("permute", mixed, axes=(1, 0, 2) if config.batch == 1 else (0, 2, 1, 3))

    return mix


def _by_parts(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(hd) + mask) v; v is [.., hd, T]."""
    graph = q.graph
    turned = graph.op("cont", v, name="v_heads")
    scores = graph.op("mul_mat", k, q, name="kq")
    weights = graph.op("soft_max", scores, mask, scale=1 / sqrt(q.shape[-1]), name="kq_soft_max")
    return graph.op("mul_mat", turned, weights, name="kqv")


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, *, causal: bool = False) -> Tensor:
    """Return softmax(q k^T / sqrt(hd) + mask) v in one op, [H, T, hd].

    q is [H, T, hd], k and v [K, S, hd], mask [T, S]; with `causal` as `engine.ops.fused` has it.
    """
    return q.graph.op("attention", q, k, v, mask, scale=1 / sqrt(q.shape[-1]), causal=causal, name="kqv")


def _feed_forward(graph: Graph, config: LlamaConfig, x: Tensor) -> Tensor:
    h = _norm(graph, config, x, "ffn_norm")
    if not config.experts:
        return _gated(graph, config, h)
    room = slots(h.shape[0], experts=config.experts, active=config.active, factor=config.capacity)
    mixed = mixture(
        h,
        _linear(graph, config, h, "ffn_router", config.experts),
        active=config.active,
        slots=room,
        expert=lambda rows: _gated(graph, config, rows),
    )
    if config.balance:
        graph.penalties.append(graph.op("scale", mixed.balance, s=config.balance))
    return mixed.result


def _gated(graph: Graph, config: LlamaConfig, h: Tensor) -> Tensor:
    """Return what the feed-forward part makes of rows, [.., D], or of those of each expert."""
    gate, up = (_project(graph, config, h, target, config.ffn) for target in ("gate", "up"))
    if config.glu == "swiglu":
        mixed = graph.op("swiglu", gate, up, name="ffn_swiglu")
    else:
        mixed = graph.op("mul", graph.op("silu", gate, name="ffn_silu"), up, name="ffn_par")
    return _project(graph, config, mixed, "down", config.hidden)


def _norm(graph: Graph, config: LlamaConfig, x: Tensor, name: str) -> Tensor:
    gain = graph.parameter(name, (config.hidden,), config.dtype, trainable=config.full)
    normed = graph.op("rms_norm", x, eps=config.eps, name=f"{name}.normed")
    return graph.op("mul", normed, gain, name=f"{name}.scaled")


def _linear(
    graph: Graph, config: LlamaConfig, h: Tensor, name: str, width: int, *, trainable: bool = False, result: str = ""
) -> Tensor:
    shape = (*h.shape[:-2], width, h.shape[-1])  # before the last two, experts
    weight = graph.parameter(f"{name}.weight", shape, config.dtype, trainable=trainable or config.full)
    return graph.op("mul_mat", weight, h, name=result or name)


def _project(graph: Graph, config: LlamaConfig, h: Tensor, target: str, width: int) -> Tensor:
    name = PROJECTIONS[target]
    adapted = target in config.targets
    if not adapted or not config.rank:
        return _linear(graph, config, h, name, width, trainable=adapted)
    plain = _linear(graph, config, h, name, width, result=f"{name}.base")
    experts = h.shape[:-2]
    a = graph.parameter(f"{name}.lora_a", (*experts, config.rank, h.shape[-1]), config.dtype, trainable=True)
    b = graph.parameter(f"{name}.lora_b", (*experts, width, config.rank), config.dtype, trainable=True)
    if config.dropout:
        h = graph.op("dropout", h, graph.find(KEY), p=config.dropout, salt=a.index, name=f"{name}.lora_dropped")
    low = graph.op("mul_mat", a, h, name=f"{name}.lora_h")
    high = graph.op("mul_mat", b, low, name=f"{name}.lora_out")
    return graph.op(
        "add", plain, graph.op("scale", high, s=config.alpha / config.rank, name=f"{name}.lora_scaled"), name=name
    )
