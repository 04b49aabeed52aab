"""Reductions: sums and means over axes, the place of the largest, and how often two tensors agree.

* `sum_axes`, `mean`: over `axes` (None: all), which stay as lengths of 1 if `keepdims`; all of them
  gone leaves shape [1].
* `argsort`: the places along one axis in ascending order, i32, shaped like x; stable, NaN last.
* `argmax`: the first place of the largest along one axis, i32, that axis gone; a NaN counts as the
  largest. No gradient flows: it jumps, and is flat everywhere else.
* `count_equal`: in how many places two i32 tensors agree, i32 [1]. No gradient flows.

`sum` over everything is an op of its own (`engine.ops.elementwise`), as ggml has it.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import contiguous, row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import axes_of, axis_of, elements, floating, same_shape

Shape = tuple[int, ...]


def _kept(shape: Shape, axes: Shape) -> Shape:
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape))


def _over(params: dict[str, Any], x: Tensor) -> ResultLayout:
    axes = params["axes"] = axes_of(x, params["axes"])
    keep = params["keepdims"] = bool(params["keepdims"])
    left = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    return ResultLayout(shape=_kept(x.shape, axes) if keep else left or (1,), dtype=floating(x))


def _mean(params: dict[str, Any], x: Tensor) -> ResultLayout:
    layout = _over(params, x)
    if not _count(x, params["axes"]) and elements(layout.shape):
        raise EngineError(f"{x} has no elements to take the mean of over axes {params['axes']}")
    return layout


def _count(x: Tensor, axes: Shape) -> int:
    return elements(tuple(x.shape[axis] for axis in axes))


def _argmax(params: dict[str, Any], x: Tensor) -> ResultLayout:
    floating(x)
    axis = params["axis"] = axis_of(x, params["axis"])
    if not x.shape[axis] and elements(x.shape[:axis] + x.shape[axis + 1 :]):
        raise EngineError(f"{x} has no elements along axis {axis}")
    return ResultLayout(shape=x.shape[:axis] + x.shape[axis + 1 :] or (1,), dtype="i32")


def _argsort(params: dict[str, Any], x: Tensor) -> ResultLayout:
    floating(x)
    params["axis"] = axis_of(x, params["axis"])
    return ResultLayout(shape=x.shape, dtype="i32")


def _count_equal(_params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    same_shape(a, b)
    if {a.dtype, b.dtype} != {"i32"}:
        raise EngineError(f"{a} and {b} must be i32")
    return ResultLayout(shape=(1,), dtype="i32")


def _spread(node: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient repeated over what was summed."""
    graph, x = node.graph, node.sources[0]
    kept = _kept(x.shape, node.params["axes"])
    wide = grad if grad.shape == kept else graph.op("reshape", contiguous(grad), shape=kept)
    return wide if kept == x.shape else graph.op("repeat", wide, shape=x.shape)


def _mean_x(node: Tensor, grad: Tensor) -> Tensor:
    count = _count(node.sources[0], node.params["axes"])
    return _spread(node, node.graph.op("scale", grad, s=1.0 / count if count else 0.0))


RULES = (
    row("sum_axes(x, *, axes=None, keepdims=False)", _over, x=_spread),
    row("mean(x, *, axes=None, keepdims=False)", _mean, x=_mean_x),
    row("argmax(x, *, axis=-1)", _argmax, x=None),
    row("argsort(x, *, axis=-1)", _argsort, x=None),
    row("count_equal(a, b)", _count_equal, a=None, b=None),
)
