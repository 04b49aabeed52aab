"""A transformer with low-rank adapters in ggml's own ops: the graph of issue 1501.

Contract: `build` makes the graph of one training step in a `LibraryWorkspace`. Weights and adapters
have memory of their own, and inputs are in the compute buffer. `ggml_build_backward_expand` makes
the backward graph; optionally each adapter has one `ggml_opt_step_sgd`. A layer has four parts: RMS
norm with gain; grouped-query attention with rotary positions and adapters on q and v; a second RMS
norm with gain; a gated MLP. Embedding and output share one matrix. This module plans nothing;
`pins` returns the tensors to flag as OUTPUT before planning.

Weights are float32, drawn from a seed. What this module does not see: which plan the graph gets,
and whether its numbers are right. Source: the graph of ggml issue 1501 at SmolLM2's shape (hidden
576, 9 query heads, 3 key heads, ffn 1536, 30 layers).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import UnknownNameError
from allocsim.systems.ggml.access.workspace import Context, LibraryWorkspace

ROPE_BASE: Final = 10_000.0
NORM_EPSILON: Final = 1e-5
ADAPTER_SCALE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the model: counts of layers and heads, and lengths of dimensions."""

    layers: int = 2
    hidden: int = 64
    ffn: int = 128
    heads: int = 4
    kv_heads: int = 2
    head: int = 16
    vocab: int = 96
    tokens: int = 8
    rank: int = 4
    fused_gate: bool = False
    """Whether the MLP's gate is one `ggml_swiglu_split` instead of `silu` and `mul`."""

    def deep(self, layers: int) -> "Shape":
        """Return the same shape with another number of layers."""
        return replace(self, layers=layers)


TINY: Final = Shape()

HYPER: Final = "L-1.hp"
"""Name of the tensor that holds the learning rate and the weight decay."""

KINDS: Final = ("forward", "train", "train+sgd")
"""Kinds of graph: forward only, with the backward graph, or also with optimizer steps."""


@dataclass(slots=True, kw_only=True)
class LibraryTransformer:
    """A built graph and the tensors a caller needs by name."""

    workspace: LibraryWorkspace
    graph: int
    forward_nodes: int
    loss: int
    weights: dict[str, int]
    """Frozen tensors, which have memory of their own."""
    adapters: dict[str, int]
    """Trainable tensors with the flag PARAM and memory of their own, `L0.Aq` etc., by layer."""
    inputs: dict[str, int]
    gradients: dict[str, int] = field(default_factory=dict)
    """Name of each adapter -> its gradient; empty for a forward graph."""
    contexts: tuple[Context, ...] = ()
    """The context of weights and the context of the compute graph."""
    scheduler: int = 0
    """The scheduler that planned the graph; 0 if a graph allocator or nothing has planned it."""

    def run(self) -> None:
        """Compute the planned graph once."""
        if self.scheduler:
            self.workspace.compute_scheduled(self.scheduler, self.graph)
        else:
            self.workspace.compute(self.graph)

    def nodes(self) -> list[int]:
        """Return all nodes in execution order."""
        return self.workspace.nodes(self.graph)


def build(ws: LibraryWorkspace, shape: Shape, *, kind: str = "train") -> LibraryTransformer:
    """Build the graph of one training step without a plan; `kind` is one of `KINDS`."""
    if kind not in KINDS:
        raise UnknownNameError("kind of graph", kind, KINDS)
    size = 256 * (shape.layers + 1)
    static = ws.context(tensors=16 * (shape.layers + 1))
    compute = ws.context(tensors=2 * size, graph_size=size, gradients=True)
    sizes = dict(_sizes(shape))
    weights = {name: static.tensor("f32", *ne, name=name) for name, ne in sizes.items() if not _is_adapter(name)}
    adapters = {
        name: static.tensor("f32", *ne, name=name, flag="param") for name, ne in sizes.items() if _is_adapter(name)
    }
    if kind == "train+sgd":
        weights[HYPER] = static.tensor("f32", 2, name=HYPER)
    ws.apart(static)
    inputs = {
        "tok": compute.tensor("i32", shape.tokens, name="tok", flag="input"),
        "pos": compute.tensor("i32", shape.tokens, name="pos", flag="input"),
        "mask": compute.tensor("f32", shape.tokens, shape.tokens, name="mask", flag="input"),
        "labels": compute.tensor("f32", shape.vocab, shape.tokens, name="labels", flag="input"),
    }
    loss = _loss(compute, shape, {**weights, **adapters, **inputs})
    return step_of((static, compute), loss, size=size, kind=kind, weights=weights, adapters=adapters, inputs=inputs)


def step_of(
    contexts: tuple[Context, Context], loss: int, *, size: int, kind: str,
    weights: dict[str, int], adapters: dict[str, int], inputs: dict[str, int],
) -> LibraryTransformer:  # fmt: skip
    """Return the graph of a training step that ends in the tensor `loss`.

    `kind` is one of `KINDS`; the other arguments are as in `LibraryTransformer`.
    """
    ctx = contexts[1]
    for flag in ("loss", "output"):
        ctx.flag(loss, flag)
    graph = ctx.graph(loss, size=size, gradients=True)
    count = ctx.workspace.library.ggml_graph_n_nodes(graph)
    model = LibraryTransformer(
        workspace=ctx.workspace, graph=graph, forward_nodes=count, loss=loss, contexts=contexts,
        weights=weights, adapters=adapters, inputs=inputs,
    )  # fmt: skip
    if kind != "forward":
        differentiate(model, steps=kind == "train+sgd")
    return model


def differentiate(model: LibraryTransformer, *, steps: bool = False) -> None:
    """Extend a forward graph by its backward graph, and by optimizer steps if `steps` is true.

    The forward graph must have been made with room for gradients.
    """
    ws, compute, graph = model.workspace, model.contexts[1], model.graph
    ws.pin(model.adapters.values())
    ws.library.ggml_build_backward_expand(compute.pointer, graph, None)
    model.gradients = {name: ws.library.ggml_graph_get_grad(graph, tensor) for name, tensor in model.adapters.items()}
    if steps:
        for name, tensor in model.adapters.items():
            step = compute.op("opt_step_sgd", tensor, model.gradients[name], model.weights[HYPER])
            ws.library.ggml_build_forward_expand(graph, step)


def pins(model: LibraryTransformer, which: str) -> list[int]:
    """Return the tensors to flag as OUTPUT.

    `which` is `none`, `all` (nodes), `backward` (nodes) or `gradients` (of the parameters).
    """
    nodes = model.nodes()
    table = {
        "none": [],
        "all": nodes,
        "backward": nodes[model.forward_nodes :],
        "gradients": list(model.gradients.values()),
    }
    if which not in table:
        raise UnknownNameError("set of pins", which, table)
    return table[which]


def initial(shape: Shape, seed: int) -> dict[str, NDArray[Any]]:
    """Return name -> initial array for weights, adapters and inputs, in numpy's dimension order."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, NDArray[Any]] = {}
    for name, ne in _sizes(shape):
        last = name.rpartition(".")[2]
        spread = 0.3 if last == "emb" else float(1 / np.sqrt(ne[0]))
        drawn = rng.standard_normal(ne[::-1], dtype=np.float32) * np.float32(spread)
        arrays[name] = 1 + 0.1 * drawn if last in ("n1", "n2", "nf") else drawn
    tokens = np.arange(shape.tokens)
    arrays["tok"] = rng.integers(0, shape.vocab, shape.tokens).astype(np.int32)
    arrays["pos"] = tokens.astype(np.int32)
    arrays["mask"] = np.where(tokens[None, :] > tokens[:, None], -np.inf, 0).astype(np.float32)
    labels = np.zeros((shape.tokens, shape.vocab), dtype=np.float32)
    labels[tokens, rng.integers(0, shape.vocab, shape.tokens)] = 1
    arrays["labels"] = labels
    return arrays


def upload(model: LibraryTransformer, arrays: dict[str, NDArray[Any]]) -> None:
    """Write weights and adapters, once before all steps; `feed` writes the inputs of each step."""
    for name, tensor in {**model.weights, **model.adapters}.items():
        if name in arrays:
            model.workspace.put(tensor, arrays[name])


def feed(model: LibraryTransformer, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the inputs and reset the gradients.

    The host must do both before every compute.
    """
    if model.gradients:
        model.workspace.library.ggml_graph_reset(model.graph)
    for name, tensor in model.inputs.items():
        model.workspace.put(tensor, arrays[name])


def _sizes(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the name and `ne` (dimensions, innermost first) of every weight and adapter."""
    wide, narrow, d = shape.heads * shape.head, shape.kv_heads * shape.head, shape.hidden
    yield "L-1.emb", (d, shape.vocab)
    yield "L-1.nf", (d,)
    for index in range(shape.layers):
        rows = {
            "n1": (d,), "n2": (d,), "wq": (d, wide), "wk": (d, narrow), "wv": (d, narrow), "wo": (wide, d),
            "wg": (d, shape.ffn), "wu": (d, shape.ffn), "wd": (shape.ffn, d),
            "Aq": (d, shape.rank), "Bq": (shape.rank, wide), "Av": (d, shape.rank), "Bv": (shape.rank, narrow),
        }  # fmt: skip
        for name, ne in rows.items():
            yield f"L{index}.{name}", ne


def _is_adapter(name: str) -> bool:
    return name.rpartition(".")[2] in ("Aq", "Bq", "Av", "Bv")


def _loss(ctx: Context, shape: Shape, t: dict[str, int]) -> int:
    """Build the forward graph from tokens to loss; return the loss tensor."""
    x = ctx.op("get_rows", t["L-1.emb"], t["tok"])
    for index in range(shape.layers):
        layer = {name.partition(".")[2]: tensor for name, tensor in t.items() if name.startswith(f"L{index}.")}
        x = ctx.op("add", x, _attention(ctx, shape, t, layer, _normed(ctx, x, layer["n1"])))
        x = ctx.op("add", x, _mlp(ctx, shape, layer, _normed(ctx, x, layer["n2"])))
    logits = ctx.op("mul_mat", t["L-1.emb"], _normed(ctx, x, t["L-1.nf"]), name="logits")
    return ctx.op("cross_entropy_loss", logits, t["labels"], name="loss")


def _normed(ctx: Context, x: int, gain: int) -> int:
    return ctx.op("mul", ctx.op("rms_norm", x, NORM_EPSILON), gain)


def _attention(ctx: Context, shape: Shape, t: dict[str, int], layer: dict[str, int], x: int) -> int:
    head, heads, kv, tokens = shape.head, shape.heads, shape.kv_heads, shape.tokens
    q = ctx.op("reshape_3d", _adapted(ctx, layer, "q", x), head, heads, tokens)
    k = ctx.op("reshape_3d", ctx.op("mul_mat", layer["wk"], x), head, kv, tokens)
    v = ctx.op("reshape_3d", _adapted(ctx, layer, "v", x), head, kv, tokens)
    q, k = (ctx.op("permute", _rotated(ctx, shape, y, t["pos"]), 0, 2, 1, 3) for y in (q, k))
    v = ctx.op("cont", ctx.op("permute", v, 1, 2, 0, 3))
    scores = ctx.op("soft_max_ext", ctx.op("mul_mat", k, q), t["mask"], float(1 / np.sqrt(head)), 0.0)
    mixed = ctx.op("permute", ctx.op("mul_mat", v, scores), 0, 2, 1, 3)
    return ctx.op("mul_mat", layer["wo"], ctx.op("cont_2d", mixed, heads * head, tokens))


def _adapted(ctx: Context, layer: dict[str, int], which: str, x: int) -> int:
    low = ctx.op("mul_mat", layer[f"B{which}"], ctx.op("mul_mat", layer[f"A{which}"], x))
    return ctx.op("add", ctx.op("mul_mat", layer[f"w{which}"], x), ctx.op("scale", low, ADAPTER_SCALE))


def _rotated(ctx: Context, shape: Shape, x: int, positions: int) -> int:
    return ctx.op("rope_ext", x, positions, None, shape.head, 0, 0, ROPE_BASE, 1.0, 0.0, 1.0, 0.0, 0.0)


def _mlp(ctx: Context, shape: Shape, layer: dict[str, int], x: int) -> int:
    gate, up = ctx.op("mul_mat", layer["wg"], x), ctx.op("mul_mat", layer["wu"], x)
    gated = ctx.op("swiglu_split", gate, up) if shape.fused_gate else ctx.op("mul", ctx.op("silu", gate), up)
    return ctx.op("mul_mat", layer["wd"], gated)
