"""Tiles of a convolution, summed up in registers, as LLVM.

`engine.kernels.compiled.convolutions` is made of them.

A tile keeps 24 vectors of 512 bits in registers over all its steps; a processor without such
vectors does the same in parts. Operands lie where a table of distances says, so that the elements
of all windows are read where they are and no matrix of columns is made. All take addresses,
distances and pitches in bytes, and check nothing.

* `gathered`: `ROWS` packed numbers a step meet `VECTORS` vectors of neighbouring pixels.
* `paired`: vectors of pixels of `LEFT` planes meet those of `RIGHT` planes; the sums over all
  pixels of all pairs are added to a table.

What this module does not see: images, windows, edges, blocks.
"""

# ruff: noqa: ARG001, PLR0917 - intrinsics take their words by position, and numba reads the arity

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import extending, types

from engine.kernels.compiled.vectors import LINE, splat

_intrinsic: Any = extending.intrinsic  # numba declares this with types that no caller satisfies

ROWS: Final = 8
VECTORS: Final = 3
"""Tile of a product: rows, and vectors of pixels."""
LEFT: Final = 4
RIGHT: Final = 6
"""Tile of sums over pixels: planes of one side and of the other."""
_WORD = ir.IntType(64)


def _word(number: int) -> Any:
    return ir.Constant(_WORD, number)


def _read(builder: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    """Return what lies there; of a vector no more is asked than that its elements are in order."""
    place = builder.inttoptr(builder.add(address, _word(offset)), kind.as_pointer())
    return builder.load(place, align=4)


def _write(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    place = builder.inttoptr(builder.add(address, _word(offset)), value.type.as_pointer())
    builder.store(value, place, align=4)


def _vector(context: Any, like: Any) -> Any:
    """Return the type of a line of the elements of an array."""
    element = context.get_data_type(like.dtype)
    return ir.VectorType(element, LINE // context.get_abi_sizeof(element))


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    kind = x.type
    name = f"llvm.fma.v{kind.count}f{512 // kind.count}"
    known = builder.module.globals.get(name)
    if known is None:
        known = ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name)
    return builder.call(known, [x, y, z])


def _loop(builder: Any, count: Any, values: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Do `values = step(values)` `count` times, `count` >= 1; return the last. Loops may nest."""
    before, body = builder.block, builder.append_basic_block("body")
    after = builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    left, carried = builder.phi(_WORD), [builder.phi(value.type) for value in values]
    found = step(carried)
    fewer = builder.sub(left, _word(1))
    for phi, start, again in zip([left, *carried], [count, *values], [fewer, *found], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(again, builder.block)
    builder.cbranch(builder.icmp_signed(">", fewer, _word(0)), body, after)
    builder.position_at_end(after)
    return found


@_intrinsic
def gathered(_: Any, like: Any, packed: Any, pixels: Any, table: Any, out: Any, steps: Any) -> Any:
    """out[ROWS, VECTORS] = the sum over steps k of packed[k][ROWS] * pixels[table[k]:].

    `like`: an array of the dtype; the others are addresses, and the number of steps, at least 1.
    Rows of out follow one another.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = _vector(context, like)
        size = LINE // line.count
        _, packed, pixels, table, out, steps = args

        def step(values: list[Any]) -> list[Any]:
            held, (a, t) = values[:-2], values[-2:]
            here = builder.add(pixels, _read(builder, t, _WORD))
            across = [_read(builder, here, line, LINE * j) for j in range(VECTORS)]
            found = []
            for r in range(ROWS):
                number = splat(builder, _read(builder, a, line.element, size * r), line)
                found += [_fused(builder, number, across[j], held[r * VECTORS + j]) for j in range(VECTORS)]
            return [*found, builder.add(a, _word(size * ROWS)), builder.add(t, _word(8))]

        zero = ir.Constant(line, [0.0] * line.count)
        found = _loop(builder, steps, [zero] * (ROWS * VECTORS) + [packed, table], step)
        for at, value in enumerate(found[:-2]):
            _write(builder, value, out, LINE * at)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 5), codegen


@_intrinsic
def put(_: Any, like: Any, part: Any, out: Any, pitch: Any, rows: Any, first: Any, count: Any) -> Any:
    """Write `count` neighbouring pixels of each of `rows` rows of a tile, from pixel `first` on.

    `like`: an array of the dtype; the others are addresses, the distance of rows of out, numbers.
    Whole vectors are written, but for the lanes of other pixels.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = _vector(context, like)
        size, lane = LINE // line.count, ir.IntType(32)
        _, part, out, pitch, rows, first, count = args
        lanes, kind = ir.VectorType(lane, line.count), ir.VectorType(ir.IntType(1), line.count)
        begin, most = (splat(builder, builder.trunc(number, lane), lanes) for number in (first, count))
        masks = [
            builder.icmp_unsigned(
                "<", builder.sub(ir.Constant(lanes, [line.count * j + i for i in range(line.count)]), begin), most
            )
            for j in range(VECTORS)
        ]
        name = f"llvm.masked.store.v{line.count}f{512 // line.count}.p0"
        known = builder.module.globals.get(name)
        if known is None:
            words = [line, line.as_pointer(), lane, kind]
            known = ir.Function(builder.module, ir.FunctionType(ir.VoidType(), words), name)

        def row(values: list[Any]) -> list[Any]:
            source, target = values
            for j in range(VECTORS):
                place = builder.inttoptr(builder.add(target, _word(LINE * j)), line.as_pointer())
                builder.call(known, [_read(builder, source, line, LINE * j), place, ir.Constant(lane, 4), masks[j]])
            return [builder.add(source, _word(LINE * VECTORS)), builder.add(target, pitch)]

        _loop(builder, rows, [part, builder.sub(out, builder.mul(first, _word(size)))], row)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 6), codegen


def _summed(builder: Any, vectors: list[Any]) -> Any:
    """Return one vector of the sums of as many vectors as it has elements.

    Neighbours are added up, until one is left of each.
    """
    lanes = vectors[0].type.count
    kind = ir.VectorType(ir.IntType(32), lanes)
    even, odd = (ir.Constant(kind, list(range(first, 2 * lanes, 2))) for first in (0, 1))
    while len(vectors) > 1:
        vectors = [
            builder.fadd(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
            for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


@_intrinsic
def paired(
    _: Any,
    like: Any,
    left: Any,
    right: Any,
    lefts: Any,
    rights: Any,
    mask: Any,
    out: Any,
    rows: Any,
    across: Any,
    pitch: Any,
) -> Any:
    """Add to out[l * RIGHT + r] the sum over pixels of left[lefts[l]:] * right[rights[r]:].

    Pixels are `rows` rows, `pitch` bytes apart, of `across` vectors, in all planes; of a right
    vector those bits count that are in the mask of its place in the row. `like`: an array of the
    dtype; the others are addresses and numbers. `out` has whole lines.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        line = _vector(context, like)
        bits = ir.VectorType(ir.IntType(512 // line.count), line.count)
        _, left, right, lefts, rights, mask, out, rows, across, pitch = args
        one = [builder.add(left, _read(builder, lefts, _WORD, 8 * i)) for i in range(LEFT)]
        other = [builder.add(right, _read(builder, rights, _WORD, 8 * i)) for i in range(RIGHT)]

        def row(values: list[Any]) -> list[Any]:
            held, start = values[:-1], values[-1]

            def step(values: list[Any]) -> list[Any]:
                held, (at, shown) = values[:-2], values[-2:]
                seen = _read(builder, shown, bits)
                near = [_read(builder, builder.add(address, at), line) for address in one]
                found = list(held)
                for r, address in enumerate(other):
                    whole = _read(builder, builder.add(address, at), bits)
                    far = builder.bitcast(builder.and_(whole, seen), line)
                    for i in range(LEFT):
                        found[i * RIGHT + r] = _fused(builder, near[i], far, held[i * RIGHT + r])
                return [*found, builder.add(at, _word(LINE)), builder.add(shown, _word(LINE))]

            found = _loop(builder, across, [*held, start, mask], step)
            return [*found[:-2], builder.add(start, pitch)]

        zero = ir.Constant(line, [0.0] * line.count)
        found = _loop(builder, rows, [zero] * (LEFT * RIGHT) + [_word(0)], row)[:-1]
        found += [zero] * (-len(found) % line.count)
        for at in range(len(found) // line.count):
            sums = _summed(builder, found[at * line.count : (at + 1) * line.count])
            _write(builder, builder.fadd(_read(builder, out, line, LINE * at), sums), out, LINE * at)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 9), codegen
