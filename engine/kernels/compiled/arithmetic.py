"""Sums, products, copies and optimizer steps. The contract is that of `engine.kernels.compiled`."""

from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel
from engine.kernels.compiled.row_primitives import copy
from engine.kernels.compiled.vectors import (
    AHEAD,
    BLOCK,
    LINE,
    add_lines,
    copy_lines,
    multiply_lines,
    stack_block,
    subtract_lines,
    turn_square,
)


@kernel
def binary_rows(operation: Any, a: Any, b: Any, out: Any) -> None:
    """Write out = a + b, a - b or a * b (operation 0, 1, 2), b repeating over leading rows.

    a, out: (rows, n); b: (m, n), m divides rows.
    """
    rows, n = a.shape
    whole = n - n % (LINE // a.itemsize)
    ahead = AHEAD if b.shape[0] == rows else 0
    for row in range(rows):
        x, y, z = a[row], b[row % b.shape[0]], out[row]
        if operation == 0:
            add_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] + y[i]
        elif operation == 1:
            subtract_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] - y[i]
        else:
            multiply_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] * y[i]


@kernel
def scale(x: Any, factor: Any, out: Any) -> None:
    """Write out = x * factor. x, out: (n,)."""
    whole = x.size - x.size % (LINE // x.itemsize)
    multiply_lines(x, factor, out, whole, 0)
    for i in range(whole, x.size):
        out[i] = x[i] * factor


@kernel
def copy_rows(x: Any, steps: Any, out: Any) -> None:
    """Write out = x. out: (T, H, n).

    x: (m,), row h of block t beginning at element t * steps[0] + h * steps[1].
    """
    length, heads, n = out.shape
    whole = n - n % (LINE // x.itemsize)
    for t in range(length):
        for head in range(heads):
            at = t * steps[0] + head * steps[1]
            a, o = x[at : at + n], out[t, head]
            copy_lines(a, x.dtype.type(0), o, whole, 0)  # the second operand has no say
            for i in range(whole, n):
                o[i] = a[i]


@kernel
def copy_across(x: Any, steps: Any, out: Any, places: Any, shape: Any) -> None:
    """Write out[a, b, c] = x[a, b, c] where b is adjacent in x and c in out.

    A transposition, a square of a line by a line at a time.

    x: (m,), element (a, b, c) at a * steps[0] + b + c * steps[1]; out: (k,), that element at a *
    places[0] + b * places[1] + c.
    """
    side = LINE // x.itemsize
    whole_b, whole_c = shape[1] - shape[1] % side, shape[2] - shape[2] % side
    for a in range(shape[0]):
        at, place = a * steps[0], a * places[0]
        for c in range(0, whole_c, side):
            for b in range(0, whole_b, side):
                turn_square(x, at + b + c * steps[1], steps[1], out, place + b * places[1] + c, places[1])
        for b in range(shape[1]):
            for c in range(whole_c if b < whole_b else 0, shape[2]):
                out[place + b * places[1] + c] = x[at + b + c * steps[1]]


@kernel
def opt_step_sgd(w: Any, g: Any, hp: Any, out: Any) -> None:
    """Write out = w * (1 - alpha * decay) - alpha * g with hp = (alpha, decay). w, g, out: (n,).

    hp: (2,).
    """
    block = stack_block(out)
    alpha = hp[0]
    keep = w.dtype.type(1) - alpha * hp[1]
    for start in range(0, w.size, BLOCK):
        a, b, o = w[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep - alpha * b[i]
        copy(block, o)


@kernel
def adamw_m(m: Any, g: Any, beta: Any, out: Any) -> None:
    """Write out = m * beta + g * (1 - beta). m, g, out: (n,); beta: (1,)."""
    block = stack_block(out)
    keep = beta[0]
    take = m.dtype.type(1) - keep
    for start in range(0, m.size, BLOCK):
        a, b, o = m[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep + b[i] * take
        copy(block, o)


@kernel
def adamw_v(v: Any, g: Any, beta: Any, out: Any) -> None:
    """Write out = v * beta + g * g * (1 - beta). v, g, out: (n,); beta: (1,)."""
    block = stack_block(out)
    keep = beta[0]
    take = v.dtype.type(1) - keep
    for start in range(0, v.size, BLOCK):
        a, b, o = v[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep + b[i] * b[i] * take
        copy(block, o)


@kernel
def opt_step_adamw(w: Any, m: Any, v: Any, hp: Any, out: Any) -> None:
    """Write out = w * (1 - alpha * wd) - alpha * (m * beta1h) / (sqrt(v * beta2h) + eps), hp as
    `engine.ops.optim`. hp: (5,).
    """
    block = stack_block(out)
    alpha, eps = hp[0], hp[1]
    keep = w.dtype.type(1) - alpha * hp[2]
    for start in range(0, w.size, BLOCK):
        a, b, c = w[start : start + BLOCK], m[start : start + BLOCK], v[start : start + BLOCK]
        o = out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep - alpha * (b[i] * hp[3]) / (np.sqrt(c[i] * hp[4]) + eps)
        copy(block, o)
