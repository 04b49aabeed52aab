"""Element-wise ops and their broadcasts.

They are add, sub, mul, scale, silu, swiglu, repeat, sum and accumulation.

Formulas are ggml's (`ggml_compute_backward`, d99724f2), in its order of operands, so that the
graphs agree node for node.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.pullback import by_parts
from engine.ops.rule import REQUIRED, ResultLayout, Rule, Sources, Tensor
from engine.ops.shapes import checked_shape, floating, like, repeats_into, same_shape


def broadcast(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    """Shape rule of (a, b): shaped like a, b repeating into it."""
    del params
    a, b = sources
    if not repeats_into(b.shape, a.shape):
        raise EngineError(
            f"{b} does not repeat into {a}: each of its lengths must divide the other's, from the last on"
        )
    return ResultLayout(shape=a.shape, dtype=floating(a, b))


def _repeat(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    params["shape"] = checked_shape(params["shape"])
    if not repeats_into(sources[0].shape, params["shape"]):
        raise EngineError(f"{sources[0]} does not repeat into {params['shape']}")
    return ResultLayout(shape=params["shape"], dtype=floating(*sources))


def _repeat_back(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    params["shape"] = checked_shape(params["shape"])
    if not repeats_into(params["shape"], sources[0].shape):
        raise EngineError(f"{params['shape']} does not repeat into {sources[0]}")
    return ResultLayout(shape=params["shape"], dtype=floating(*sources))


def _scalar(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    del params
    return ResultLayout(shape=(1,), dtype=floating(*sources))


def unbroadcast(grad: Tensor, source: Tensor) -> Tensor:
    """Return `grad` summed over whatever `source` was repeated over."""
    return grad if grad.shape == source.shape else grad.graph.op("repeat_back", grad, shape=source.shape)


def _pass(node: Tensor, grad: Tensor) -> Tensor:
    del node
    return grad


def _add_b(node: Tensor, grad: Tensor) -> Tensor:
    return unbroadcast(grad, node.sources[1])


def _sub_b(node: Tensor, grad: Tensor) -> Tensor:
    return unbroadcast(node.graph.op("scale", grad, s=-1.0), node.sources[1])


def _mul_a(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("mul", grad, node.sources[1])


def _mul_b(node: Tensor, grad: Tensor) -> Tensor:
    a, b = node.sources
    return unbroadcast(node.graph.op("mul", a, grad), b)


def _scale_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("scale", grad, s=node.params["s"])


def _silu_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("silu_back", grad, node.sources[0])


def _silu_back_dy(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("silu_back", grad, node.sources[1])


def _silu_back_parts(node: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    """Return dy * (s + x s (1 - s)) with s = sigmoid(x)."""
    graph = node.graph
    s = graph.op("sigmoid", x)
    bent = graph.op("mul", x, graph.op("sub", s, graph.op("sqr", s)))
    return graph.op("mul", dy, graph.op("add", s, bent))


def _swiglu_gate(node: Tensor, grad: Tensor) -> Tensor:
    gate, up = node.sources
    return node.graph.op("silu_back", node.graph.op("mul", grad, up), gate)


def _swiglu_up(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("mul", node.graph.op("silu", node.sources[0]), grad)


def _repeat_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("repeat_back", grad, shape=node.sources[0].shape)


def _repeat_back_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("repeat", grad, shape=node.sources[0].shape)


def _accumulate(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    del params
    acc, grad = sources
    same_shape(acc, grad)
    return ResultLayout(shape=acc.shape, dtype=floating(acc, grad))


RULES = (
    Rule(kind="add", arguments=("a", "b"), shape=broadcast, derivatives={"a": _pass, "b": _add_b}),
    Rule(kind="sub", arguments=("a", "b"), shape=broadcast, derivatives={"a": _pass, "b": _sub_b}),
    Rule(kind="mul", arguments=("a", "b"), shape=broadcast, derivatives={"a": _mul_a, "b": _mul_b}),
    Rule(kind="scale", arguments=("x",), params={"s": REQUIRED}, shape=like("s"), derivatives={"x": _scale_x}),
    Rule(kind="silu", arguments=("x",), shape=like(), derivatives={"x": _silu_x}),
    Rule(
        kind="silu_back",
        arguments=("dy", "x"),
        shape=like(),
        derivatives={"dy": _silu_back_dy, "x": by_parts("x", _silu_back_parts)},
    ),
    Rule(kind="swiglu", arguments=("gate", "up"), shape=like(), derivatives={"gate": _swiglu_gate, "up": _swiglu_up}),
    Rule(kind="repeat", arguments=("x",), params={"shape": REQUIRED}, shape=_repeat, derivatives={"x": _repeat_x}),
    Rule(
        kind="repeat_back",
        arguments=("x",),
        params={"shape": REQUIRED},
        shape=_repeat_back,
        derivatives={"x": _repeat_back_x},
    ),
    Rule(kind="sum", arguments=("x",), shape=_scalar, derivatives={"x": _repeat_back_x}),
    Rule(kind="add_inplace", arguments=("acc", "grad"), shape=_accumulate, mutates=0),
)
