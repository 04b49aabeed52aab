"""Random numbers that are functions of a seed: uniform numbers and dropout.

The seed is an i32 tensor of shape [1], written by the host like any input; `salt` tells the ops of
one graph apart. The same seed, salt and place give the same number, in either dtype and in every
run: backward draws the mask of `dropout` again and stores none, and so does what gradient
checkpointing computes twice.

* `uniform`: numbers in (0, 1), never 0 or 1.
* `dropout`: x / (1 - p) where the number of that place is at least p, 0 elsewhere. It is linear in
  x and its own adjoint.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import FLOATS, checked_shape, floating, real, whole


def _seed(seed: Tensor) -> None:
    if seed.dtype != "i32" or seed.shape != (1,):
        raise EngineError(f"seed {seed} must be i32 of shape (1,)")


def _uniform(params: dict[str, Any], seed: Tensor) -> ResultLayout:
    _seed(seed)
    if params["dtype"] not in FLOATS:
        raise EngineError(f"dtype {params['dtype']!r} is none of {', '.join(FLOATS)}")
    shape = params["shape"] = checked_shape(params["shape"])
    params["salt"] = whole("salt", params["salt"])
    return ResultLayout(shape=shape, dtype=params["dtype"])


def _dropout(params: dict[str, Any], x: Tensor, seed: Tensor) -> ResultLayout:
    _seed(seed)
    params.update(p=real("p", params["p"]), salt=whole("salt", params["salt"]))
    if not 0 <= params["p"] <= 1:
        raise EngineError(f"p {params['p']} is no probability")
    return ResultLayout(shape=x.shape, dtype=floating(x))


RULES = (
    row("uniform(seed, *, shape, salt=0, dtype='f32')", _uniform, seed=None),
    row("dropout(x, seed, *, p, salt=0)", _dropout, x="dropout(g, seed, **params)", seed=None),
)
