"""The numba kernels: row-wise and element-wise arithmetic over C-contiguous arrays.

Contract
--------
* Arrays are dense: matrices (rows, n), vectors (n,); one float dtype per call, float32 or float64; indices int32. Shapes are
  checked by the callers in `engine.kernels`; nothing here checks them again.
* Aliasing. Every kernel but the two `*_two_pass` ones reads each element of a row before it writes that element, whatever the result lies
  exactly over. Sums come first, in loops that only read; a map is computed into a block on the stack and copied from there, and what is
  rewritten in place after that is the result alone. So the machine code that runs does not depend on where the arrays lie (no run-time
  alias checks), and neither does any bit of the result.
* Memory. Where a row or block costs much arithmetic, the next one is asked for meanwhile (`_ahead`): a step of a large model finds most
  operands in no cache, and what the processor fetches unasked ends at each page.
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

BLOCK = 256
"""Elements of a map computed on the stack before they are written: 2 to 4 KiB, well inside the first cache."""

AHEAD = 1024
"""Elements between what is worked on and what is asked for, in loops that do little with each."""

LINE = 64
"""Bytes of a cache line, or a part of one: what one prefetch brings."""

_SHIFT = (1.5 * 2**23 + 127, 1.5 * 2**52 + 1023)
"""float32, float64: added to a small number it leaves the nearest integer n, with n + bias in the lowest bits."""

_njit: Any = numba.njit
_OPTIONS: Any = {"error_model": "numpy", "_nrt": False}
"""References are not counted, since the caller holds every array. Counting them at each row and block is atomic work that also
keeps the processor from running ahead to the next block; it took up to half of the time."""

_TAYLOR = tuple(1.0 / math.factorial(k) for k in range(13, 1, -1))


def _kernel(function: Callable[..., None]) -> Any:
    """Make a dispatcher that is cached on disk where a cache folder can be found, and works without one."""
    try:
        return _njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # numba found no folder to write to
        return _njit(**_OPTIONS)(function)


_map = _njit(**_OPTIONS)
_sum = _njit(fastmath={"reassoc", "nsz"}, **_OPTIONS)


# ---------------------------------------------------------------------------------------------------- building blocks


def _ask_for_wide_vectors(builder: Any) -> None:
    """Have LLVM use vectors of 512 bits in the function being built, where the processor has them; its own choice is often 256.

    llvmlite knows no attributes that are pairs, but writes down what the set holds.
    """
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')


@_intrinsic
def _wide(_: Any) -> Any:
    """Do nothing, but have `_ask_for_wide_vectors` in the function that calls this."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        _ask_for_wide_vectors(builder)
        return context.get_dummy_value()

    return types.void(), codegen


def _touch(builder: Any, pointer: Any) -> None:
    """Have the cache line at a pointer brought: a hint, that changes no result and cannot fail, whatever is there."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = _cg.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), *map(flag, (0, 3, 1))])  # to be read, near, data


@_intrinsic
def _prefetch(_: Any, a: Any, index: Any) -> Any:
    """Start to bring the cache line of a[index], which need not exist."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _touch(builder, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(a, index), codegen


def _by_lines(arithmetic: Any) -> Any:
    """Return an intrinsic (a, b, out, count, ahead_b) that writes the first `count` elements of a result, whole lines: out = arithmetic(a, b).

    a, out: (n,); b: (n,), or a number. A line is read whole, then written: right where the result lies exactly over an operand, with no run-time
    check. Lines of a and of the result are asked for `AHEAD` elements before their turn, those of b `ahead_b`; a store to a line that is in no
    cache costs as much as reading it.
    """

    @_intrinsic
    def lines(_: Any, a: Any, b: Any, out: Any, count: Any, ahead_b: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            _ask_for_wide_vectors(builder)
            element = context.get_data_type(out.dtype)
            size = context.get_abi_sizeof(element)
            lanes, number = LINE // size, args[3].type
            line = ir.VectorType(element, lanes)
            data = {at: context.make_array(signature.args[at])(context, builder, args[at]).data for at in (0, 1, 2)
                    if isinstance(signature.args[at], types.Array)}  # fmt: skip
            ahead = {0: ir.Constant(number, AHEAD), 1: args[4], 2: ir.Constant(number, AHEAD)}
            begin, step = ir.Constant(number, 0), ir.Constant(number, lanes)
            with _cg.for_range_slice(builder, begin, args[3], step, number) as (at, _count):
                for place, pointer in data.items():
                    _touch(builder, builder.gep(pointer, [builder.add(at, ahead[place])]))
                where = {place: builder.bitcast(builder.gep(pointer, [at]), line.as_pointer()) for place, pointer in data.items()}
                x = builder.load(where[0], align=size)
                y = builder.load(where[1], align=size) if 1 in where else _splat(builder, args[1], line)
                builder.store(arithmetic(builder, x, y), where[2], align=size)
            return context.get_dummy_value()

        return types.void(a, b, out, count, ahead_b), codegen

    return lines


def _splat(builder: Any, value: Any, line: Any) -> Any:
    """Return a vector of that type with one number everywhere."""
    word = ir.IntType(32)
    one = builder.insert_element(ir.Constant(line, ir.Undefined), value, word(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(word, line.count), [0] * line.count))


_add_lines = _by_lines(lambda builder, x, y: builder.fadd(x, y))
_subtract_lines = _by_lines(lambda builder, x, y: builder.fsub(x, y))
_multiply_lines = _by_lines(lambda builder, x, y: builder.fmul(x, y))
_copy_lines = _by_lines(lambda _builder, x, _y: x)


@_intrinsic
def _block(_: Any, like: Any) -> Any:
    """Return an uninitialised array of `BLOCK` elements on the stack, of the dtype of `like`: provably apart from any argument."""
    result = types.Array(like.dtype, 1, "C")

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        _ask_for_wide_vectors(builder)
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


def _word(real: Any) -> Any:
    """Return the type of integers as wide as a real type."""
    return types.int32 if real == types.float32 else types.int64


@_intrinsic
def _pow2(_: Any, shifted: Any) -> Any:
    """Return 2.0**n of n + `_SHIFT`, for normal results: the lowest bits of that sum are the biased exponent."""
    fraction = 23 if shifted == types.float32 else 52

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(32 if fraction == 23 else 64)
        return builder.bitcast(builder.shl(builder.bitcast(args[0], word), ir.Constant(word, fraction)), args[0].type)

    return shifted(shifted), codegen


def _swap_order(builder: Any, word: Any) -> Any:
    """Flip all bits but the sign of negative words: as integers, they are then in the order of the real numbers. Its own inverse."""
    bits = word.type.width
    sign = builder.ashr(word, ir.Constant(word.type, bits - 1))
    return builder.xor(word, builder.lshr(sign, ir.Constant(word.type, 1)))


@_intrinsic
def _key(_: Any, real: Any) -> Any:
    """Return the integer that stands for a real number in comparisons: the largest of many is then found in any order, by vectors."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _swap_order(builder, builder.bitcast(args[0], ir.IntType(_word(real).bitwidth)))

    return _word(real)(real), codegen


@_intrinsic
def _of_key(_: Any, key: Any) -> Any:
    """Return the real number of a `_key`."""
    real = types.float32 if key == types.int32 else types.float64

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(_swap_order(builder, args[0]), context.get_value_type(real))

    return real(key), codegen


@_intrinsic
def _maximum(_: Any, a: Any, b: Any) -> Any:
    """Return the larger of two, NaN if either is: llvm.maximum."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        real = args[0].type
        name = "llvm.maximum.f32" if isinstance(real, ir.FloatType) else "llvm.maximum.f64"
        function = _cg.get_or_insert_function(builder.module, ir.FunctionType(real, [real, real]), name)
        return builder.call(function, args)

    return a(a, b), codegen


def _exp(x: float) -> float:
    """Return e**x: within 1.1 units in the last place; 0 below the normal range, saturating above, NaN for NaN."""
    raise NotImplementedError


@_overload(_exp, jit_options={"fastmath": {"contract"}, "error_model": "numpy"})
def _exp_overload(x: Any) -> Any:
    """Choose the polynomial by dtype: Cephes' expf, or Taylor's to degree 13 on |r| <= log(2)/2."""
    f = np.float32
    low, high, log2e, shift, one, zero = f(-87.33654), f(88.37626), f(1.44269504), f(_SHIFT[0]), f(1.0), f(0.0)
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
        y = (p * (r * r) + r + one) * _pow2(shifted)
        return zero if x < low else y

    def exp64(x: Any) -> Any:
        c = -708.39 if x < -708.39 else x
        c = 709.43 if c > 709.43 else c
        shifted = c * 1.4426950408889634 + _SHIFT[1]
        n = shifted - _SHIFT[1]
        r = c - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
        p = 0.0
        for coefficient in _TAYLOR:
            p = p * r + coefficient
        y = (p * (r * r) + r + 1.0) * _pow2(shifted)
        return 0.0 if x < -708.39 else y

    return exp32 if x == types.float32 else exp64


@_map
def _ahead(a: Any, start: Any, count: Any) -> None:
    """Start to bring `count` elements of a from `start` on, of which none need exist."""
    for i in range(start, start + count, LINE // a.itemsize):
        _prefetch(a, i)


@_sum
def _dot(a: Any, b: Any) -> Any:
    _wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@_sum
def _total(a: Any) -> Any:
    _wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += a[i]
    return total


@_map
def _largest(a: Any, scale: Any) -> Any:
    """Return the largest a * scale, -inf of none. A NaN may be passed over: what is made of it afterwards is NaN by itself."""
    _wide()
    top = _key(a.dtype.type(-np.inf))
    for i in range(a.size):
        key = _key(a[i] * scale)
        top = key if key > top else top
    return _of_key(top)


@_map
def _largest_masked(a: Any, mask: Any, scale: Any) -> Any:
    """Return the largest a * scale + mask, as `_largest` does."""
    _wide()
    top = _key(a.dtype.type(-np.inf))
    for i in range(a.size):
        key = _key(a[i] * scale + mask[i])
        top = key if key > top else top
    return _of_key(top)


@_map
def _scored(value: Any, scale: Any, top: Any) -> Any:
    """Return value * scale - top, rounded as it stands: sums may be reassociated, this may not."""
    return value * scale - top


@_map
def _scored_masked(value: Any, mask: Any, scale: Any, top: Any) -> Any:
    """Return value * scale + mask - top, rounded as it stands."""
    return value * scale + mask - top


@_sum
def _exps(a: Any, scale: Any, top: Any, block: Any) -> Any:
    """Write block = exp(a * scale - top), a being at most a block, and return the sum."""
    _wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        e = _exp(_scored(a[i], scale, top))
        block[i] = e
        total += e
    return total


@_sum
def _exps_masked(a: Any, mask: Any, scale: Any, top: Any, block: Any) -> Any:
    """Write block = exp(a * scale + mask - top), as `_exps` does."""
    _wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        e = _exp(_scored_masked(a[i], mask[i], scale, top))
        block[i] = e
        total += e
    return total


@_map
def _mass(x: Any, top: Any) -> Any:
    """Return the sum of exp(x - top), a block at a time; meanwhile the row behind x is on its way."""
    block = _block(x)
    mass = 0.0
    for start in range(0, x.size, BLOCK):
        _ahead(x, x.size + start, BLOCK)
        mass += _exps(x[start : start + BLOCK], x.dtype.type(1), top, block)
    return mass


@_map
def _masses(x: Any, top: Any, out: Any) -> Any:
    """Return what `_mass` returns, and write the terms of that sum to out. x, out: (n,). Right over x."""
    block = _block(x)
    mass = 0.0
    for start in range(0, x.size, BLOCK):
        stop = start + BLOCK
        _ahead(x, x.size + start, BLOCK)
        _ahead(out, stop, BLOCK)
        mass += _exps(x[start:stop], x.dtype.type(1), top, block)
        _copy(block, out[start:stop])
    return mass


@_map
def _copy(source: Any, target: Any) -> None:
    _wide()
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
def _settle(a: Any, least: Any, share: Any, factor: Any) -> None:
    """Make a * share * factor of a, 0 where a is less than `least`."""
    _wide()
    zero = a.dtype.type(0)
    for i in range(a.size):
        a[i] = (zero if a[i] < least else a[i]) * share * factor


@_map
def _scale(a: Any, factor: Any) -> None:
    _wide()
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
            _ahead(x[row], n + start, o.size)
            _ahead(out[row], n + start, o.size)
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
            _ahead(x[row], n + start, o.size)
            _ahead(dy[row], n + start, o.size)
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
        mass = 0.0
        if mask.shape[0]:
            bias = mask[row % mask.shape[0]]
            top = _largest_masked(source, bias, scale)
            for start in range(0, n, BLOCK):
                stop = start + BLOCK
                _ahead(source, n + start, min(BLOCK, n - start))
                mass += _exps_masked(source[start:stop], bias[start:stop], scale, top, block)
                _copy(block, o[start:stop])
        else:
            top = _largest(source, scale)
            for start in range(0, n, BLOCK):
                stop = start + BLOCK
                _ahead(source, n + start, min(BLOCK, n - start))
                mass += _exps(source[start:stop], scale, top, block)
                _copy(block, o[start:stop])
        _scale(o, x.dtype.type(1.0 / mass))


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
    rows, n = a.shape
    whole = n - n % (LINE // a.itemsize)
    ahead = AHEAD if b.shape[0] == rows else 0
    for row in range(rows):
        x, y, z = a[row], b[row % b.shape[0]], out[row]
        if operation == 0:
            _add_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] + y[i]
        elif operation == 1:
            _subtract_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] - y[i]
        else:
            _multiply_lines(x, y, z, whole, ahead)
            for i in range(whole, n):
                z[i] = x[i] * y[i]


@_kernel
def scale(x: Any, factor: Any, out: Any) -> None:
    """Write out = x * factor. x, out: (n,)."""
    whole = x.size - x.size % (LINE // x.itemsize)
    _multiply_lines(x, factor, out, whole, 0)
    for i in range(whole, x.size):
        out[i] = x[i] * factor


@_kernel
def copy_rows(x: Any, steps: Any, out: Any) -> None:
    """Write out = x. out: (T, H, n); x: (m,), row h of block t beginning at element t * steps[0] + h * steps[1]."""
    length, heads, n = out.shape
    whole = n - n % (LINE // x.itemsize)
    for t in range(length):
        for head in range(heads):
            at = t * steps[0] + head * steps[1]
            a, o = x[at : at + n], out[t, head]
            _copy_lines(a, x.dtype.type(0), o, whole, 0)
            for i in range(whole, n):
                o[i] = a[i]


@_kernel
def silu(x: Any, out: Any) -> None:
    """Write out = x / (1 + exp(-x)). x, out: (n,)."""
    block = _block(out)
    one = x.dtype.type(1)
    for start in range(0, x.size, BLOCK):
        a, o = x[start : start + BLOCK], out[start : start + BLOCK]
        _ahead(x, start + BLOCK, o.size)
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
        _ahead(dy, stop, o.size)
        _ahead(x, stop, o.size)
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
        _ahead(gate, stop, o.size)
        _ahead(up, stop, o.size)
        _ahead(out, stop, o.size)
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
    _wide()
    total = a.dtype.type(0)
    for i in range(a.size):
        total += (a[i] - mean) * (a[i] - mean)
    return total


@_sum
def _dot_around(a: Any, b: Any, mean: Any) -> Any:
    """Return the sum of a * (b - mean)."""
    _wide()
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
        shift = top + x.dtype.type(math.log(_mass(source, top)))
        for start in range(0, n, BLOCK):
            a, o = source[start : start + BLOCK], out[row, start : start + BLOCK]
            for i in range(o.size):
                block[i] = a[i] - shift
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
def rope(x: Any, steps: Any, pos: Any, freq: Any, cos: Any, sin: Any, sign: Any, neox: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Rotate pairs of the first 2 * len(freq) elements of each head by sign * pos * freq; copy the rest.

    out: (T, H, hd); x: (n,), head h of position t beginning at element t * steps[0] + h * steps[1]; pos: (T,) int32; freq: (half,) float64;
    cos, sin: (P, half), the tables for positions 0..P-1 (others are computed). Pairs are (i, i + half) if `neox`, else (2i, 2i + 1).
    """
    first, second, c, s = _block(out), _block(out), _block(out), _block(out)
    half = freq.size
    length, heads, width = out.shape
    for t in range(length):
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
            _ahead(out[t, 0], 4 * heads * width, heads * width)
            for head in range(heads):
                at = t * steps[0] + head * steps[1]
                o = out[t, head]
                if neox:
                    low, high = at + start, at + half + start
                    a, b = x[low : low + m], x[high : high + m]
                    for i in range(m):
                        first[i] = a[i] * c[i] - b[i] * s[i]
                        second[i] = a[i] * s[i] + b[i] * c[i]
                    _copy(first, o[start : start + m])
                    _copy(second, o[half + start : half + start + m])
                else:
                    a = x[at + 2 * start : at + 2 * (start + m)]
                    for i in range(m):
                        first[2 * i] = a[2 * i] * c[i] - a[2 * i + 1] * s[i]
                        first[2 * i + 1] = a[2 * i] * s[i] + a[2 * i + 1] * c[i]
                    _copy(first, o[2 * start : 2 * (start + m)])
        for head in range(heads):
            for i in range(2 * half, width):
                out[t, head, i] = x[t * steps[0] + head * steps[1] + i]


# ------------------------------------------------------------------------------------------------- loss, rows, optimizer


@_kernel
def cross_entropy_loss(logits: Any, labels: Any, out: Any) -> None:
    """Write out[0] = mean over rows of sum(labels) * log(sum(exp(logits))) - sum(labels * logits). logits, labels: (T, V)."""
    rows = logits.shape[0]
    total = 0.0
    for row in range(rows):
        x, y = logits[row], labels[row]
        top = _largest(x, x.dtype.type(1))
        mass = _mass(x, top)
        total += (math.log(mass) + top) * _total(y) - _dot(x, y)
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
            total += math.log(mass) + top - x[wanted]
        else:
            total = np.nan
    out[0] = total / rows


@_kernel
def cross_entropy_classes_back(grad: Any, logits: Any, classes: Any, out: Any) -> None:
    """Write out = (softmax(logits) - one_hot(classes)) * grad[0] / T, each row for itself. logits, out: (T, V); classes: (T,) int32."""
    rows, n = logits.shape
    factor = grad[0] / logits.dtype.type(rows)
    for row in range(rows):
        x, o, wanted = logits[row], out[row], classes[row]
        known = 0 <= wanted < n
        mass = _masses(x, _largest(x, x.dtype.type(1)), o)
        share = x.dtype.type((1.0 if known else np.nan) / mass)
        likelihood = o[wanted] * share if known else share
        _settle(o, _least(share * factor), share, factor)
        if known:
            o[wanted] = (likelihood - x.dtype.type(1)) * factor


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
        dispatcher = _njit(**_OPTIONS)(dispatcher.py_func)
        function = dispatcher.compile(signature)
    remember(function, dispatcher.overloads[signature])
    return function
