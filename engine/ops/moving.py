"""Ops that move elements: slice, pad, concat, acc, set, gather, scatter, full.

Two more ops only redirect gradients.

* `slice`: a view of `lengths` elements from `starts` on, every `steps`-th, by axis. `pad`: `before`
  and `after` new elements of `value` by axis; with steps of 1 each is the other's adjoint.
* `concat`: a then b along an axis (several: `engine.graph.composites.concat`).
* `acc`, `set`: a copy of a; to its window at `starts`, of b's shape, `acc` adds b; `set` puts b.
* `gather`: x[.., ids, ..] along one axis, ids shaped like the result; all other axes agree.
  `scatter`, its adjoint: zeros of `length` along that axis, each element of dy added where its
  index points. An index out of range gives NaN.
* `full`: one value everywhere.
* `stop_gradient`: the bytes of x, through which no gradient flows. `straight_through`: the bytes of
  hard, and the gradient goes to soft as if it had been the result (Bengio, Leonard and Courville
  2013, arXiv:1308.3432).

What is only moved may have any dtype; what is added must be floating.
"""

from typing import Any

from allocsim.errors import EngineError
from allocsim.model.layout import contiguous_strides
from engine.ops.row import cut, row
from engine.ops.rule import ResultLayout, Shape, Tensor
from engine.ops.shapes import FLOATS, axis_of, checked_shape, floating, per_axis, real, same_shape, whole


def _slice(params: dict[str, Any], x: Tensor) -> ResultLayout:
    starts = params["starts"] = per_axis(x, "starts", params["starts"])
    lengths = params["lengths"] = checked_shape(params["lengths"], "lengths")
    per_axis(x, "lengths", lengths)
    steps = params["steps"] = (1,) * len(starts) if params["steps"] is None else per_axis(x, "steps", params["steps"])
    if min(steps) < 1:
        raise EngineError(f"steps {steps} must be at least 1")
    _inside(
        x, starts, tuple((length - 1) * step + 1 if length else 0 for length, step in zip(lengths, steps, strict=True))
    )
    offset = sum(start * stride for start, stride in zip(starts, x.strides, strict=True)) if 0 not in lengths else 0
    strides = tuple(stride * step for stride, step in zip(x.strides, steps, strict=True))
    return ResultLayout(shape=lengths, strides=strides, offset=offset, dtype=x.dtype)


def _inside(x: Tensor, starts: tuple[int, ...], extents: tuple[int, ...]) -> None:
    for axis, (start, extent, n) in enumerate(zip(starts, extents, x.shape, strict=True)):
        if not 0 <= start <= n - extent:
            raise EngineError(f"[{start}, {start + extent}) of axis {axis} lies outside {x}")


def _pad(params: dict[str, Any], x: Tensor) -> ResultLayout:
    before, after = (per_axis(x, name, params[name]) for name in ("before", "after"))
    if min((*before, *after)) < 0:
        raise EngineError(f"before {before} and after {after} must not be negative; slice takes elements away")
    params.update(before=before, after=after, value=real("value", params["value"]))
    return ResultLayout(shape=tuple(b + n + a for b, n, a in zip(before, x.shape, after, strict=True)), dtype=x.dtype)


def _concat(params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    axis = params["axis"] = axis_of(a, params["axis"])
    if not _agree(a.shape, b.shape, axis) or a.dtype != b.dtype:
        raise EngineError(f"{a} and {b} must agree in dtype and in every axis but {axis}")
    return ResultLayout(
        shape=tuple(n + (b.shape[axis] if i == axis else 0) for i, n in enumerate(a.shape)), dtype=a.dtype
    )


def _window(params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    starts = params["starts"] = per_axis(a, "starts", params["starts"])
    if len(b.shape) != len(a.shape):
        raise EngineError(f"{b} is no window of {a}: they differ in the number of axes")
    _inside(a, starts, b.shape)
    return ResultLayout(shape=a.shape, dtype=floating(a, b))


def _agree(one: Shape, other: Shape, axis: int) -> bool:
    """Return whether shapes are alike but for one axis."""
    return len(one) == len(other) and one[:axis] + one[axis + 1 :] == other[:axis] + other[axis + 1 :]


def _gather(params: dict[str, Any], x: Tensor, ids: Tensor) -> ResultLayout:
    axis = params["axis"] = axis_of(x, params["axis"])
    if ids.dtype != "i32" or not _agree(x.shape, ids.shape, axis):
        raise EngineError(f"{ids} must be i32 and agree with {x} in every axis but {axis}")
    return ResultLayout(shape=ids.shape, dtype=floating(x))


def _scatter(params: dict[str, Any], dy: Tensor, ids: Tensor) -> ResultLayout:
    axis = params["axis"] = axis_of(dy, params["axis"])
    length = params["length"] = whole("length", params["length"])
    if ids.dtype != "i32" or length < 0:
        raise EngineError(f"{ids} must be i32 and length {length} not negative")
    same_shape(dy, ids)
    return ResultLayout(shape=tuple(length if i == axis else n for i, n in enumerate(dy.shape)), dtype=floating(dy))


def _full(params: dict[str, Any]) -> ResultLayout:
    if params["dtype"] not in FLOATS:
        raise EngineError(f"dtype {params['dtype']!r} is none of {', '.join(FLOATS)}")
    params["value"] = real("value", params["value"])
    return ResultLayout(shape=checked_shape(params["shape"]), dtype=params["dtype"])


def _same_bytes(_params: dict[str, Any], x: Tensor, *others: Tensor) -> ResultLayout:
    for other in others:
        same_shape(x, other)
        if other.dtype != x.dtype:
            raise EngineError(f"{x} and {other} must have one dtype")
    return ResultLayout(shape=x.shape, strides=x.strides, dtype=x.dtype)


def _slice_x(node: Tensor, grad: Tensor) -> Tensor:
    starts, steps, shape = node.params["starts"], node.params["steps"], node.sources[0].shape
    if max(steps) > 1:
        dense = contiguous_strides(shape, 1)
        strides = tuple(stride * step for stride, step in zip(dense, steps, strict=True))
        offset = sum(start * stride for start, stride in zip(starts, dense, strict=True)) if 0 not in node.shape else 0
        return node.graph.op("view_back", grad, shape=shape, strides=strides, offset=offset)
    after = tuple(n - start - length for n, start, length in zip(shape, starts, node.shape, strict=True))
    return node.graph.op("pad", grad, before=starts, after=after)


def _concat_a(node: Tensor, grad: Tensor) -> Tensor:
    return cut(grad, (0,) * len(node.shape), node.sources[0].shape)


def _concat_b(node: Tensor, grad: Tensor) -> Tensor:
    a, b = node.sources
    axis = node.params["axis"]
    return cut(grad, tuple(a.shape[axis] if i == axis else 0 for i in range(len(a.shape))), b.shape)


RULES = (
    row("slice(x, *, starts, lengths, steps=None)", _slice, x=_slice_x, view=True),
    row("pad(x, *, before, after, value=0.0)", _pad, x="cut(g, before, x.shape)"),
    row("concat(a, b, *, axis=0)", _concat, a=_concat_a, b=_concat_b),
    row("acc(a, b, *, starts)", _window, a="g", b="cut(g, starts, b.shape)"),
    row("set(a, b, *, starts)", _window, a="set(g, filled(b, 0.0), starts=starts)", b="cut(g, starts, b.shape)"),
    row("gather(x, ids, *, axis=-1)", _gather, x="scatter(g, ids, length=x.shape[axis], axis=axis)", ids=None),
    row("scatter(dy, ids, *, length, axis=-1)", _scatter, dy="gather(contiguous(g), ids, axis=axis)", ids=None),
    row("full(*, shape, value=0.0, dtype='f32')", _full),
    row("stop_gradient(x)", _same_bytes, x=None, view=True),
    row("straight_through(hard, soft)", _same_bytes, soft="g", hard=None, view=True, unread="soft"),
)
