"""Bound kernels that move elements: a few numpy copies over views that are made once.

They take strides and dtypes of any kind.

A call is one numpy function, or several in a fixed order (`one_call`). No kernel here may lie over
an operand: they fill the result before they read. Copies with a cast go through numpy's loop for
the pair of dtypes, which rounds to nearest even.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.kernels import indexed
from engine.kernels.binding import Array, Arrays, Bind, Call, one_call, require, strided


def window(
    array: Array, starts: tuple[int, ...], lengths: tuple[int, ...], steps: tuple[int, ...] | None = None
) -> Array:
    """Return the view of `lengths` elements from `starts` on, every `steps`-th, by axis."""
    axes = zip(starts, lengths, steps or (1,) * len(starts), strict=True)
    return array[tuple(slice(start, start + length * step, step) for start, length, step in axes)]


def bind_pad(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> x with params before and after new elements of params value by axis."""
    (x,), (y,) = operands, results
    shape = tuple(b + n + a for b, n, a in zip(params["before"], x.shape, params["after"], strict=True))
    require(shape == y.shape and x.dtype == y.dtype, f"pad: {x.dtype}{list(x.shape)} to {y.dtype}{list(y.shape)}")
    place = window(y, params["before"], x.shape)
    return one_call((y.fill, (y.dtype.type(params.get("value", 0.0)),)), (np.copyto, (place, x)))


def bind_concat(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(a, b) -> a then b along params axis."""
    (a, b), (y,) = operands, results
    axis = params["axis"]
    fits = 0 <= axis < a.ndim == b.ndim == y.ndim and y.shape[axis] == a.shape[axis] + b.shape[axis]
    require(
        fits and a.dtype == b.dtype == y.dtype,
        f"concat: {list(a.shape)} and {list(b.shape)} to {list(y.shape)} on axis {axis}",
    )
    second = tuple(a.shape[axis] if i == axis else 0 for i in range(a.ndim))
    return one_call((np.copyto, (window(y, (0,) * a.ndim, a.shape), a)), (np.copyto, (window(y, second, b.shape), b)))


def bind_into_window(kind: str, done: Callable[[Array, Array], Call]) -> Bind:
    """(a, b) -> a, with b laid into the window from params starts on by `done`, a call of both."""

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        (a, b), (y,) = operands, results
        require(
            a.shape == y.shape and a.dtype == b.dtype == y.dtype,
            f"{kind}: {list(a.shape)} and {list(b.shape)} to {list(y.shape)}",
        )
        return one_call((np.copyto, (y, a)), done(window(y, params["starts"], b.shape), b))

    return bind


bind_acc = bind_into_window("acc", lambda place, b: (np.add, (place, b, place)))
bind_set = bind_into_window("set", lambda place, b: (np.copyto, (place, b)))


def bind_full(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """() -> params value everywhere."""
    (y,) = results
    return y.fill, (y.dtype.type(params["value"]),)


def bind_cast(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the result has the dtype
    """Bind x -> the same numbers in the result's dtype, rounded to nearest even."""
    (x,), (y,) = operands, results
    require(x.shape == y.shape, f"cast: {list(x.shape)} to {list(y.shape)}")
    return np.copyto, (y, x, "unsafe")


def bind_view_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind dy -> zeros with dy added at offset + index * strides, params counted in elements."""
    (dy,), (y,) = operands, results
    require(dy.dtype == y.dtype, f"view_back: {dy.dtype} to {y.dtype}")
    places = _places(dy.shape, params["strides"], params["offset"])
    if not dy.size:
        return y.fill, (0,)
    require(
        places.min() >= 0 and places.max() < y.size,
        f"view_back: places [{places.min()}, {places.max()}] in {list(y.shape)}",
    )
    if y.flags.c_contiguous and len(np.unique(places)) == places.size:
        strides = tuple(step * y.itemsize for step in params["strides"])
        place = strided(y.reshape(-1)[params["offset"] :], dy.shape, strides)
        return one_call((y.fill, (0,)), (np.copyto, (place, dy)))
    return indexed.bind_add_at(dy, places, y)


def _places(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """Return for each element where it lies, int32, in the order of the elements."""
    steps = (np.arange(n, dtype=np.int64) * step for n, step in zip(shape, strides, strict=True))
    total = np.full((1,) * len(shape), offset, np.int64)
    for axis, step in enumerate(steps):
        total = total + step.reshape((-1, *(1,) * (len(shape) - 1 - axis)))
    return total.reshape(-1).astype(np.int32)


def bind_sum_axes(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> the sum over params axes; the result has them as 1 or not at all."""
    (x,), (y,) = operands, results
    require(x.dtype == y.dtype, f"sum_axes: {x.dtype} to {y.dtype}")
    return _reduced(params, x, y)


def bind_mean(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> the mean over params axes: the sum, times 1 / count."""
    (x,), (y,) = operands, results
    require(x.dtype == y.dtype, f"mean: {x.dtype} to {y.dtype}")
    count = int(np.prod([x.shape[axis] for axis in params["axes"]]))
    factor = y.dtype.type(1.0 / count if count else np.nan)
    return one_call(_reduced(params, x, y), (np.multiply, (y, factor, y)))


def _reduced(params: Mapping[str, Any], x: Array, y: Array) -> Call:
    axes = params["axes"]
    left = tuple(n for axis, n in enumerate(x.shape) if axis not in axes)
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    require(y.shape in (left, kept, (1,)) and y.size == int(np.prod(left)),
            f"a sum of {list(x.shape)} over {axes} is no {list(y.shape)}")  # fmt: skip
    if y.shape == left:
        return np.add.reduce, (x, axes, None, y)
    return np.add.reduce, (x, axes, None, y if y.shape == kept else y.reshape(kept), True)
