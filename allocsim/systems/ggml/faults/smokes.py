"""The five single-op smoke tests of issue 1501 on real ggml, and the reason why none shows the bug.

Contract: a smoke test trains one low-rank adapter through one op for some steps. A smoke test runs
twice: under ggml's default plan, and with separate memory for each tensor (apart). A smoke test
also counts two facts of the default plan. `norm_backs` is the number of RMS_NORM_BACK nodes.
`unsafe` is the number of results that are placed over a source that their kernel still reads
afterwards: source 0 of RMS_NORM_BACK, and source 1 of SOFT_MAX_BACK.

The bug makes a number wrong only if `unsafe` is not zero. `unsafe` is zero in every smoke test, so
the losses of both runs are equal bit for bit, even on the library with the bug. In the test of the
norm, the norm comes before the trained weights, where no gradient flows, so no RMS_NORM_BACK is
built.

The concat test needs a backward op that ggml does not have (the reporter had added one). A child
process that runs the concat test aborts with ggml's message.

The graphs are not the reporter's own; they were rebuilt from the description in the issue.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import UnknownNameError
from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.workspace import Context, LibraryWorkspace
from allocsim.systems.ggml.capture.graph_rows import Rows, walk

Arrays = dict[str, NDArray[Any]]

WIDTH: Final = 16
TOKENS: Final = 8
RANK: Final = 4
HALF: Final = WIDTH // 2

UNSAFE: Final = {"RMS_NORM_BACK": 0, "SOFT_MAX_BACK": 1}
"""Op -> the source slot over which the op's kernel of the older library is wrong in place."""


@dataclass(slots=True)
class _Parts:
    """The tensors that a smoke test may use, and the function that adds the projection."""

    ctx: Context
    x: int
    keys: int
    positions: int
    project: Callable[[int], int]


def _norm(p: _Parts) -> int:
    return p.project(p.ctx.op("rms_norm", p.x, 1e-5))


def _rope(p: _Parts) -> int:
    heads = p.ctx.op("reshape_3d", p.project(p.x), WIDTH, 1, TOKENS)
    turned = p.ctx.op("rope_ext", heads, p.positions, None, WIDTH, 0, 0, 10_000.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    return p.ctx.op("reshape_2d", turned, WIDTH, TOKENS)


def _attend(p: _Parts, keys: int, query: int) -> int:
    scores = p.ctx.op("soft_max", p.ctx.op("scale", p.ctx.op("mul_mat", keys, query), 0.25))
    return p.ctx.op("mul_mat", p.ctx.op("cont", p.ctx.op("transpose", keys)), scores)


def _soft_max(p: _Parts) -> int:
    return _attend(p, p.keys, p.project(p.x))


def _view(p: _Parts) -> int:
    return _attend(p, p.ctx.op("view_2d", p.keys, WIDTH, TOKENS // 2, WIDTH * 4, 0), p.project(p.x))


def _concat(p: _Parts) -> int:
    y = p.project(p.x)
    first, second = (p.ctx.op("view_2d", y, HALF, TOKENS, WIDTH * 4, at) for at in (0, HALF * 4))
    return p.ctx.op("concat", p.ctx.op("cont", first), p.ctx.op("cont", second), 0)


SMOKES: Final[dict[str, tuple[Callable[[_Parts], int], str]]] = {
    "rms_norm": (_norm, "the norm comes before the trained weights, so no RMS_NORM_BACK is built"),
    "rope": (_rope, "the graph has no norm, and ROPE_BACK in place is safe"),
    "soft_max": (_soft_max, "the graph has no norm, and SOFT_MAX_BACK takes the bytes of source 0, which is safe"),
    "view": (_view, "the graph has no norm, and views of keys and values have no gradient"),
    "concat": (_concat, "ggml has no backward op for CONCAT, and the graph has no norm"),
}
"""Name of a smoke test -> its graph, and the reason why the test does not show the bug."""


def smoke(library: Library, name: str, *, steps: int = 10) -> dict[str, Any]:
    """Train one smoke test under the default plan and with separate memory for each tensor. Return
    both loss curves, the counts `norm_backs` and `unsafe` of the default plan, and the reason of
    `SMOKES`. This function is a task of a child process.
    """
    if name not in SMOKES:
        raise UnknownNameError("smoke", name, SMOKES)
    default, rows = _train(library, name, steps, apart=False)
    apart, _ = _train(library, name, steps, apart=True)
    return {
        "default": default,
        "apart": apart,
        "norm_backs": sum(row["op"] == "RMS_NORM_BACK" for row in rows["nodes"]),
        "unsafe": unsafe_aliases(rows),
        "reason": SMOKES[name][1],
    }


def unsafe_aliases(rows: Rows) -> int:
    """Count the results at the offset of the source that `UNSAFE` lists for their op."""

    def place(reference: Any) -> Any:
        return (rows["leafs"][int(reference[1:])] if isinstance(reference, str) else rows["nodes"][reference])["off"]

    return sum(
        row["off"] is not None and row["off"] == place(row["src"][UNSAFE[row["op"]]])
        for row in rows["nodes"]
        if row["op"] in UNSAFE
    )


def _train(library: Library, name: str, steps: int, *, apart: bool) -> tuple[list[float], Rows]:
    rng = np.random.default_rng(1)
    with LibraryWorkspace(library) as ws:
        static, ctx = ws.context(tensors=16), ws.context(tensors=512, graph_size=256, gradients=True)
        weights = {
            "w": static.tensor("f32", WIDTH, WIDTH, name="w"),
            "a": static.tensor("f32", WIDTH, RANK, name="a", flag="param"),
            "b": static.tensor("f32", RANK, WIDTH, name="b", flag="param"),
            "keys": static.tensor("f32", WIDTH, TOKENS, name="keys"),
            "rate": static.tensor("f32", 2, name="rate"),
        }
        ws.apart(static)
        inputs = {key: ctx.tensor("f32", WIDTH, TOKENS, name=key, flag="input") for key in ("x", "target")}
        inputs["positions"] = ctx.tensor("i32", TOKENS, name="positions", flag="input")

        def project(x: int) -> int:
            low = ctx.op("mul_mat", weights["b"], ctx.op("mul_mat", weights["a"], x))
            return ctx.op("add", ctx.op("mul_mat", weights["w"], x), ctx.op("scale", low, 2.0))

        y = SMOKES[name][0](_Parts(ctx, inputs["x"], weights["keys"], inputs["positions"], project))
        loss = ctx.op("sum", ctx.op("sqr", ctx.op("sub", y, inputs["target"])), name="loss", flag="loss output")
        graph = ctx.graph(loss, size=256, gradients=True)
        library.ggml_build_backward_expand(ctx.pointer, graph, None)
        for key in ("a", "b"):
            gradient = library.ggml_graph_get_grad(graph, weights[key])
            library.ggml_build_forward_expand(graph, ctx.op("opt_step_sgd", weights[key], gradient, weights["rate"]))
        if apart:
            ws.apart(ctx)
        else:
            ws.allocate(ws.planner(), graph)
        arrays: Arrays = {
            key: rng.standard_normal(ws.get(weights[key]).shape, dtype=np.float32) / 4
            for key in ("w", "a", "b", "keys")
        }
        arrays["rate"] = np.array([1e-3, 0], dtype=np.float32)
        feeds: Arrays = {key: rng.standard_normal((TOKENS, WIDTH), dtype=np.float32) for key in ("x", "target")}
        feeds["positions"] = np.arange(TOKENS, dtype=np.int32)
        for key, array in arrays.items():
            ws.put(weights[key], array)
        losses = []
        for _ in range(steps):
            library.ggml_graph_reset(graph)
            for key, array in feeds.items():
                if library.ggml_get_data(inputs[key]):  # an input that the test does not use has no memory
                    ws.put(inputs[key], array)
            ws.compute(graph)
            losses.append(float(ws.get(loss).item()))
        return losses, walk(library, graph)
