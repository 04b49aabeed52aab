"""Kernels that are one numpy ufunc or copy each, bound. Strides of any kind.

One IEEE operation per element (or a sum in a fixed order), so the bits depend neither on placement
nor on who does the operation. numpy handles a result exactly over an operand; if they overlap in
any other way it copies first (and so allocates), which no declared pair needs (compiled loops do
not). For a broadcast numpy allocates a buffer of 8192 elements in each call, so the usual one, a
dense operand repeating over leading rows, goes to a compiled loop instead; so do large dense
arrays, which mostly lie in no cache.

ggml's repeat rule: each dimension of the smaller shape divides that of the larger, element `i`
meets element `i % n`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from engine.kernels import rowwise
from engine.kernels.binding import Array, Arrays, Bind, Call, flat, in_turn, on_dense, require, rows, tiled


def maximum(a: Array, b: Any, out: Array) -> None:
    """Write the larger of two into `out`; NaN if either is."""
    np.maximum(a, b, out=out)  # numpy deprecates a positional out here, and here only


def minimum(a: Array, b: Any, out: Array) -> None:
    """Write the smaller of two into `out`; NaN if either is."""
    np.minimum(a, b, out=out)


Function = Callable[..., object]
"""A ufunc, or a function with the result as its last argument."""

LARGE: Final = 1 << 12
"""Elements from which on operands or result are likely to lie in no cache; compiled loops ask for
them ahead of time, numpy does not."""

_REAL: Final = (np.dtype(np.float32), np.dtype(np.float64))


def _large(*arrays: Array) -> bool:
    """Whether dense arrays are left to a compiled loop."""
    return arrays[0].size >= LARGE and all(a.dtype in _REAL and a.flags.c_contiguous for a in arrays)


_COMPILED: Mapping[Function, int] = {np.add: 0, np.subtract: 1, np.multiply: 2}
"""Codes of `compiled.binary_rows`."""


def bind_binary(kind: str, ufunc: Function) -> Bind:
    """(a, b) -> shape of a; b repeats over a."""

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        (a, b), (out,) = operands, results
        require(
            out.shape == a.shape and out.dtype == a.dtype,
            f"{kind}: result {list(out.shape)} is not shaped as {list(a.shape)}",
        )
        if all(x.shape == a.shape and x.flags.c_contiguous for x in (a, b, out)) and a.dtype == b.dtype:
            if ufunc in _COMPILED and _large(a, b, out):
                return rowwise.call("binary_rows", _COMPILED[ufunc], *(x.reshape(1, x.size) for x in (a, b, out)))
            return ufunc, (flat(a), flat(b), flat(out))
        left, right, _ = tiled(kind, a, b)
        dense = all(x.flags.c_contiguous for x in (a, b, out))
        if dense and b.ndim and b.shape == a.shape[-b.ndim :] and ufunc in _COMPILED:
            return rowwise.call("binary_rows", _COMPILED[ufunc], rows(a), rows(b), rows(out))
        return ufunc, (left, right, out.reshape(left.shape, copy=False))

    return bind


def bind_comparison(kind: str, ufunc: Function) -> Bind:
    """(a, b) -> 1 where it holds, else 0, shaped like a; b repeats over a.

    numpy would take memory for a buffer in each run to write its truth as numbers; here it is taken
    once.
    """

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        (a, b), (out,) = operands, results
        require(out.shape == a.shape, f"{kind}: result {list(out.shape)} is not shaped as {list(a.shape)}")
        truth = np.empty(out.shape, np.bool_)
        left, right, _ = tiled(kind, a, b)
        return in_turn, ((ufunc, (left, right, truth.reshape(left.shape))), (np.copyto, (out, truth)))

    return bind


def bind_unary(kind: str, ufunc: Function, *further: float | str) -> Bind:
    """Bind x -> ufunc(x, *further): constants and parameters by name, cast to the dtype of x."""

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        (x,), (y,) = operands, results
        require(x.shape == y.shape and x.dtype == y.dtype, f"{kind}: {list(x.shape)} to {list(y.shape)}")
        return ufunc, (x, *(x.dtype.type(params[one] if isinstance(one, str) else one) for one in further), y)

    return bind


def bind_scale(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> x * params s."""
    (x,), (y,) = operands, results
    require(x.shape == y.shape and x.dtype == y.dtype, f"scale: {list(x.shape)} to {list(y.shape)}")
    factor = x.dtype.type(params["s"])
    if _large(x, y):
        return rowwise.call("scale", flat(x), factor, flat(y))
    return np.multiply, (x, factor, y)


def bind_repeat(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the result has the shape
    """Bind x -> params shape (the result's): x repeats over it."""
    (x,), (y,) = operands, results
    large, small, _ = tiled("repeat", y, x)
    return np.copyto, (large, small)


def bind_repeat_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the result has the shape
    """Bind x -> params shape (the result's): the sum of all elements of x that repeat onto one."""
    (x,), (y,) = operands, results
    large, small, axes = tiled("repeat_back", x, y)
    if not axes:
        return np.copyto, (small, large)
    squeezed = small.reshape([n for axis, n in enumerate(small.shape) if axis not in axes], copy=False)
    return np.add.reduce, (large, axes, None, squeezed)


def _transposition(x: Array, y: Array) -> Call:
    """Bind the copy of x, adjacent along one of its first two axes, to a dense y of its shape."""
    near = x.strides.index(x.itemsize)
    x, y = (array.transpose(1 - near, near, 2) for array in (x, y))
    steps, places = (np.array(s, np.int64) // x.itemsize for s in (x.strides[::2], y.strides[:2]))
    return rowwise.call(
        "copy_across", rowwise.reached(x), steps, rowwise.reached(y), places, np.array(x.shape, np.int64)
    )


@on_dense
def bind_sum(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """Bind x -> one element: the sum of all, pairwise."""
    (x,), (y,) = operands, results
    require(y.size == 1 and x.dtype == y.dtype, f"sum: result {y.dtype}{list(y.shape)} is no scalar of {x.dtype}")
    return np.add.reduce, (flat(x), 0, None, y.reshape(()))


def bind_copy(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """Bind x -> its elements in row-major order, laid as the result; no further operand is read."""
    x, y = operands[0], results[0]
    require(x.size == y.size and x.dtype == y.dtype, f"copy: {x.dtype}{list(x.shape)} to {y.dtype}{list(y.shape)}")
    if _large(y) and rowwise.has_heads(x):
        return rowwise.call("copy_rows", *rowwise.heads(x), y.reshape(x.shape))
    if _large(y) and x.ndim == 3 and rowwise.forward(x) and x.itemsize in x.strides:
        return _transposition(x, y.reshape(x.shape))
    if x.shape == y.shape:
        return np.copyto, (y, x)
    if y.flags.c_contiguous:
        return np.copyto, (y.reshape(x.shape, copy=False), x)
    if x.flags.c_contiguous:
        return np.copyto, (y, x.reshape(y.shape, copy=False))
    scratch = np.empty(x.shape, x.dtype)
    return in_turn, ((np.copyto, (scratch, x)), (np.copyto, (y, scratch.reshape(y.shape, copy=False))))
