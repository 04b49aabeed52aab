"""Bound kernels that look up, count and draw.

The arithmetic is in `engine.kernels.compiled.lookups`, which is imported at the first bind.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from engine.kernels.binding import Array, Arrays, Call, flat, on_dense, require, rows, same_shapes
from engine.kernels.rowwise import call

_Last = Callable[[Mapping[str, Any], Arrays, Arrays], Call]


def _last(bind: _Last) -> _Last:
    """Let `bind` take params axis as the last of all operands and of results that have it."""

    def bound(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        axis, rank = params["axis"], operands[0].ndim
        require(-rank <= axis < rank, f"axis {axis} of {list(operands[0].shape)}")
        turned = tuple(x.swapaxes(axis, -1) for x in operands)
        return on_dense(bind)(params, turned, tuple(y.swapaxes(axis, -1) for y in results))

    return bound


@_last
def bind_gather(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the axis is turned away
    """(x, ids) -> x[.., ids, ..] along params axis."""
    (x, ids), (y,) = operands, results
    fits = ids.dtype == np.int32 and ids.shape == y.shape and x.dtype == y.dtype and x.shape[:-1] == ids.shape[:-1]
    require(fits, f"gather: {x.dtype}{list(x.shape)} by {ids.dtype}{list(ids.shape)} gives no {y.dtype}{list(y.shape)}")
    return call("gather", *map(rows, (x, ids, y)))


@_last
def bind_scatter(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the axis is turned away
    """(dy, ids) -> zeros with each element of dy added at its index along params axis."""
    (dy, ids), (y,) = operands, results
    fits = ids.dtype == np.int32 and ids.shape == dy.shape and dy.dtype == y.dtype and y.shape[:-1] == ids.shape[:-1]
    require(
        fits, f"scatter: {dy.dtype}{list(dy.shape)} by {ids.dtype}{list(ids.shape)} gives no {y.dtype}{list(y.shape)}"
    )
    return call("scatter", *map(rows, (dy, ids, y)))


def _on_dense(make: Callable[[Array, Array], Call], operand: Array, result: Array) -> Call:
    """Return the call that `make` binds to an operand and a result, staged if not dense."""
    return on_dense(lambda _, operands, results: make(*operands, *results))({}, (operand,), (result,))


def bind_add_at(dy: Array, places: Array, out: Array) -> Call:
    """Zeros, with element i of dy added to element places[i] of out; both in row-major order."""
    return _on_dense(lambda x, y: call("scatter", *(one.reshape(1, -1) for one in (x, places, y))), dy, out)


def bind_argmax(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> the place of the largest along params axis, which is gone from the result."""
    (x,), (y,) = operands, results
    axis = params["axis"]
    turned = np.moveaxis(x, axis, -1)
    fits = y.dtype == np.int32 and (y.shape == turned.shape[:-1] or (y.shape == (1,) and x.ndim == 1))
    require(fits, f"argmax: {list(x.shape)} along {axis} gives no {y.dtype}{list(y.shape)}")
    return _on_dense(lambda x, y: call("argmax", rows(x), flat(y)), turned, y)


def bind_argsort(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x -> the places of its elements along params axis in ascending order, int32, as x."""
    (x,), (y,) = operands, results
    require(y.dtype == np.int32 and y.shape == x.shape, f"argsort: {list(x.shape)} gives no {y.dtype}{list(y.shape)}")
    turned, places = (np.moveaxis(array, params["axis"], -1) for array in (x, y))
    room = np.empty(turned.shape[-1], np.int32)
    return _on_dense(lambda x, y: call("argsort", rows(x), room, rows(y)), turned, places)


@on_dense
def bind_count_equal(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """(a, b) int32 -> in how many places they agree, one int32."""
    (a, b), (y,) = operands, results
    same_shapes("count_equal", a, b)
    require(a.dtype == y.dtype == np.int32 and y.size == 1, f"count_equal: {a.dtype} to {y.dtype}{list(y.shape)}")
    return call("count_equal", *map(flat, (a, b, y)))


@on_dense
def bind_all_finite(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """Bind x -> one element: 1 if every element is finite, else 0."""
    (x,), (y,) = operands, results
    require(x.dtype == y.dtype and y.size == 1, f"all_finite: {x.dtype} to {y.dtype}{list(y.shape)}")
    return call("all_finite", flat(x), flat(y))


@on_dense
def bind_unscale(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """(g, scale[1]) -> g / scale where that is finite, 0 elsewhere."""
    (g, scale), (y,) = operands, results
    same_shapes("unscale", g, y)
    require(scale.size == 1 and scale.dtype == g.dtype, f"unscale: scale {scale.dtype}{list(scale.shape)}")
    return call("unscale", *map(flat, (g, scale, y)))


@on_dense
def bind_mean_squared_error(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam
    """(prediction, target) -> one element: the mean of (prediction - target)**2."""
    (prediction, target), (loss,) = operands, results
    same_shapes("mean_squared_error", prediction, target)
    require(
        loss.size == 1 and loss.dtype == prediction.dtype, f"mean_squared_error: result {loss.dtype}{list(loss.shape)}"
    )
    return call("mean_squared_error", *map(flat, (prediction, target, loss)))


def _seed(kind: str, seed: Array) -> Array:
    require(
        seed.dtype == np.int32 and seed.size == 1, f"{kind}: seed must be one int32, got {seed.dtype}{list(seed.shape)}"
    )
    return flat(seed)


@on_dense
def bind_uniform(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind seed[1] -> random numbers in (0, 1); params salt."""
    (seed,), (y,) = operands, results
    return call("uniform", _seed("uniform", seed), int(params["salt"]), flat(y))


@on_dense
def bind_dropout(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(x, seed[1]) -> x / (1 - p) where that place is kept, 0 elsewhere; params p, salt."""
    (x, seed), (y,) = operands, results
    same_shapes("dropout", x, y)
    p = float(params["p"])
    keep = x.dtype.type(1 / (1 - p) if p < 1 else 0)
    return call("dropout", flat(x), _seed("dropout", seed), int(params["salt"]), p, keep, flat(y))
