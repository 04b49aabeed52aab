"""The numba kernels: row-wise and element-wise arithmetic over C-contiguous arrays.

Contract
--------
* Arrays are dense: matrices (rows, n), vectors (n,); one float dtype per call, float32 or float64; indices int32. Shapes are
  checked by the callers in `engine.kernels`; nothing here checks them again.
* Aliasing. Every kernel but the two `*_two_pass` ones reads each element of a row before it writes that element, whatever the result lies
  exactly over. Sums come first, in loops that only read; a map is computed into a block on the stack and copied from there. So the
  machine code that runs does not depend on where the arrays lie (no run-time alias checks), and neither does any bit of the result.
* Rounding. Only sums and maxima may be reassociated (that is what makes them vectors), and only `exp` may be contracted to fused
  multiply-adds; all other maps are rounded operation by operation. Results depend on shape and machine, not on placement.
* Gradients of a loss over classes that are too small for a normal number are 0: with many classes they are many, and on some processors a product
  of matrices takes ten times as long where it meets subnormal numbers.
* NaN and infinity are ordinary values and spread: poisoned memory must show. A row or index out of range gives NaN, never a wild read.

Importing this module imports numba (0.3 s) and compiles nothing; `entry` compiles a function for its argument types at first use and
keeps the machine code beside the source or in the user's cache, if either can be written. All compiled code is in this one
file because that is what numba's cache watches.
"""

# ruff: noqa: FURB136 - `a if a < b else b` says what becomes of a NaN, and is what LLVM makes a vector of

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from engine.kernels.binding import remember

_intrinsic: Any = extending.intrinsic  # numba declares these with types that no caller satisfies
_overload: Any = extending.overload
_typeof: Any = numba.typeof
_cg: Any = cgutils

BLOCK = 512
"""Elements of a map computed on the stack before they are written: 2 to 4 KiB, well inside the first cache."""

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))


def _kernel(function: Callable[..., None]) -> Any:
    """Make a dispatcher that is cached on disk where a cache folder can be found, and works without one."""
    try:
        return numba.njit(error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no folder to write to
        return numba.njit(error_model="numpy")(function)


_map = numba.njit(error_model="numpy")
_sum = numba.njit(error_model="numpy", fastmath={"reassoc", "nsz"})


# ---------------------------------------------------------------------------------------------------- building blocks


@_intrinsic
def _block(_: Any, like: Any) -> Any:
    """Return an uninitialised array of `BLOCK` elements on the stack, of the dtype of `like`: provably apart from any argument."""
    result = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        element = context.get_data_type(result.dtype)
        size = context.get_constant(types.intp, context.get_abi_sizeof(element))
        data = _cg.alloca_once(builder, ir.ArrayType(element, BLOCK))
        data.align = 64
        array = context.make_array(result)(context, builder)
        context.populate_array(
            array,
            data=builder.bitcast(data, element.as_pointer()),
            shape=_cg.pack_array(builder, [context.get_constant(types.intp, BLOCK)]),
            strides=_cg.pack_array(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()  # noqa: SLF001 - numba's own way to end an array proxy

    return result(like), codegen


def _pow2(bits: int, fraction: int, integer: Any, real: Any) -> Any:
    """Return an intrinsic `k -> 2.0**k` for normal results: the exponent field written directly."""

    @_intrinsic
    def pow2(_: Any, exponent: Any) -> Any:  # noqa: ARG001 - numba reads the arity
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            word = ir.IntType(bits)
            biased = builder.add(args[0], ir.Constant(word, (1 << (bits - fraction - 2)) - 1))
            target = ir.FloatType() if bits == 32 else ir.DoubleType()
            return builder.bitcast(builder.shl(biased, ir.Constant(word, fraction)), target)

        return real(integer), codegen

    return pow2


_pow2_32 = _pow2(32, 23, types.int32, types.float32)
_pow2_64 = _pow2(64, 52, types.int64, types.float64)


@_intrinsic
def _maximum(_: Any, a: Any, b: Any) -> Any:
    """Return the larger of two, NaN if either is: llvm.maximum, which may be reassociated as it stands."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        real = args[0].type
        name = "llvm.maximum.f32" if isinstance(real, ir.FloatType) else "llvm.maximum.f64"
        function = _cg.get_or_insert_function(builder.module, ir.FunctionType(real, [real, real]), name)
        return builder.call(function, args)

    return a(a, b), codegen


def _exp(x: float) -> float:
    """Return e**x: relative error 1.3e-7 (float32), 4e-16 (float64); 0 below the normal range, saturating above, NaN for NaN."""
    raise NotImplementedError


@_overload(_exp, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _exp_overload(x: Any) -> Any:
    """Choose the polynomial by dtype: Cephes' expf, or Taylor's to degree 13 on |r| <= log(2)/2."""
    f = np.float32
    low, high, log2e, half, one, zero = f(-87.33654), f(88.37626), f(1.44269504), f(0.5), f(1.0), f(0.0)
    ln2_high, ln2_low = f(0.693359375), f(-2.12194440e-4)
    c0, c1, c2, c3, c4, c5 = (
        f(1.9875691500e-4), f(1.3981999507e-3), f(8.3334519073e-3), f(4.1665795894e-2), f(1.6666665459e-1), f(5.0000001201e-1),
    )  # fmt: skip

    def exp32(x: Any) -> Any:
        c = low if x < low else x
        c = high if c > high else c
        n = np.floor(c * log2e + half)
        r = c - n * ln2_high - n * ln2_low
        p = ((((c0 * r + c1) * r + c2) * r + c3) * r + c4) * r + c5
        y = (p * (r * r) + r + one) * _pow2_32(np.int32(n))
        return zero if x < low else y

    def exp64(x: Any) -> Any:
        c = -708.39 if x < -708.39 else x
        c = 709.43 if c > 709.43 else c
        n = np.floor(c * 1.4426950408889634 + 0.5)
        r = c - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
        p = 0.0
        for coefficient in _TAYLOR:
            p = p * r + coefficient
        y = (p * (r * r) + r + 1.0) * _pow2_64(np.int64(n))
        return 0.0 if x < -708.39 else y

    return exp32 if x == types.float32 else exp64


@_sum
def _dot(a: Any, b: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@_sum
def _total(a: Any) -> Any:
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i]
    return total


@_map
def _largest(a: Any, scale: Any) -> Any:
    top = a.dtype.type(-np.inf)
    for i in range(a.size):
        top = _maximum(top, a[i] * scale)
    return top


@_map
def _largest_masked(a: Any, mask: Any, scale: Any) -> Any:
    top = a.dtype.type(-np.inf)
    for i in range(a.size):
        top = _maximum(top, a[i] * scale + mask[i])
    return top


@_map
def _copy(source: Any, target: Any) -> None:
    for i in range(target.size):
        target[i] = source[i]


def _least(weight: float) -> float:
    """Return what x must at least be for x * weight to be a normal number, with a little to spare for rounding; NaN for NaN."""
    raise NotImplementedError


@_overload(_least, jit_options={"error_model": "numpy"})
def _least_overload(weight: Any) -> Any:
    """Choose the bound by dtype."""
    real = np.float32 if weight == types.float32 else np.float64
    tiny = real(np.finfo(real).tiny * 1.0001)

    def least(weight: Any) -> Any:
        return tiny / abs(weight)

    return least


@_map
def _scale(a: Any, factor: Any) -> None:
    for i in range(a.size):
        a[i] = a[i] * factor


# --------------------------------------------------------------------------------------------------------- normalisation


@_kernel
def rms_norm(x: Any, eps: Any, out: Any) -> None:
    """Write out = x / sqrt(mean(x * x) + eps), each row for itself. x, out: (rows, n)."""
    block = _block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    for row in range(rows):
        factor = one / np.sqrt(_dot(x[row], x[row]) / x.dtype.type(n) + eps)
        for start in range(0, n, BLOCK):
            a, o = x[row, start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = a[i] * factor
            _copy(block, o)


@_map
def _rms_factors(dy: Any, x: Any, eps: Any) -> Any:
    """Return (-x.dy / (x.x + n eps), 1 / sqrt(mean(x * x) + eps)) of one row."""
    n = x.dtype.type(x.size)
    squares = _dot(x, x)
    return -_dot(x, dy) / (squares + eps * n), x.dtype.type(1) / np.sqrt(squares / n + eps)


@_kernel
def rms_norm_back(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """Write out = (x * s + dy) * r with the factors of `_rms_factors`. dy, x, out: (rows, n). Right over dy and over x."""
    block = _block(out)
    rows, n = x.shape
    for row in range(rows):
        s, r = _rms_factors(dy[row], x[row], eps)
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = x[row, start:stop], dy[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = (a[i] * s + b[i]) * r
            _copy(block, o)


@_kernel
def rms_norm_back_two_pass(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """As `rms_norm_back`, in the order of ggml before 0.15.0: out = x; out *= s; out += dy; out *= r. Wrong over dy."""
    rows, n = x.shape
    for row in range(rows):
        s, r = _rms_factors(dy[row], x[row], eps)
        o = out[row]
        _copy(x[row], o)
        _scale(o, s)
        for i in range(n):
            o[i] = o[i] + dy[row, i]
        _scale(o, r)


# -------------------------------------------------------------------------------------------------------------- softmax


@_kernel
def soft_max(x: Any, mask: Any, scale: Any, out: Any) -> None:
    """Write out = softmax(x * scale + mask) of each row. x, out: (rows, n); mask: (m, n), row r takes mask row r % m; m = 0 is no mask."""
    block = _block(out)
    rows, n = x.shape
    for row in range(rows):
        source, o = x[row], out[row]
        if mask.shape[0]:
            bias = mask[row % mask.shape[0]]
            top = _largest_masked(source, bias, scale)
            for start in range(0, n, BLOCK):
                a, b, t = source[start : start + BLOCK], bias[start : start + BLOCK], o[start : start + BLOCK]
                for i in range(t.size):
                    block[i] = _exp(a[i] * scale + b[i] - top)
                _copy(block, t)
        else:
            top = _largest(source, scale)
            for start in range(0, n, BLOCK):
                a, t = source[start : start + BLOCK], o[start : start + BLOCK]
                for i in range(t.size):
                    block[i] = _exp(a[i] * scale - top)
                _copy(block, t)
        _scale(o, x.dtype.type(1) / _total(o))


@_kernel
def soft_max_back(dy: Any, y: Any, scale: Any, out: Any) -> None:
    """Write out = (dy - dy.y) * y * scale of each row. dy, y, out: (rows, n). Right over dy and over y."""
    block = _block(out)
    rows, n = y.shape
    for row in range(rows):
        shift = _dot(dy[row], y[row])
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], y[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = (a[i] - shift) * b[i] * scale
            _copy(block, o)


@_kernel
def soft_max_back_two_pass(dy: Any, y: Any, scale: Any, out: Any) -> None:
    """As `soft_max_back`, in the order of ggml before 0.26.0: out = dy; out -= dy.y; out *= y; out *= scale. Wrong over y."""
    rows, n = y.shape
    for row in range(rows):
        shift = _dot(dy[row], y[row])
        o = out[row]
        _copy(dy[row], o)
        for i in range(n):
            o[i] = o[i] - shift
        for i in range(n):
            o[i] = o[i] * y[row, i]
        _scale(o, scale)


# ------------------------------------------------------------------------------------------------- arithmetic, activations


@_kernel
def binary_rows(operation: Any, a: Any, b: Any, out: Any) -> None:
    """Write out = a + b, a - b or a * b (operation 0, 1, 2), b repeating over leading rows. a, out: (rows, n); b: (m, n), m divides rows."""
    block = _block(out)
    rows, n = a.shape
    for row in range(rows):
        x, y, z = a[row], b[row % b.shape[0]], out[row]
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            u, v, o = x[start:stop], y[start:stop], z[start:stop]
            if operation == 0:
                for i in range(o.size):
                    block[i] = u[i] + v[i]
            elif operation == 1:
                for i in range(o.size):
                    block[i] = u[i] - v[i]
            else:
                for i in range(o.size):
                    block[i] = u[i] * v[i]
            _copy(block, o)


@_kernel
def silu(x: Any, out: Any) -> None:
    """Write out = x / (1 + exp(-x)). x, out: (n,)."""
    block = _block(out)
    one = x.dtype.type(1)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] / (one + _exp(-a[i]))
        _copy(block, o)


@_kernel
def silu_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * s * (1 + x * (1 - s)) with s = 1 / (1 + exp(-x)). dy, x, out: (n,)."""
    block = _block(out)
    one = x.dtype.type(1)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            s = one / (one + _exp(-b[i]))
            block[i] = a[i] * s * (one + b[i] * (one - s))
        _copy(block, o)


@_kernel
def swiglu(gate: Any, up: Any, out: Any) -> None:
    """Write out = gate / (1 + exp(-gate)) * up. gate, up, out: (n,)."""
    block = _block(out)
    one = gate.dtype.type(1)
    for start in range(0, gate.size, BLOCK):
        stop = start + BLOCK
        a, b, o = gate[start:stop], up[start:stop], out[start:stop]
        for i in range(o.size):
            block[i] = a[i] / (one + _exp(-a[i])) * b[i]
        _copy(block, o)


@_kernel
def sigmoid(x: Any, out: Any) -> None:
    """Write out = 1 / (1 + exp(-x)). x, out: (n,)."""
    block = _block(out)
    one = x.dtype.type(1)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = one / (one + _exp(-a[i]))
        _copy(block, o)


@_kernel
def softplus(x: Any, out: Any) -> None:
    """Write out = max(x, 0) + log(1 + exp(-|x|)), which is log(1 + exp(x)). x, out: (n,)."""
    block = _block(out)
    zero = x.dtype.type(0)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = _maximum(a[i], zero) + np.log1p(_exp(-abs(a[i])))
        _copy(block, o)


@_kernel
def gelu(x: Any, out: Any) -> None:
    """Write out = x / 2 * (1 + tanh(u)), u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + exp(-2u)). x, out: (n,)."""
    block = _block(out)
    t = x.dtype.type
    one, c, k = t(1), t(0.044715), t(-2 * 0.7978845608028654)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] / (one + _exp(k * (a[i] + c * (a[i] * a[i] * a[i]))))
        _copy(block, o)


@_kernel
def gelu_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * (s + x s (1 - s) 2u'), s = 1 / (1 + exp(-2u)), u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2). All (n,)."""
    block = _block(out)
    t = x.dtype.type
    one, c, c3, k = t(1), t(0.044715), t(3 * 0.044715), t(2 * 0.7978845608028654)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            s = one / (one + _exp(-k * (b[i] + c * (b[i] * b[i] * b[i]))))
            block[i] = a[i] * (s + b[i] * s * (one - s) * k * (one + c3 * b[i] * b[i]))
        _copy(block, o)


@_kernel
def gelu_erf(x: Any, out: Any) -> None:
    """Write out = x / 2 * (1 + erf(x / sqrt 2)). x, out: (n,)."""
    block = _block(out)
    t = x.dtype.type
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = t(0.5) * a[i] * (t(1) + t(math.erf(a[i] * t(0.7071067811865476))))
        _copy(block, o)


@_kernel
def gelu_erf_back(dy: Any, x: Any, out: Any) -> None:
    """Write out = dy * (Phi(x) + x phi(x)) with the normal distribution and density. dy, x, out: (n,)."""
    block = _block(out)
    t = x.dtype.type
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            below = t(0.5) * (t(1) + t(math.erf(b[i] * t(0.7071067811865476))))
            block[i] = a[i] * (below + b[i] * t(0.3989422804014327) * _exp(t(-0.5) * b[i] * b[i]))
        _copy(block, o)


@_kernel
def clamp_back(dy: Any, x: Any, low: Any, high: Any, out: Any) -> None:
    """Write out = dy where low <= x <= high, 0 elsewhere. dy, x, out: (n,)."""
    block = _block(out)
    zero = x.dtype.type(0)
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        a, b, o = dy[start:stop], x[start:stop], out[start:stop]
        for i in range(o.size):
            block[i] = a[i] if low <= b[i] <= high else (zero if b[i] == b[i] else b[i])
        _copy(block, o)


@_kernel
def where(cond: Any, a: Any, b: Any, out: Any) -> None:
    """Write out = a where cond is not 0, b where it is, NaN where it is that. cond, a, b, out: (n,)."""
    block = _block(out)
    for start in range(0, a.size, BLOCK):
        stop = start + BLOCK
        c, x, y, o = cond[start:stop], a[start:stop], b[start:stop], out[start:stop]
        for i in range(o.size):
            block[i] = c[i] if c[i] != c[i] else (x[i] if c[i] != 0 else y[i])
        _copy(block, o)


@_sum
def _spread(a: Any, mean: Any) -> Any:
    """Return the sum of squared distances from the mean."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += (a[i] - mean) * (a[i] - mean)
    return total


@_sum
def _dot_around(a: Any, b: Any, mean: Any) -> Any:
    """Return the sum of a * (b - mean)."""
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * (b[i] - mean)
    return total


@_kernel
def norm(x: Any, eps: Any, out: Any) -> None:
    """Write out = (x - mean) / sqrt(variance + eps), each row for itself. x, out: (rows, n)."""
    block = _block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    for row in range(rows):
        mean = _total(x[row]) / x.dtype.type(n)
        factor = one / np.sqrt(_spread(x[row], mean) / x.dtype.type(n) + eps)
        for start in range(0, n, BLOCK):
            a, o = x[row, start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = (a[i] - mean) * factor
            _copy(block, o)


@_kernel
def norm_back(dy: Any, x: Any, eps: Any, out: Any) -> None:
    """Write out = (dy - mean(dy) - xc * sum(dy xc) / (n (variance + eps))) * r, xc = x - mean. dy, x, out: (rows, n)."""
    block = _block(out)
    one = x.dtype.type(1)
    rows, n = x.shape
    count = x.dtype.type(n)
    for row in range(rows):
        mean = _total(x[row]) / count
        spread = _spread(x[row], mean) / count + eps
        r = one / np.sqrt(spread)
        upstream = _total(dy[row]) / count
        s = _dot_around(dy[row], x[row], mean) / (count * spread)
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], x[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = (a[i] - upstream - (b[i] - mean) * s) * r
            _copy(block, o)


@_kernel
def log_soft_max(x: Any, out: Any) -> None:
    """Write out = x - max - log(sum(exp(x - max))) of each row. x, out: (rows, n)."""
    block = _block(out)
    rows, n = x.shape
    for row in range(rows):
        source = x[row]
        top = _largest(source, x.dtype.type(1))
        mass = 0.0
        for start in range(0, n, BLOCK):
            a = source[start : start + BLOCK]
            for i in range(a.size):
                block[i] = _exp(a[i] - top)
            mass += _total(block[: a.size])
        shift = x.dtype.type(math.log(mass))
        for start in range(0, n, BLOCK):
            a, o = source[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = a[i] - top - shift  # not a - (top + shift): where top is large, that sum forgets shift
            _copy(block, o)


@_kernel
def log_soft_max_back(dy: Any, y: Any, out: Any) -> None:
    """Write out = dy - exp(y) * sum(dy) of each row. dy, y, out: (rows, n)."""
    block = _block(out)
    rows, n = y.shape
    for row in range(rows):
        whole = _total(dy[row])
        for start in range(0, n, BLOCK):
            stop = start + BLOCK
            a, b, o = dy[row, start:stop], y[row, start:stop], out[row, start:stop]
            for i in range(o.size):
                block[i] = a[i] - _exp(b[i]) * whole
            _copy(block, o)


# ------------------------------------------------------------------------------------------------------- rotary positions


@_kernel
def rope(x: Any, pos: Any, freq: Any, cos: Any, sin: Any, sign: Any, neox: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Rotate pairs of the first 2 * len(freq) elements of each head by sign * pos * freq; copy the rest.

    x, out: (T, H, hd); pos: (T,) int32; freq: (half,) float64; cos, sin: (P, half), the tables for positions 0..P-1 (others are
    computed). Pairs are (i, i + half) if `neox`, else (2i, 2i + 1).
    """
    first, second, c, s = _block(out), _block(out), _block(out), _block(out)
    half = freq.size
    width = x.shape[2]
    for t in range(x.shape[0]):
        known = 0 <= pos[t] < cos.shape[0]
        for start in range(0, half, BLOCK // 2):
            m = min(BLOCK // 2, half - start)
            if known:
                _copy(cos[pos[t], start : start + m], c[:m])
                _copy(sin[pos[t], start : start + m], s[:m])
            else:
                for i in range(m):
                    c[i] = math.cos(pos[t] * freq[start + i])
                    s[i] = math.sin(pos[t] * freq[start + i])
            _scale(s[:m], sign)
            for head in range(x.shape[1]):
                if neox:
                    low, high = start, half + start
                    a, b = x[t, head, low : low + m], x[t, head, high : high + m]
                    for i in range(m):
                        first[i] = a[i] * c[i] - b[i] * s[i]
                        second[i] = a[i] * s[i] + b[i] * c[i]
                    _copy(first, out[t, head, low : low + m])
                    _copy(second, out[t, head, high : high + m])
                else:
                    a = x[t, head, 2 * start : 2 * (start + m)]
                    for i in range(m):
                        first[2 * i] = a[2 * i] * c[i] - a[2 * i + 1] * s[i]
                        first[2 * i + 1] = a[2 * i] * s[i] + a[2 * i + 1] * c[i]
                    _copy(first, out[t, head, 2 * start : 2 * (start + m)])
        for head in range(x.shape[1]):
            for i in range(2 * half, width):
                out[t, head, i] = x[t, head, i]


# ------------------------------------------------------------------------------------------------- loss, rows, optimizer


@_map
def _mass(x: Any, top: Any) -> Any:
    """Return the sum of exp(x - top), a block at a time."""
    block = _block(x)
    mass = 0.0
    for start in range(0, x.size, BLOCK):
        a = x[start : start + BLOCK]
        for i in range(a.size):
            block[i] = _exp(a[i] - top)
        mass += _total(block[: a.size])
    return mass


@_kernel
def cross_entropy_loss(logits: Any, labels: Any, out: Any) -> None:
    """Write out[0] = mean over rows of sum(labels) * log(sum(exp(logits))) - sum(labels * logits). logits, labels: (T, V)."""
    rows = logits.shape[0]
    total = 0.0
    for row in range(rows):
        x, y = logits[row], labels[row]
        top = _largest(x, x.dtype.type(1))
        mass = _mass(x, top)
        total += math.log(mass) * _total(y) - _dot_around(y, x, float(top))  # float64: differences lose nothing
    out[0] = total / rows


@_kernel
def cross_entropy_loss_back(grad: Any, logits: Any, labels: Any, out: Any) -> None:
    """Write out = (softmax(logits) * sum(labels) - labels) * grad[0] / T, each row for itself. logits, labels, out: (T, V)."""
    block = _block(out)
    rows, n = logits.shape
    factor = grad[0] / logits.dtype.type(rows)
    for row in range(rows):
        x, y = logits[row], labels[row]
        top, weight = _largest(x, x.dtype.type(1)), _total(y)
        mass = _mass(x, top)
        share, zero = x.dtype.type(weight / mass), x.dtype.type(0)
        least = _least(share * factor)
        for start in range(0, n, BLOCK):
            a, b, o = x[start : start + BLOCK], y[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                e = _exp(a[i] - top)
                block[i] = ((zero if e < least else e) * share - b[i]) * factor
            _copy(block, o)


@_kernel
def cross_entropy_classes(logits: Any, classes: Any, out: Any) -> None:
    """Write out[0] = mean over rows of log(sum(exp(logits))) - logits[class]. logits: (T, V); classes: (T,) int32."""
    rows, n = logits.shape
    total = 0.0
    for row in range(rows):
        x, wanted = logits[row], classes[row]
        top = _largest(x, x.dtype.type(1))
        mass = _mass(x, top)
        if 0 <= wanted < n:
            total += math.log(mass) + (top - x[wanted])
        else:
            total = np.nan
    out[0] = total / rows


@_kernel
def cross_entropy_classes_back(grad: Any, logits: Any, classes: Any, out: Any) -> None:
    """Write out = (softmax(logits) - one_hot(classes)) * grad[0] / T, each row for itself. logits, out: (T, V); classes: (T,) int32."""
    block = _block(out)
    rows, n = logits.shape
    factor = grad[0] / logits.dtype.type(rows)
    for row in range(rows):
        x, wanted = logits[row], classes[row]
        top = _largest(x, x.dtype.type(1))
        mass = _mass(x, top)
        share, zero = x.dtype.type((1.0 if 0 <= wanted < n else np.nan) / mass), x.dtype.type(0)
        least = _least(share * factor)
        for start in range(0, n, BLOCK):
            a, o = x[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                e = _exp(a[i] - top)
                block[i] = (zero if e < least else e) * share
            if start <= wanted < start + o.size:
                block[wanted - start] -= x.dtype.type(1)
            for i in range(o.size):
                block[i] = block[i] * factor
            _copy(block, o)


@_kernel
def get_rows(table: Any, ids: Any, out: Any) -> None:
    """Write out[t] = table[ids[t]]; NaN where the index is out of range. table: (V, D); ids: (T,) int32; out: (T, D)."""
    for t in range(ids.size):
        if 0 <= ids[t] < table.shape[0]:
            _copy(table[ids[t]], out[t])
        else:
            for i in range(out.shape[1]):
                out[t, i] = np.nan


@_kernel
def get_rows_back(dy: Any, ids: Any, out: Any) -> None:
    """Write out[v] = sum of dy[t] over ids[t] == v, in order of t; an index out of range makes row 0 NaN. out: (V, D)."""
    for v in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[v, i] = 0
    for t in range(ids.size):
        if 0 <= ids[t] < out.shape[0]:
            for i in range(out.shape[1]):
                out[ids[t], i] = out[ids[t], i] + dy[t, i]
        else:
            for i in range(out.shape[1]):
                out[0, i] = np.nan


@_kernel
def opt_step_sgd(w: Any, g: Any, hp: Any, out: Any) -> None:
    """Write out = w * (1 - alpha * decay) - alpha * g with hp = (alpha, decay). w, g, out: (n,); hp: (2,)."""
    block = _block(out)
    alpha = hp[0]
    keep = w.dtype.type(1) - alpha * hp[1]
    for start in range(0, w.size, BLOCK):
        a, b, o = w[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep - alpha * b[i]
        _copy(block, o)


@_kernel
def adamw_m(m: Any, g: Any, beta: Any, out: Any) -> None:
    """Write out = m * beta + g * (1 - beta). m, g, out: (n,); beta: (1,)."""
    block = _block(out)
    keep = beta[0]
    take = m.dtype.type(1) - keep
    for start in range(0, m.size, BLOCK):
        a, b, o = m[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep + b[i] * take
        _copy(block, o)


@_kernel
def adamw_v(v: Any, g: Any, beta: Any, out: Any) -> None:
    """Write out = v * beta + g * g * (1 - beta). v, g, out: (n,); beta: (1,)."""
    block = _block(out)
    keep = beta[0]
    take = v.dtype.type(1) - keep
    for start in range(0, v.size, BLOCK):
        a, b, o = v[start : start + BLOCK], g[start : start + BLOCK], out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep + b[i] * b[i] * take
        _copy(block, o)


@_kernel
def opt_step_adamw(w: Any, m: Any, v: Any, hp: Any, out: Any) -> None:
    """Write out = w * (1 - alpha * wd) - alpha * (m * beta1h) / (sqrt(v * beta2h) + eps), hp as `engine.ops.optim`. hp: (5,)."""
    block = _block(out)
    alpha, eps = hp[0], hp[1]
    keep = w.dtype.type(1) - alpha * hp[2]
    for start in range(0, w.size, BLOCK):
        a, b, c = w[start : start + BLOCK], m[start : start + BLOCK], v[start : start + BLOCK]
        o = out[start : start + BLOCK]
        for i in range(o.size):
            block[i] = a[i] * keep - alpha * (b[i] * hp[3]) / (np.sqrt(c[i] * hp[4]) + eps)
        _copy(block, o)


# ------------------------------------------------------------------------------------------------------------ the door


def entry(dispatcher: Any, args: tuple[Any, ...]) -> Callable[..., object]:
    """Return the compiled function for these arguments' types: called directly, without numba's own dispatch.

    Arrays must be C-contiguous. Compiles or loads from the cache at the first use of a type; a cache that cannot be written is ignored.
    """
    signature = tuple(
        types.Array(numba.from_dtype(a.dtype), a.ndim, "C") if isinstance(a, np.ndarray) else _typeof(a) for a in args
    )
    try:
        function: Callable[..., object] = dispatcher.compile(signature)
    except OSError:
        dispatcher = numba.njit(error_model="numpy")(dispatcher.py_func)
        function = dispatcher.compile(signature)
    remember(function, dispatcher.overloads[signature])
    return function
