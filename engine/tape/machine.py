"""The machine of the tape: the loop that executes it, and the drivers of external loops.

All compiled code of the tape is here.

An *entry* is the address of a driver, the address of what all ops of one form share (int64 words),
and the address of what is its own: one address of memory for each array it touches. Every driver is
a C function `int32 driver(shared, own)` that returns 0, or what numba's calling convention returns
for an exception.

| driver | shared words | own |
|---|---|---|
| `loop` | function, data, arrays, scratch, length, steps | an address for each operand, then the result |
| `nest` | function, data, arrays, outer rank, number of dims, number of steps, dims, steps, outer shape, outer strides, scratch | the same |
| `gemm_32`, `gemm_64` | function, whether left and right are transposed, m, n, k, leading lengths | left, right, out |
| those of `engine.tape.trampolines` | function, the arguments that are no addresses | an address for each array |

`loop` is one call of a numpy inner loop, `nest` one call for each index of the outer axes, the last
fastest. Inner loops have numpy's signature
`void(char **args, intp *dims, intp *steps, void *data)`; `copy` is of that kind and ours.

What this module does not see: which ops these are, and whether the addresses are right. Nothing
here checks anything.
"""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import extending, types

_intrinsic: Any = extending.intrinsic  # numba declares these with types that no caller satisfies

_WORD = ir.IntType(64)


def _pointer(builder: Any, address: Any, bits: int = 64) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@_intrinsic
def load(_: Any, address: Any) -> Any:
    """Return the int64 at an address."""
    return types.int64(address), lambda _c, builder, _s, args: builder.load(_pointer(builder, args[0]))


@_intrinsic
def store(_: Any, address: Any, word: Any) -> Any:
    """Write an int64 to an address."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0]))
        return context.get_dummy_value()

    return types.void(address, word), codegen


def _mover(bits: int) -> Any:
    """Return an intrinsic that copies one element of `bits` bits from an address to another."""

    @_intrinsic
    def move(_: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            element = builder.load(_pointer(builder, args[0], bits), align=bits // 8)
            builder.store(element, _pointer(builder, args[1], bits), align=bits // 8)
            return context.get_dummy_value()

        return types.void(source, target), codegen

    return move


_move_1, _move_2, _move_4, _move_8 = (_mover(bits) for bits in (8, 16, 32, 64))


@_intrinsic
def drive(_: Any, driver: Any, shared: Any, own: Any) -> Any:
    """Call the driver at an address."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.IntType(32), [_WORD, _WORD]).as_pointer()
        return builder.call(builder.inttoptr(args[0], function), [args[1], args[2]])

    return types.int32(driver, shared, own), codegen


@_intrinsic
def _inner(_: Any, function: Any, args: Any, dims: Any, steps: Any, data: Any) -> Any:
    """Call the inner loop at an address."""

    def codegen(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_WORD] * 4).as_pointer()
        builder.call(builder.inttoptr(values[0], kind), values[1:])
        return context.get_dummy_value()

    return types.void(function, args, dims, steps, data), codegen


def _gemm_of(real: Any) -> Any:
    """Return an intrinsic that calls CBLAS's gemm at an address: row-major, alpha = beta = 1."""

    @_intrinsic
    def gemm(_: Any, function: Any, numbers: Any, own: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            enum, one = ir.IntType(32), ir.Constant(real, 1.0)
            types_ = [enum, enum, enum, _WORD, _WORD, _WORD, real, _WORD, _WORD, _WORD, _WORD, real, _WORD, _WORD]
            words = [_at(builder, args[1], i) for i in range(8)]
            left, right, out = (_at(builder, args[2], i) for i in range(3))
            turns = [builder.trunc(word, enum) for word in words[:2]]
            m, n, k, lda, ldb, ldc = words[2:]
            called = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), types_).as_pointer())
            order = ir.Constant(enum, 101)
            builder.call(called, [order, *turns, m, n, k, one, left, lda, right, ldb, one, out, ldc])
            return context.get_dummy_value()

        return types.void(function, numbers, own), codegen

    return gemm


def _at(builder: Any, address: Any, position: int) -> Any:
    return builder.load(builder.gep(_pointer(builder, address), [ir.Constant(_WORD, position)]))


_gemm_32, _gemm_64 = _gemm_of(ir.FloatType()), _gemm_of(ir.DoubleType())


def compiled(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a C function when the module is imported, or load what was compiled before."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.cfunc(signature, error_model="numpy", cache=True)(function)
        except (RuntimeError, OSError):  # no folder to keep it in
            return numba.cfunc(signature, error_model="numpy")(function)

    return decorate


@compiled(types.int64(*[types.int64] * 5))
def play(codes: int, count: int, drivers: int, shared: int, own: int) -> int:
    """Run `count` entries; return -1, or the position of the first that failed.

    All arguments are addresses but the count: `codes` of one int64 word for each entry, its form
    times 2^16 plus the words of its own; `drivers` and `shared` of one word for each form; `own` of
    the own words of all entries, one after the other.
    """
    for position in range(count):
        code = load(codes + 8 * position)
        form = code >> 16
        if drive(load(drivers + 8 * form), load(shared + 8 * form), own) != 0:
            return position
        own += 8 * (code & 0xFFFF)
    return -1


@compiled(types.int32(types.int64, types.int64))
def loop(shared: int, own: int) -> int:
    """Call an inner loop once, with a copy of its addresses: numpy's loops may count on them."""
    operands = load(shared + 16)
    dims = shared + 24 + 8 * operands
    for operand in range(operands):
        store(shared + 24 + 8 * operand, load(own + 8 * operand))
    _inner(load(shared), shared + 24, dims, dims + 8, load(shared + 8))
    return 0


@compiled(types.int32(types.int64, types.int64))
def nest(shared: int, own: int) -> int:
    """Call an inner loop for each index of the outer axes.

    See the table of the module for the words.
    """
    function, data, operands, rank = load(shared), load(shared + 8), load(shared + 16), load(shared + 24)
    dims = shared + 48
    steps = dims + 8 * load(shared + 32)
    shape = steps + 8 * load(shared + 40)
    strides = shape + 8 * rank
    index = strides + 8 * rank * operands
    origin = index + 8 * rank
    now = origin + 8 * operands
    total = 1
    for axis in range(rank):
        total *= load(shape + 8 * axis)
        store(index + 8 * axis, 0)
    for operand in range(operands):
        store(origin + 8 * operand, load(own + 8 * operand))
    for _ in range(total):
        for operand in range(operands):  # numpy's loops may count on these
            store(now + 8 * operand, load(origin + 8 * operand))
        _inner(function, now, dims, steps, data)
        axis = rank - 1
        while axis >= 0:
            length, at = load(shape + 8 * axis), load(index + 8 * axis) + 1
            back = length if at == length else 0
            store(index + 8 * axis, at - back)
            for operand in range(operands):
                stride = load(strides + 8 * (axis * operands + operand))
                store(origin + 8 * operand, load(origin + 8 * operand) + stride * (1 - back))
            if not back:
                break
            axis -= 1
    return 0


@compiled(types.int32(types.int64, types.int64))
def gemm_32(shared: int, own: int) -> int:
    """Add a product of float32 matrices."""
    _gemm_32(load(shared), shared + 8, own)
    return 0


@compiled(types.int32(types.int64, types.int64))
def gemm_64(shared: int, own: int) -> int:
    """Add a product of float64 matrices."""
    _gemm_64(load(shared), shared + 8, own)
    return 0


@compiled(types.void(*[types.int64] * 4))
def copy(args: int, dims: int, steps: int, size: int) -> None:
    """Copy elements of 1, 2, 4 or 8 bytes.

    An inner loop of one operand, with the size as its data.
    """
    source, target, count = load(args), load(args + 8), load(dims)
    down, across = load(steps), load(steps + 8)
    if down == size and across == size:
        for i in range(count * size):
            _move_1(source + i, target + i)
    elif size == 4:
        for i in range(count):
            _move_4(source + down * i, target + across * i)
    elif size == 8:
        for i in range(count):
            _move_8(source + down * i, target + across * i)
    elif size == 2:
        for i in range(count):
            _move_2(source + down * i, target + across * i)
    else:
        for i in range(count):
            _move_1(source + down * i, target + across * i)


@compiled(types.void(*[types.int64] * 4))
def gather(objects: int, count: int, field: int, out: int) -> None:
    """Write the int64 at byte `field` of each of `count` objects, whose addresses stand in a
    row.
    """
    for i in range(count):
        store(out + 8 * i, load(load(objects + 8 * i) + field))
