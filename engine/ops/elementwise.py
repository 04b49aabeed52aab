"""Element-wise ops and their broadcasts.

They are add, sub, mul, scale, silu, swiglu, repeat, sum and accumulation.

Formulas are ggml's (`ggml_compute_backward`, d99724f2), in its order of operands, so that the
graphs agree node for node.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import checked_shape, floating, like, repeats_into


def broadcast(_params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    """Shape rule of (a, b): shaped like a, b repeating into it."""
    if not repeats_into(b.shape, a.shape):
        raise EngineError(
            f"{b} does not repeat into {a}: each of its lengths must divide the other's, from the last on"
        )
    return ResultLayout(shape=a.shape, dtype=floating(a, b))


def _repeat(params: dict[str, Any], x: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    if not repeats_into(x.shape, shape):
        raise EngineError(f"{x} does not repeat into {shape}")
    return ResultLayout(shape=shape, dtype=floating(x))


def _repeat_back(params: dict[str, Any], x: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    if not repeats_into(shape, x.shape):
        raise EngineError(f"{shape} does not repeat into {x}")
    return ResultLayout(shape=shape, dtype=floating(x))


RULES = (
    row("add(a, b)", broadcast, a="g", b="summed(g, b)"),
    row("sub(a, b)", broadcast, a="g", b="summed(scale(g, s=-1.0), b)"),
    row("mul(a, b)", broadcast, a="mul(g, b)", b="summed(mul(a, g), b)"),
    row("scale(x, *, s)", like("s"), x="scale(g, s=s)"),
    row("silu(x)", like(), x="silu_back(g, x)"),
    row(
        "silu_back(dy, x)",
        like(),
        dy="silu_back(g, x)",
        parts="s = sigmoid(x); mul(dy, add(s, mul(x, sub(s, sqr(s)))))",
    ),
    row("swiglu(gate, up)", like(), gate="silu_back(mul(g, up), gate)", up="mul(silu(gate), g)"),
    row("repeat(x, *, shape)", _repeat, x="repeat_back(g, shape=x.shape)"),
    row("repeat_back(x, *, shape)", _repeat_back, x="repeat(g, shape=x.shape)"),
    row("sum(x)", like(to=(1,)), x="repeat(g, shape=x.shape)"),
    row("add_inplace(acc, grad)", like(), mutates=0),
)
