"""Normalisation of rows: rms norm and layer norm, forward and backward.

The contract is that of `engine.kernels.compiled`.
"""

from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel, leaf, reduction
from engine.kernels.compiled.row_primitives import copy, dot, dot_around, fetch, rescale, summed
from engine.kernels.compiled.vectors import BLOCK, stack_block, wide


@kernel
def rms_norm(x: Any, eps: Any, out: Any) -> None:
    """Write out = x / sqrt(mean(x * x) + eps), each row for itself. x, out: (rows, n)."""
    block = stack_block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    for row in range(rows):
        factor = one / np.sqrt(dot(x[row], x[row]) / x.dtype.type(n) + eps)
        for start in range(0, n, BLOCK):
            a, o = x[row, start : start + BLOCK], out[row, start : start + BLOCK]
            fetch(x[row], n + start, o.size)
            fetch(out[row], n + start, o.size)
            for i in range(o.size):
                block[i] = a[i] * factor
            copy(block, o)


@leaf
def _rms_factors(dy: Any, x: Any, eps: Any) -> Any:
    """Return (-x.dy / (x.x + n eps), 1 / sqrt(mean(x * x) + eps)) of one row."""
    n = x.dtype.type(x.size)
    squares = dot(x, x)
    return -dot(x, dy) / (squares + eps * n), x.dtype.type(1) / np.sqrt(squares / n + eps)


@kernel
def rms_norm_back(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """Write out = (x * s + dy) * r with the factors of `_rms_factors`.

    dy, x, out: (rows, n). Right over dy and over x.
    """
    block = stack_block(out)
    rows, n = x.shape
    for row in range(rows):
        s, r = _rms_factors(dy[row], x[row], eps)
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = x[row, start:stop], dy[row, start:stop], out[row, start:stop]
            fetch(x[row], n + start, o.size)
            fetch(dy[row], n + start, o.size)
            for i in range(o.size):
                block[i] = (a[i] * s + b[i]) * r
            copy(block, o)


@kernel
def rms_norm_back_two_pass(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """As `rms_norm_back`, in the order of ggml before 0.15.0: out = x; out *= s; out += dy.

    Out *= r. Wrong over dy.
    """
    rows, n = x.shape
    for row in range(rows):
        s, r = _rms_factors(dy[row], x[row], eps)
        o = out[row]
        copy(x[row], o)
        rescale(o, s)
        for i in range(n):
            o[i] = o[i] + dy[row, i]
        rescale(o, r)


@reduction
def _spread(a: Any, mean: Any) -> Any:
    """Return the sum of squared distances from the mean."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += (a[i] - mean) * (a[i] - mean)
    return total


@kernel
def norm(x: Any, eps: Any, out: Any) -> None:
    """Write out = (x - mean) / sqrt(variance + eps), each row for itself. x, out: (rows, n)."""
    block = stack_block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    for row in range(rows):
        mean = summed(x[row]) / x.dtype.type(n)
        factor = one / np.sqrt(_spread(x[row], mean) / x.dtype.type(n) + eps)
        for start in range(0, n, BLOCK):
            a, o = x[row, start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = (a[i] - mean) * factor
            copy(block, o)


@kernel
def norm_back(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """Write out = (dy - mean(dy) - xc * sum(dy xc) / (n (variance + eps))) * r, xc = x - mean.

    dy, x, out: (rows, n).
    """
    block = stack_block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    count = x.dtype.type(n)
    for row in range(rows):
        mean = summed(x[row]) / count
        spread = _spread(x[row], mean) / count + eps
        r = one / np.sqrt(spread)
        upstream = summed(dy[row]) / count
        s = dot_around(dy[row], x[row], mean) / (count * spread)
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], x[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = (a[i] - upstream - (b[i] - mean) * s) * r
            copy(block, o)
