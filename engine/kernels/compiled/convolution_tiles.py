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

from typing import Any, Final

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from engine.kernels.compiled.vectors import LINE, WORD, fused, onward, read, repeat, splat, write

_intrinsic: Any = extending.intrinsic  # numba declares this with types that no caller satisfies
_cg: Any = cgutils

ROWS: Final = 8
VECTORS: Final = 3
"""Tile of a product: rows, and vectors of pixels."""
LEFT: Final = 4
RIGHT: Final = 6
"""Tile of sums over pixels: planes of one side and of the other."""


def _vector(context: Any, like: Any) -> Any:
    """Return the type of a line of the elements of an array."""
    element = context.get_data_type(like.dtype)
    return ir.VectorType(element, LINE // context.get_abi_sizeof(element))


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
            here = onward(builder, pixels, read(builder, t, WORD))
            across = [read(builder, onward(builder, here, LINE * j), line) for j in range(VECTORS)]
            found = []
            for r in range(ROWS):
                number = splat(builder, read(builder, onward(builder, a, size * r), line.element), line)
                found += [fused(builder, number, across[j], held[r * VECTORS + j]) for j in range(VECTORS)]
            return [*found, onward(builder, a, size * ROWS), onward(builder, t, 8)]

        zero = ir.Constant(line, [0.0] * line.count)
        found = repeat(builder, steps, [zero] * (ROWS * VECTORS) + [packed, table], step)
        for at, value in enumerate(found[:-2]):
            write(builder, value, onward(builder, out, LINE * at))
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
        words = [line, line.as_pointer(), lane, kind]
        known = _cg.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), words), name)

        def row(values: list[Any]) -> list[Any]:
            source, target = values
            for j in range(VECTORS):
                place = builder.inttoptr(onward(builder, target, LINE * j), line.as_pointer())
                pixels = read(builder, onward(builder, source, LINE * j), line)
                builder.call(known, [pixels, place, ir.Constant(lane, 4), masks[j]])
            return [onward(builder, source, LINE * VECTORS), onward(builder, target, pitch)]

        repeat(builder, rows, [part, builder.sub(out, builder.mul(first, WORD(size)))], row)
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
        one = [onward(builder, left, read(builder, onward(builder, lefts, 8 * i), WORD)) for i in range(LEFT)]
        other = [onward(builder, right, read(builder, onward(builder, rights, 8 * i), WORD)) for i in range(RIGHT)]

        def row(values: list[Any]) -> list[Any]:
            held, start = values[:-1], values[-1]

            def step(values: list[Any]) -> list[Any]:
                held, (at, shown) = values[:-2], values[-2:]
                seen = read(builder, shown, bits)
                near = [read(builder, onward(builder, address, at), line) for address in one]
                found = list(held)
                for r, address in enumerate(other):
                    whole = read(builder, onward(builder, address, at), bits)
                    far = builder.bitcast(builder.and_(whole, seen), line)
                    for i in range(LEFT):
                        found[i * RIGHT + r] = fused(builder, near[i], far, held[i * RIGHT + r])
                return [*found, onward(builder, at, LINE), onward(builder, shown, LINE)]

            found = repeat(builder, across, [*held, start, mask], step)
            return [*found[:-2], onward(builder, start, pitch)]

        zero = ir.Constant(line, [0.0] * line.count)
        found = repeat(builder, rows, [zero] * (LEFT * RIGHT) + [WORD(0)], row)[:-1]
        found += [zero] * (-len(found) % line.count)
        for at in range(len(found) // line.count):
            sums = _summed(builder, found[at * line.count : (at + 1) * line.count])
            place = onward(builder, out, LINE * at)
            write(builder, builder.fadd(read(builder, place, line), sums), place)
        return context.get_dummy_value()

    return types.void(like, *[types.int64] * 9), codegen
