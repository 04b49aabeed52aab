"""Functions of each element: activations and their derivatives, clamp, where.

The contract is that of `engine.kernels.compiled`.

Beyond -FAR silu and the gelus are their limit, -0. The slopes of the gelus beyond -FAR or FAR are
taken as if x lay there, 0 (in float32 to 10^-27) and 1; that of silu beyond -FAR as if x were -1
beside s, which is 0. The formulas would give inf * 0. NaN stays NaN.
"""

import math
from typing import Any

import numpy as np

from engine.kernels.compiled.jit import kernel, leaf
from engine.kernels.compiled.row_primitives import copy, exp, fetch
from engine.kernels.compiled.vectors import BLOCK, maximum, stack_block

FAR = 1e4
"""From here on silu and the gelus equal their limits, rounded to float64 too."""


@leaf
def inner(x: Any, low: Any, most: Any) -> Any:
    """Return x, `low` below -most and `most` above it; NaN for NaN."""
    return most if x > most else (low if x < -most else x)


@kernel
def silu(x: Any, out: Any) -> None:
    """Write out = x / (1 + exp(-x)). x, out: (n,)."""
    block = stack_block(out)
    one, none, least = x.dtype.type(1), x.dtype.type(-0.0), x.dtype.type(-FAR)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        fetch(x, start + BLOCK, o.size)
        for i in range(o.size):
            block[i] = (none if a[i] < least else a[i]) / (one + exp(-a[i]))
        copy(block, o)


@kernel
def silu_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + exp(-x)). dy, x, out: (n,)."""
    block = stack_block(out)
    one, most = x.dtype.type(1), x.dtype.type(FAR)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        fetch(dy, stop, o.size)
        fetch(x, stop, o.size)
        for i in range(o.size):
            s = one / (one + exp(-b[i]))
            block[i] = a[i] * s * (one + inner(b[i], -one, most) * (one - s))
        copy(block, o)


@kernel
def swiglu(gate: Any, up: Any, out: Any) -> None:
    """Write out = gate / (1 + exp(-gate)) * up. gate, up, out: (n,)."""
    block = stack_block(out)
    one, none, least = gate.dtype.type(1), gate.dtype.type(-0.0), gate.dtype.type(-FAR)
    for start in range(0, gate.size, BLOCK):
        stop = start + BLOCK
        a, b, o = gate[start:stop], up[start:stop], out[start:stop]
        fetch(gate, stop, o.size)
        fetch(up, stop, o.size)
        fetch(out, stop, o.size)
        for i in range(o.size):
            block[i] = (none if a[i] < least else a[i]) / (one + exp(-a[i])) * b[i]
        copy(block, o)


@kernel
def sigmoid(x: Any, out: Any) -> None:
    """Write out = 1 / (1 + exp(-x)). x, out: (n,)."""
    block = stack_block(out)
    one = x.dtype.type(1)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = one / (one + exp(-a[i]))
        copy(block, o)


@kernel
def softplus(x: Any, out: Any) -> None:
    """Write out = max(x, 0) + log(1 + exp(-|x|)), which is log(1 + exp(x)). x, out: (n,)."""
    block = stack_block(out)
    zero = x.dtype.type(0)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = maximum(a[i], zero) + np.log1p(exp(-abs(a[i])))
        copy(block, o)


@kernel
def gelu(x: Any, out: Any) -> None:
    """Write out = x / 2 * (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + exp(-2u)).

    x, out: (n,).
    """
    block = stack_block(out)
    t = x.dtype.type
    one, none, c, k, least = t(1), t(-0.0), t(0.044715), t(-2 * 0.7978845608028654), t(-FAR)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = (none if a[i] < least else a[i]) / (one + exp(k * (a[i] + c * (a[i] * a[i] * a[i]))))
        copy(block, o)


@kernel
def gelu_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * (s + x s (1 - s) 2u'), s = 1 / (1 + exp(-2u)), u' = sqrt(2/pi) (1 + 3 *
    0.044715 x^2). All (n,).
    """
    block = stack_block(out)
    t = x.dtype.type
    one, c, c3, k, most = t(1), t(0.044715), t(3 * 0.044715), t(2 * 0.7978845608028654), t(FAR)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            u = inner(b[i], -most, most)
            s = one / (one + exp(-k * (u + c * (u * u * u))))
            block[i] = a[i] * (s + u * s * (one - s) * k * (one + c3 * u * u))
        copy(block, o)


@kernel
def erf(x: Any, out: Any) -> None:
    """Write the error function of x into out. x, out: (n,)."""
    block = stack_block(out)
    t = x.dtype.type
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = t(math.erf(a[i]))
        copy(block, o)


@kernel
def gelu_erf(x: Any, out: Any) -> None:
    """Write out = x / 2 * (1 + erf(x / sqrt 2)). x, out: (n,)."""
    block = stack_block(out)
    t = x.dtype.type
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = (
                t(0.5) * (t(-0.0) if a[i] < t(-FAR) else a[i]) * (t(1) + t(math.erf(a[i] * t(0.7071067811865476))))
            )
        copy(block, o)


@kernel
def gelu_erf_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * (Phi(x) + x phi(x)) with the normal distribution and density.

    dy, x, out: (n,).
    """
    block = stack_block(out)
    t = x.dtype.type
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            u = inner(b[i], t(-FAR), t(FAR))
            below = t(0.5) * (t(1) + t(math.erf(u * t(0.7071067811865476))))
            block[i] = a[i] * (below + u * t(0.3989422804014327) * exp(t(-0.5) * u * u))
        copy(block, o)


@kernel
def clamp_back(dy: Any, x: Any, low: Any, high: Any, out: Any) -> None:
    """Write out = dy where low <= x <= high, 0 elsewhere. dy, x, out: (n,)."""
    block = stack_block(out)
    zero = x.dtype.type(0)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            block[i] = a[i] if low <= b[i] <= high else (zero if b[i] == b[i] else b[i])
        copy(block, o)


@kernel
def where(cond: Any, a: Any, b: Any, out: Any) -> None:
    """Write out = a where cond is not 0, b where it is, NaN where it is that.

    cond, a, b, out: (n,).
    """
    block = stack_block(out)
    for start in range(0, a.size, BLOCK):
        stop = start + BLOCK
        c, x, y, o = cond[start:stop], a[start:stop], b[start:stop], out[start:stop]
        for i in range(o.size):
            block[i] = c[i] if c[i] != c[i] else (x[i] if c[i] != 0 else y[i])
        copy(block, o)
