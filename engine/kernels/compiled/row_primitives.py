"""Operations on rows that kernels share: e**x, sums, maxima, copies.

Arguments are vectors (n,) of one dtype, float32 or float64; nothing is checked.

Sums may be reassociated, and only they; maxima are the same in any order. `exp` may be contracted
to fused multiply-adds.
"""

# ruff: noqa: FURB136 - `a if a < b else b` says what becomes of a NaN, and is what LLVM makes a vector of

import math
from typing import Any

import numpy as np
from numba import extending, types

from engine.kernels.compiled.jit import leaf, reduction
from engine.kernels.compiled.vectors import BLOCK, LINE, SHIFT, key_of, of_key, pow2, prefetch, stack_block, wide

_overload: Any = extending.overload

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))


def exp(x: float) -> float:
    """Return e**x to 1.1 units in the last place; 0 below the normal range, saturating above, NaN
    for NaN.
    """
    raise NotImplementedError


@_overload(exp, jit_options={"fastmath": {"contract"}, "error_model": "numpy", "forceinline": True})
def _exp_overload(x: Any) -> Any:
    """Choose the polynomial by dtype: Cephes' expf, or Taylor's to degree 13 on |r| <= log(2)/2."""
    f = np.float32
    low, high, log2e, shift, one, zero = f(-87.33654), f(88.37626), f(1.44269504), f(SHIFT[0]), f(1.0), f(0.0)
    ln2_high, ln2_low = f(0.693359375), f(-2.12194440e-4)
    c0, c1, c2, c3, c4, c5 = (
        f(1.9875691500e-4), f(1.3981999507e-3), f(8.3334519073e-3), f(4.1665795894e-2), f(1.6666665459e-1), f(5.0000001201e-1),
    )  # fmt: skip

    def exp32(x: Any) -> Any:
        c = low if x < low else x
        c = high if c > high else c
        shifted = c * log2e + shift
        n = shifted - shift
        r = c - n * ln2_high - n * ln2_low
        p = ((((c0 * r + c1) * r + c2) * r + c3) * r + c4) * r + c5
        y = (p * (r * r) + r + one) * pow2(shifted)
        return zero if x < low else y

    def exp64(x: Any) -> Any:
        c = -708.39 if x < -708.39 else x
        c = 709.43 if c > 709.43 else c
        shifted = c * 1.4426950408889634 + SHIFT[1]
        n = shifted - SHIFT[1]
        r = c - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
        p = 0.0
        for coefficient in _TAYLOR:
            p = p * r + coefficient
        y = (p * (r * r) + r + 1.0) * pow2(shifted)
        return 0.0 if x < -708.39 else y

    return exp32 if x == types.float32 else exp64


@leaf
def fetch(a: Any, start: Any, count: Any) -> None:
    """Start to bring `count` elements of a from `start` on, of which none need exist.

    Behind a row of a matrix lies the next.
    """
    for i in range(start, start + count, LINE // a.itemsize):
        prefetch(a, i)


@reduction
def dot(a: Any, b: Any) -> Any:
    """Return the sum of a * b."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@reduction
def dot_around(a: Any, b: Any, mean: Any) -> Any:
    """Return the sum of a * (b - mean)."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * (b[i] - mean)
    return total


@reduction
def summed(a: Any) -> Any:
    """Return the sum of a."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i]
    return total


@leaf
def largest(a: Any, scale: Any) -> Any:
    """Return the largest a * scale, -inf of none. A NaN may be passed over.

    What is made of it afterwards is NaN by itself.
    """
    wide()
    top = key_of(a.dtype.type(-np.inf))
    for i in range(a.size):
        key = key_of(a[i] * scale)
        top = key if key > top else top
    return of_key(top)


@leaf
def largest_masked(a: Any, mask: Any, scale: Any) -> Any:
    """Return the largest a * scale + mask, as `largest` does."""
    wide()
    top = key_of(a.dtype.type(-np.inf))
    for i in range(a.size):
        key = key_of(a[i] * scale + mask[i])
        top = key if key > top else top
    return of_key(top)


@leaf
def _scored(value: Any, scale: Any, top: Any) -> Any:
    """Return value * scale - top, rounded as it stands: sums may be reassociated, this may not."""
    return value * scale - top


@leaf
def _scored_masked(value: Any, mask: Any, scale: Any, top: Any) -> Any:
    """Return value * scale + mask - top, rounded as it stands."""
    return value * scale + mask - top


@reduction
def exps(a: Any, scale: Any, top: Any, block: Any) -> Any:
    """Write block = exp(a * scale - top), a being at most a block, and return the sum."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        e = exp(_scored(a[i], scale, top))
        block[i] = e
        total += e
    return total


@reduction
def exps_masked(a: Any, mask: Any, scale: Any, top: Any, block: Any) -> Any:
    """Write block = exp(a * scale + mask - top), as `exps` does."""
    wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        e = exp(_scored_masked(a[i], mask[i], scale, top))
        block[i] = e
        total += e
    return total


@leaf
def mass_of(x: Any, top: Any) -> Any:
    """Return the sum of exp(x - top), a block at a time, while the row behind x is on its way."""
    block = stack_block(x)
    mass = 0.0
    for start in range(0, x.size, BLOCK):
        fetch(x, x.size + start, BLOCK)
        mass += exps(x[start : start + BLOCK], x.dtype.type(1), top, block)
    return mass


@leaf
def masses_of(x: Any, top: Any, out: Any) -> Any:
    """Return what `mass_of` returns, and write the terms of that sum to out.

    x, out: (n,). Right over x.
    """
    block = stack_block(x)
    mass = 0.0
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        fetch(x, x.size + start, BLOCK)
        fetch(out, stop, BLOCK)
        mass += exps(x[start:stop], x.dtype.type(1), top, block)
        copy(block, out[start:stop])
    return mass


@leaf
def copy(source: Any, target: Any) -> None:
    """Write target = source, which may be longer."""
    wide()
    for i in range(target.size):
        target[i] = source[i]


def least_normal(weight: float) -> float:
    """Return the least x for which x * weight is a normal number, with a margin for rounding.

    It is NaN for NaN.
    """
    raise NotImplementedError


@_overload(least_normal, jit_options={"error_model": "numpy", "forceinline": True})
def _least_overload(weight: Any) -> Any:
    """Choose the bound by dtype."""
    real = np.float32 if weight == types.float32 else np.float64
    tiny = real(np.finfo(real).tiny * 1.0001)

    def least(weight: Any) -> Any:
        return tiny / abs(weight)

    return least


@leaf
def settle(a: Any, least: Any, share: Any, factor: Any) -> None:
    """Make a * share * factor of a, 0 where a is less than `least`."""
    wide()
    zero = a.dtype.type(0)
    for i in range(a.size):
        a[i] = (zero if a[i] < least else a[i]) * share * factor


@leaf
def rescale(a: Any, factor: Any) -> None:
    """Make a * factor of a."""
    wide()
    for i in range(a.size):
        a[i] = a[i] * factor
