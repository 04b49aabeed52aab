"""Views and copies: reshape, permute, transpose, view, cont, cpy.

A view has no kernel: its result is the bytes of its source. `reshape` takes a contiguous source, or
adds and drops axes of length 1. Axes are row-major (axis -1 varies fastest). `view` takes strides
and offset in elements, so that one graph serves f32 and f64; the layout it makes is in bytes.
`view_back` is its adjoint: zeros of `shape`, and each element of its operand added where the view
had found it. `cpy` writes over its destination, which it does not read; what it destroys there must
have no further reader, which no rule sees (a check of the program does).
"""

from typing import Any

from allocsim.errors import EngineError
from allocsim.model.layout import hull
from engine.ops.row import contiguous, row
from engine.ops.rule import ResultLayout, Shape, Tensor
from engine.ops.shapes import checked_shape, counts, elements, floating, per_axis, whole


def _reshape(params: dict[str, Any], x: Tensor) -> ResultLayout:
    params["shape"] = checked_shape(params["shape"])
    if elements(params["shape"]) != elements(x.shape):
        raise EngineError(f"{x} has {elements(x.shape)} elements, {params['shape']} has {elements(params['shape'])}")
    if x.contiguous:
        return ResultLayout(shape=params["shape"], dtype=x.dtype)
    if not _regrouped(x.shape, params["shape"]):
        raise EngineError(f"{x} is not contiguous; take cont of it first")
    steps = iter([stride for n, stride in zip(x.shape, x.strides, strict=True) if n != 1])
    strides = tuple(x.itemsize if n == 1 else next(steps) for n in params["shape"])
    return ResultLayout(shape=params["shape"], strides=strides, dtype=x.dtype)


def _regrouped(shape: Shape, other: Shape) -> bool:
    """Return whether two shapes differ in axes of length 1 alone."""
    return [n for n in shape if n != 1] == [n for n in other if n != 1]


def _permute(params: dict[str, Any], x: Tensor) -> ResultLayout:
    axes = params["axes"] = counts("axes", params["axes"])
    if sorted(axes) != list(range(len(x.shape))):
        raise EngineError(f"axes {axes} are no permutation of the {len(x.shape)} axes of {x}")
    return ResultLayout(shape=tuple(x.shape[a] for a in axes), strides=tuple(x.strides[a] for a in axes), dtype=x.dtype)


def _transpose(_params: dict[str, Any], x: Tensor) -> ResultLayout:
    if len(x.shape) < 2:
        raise EngineError(f"{x} has no two axes to exchange")
    (*batch, n, m), (*steps, s, t) = x.shape, x.strides
    return ResultLayout(shape=(*batch, m, n), strides=(*steps, t, s), dtype=x.dtype)


def _view(params: dict[str, Any], x: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    steps = params["strides"] = counts("strides", params["strides"])
    if len(steps) != len(shape):
        raise EngineError(f"strides {steps} do not fit shape {shape}")
    strides = tuple(s * x.itemsize for s in steps)
    params["offset"] = whole("offset", params["offset"])
    offset = params["offset"] * x.itemsize
    start, room = x.place
    low, high = hull(shape, strides, start + offset, x.itemsize)
    if high > low and (low < 0 or high > room):
        raise EngineError(f"bytes [{low}, {high}) lie outside the {room} bytes that {x} lies in")
    return ResultLayout(shape=shape, strides=strides, offset=offset, dtype=x.dtype)


def _cont(params: dict[str, Any], x: Tensor) -> ResultLayout:
    shape = x.shape if params["shape"] is None else checked_shape(params["shape"])
    if elements(shape) != elements(x.shape):
        raise EngineError(f"{x} has {elements(x.shape)} elements, {shape} has {elements(shape)}")
    params["shape"] = shape
    return ResultLayout(shape=shape, dtype=x.dtype)


def _cpy(_params: dict[str, Any], src: Tensor, dst: Tensor) -> ResultLayout:
    if elements(src.shape) != elements(dst.shape) or src.dtype != dst.dtype:
        raise EngineError(f"{src} and {dst} must agree in dtype and number of elements")
    return ResultLayout(shape=dst.shape, dtype=dst.dtype)


def reshaped(x: Tensor, shape: Shape) -> Tensor:
    """Return `x` in another shape: itself, a view, or a view of a contiguous copy."""
    if x.shape == shape:
        return x
    return x.graph.op("reshape", x if _regrouped(x.shape, shape) else contiguous(x), shape=shape)


def _permute_x(node: Tensor, grad: Tensor) -> Tensor:
    axes = node.params["axes"]
    return node.graph.op("permute", grad, axes=tuple(axes.index(axis) for axis in range(len(axes))))


def _shaped(node: Tensor, grad: Tensor) -> Tensor:
    source = node.sources[0]
    return grad if grad.shape == source.shape else node.graph.op("reshape", contiguous(grad), shape=source.shape)


def _view_back(params: dict[str, Any], dy: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    steps = params["strides"] = per_axis(dy, "strides", params["strides"])
    offset = params["offset"] = whole("offset", params["offset"])
    low, high = hull(dy.shape, steps, offset, 1)
    if high > low and (low < 0 or high > elements(shape)):
        raise EngineError(f"elements [{low}, {high}) lie outside the {elements(shape)} of {shape}")
    return ResultLayout(shape=shape, dtype=floating(dy))


def _view_x(node: Tensor, grad: Tensor) -> Tensor:
    """Add the gradient up in the viewed places of zeros shaped like the source.

    ggml scales by 0, then accumulates.
    """
    (x,) = node.sources
    if not x.contiguous:
        raise EngineError(
            f"view has a derivative only where its source is contiguous; {x} is not, take cont of it: {node}"
        )
    strides, offset = node.params["strides"], node.params["offset"]
    return node.graph.op("view_back", grad, shape=x.shape, strides=strides, offset=offset)


RULES = (
    row("reshape(x, *, shape)", _reshape, x="reshape(contiguous(g), shape=x.shape)", view=True),
    row("permute(x, *, axes)", _permute, x=_permute_x, view=True),
    row("transpose(x)", _transpose, x="transpose(g)", view=True),
    row("view(x, *, shape, strides, offset=0)", _view, x=_view_x, view=True),
    row("cont(x, *, shape=None)", _cont, x=_shaped),
    row(
        "view_back(dy, *, shape, strides, offset=0)",
        _view_back,
        dy="view(contiguous(g), shape=dy.shape, strides=strides, offset=offset)",
    ),
    row("cpy(src, dst)", _cpy, src=_shaped, dst=None, mutates=1, unread="dst"),
)
