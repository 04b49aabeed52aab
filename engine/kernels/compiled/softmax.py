"""Softmax of rows and its logarithm, forward and backward; the causal mask of a block of rows.

The contract is that of `engine.kernels.compiled`.
"""

import math
from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel, unlocked
from engine.kernels.compiled.row_primitives import (
    copy,
    dot,
    exp,
    exps,
    exps_masked,
    fetch,
    largest,
    largest_masked,
    mass_of,
    rescale,
    summed,
)
from engine.kernels.compiled.vectors import BLOCK, stack_block


@unlocked
def soft_max(x: Any, mask: Any, scale: Any, out: Any) -> None:
    """Write out = softmax(x * scale + mask) of each row. x, out: (rows, n).

    mask: (m, n), row r takes mask row r % m; m = 0 is no mask.
    """
    block = stack_block(out)
    rows, n = x.shape
    for row in range(rows):
        source, o = x[row], out[row]
        mass = 0.0
        if mask.shape[0]:
            bias = mask[row % mask.shape[0]]
            top = largest_masked(source, bias, scale)
            for start in range(0, n, BLOCK):
                stop = start + BLOCK
                fetch(source, n + start, min(BLOCK, n - start))
                mass += exps_masked(source[start:stop], bias[start:stop], scale, top, block)
                copy(block, o[start:stop])
        else:
            top = largest(source, scale)
            for start in range(0, n, BLOCK):
                stop = start + BLOCK
                fetch(source, n + start, min(BLOCK, n - start))
                mass += exps(source[start:stop], scale, top, block)
                copy(block, o[start:stop])
        rescale(o, x.dtype.type(1.0 / mass))


@unlocked
def soft_max_back(dy: Any, y: Any, scale: Any, out: Any) -> None:
    """Write out = (dy - dy.y) * y * scale of each row.

    dy, y, out: (rows, n). Right over dy and over y.
    """
    block = stack_block(out)
    rows, n = y.shape
    for row in range(rows):
        shift = dot(dy[row], y[row])
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], y[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = (a[i] - shift) * b[i] * scale
            copy(block, o)


@kernel
def soft_max_back_two_pass(dy: Any, y: Any, scale: Any, out: Any) -> None:
    """As `soft_max_back`, in the order of ggml before 0.26.0: out = dy; out -= dy.y; out *= y.

    Out *= scale. Wrong over y.
    """
    rows, n = y.shape
    for row in range(rows):
        shift = dot(dy[row], y[row])
        o = out[row]
        copy(dy[row], o)
        for i in range(n):
            o[i] = o[i] - shift
        for i in range(n):
            o[i] = o[i] * y[row, i]
        rescale(o, scale)


@kernel
def log_soft_max(x: Any, out: Any) -> None:
    """Write out = x - max - log(sum(exp(x - max))) of each row. x, out: (rows, n)."""
    block = stack_block(out)
    rows, n = x.shape
    for row in range(rows):
        source = x[row]
        top = largest(source, x.dtype.type(1))
        shift = x.dtype.type(math.log(mass_of(source, top)))
        for start in range(0, n, BLOCK):
            a, o = source[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = a[i] - top - shift  # not a - (top + shift): where top is large, that sum forgets shift
            copy(block, o)


@kernel
def log_soft_max_back(dy: Any, y: Any, out: Any) -> None:
    """Write out = dy - exp(y) * sum(dy) of each row. dy, y, out: (rows, n)."""
    block = stack_block(out)
    rows, n = y.shape
    for row in range(rows):
        whole = summed(dy[row])
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], y[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = a[i] - exp(b[i]) * whole
            copy(block, o)


@kernel
def causal_mask(mask: Any, start: int, ahead: int, out: Any) -> None:
    """Write out[r, s] = mask[start + r, s].

    A row is NaN if its mask is not -inf at some key beyond start + r + ahead.

    mask: (queries, keys); out: (block, keys of the block), of which the last query sees the last
    key.
    """
    rows, keys = out.shape
    for row in range(rows):
        query = start + row
        wide = False
        for key in range(query + ahead + 1, mask.shape[1]):
            if mask[query, key] != -np.inf:
                wide = True
        for key in range(keys):
            out[row, key] = np.nan if wide else mask[query, key]
