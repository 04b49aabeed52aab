"""Tiles of a product of float32 matrices, summed up in registers, as LLVM.

`engine.kernels.compiled.products` is made of them.

A tile keeps its sums (24 vectors of 512 bits, or 12 of 256) in registers over all steps of
k, and writes them in the end, or adds them to what is there. All take addresses and pitches in
bytes, check nothing, and ask for one line of memory at each step, wherever that is.

* *plain*: `ROWS` packed rows of left meet `COLUMNS` (or `NARROW_COLUMNS`) packed columns of right.
* *turned*: `TURNED_ROWS` packed rows of left meet `TURNED_COLUMNS` columns of right that lie along
  k, as a weight [n, k] does: each step spreads one number of each; the tile is turned by shuffles
  when it is written.

A processor without such vectors does the same in parts. What this module does not see: matrices,
edges, blocks.
"""

# ruff: noqa: ARG005, PLR0917 - intrinsics take their words by position

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from engine.kernels.compiled.vectors import WORD, fused, onward, read, repeat, splat, touch, write
from engine.kernels.vector_width import lanes

_intrinsic: Any = extending.intrinsic  # numba declares this with types that no caller satisfies
_cg: Any = cgutils

LANES: Final = lanes()
"""float32 in a vector: 16 of 512 bits, of which there are 32, or 8 of 256 bits, of which there are
16. A tile's sums, one line of right and one number of left fill them."""
_WIDE: Final = LANES == 16
ROWS: Final = 8 if _WIDE else 4
COLUMNS: Final = 3 * LANES
"""Tile over plain right: rows of left, columns of right."""
NARROW_COLUMNS: Final = 2 * LANES
"""Columns of the tile for matrices that are a head wide: 64 columns would fill two tiles of 48 by
two thirds."""
TURNED_ROWS: Final = 2 * LANES if _WIDE else 3 * LANES
TURNED_COLUMNS: Final = 12 if _WIDE else 4
"""Tile over turned right."""

_REAL = ir.FloatType()
_VECTOR = ir.VectorType(_REAL, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)
_BYTES: Final = 4 * LANES


def _shuffled(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def _write_turned(builder: Any, vectors: list[Any], address: Any, pitch: Any, *, add: bool) -> None:
    """Write 4 vectors as rows of 4 numbers, `pitch` bytes apart.

    With `add`, add them to what is there.
    """
    quads = range(0, LANES, 4)
    low = [lane for q in quads for lane in (q, q + LANES, q + 1, q + LANES + 1)]
    high = [lane for q in quads for lane in (q + 2, q + LANES + 2, q + 3, q + LANES + 3)]
    first = [lane for q in quads for lane in (q, q + 1, q + LANES, q + LANES + 1)]
    second = [lane for q in quads for lane in (q + 2, q + 3, q + LANES + 2, q + LANES + 3)]
    a, b, c, d = vectors
    pairs = [(_shuffled(builder, a, b, half), _shuffled(builder, c, d, half)) for half in (low, high)]
    turned = [_shuffled(builder, x, y, half) for x, y in pairs for half in (first, second)]
    for row in range(LANES):
        lanes = [row // 4 * 4 + i for i in range(4)]
        piece = _shuffled(builder, turned[row % 4], turned[row % 4], lanes)
        place = onward(builder, address, builder.mul(pitch, WORD(row)))
        write(builder, builder.fadd(piece, read(builder, place, piece.type)) if add else piece, place)


def _routine(codegen: Callable[..., None], words: int) -> Any:
    """Return an intrinsic of `words` int64 that returns nothing.

    Numba reads the number off the function's signature, so each is spelled out.
    """

    def emit(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        codegen(builder, *args)
        return context.get_dummy_value()

    found = types.void(*[types.int64] * words), emit
    spelled: dict[int, Any] = {
        4: lambda _, a, b, c, d: found,
        5: lambda _, a, b, c, d, e: found,
        8: lambda _, a, b, c, d, e, f, g, h: found,
    }
    return _intrinsic(spelled[words])


def _plain_tile(columns: int, *, add: bool) -> Any:
    """out[ROWS, columns] = packed[k][ROWS] @ right[k, columns].

    Words: packed, right, its pitch, out, its pitch, k, what to prefetch, its pitch.
    """
    vectors, sums = columns // LANES, ROWS * columns // LANES

    def tile(
        builder: Any, packed: Any, right: Any, pitch: Any, out: Any, row: Any, k: Any, ahead: Any, stride: Any
    ) -> None:
        def step(values: list[Any]) -> list[Any]:
            held, (a, b, next_line) = values[:sums], values[sums:]
            across = [read(builder, onward(builder, b, _BYTES * j), _VECTOR) for j in range(vectors)]
            touch(builder, builder.inttoptr(next_line, ir.IntType(8).as_pointer()), near=2)
            found = []
            for r in range(ROWS):
                number = splat(builder, read(builder, onward(builder, a, 4 * r), _REAL), _VECTOR)
                found += [fused(builder, number, across[j], held[r * vectors + j]) for j in range(vectors)]
            return [*found, onward(builder, a, 4 * ROWS), onward(builder, b, pitch), onward(builder, next_line, stride)]

        found = repeat(builder, k, [_ZERO] * sums + [packed, right, ahead], step)
        for r in range(ROWS):
            start = onward(builder, out, builder.mul(row, WORD(r)))
            for j in range(vectors):
                place, value = onward(builder, start, _BYTES * j), found[r * vectors + j]
                write(builder, builder.fadd(value, read(builder, place, _VECTOR)) if add else value, place)

    return _routine(tile, 8)


def _turned_tile(*, add: bool) -> Any:
    """out[TURNED_ROWS, TURNED_COLUMNS] = packed[k][TURNED_ROWS] @ right[TURNED_COLUMNS, k].T.

    Words as `_plain_tile`.
    """
    vectors, sums = TURNED_ROWS // LANES, TURNED_ROWS * TURNED_COLUMNS // LANES

    def tile(
        builder: Any, packed: Any, right: Any, pitch: Any, out: Any, row: Any, k: Any, ahead: Any, stride: Any
    ) -> None:
        starts = [builder.mul(pitch, WORD(c)) for c in range(TURNED_COLUMNS)]

        def step(values: list[Any]) -> list[Any]:
            held, (a, b, next_line) = values[:sums], values[sums:]
            rows = [read(builder, onward(builder, a, _BYTES * j), _VECTOR) for j in range(vectors)]
            touch(builder, builder.inttoptr(next_line, ir.IntType(8).as_pointer()), near=2)
            found = []
            for c in range(TURNED_COLUMNS):
                number = splat(builder, read(builder, onward(builder, b, starts[c]), _REAL), _VECTOR)
                found += [fused(builder, number, rows[j], held[c * vectors + j]) for j in range(vectors)]
            return [
                *found,
                onward(builder, a, 4 * TURNED_ROWS),
                onward(builder, b, 4),
                onward(builder, next_line, stride),
            ]

        found = repeat(builder, k, [_ZERO] * sums + [packed, right, ahead], step)
        for j in range(vectors):
            start = onward(builder, out, builder.mul(row, WORD(LANES * j)))
            for c in range(0, TURNED_COLUMNS, 4):
                four = [found[(c + i) * vectors + j] for i in range(4)]
                _write_turned(builder, four, onward(builder, start, 4 * c), row, add=add)

    return _routine(tile, 8)


def _pack(builder: Any, rows: Any, pitch: Any, packed: Any, step: Any, blocks: Any) -> None:
    """Write 4 rows of LANES * blocks numbers as columns of 4.

    Number i of each row at packed + i * step.
    """

    def block(values: list[Any]) -> list[Any]:
        source, target = values
        four = [read(builder, onward(builder, source, builder.mul(pitch, WORD(r))), _VECTOR) for r in range(4)]
        _write_turned(builder, four, target, step, add=False)
        return [onward(builder, source, 4 * LANES), onward(builder, target, builder.mul(step, WORD(LANES)))]

    repeat(builder, blocks, [rows, packed], block)


def _copy(width: int) -> Any:
    """Copy `width` numbers of each of `steps` rows, so that they lie side by side.

    Words: rows, their pitch, packed, steps.
    """
    kind = ir.VectorType(_REAL, next(size for size in (16, 8, 4) if width % size == 0))

    def copy(builder: Any, rows: Any, pitch: Any, packed: Any, steps: Any) -> None:
        def row(values: list[Any]) -> list[Any]:
            source, target = values
            pieces = [(read(builder, onward(builder, source, j), kind), j) for j in range(0, 4 * width, 4 * kind.count)]
            for piece, j in pieces:
                write(builder, piece, onward(builder, target, j))
            return [onward(builder, source, pitch), onward(builder, target, 4 * width)]

        repeat(builder, steps, [rows, packed], row)

    return _routine(copy, 4)


wide_first, wide_next = _plain_tile(COLUMNS, add=False), _plain_tile(COLUMNS, add=True)
narrow_first, narrow_next = (_plain_tile(NARROW_COLUMNS, add=add) for add in (False, True))
turned_first, turned_next = _turned_tile(add=False), _turned_tile(add=True)
pack_four = _routine(_pack, 5)
copy_rows, copy_narrow, copy_wide, copy_turned = map(_copy, (ROWS, NARROW_COLUMNS, COLUMNS, TURNED_ROWS))


def _mxcsr(builder: Any, name: str, held: Any) -> Any:
    """Call what loads or stores the processor's word of rounding, over memory that holds a number;
    return the memory. Nothing is called where a processor has no such word.
    """
    place, byte = builder.alloca(held.type), ir.IntType(8).as_pointer()
    builder.store(held, place)
    if builder.module.triple.startswith("x86_64"):
        kind = ir.FunctionType(ir.VoidType(), [byte])
        function = _cg.get_or_insert_function(builder.module, kind, f"llvm.x86.sse.{name}")
        builder.call(function, [builder.bitcast(place, byte)])
    return place


@_intrinsic
def state(_: Any) -> Any:
    """Return the word of the processor that says how it rounds (MXCSR); 0 where there is none."""

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return builder.load(_mxcsr(builder, "stmxcsr", ir.IntType(32)(0)))

    return types.uint32(), codegen


@_intrinsic
def set_state(_: Any, word: Any) -> Any:  # noqa: ARG001 - numba reads the arity
    """Write that word."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        _mxcsr(builder, "ldmxcsr", args[0])
        return context.get_dummy_value()

    return types.void(types.uint32), codegen


FLUSH: Final = 0x8040
"""Bits of that word: results below the normal range are 0, and so are such operands."""
