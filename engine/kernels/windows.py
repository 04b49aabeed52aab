"""Kernels of sliding windows. Columns and places of maxima are compiled
(`engine.kernels.compiled.windows`), which is imported at the first bind; means are one numpy call
over all windows for each place in a window.

The views of the means are made when bound; places that fall over the border are left out of them,
so padding costs nothing. Sums go place by place, in row-major order of the window: bits do not
depend on where arrays lie. Sums over windows with gaps take numpy's buffers of 8192 elements in
each call.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from engine.kernels.binding import Array, Arrays, Call, on_dense, one_call, require
from engine.kernels.rowwise import call


def _places(
    params: Mapping[str, Any], image: tuple[int, ...], counts: tuple[int, int]
) -> Iterator[tuple[int, int, Any, Any]]:
    """Yield (i, j, windows, elements).

    Which windows have their element (i, j) in the image, and which elements those are, as slices.
    """
    spans = [
        [
            _span(count, n, place - pad, step)
            for place in range(size)
        ]
        for size, step, pad, n, count in zip(
            params["kernel"], params["stride"], params["padding"], image[-2:], counts, strict=True
        )
    ]  # fmt: skip
    for i, (rows, down) in enumerate(spans[0]):
        for j, (columns, across) in enumerate(spans[1]):
            yield i, j, (rows, columns), (down, across)


def _span(count: int, n: int, first: int, step: int) -> tuple[slice, slice]:
    """Return the windows whose element, at first + w * step, is in [0, n), and those elements."""
    low = max(0, -(first // step))
    high = max(low, min(count, (n - 1 - first) // step + 1))
    return slice(low, high), slice(
        first + low * step, first + (high - 1) * step + 1 if high > low else first + low * step, step
    )


def _fits(params: Mapping[str, Any], columns: Array, image: Array) -> None:
    kh, kw = params["kernel"]
    require(
        image.ndim == columns.ndim == 4
        and columns.dtype == image.dtype
        and columns.shape[0] == image.shape[0]
        and columns.shape[3] == image.shape[1] * kh * kw,
        f"im2col: {columns.dtype}{list(columns.shape)} and {image.dtype}{list(image.shape)} do not fit kernel {(kh, kw)}",
    )


def _pairs(params: Mapping[str, Any], *names: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, params[name])) for name in names)


@on_dense
def bind_im2col(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x[N, C, H, W] -> [N, OH, OW, C * KH * KW]; params kernel, stride, padding, dilation."""
    (x,), (y,) = operands, results
    _fits(params, y, x)
    return call("im2col", x, *_pairs(params, "kernel", "stride", "padding", "dilation"), y)


@on_dense
def bind_im2col_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind dy[N, OH, OW, C * KH * KW] -> [N, C, H, W]: each column added where it had come from."""
    (dy,), (y,) = operands, results
    _fits(params, dy, y)
    return call("im2col_back", dy, *_pairs(params, "kernel", "stride", "padding", "dilation"), y)


def _pooled(params: Mapping[str, Any], small: Array, image: Array) -> list[tuple[Array, Array]]:
    require(
        image.ndim == small.ndim == 4 and small.dtype == image.dtype and small.shape[:2] == image.shape[:2],
        f"pooling: {small.dtype}{list(small.shape)} and {image.dtype}{list(image.shape)} do not fit",
    )
    return [
        (small[:, :, rows, across], image[:, :, down, right])
        for _, _, (rows, across), (down, right) in _places(params, image.shape, (small.shape[2], small.shape[3]))
    ]


def _share(params: Mapping[str, Any], y: Array) -> Call:
    return np.multiply, (y, y.dtype.type(1.0 / (params["kernel"][0] * params["kernel"][1])), y)


def bind_avg_pool(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x[N, C, H, W] -> [N, C, OH, OW]: sums of windows, times 1 / (KH * KW)."""
    (x,), (y,) = operands, results
    adds = ((np.add, (small, seen, small)) for small, seen in _pooled(params, y, x))
    return one_call((y.fill, (0,)), *adds, _share(params, y))


def bind_avg_pool_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind dy[N, C, OH, OW] -> [N, C, H, W]: each share added to all elements of its window."""
    (dy,), (y,) = operands, results
    adds = ((np.add, (seen, small, seen)) for small, seen in _pooled(params, dy, y))
    return one_call((y.fill, (0,)), *adds, _share(params, y))


@on_dense
def bind_pool_index(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x[N, C, H, W] -> int32[N, C, OH, OW]; params kernel, stride, padding."""
    (x,), (y,) = operands, results
    fits = x.ndim == y.ndim == 4 and x.shape[:2] == y.shape[:2] and y.dtype == np.int32
    require(fits, f"pool_index: {list(x.shape)} gives no {y.dtype}{list(y.shape)}")
    planes = [a.reshape((-1, *a.shape[2:])) if a.size else np.empty((0, 1, 1), a.dtype) for a in (x, y)]
    return call("pool_index", planes[0], *_pairs(params, "kernel", "stride", "padding"), planes[1])
