"""Casts to other formats, and the further ops that mixed precision needs.

* `cast`: the same numbers in another dtype, rounded to nearest even; the gradient is cast back.
  f16, bf16, f8_e4m3 and f8_e5m2 are storage: they are cast, viewed and moved, and computed with
  only after a cast.
* `all_finite`: [1], 1 if every element is finite, else 0. No gradient flows.
* `unscale`: g / scale where that is finite, 0 elsewhere; scale is [1]. For gradients of a scaled
  loss, on their way to the optimiser; no gradient flows.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import FLOATS, STORED, floating, like


def _cast(params: dict[str, Any], x: Tensor) -> ResultLayout:
    known = (*FLOATS, *STORED)
    if x.dtype not in known or params["dtype"] not in known:
        raise EngineError(f"{x} to {params['dtype']!r}: both must be of {', '.join(known)}")
    return ResultLayout(shape=x.shape, dtype=params["dtype"])


def _unscale(_params: dict[str, Any], g: Tensor, scale: Tensor) -> ResultLayout:
    if scale.shape != (1,):
        raise EngineError(f"scale {scale} must have shape (1,)")
    return ResultLayout(shape=g.shape, dtype=floating(g, scale))


RULES = (
    row("cast(x, *, dtype)", _cast, x="cast(g, dtype=x.dtype)"),
    row("all_finite(x)", like(to=(1,)), x=None),
    row("unscale(g, scale)", _unscale, g=None, scale=None),
)
