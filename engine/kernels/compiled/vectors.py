"""LLVM for what numba cannot express.

That is wide vectors, prefetching, stores of whole cache lines, scratch on the stack, powers of two.

All of it is portable: a processor without vectors of 512 bits does the same in parts. What is asked
for beforehand (`prefetch`) changes no result.

What this module does not see: what any kernel computes.
"""

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

_intrinsic: Any = extending.intrinsic  # numba declares this with types that no caller satisfies
_cg: Any = cgutils

BLOCK = 256
"""Elements of a map computed on the stack before they are written: 1 to 2 KiB. Larger ones ask for
more memory at a time than is brought at a time."""

AHEAD = 1024
"""Elements between what is worked on and what is asked for, in loops that do little with each."""

SQUARES = 4
"""Squares of a transposition between the one that is turned and those that are asked for."""

LINE = 64
"""Bytes of a cache line, or a part of one: what one prefetch brings."""

SHIFT = (1.5 * 2**23 + 127, 1.5 * 2**52 + 1023)
"""float32, float64: added to a small number it leaves the nearest integer n, with n + bias in the
lowest bits."""


def _ask_for_wide_vectors(builder: Any) -> None:
    """Have LLVM use vectors of 512 bits in the function being built, where the processor has them.

    Its own choice is often 256.

    llvmlite knows no attributes that are pairs, but writes down what the set holds.
    """
    set.add(builder.function.attributes, '"prefer-vector-width"="512"')


@_intrinsic
def wide(_: Any) -> Any:
    """Do nothing, but have `_ask_for_wide_vectors` in the function that calls this."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        _ask_for_wide_vectors(builder)
        return context.get_dummy_value()

    return types.void(), codegen


def touch(builder: Any, pointer: Any, near: int = 3) -> None:
    """Have the cache line at a pointer brought, into the first cache or (2) the second.

    A hint, that changes no result and cannot fail, whatever is there.
    """
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = _cg.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), *map(flag, (0, near, 1))])  # to be read, near, data


@_intrinsic
def prefetch(_: Any, a: Any, index: Any) -> Any:
    """Start to bring the cache line of a[index], which need not exist."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        touch(builder, builder.gep(data, [args[1]]))
        return context.get_dummy_value()

    return types.void(a, index), codegen


def _by_lines(arithmetic: Any) -> Any:
    """Return an intrinsic (a, b, out, count, ahead_b) that writes the first `count` elements of a
    result, whole lines: out = arithmetic(a, b).

    a, out: (n,); b: (n,), or a number. A line is read whole, then written: right where the result
    lies exactly over an operand, with no run-time check. Lines of a and of the result are asked for
    `AHEAD` elements before their turn, those of b `ahead_b`; a store to a line that is in no cache
    costs as much as reading it.
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
                    touch(builder, builder.gep(pointer, [builder.add(at, ahead[place])]))
                where = {
                    place: builder.bitcast(builder.gep(pointer, [at]), line.as_pointer())
                    for place, pointer in data.items()
                }
                x = builder.load(where[0], align=size)
                y = builder.load(where[1], align=size) if 1 in where else splat(builder, args[1], line)
                builder.store(arithmetic(builder, x, y), where[2], align=size)
            return context.get_dummy_value()

        return types.void(a, b, out, count, ahead_b), codegen

    return lines


def splat(builder: Any, value: Any, line: Any) -> Any:
    """Return a vector of that type with one number everywhere."""
    word = ir.IntType(32)
    one = builder.insert_element(ir.Constant(line, ir.Undefined), value, word(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(word, line.count), [0] * line.count))


WORD: Final = ir.IntType(64)
"""Of an address, a distance or a count."""


def onward(builder: Any, address: Any, *offsets: Any) -> Any:
    """Return an address so many bytes further on."""
    for offset in offsets:
        address = builder.add(address, WORD(offset) if isinstance(offset, int) else offset)
    return address


def read(builder: Any, address: Any, kind: Any) -> Any:
    """Return what lies there; of a vector no more is asked than that its elements are in order."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def write(builder: Any, value: Any, address: Any) -> None:
    """Write it there, as `read` reads it."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z of vectors, rounded once."""
    kind = x.type
    name = f"llvm.fma.v{kind.count}f{32 if isinstance(kind.element, ir.FloatType) else 64}"
    function = _cg.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(function, [x, y, z])


def repeat(builder: Any, count: Any, values: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Do `values = step(values)` `count` times, `count` >= 1; return the last. Loops may nest."""
    before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    left, carried = builder.phi(WORD), [builder.phi(value.type) for value in values]
    found = step(carried)
    fewer = builder.sub(left, WORD(1))
    for phi, start, again in zip([left, *carried], [count, *values], [fewer, *found], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(again, builder.block)
    builder.cbranch(builder.icmp_signed(">", fewer, WORD(0)), body, after)
    builder.position_at_end(after)
    return found


add_lines = _by_lines(lambda builder, x, y: builder.fadd(x, y))

subtract_lines = _by_lines(lambda builder, x, y: builder.fsub(x, y))

multiply_lines = _by_lines(lambda builder, x, y: builder.fmul(x, y))

copy_lines = _by_lines(lambda _builder, x, _y: x)


def _interleaved(builder: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Return the first and the second half of a[0], b[0], a[1], b[1], ..."""
    lanes = a.type.count
    mask = [lane for pair in zip(range(lanes), range(lanes, 2 * lanes), strict=True) for lane in pair]
    kind = ir.VectorType(ir.IntType(32), lanes)
    first, second = (builder.shuffle_vector(a, b, ir.Constant(kind, half)) for half in (mask[:lanes], mask[lanes:]))
    return first, second


@_intrinsic
def turn_square(_: Any, x: Any, at: Any, step: Any, out: Any, place: Any, stride: Any) -> Any:  # noqa: PLR0917 - compiled
    """Write out[place + i * stride + j] = x[at + j * step + i] for i and j below the elements of a
    line; ask for the squares `SQUARES` further on.

    Interleaving each row with the one half the rows further on turns the bits of (row, column)
    round by one; as often as a number of rows has bits, and rows are columns.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _ask_for_wide_vectors(builder)
        source, target = (context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 3))
        element = context.get_data_type(x.dtype)
        size = context.get_abi_sizeof(element)
        lanes, number = LINE // size, args[1].type
        line = ir.VectorType(element, lanes).as_pointer()
        further = ir.Constant(number, SQUARES * lanes)

        def row(data: Any, begin: Any, along: Any, which: Any) -> Any:
            return builder.gep(data, [builder.add(begin, builder.mul(along, which))])

        steps = [ir.Constant(number, i) for i in range(lanes)]
        for i in steps:
            touch(builder, row(source, builder.add(args[1], further), args[2], i))
            touch(builder, row(target, args[4], args[5], builder.add(i, further)))
        rows = [builder.load(builder.bitcast(row(source, args[1], args[2], i), line), align=size) for i in steps]
        for _ in range(lanes.bit_length() - 1):
            rows = [
                part
                for a, b in zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
                for part in _interleaved(builder, a, b)
            ]
        for i, vector in zip(steps, rows, strict=True):
            builder.store(vector, builder.bitcast(row(target, args[4], args[5], i), line), align=size)
        return context.get_dummy_value()

    return types.void(x, at, step, out, place, stride), codegen


@_intrinsic
def stack_block(_: Any, like: Any) -> Any:
    """Return an uninitialised array of `BLOCK` elements on the stack, of the dtype of `like`.

    Provably apart from any argument.
    """
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
def pow2(_: Any, shifted: Any) -> Any:
    """Return 2.0**n of n + `SHIFT`, for normal results.

    The lowest bits of that sum are the biased exponent.
    """
    fraction = 23 if shifted == types.float32 else 52

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        word = ir.IntType(32 if fraction == 23 else 64)
        return builder.bitcast(builder.shl(builder.bitcast(args[0], word), ir.Constant(word, fraction)), args[0].type)

    return shifted(shifted), codegen


def _swap_order(builder: Any, word: Any) -> Any:
    """Flip all bits but the sign of negative words.

    As integers, they are then in the order of the real numbers. Its own inverse.
    """
    bits = word.type.width
    sign = builder.ashr(word, ir.Constant(word.type, bits - 1))
    return builder.xor(word, builder.lshr(sign, ir.Constant(word.type, 1)))


@_intrinsic
def key_of(_: Any, real: Any) -> Any:
    """Return the integer that stands for a real number in comparisons.

    The largest of many is then found in any order, by vectors.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _swap_order(builder, builder.bitcast(args[0], ir.IntType(_word(real).bitwidth)))

    return _word(real)(real), codegen


@_intrinsic
def of_key(_: Any, key: Any) -> Any:
    """Return the real number of a `key_of`."""
    real = types.float32 if key == types.int32 else types.float64

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(_swap_order(builder, args[0]), context.get_value_type(real))

    return real(key), codegen


@_intrinsic
def maximum(_: Any, a: Any, b: Any) -> Any:
    """Return the larger of two, NaN if either is: llvm.maximum."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        real = args[0].type
        name = "llvm.maximum.f32" if isinstance(real, ir.FloatType) else "llvm.maximum.f64"
        function = _cg.get_or_insert_function(builder.module, ir.FunctionType(real, [real, real]), name)
        return builder.call(function, args)

    return a(a, b), codegen
