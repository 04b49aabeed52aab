"""The numba kernels that multiply float32 matrices by register tiles of 512-bit vectors.

    out[.., m, n] = left[.., m, k] @ right[.., k, n], or out += that

`right`, the weight of a layer, is read where it lies, a few lines ahead of their use, and never copied: with few rows on the left (a short text) a
BLAS spends much of its time on repacking it. Only `left` is packed, block by block. `right` has unit stride on one of its axes:

* *plain*, along n: a tile is 8 rows of left by 48 columns; each step of k reads 3 vectors of right and spreads 8 numbers of left.
* *turned*, along k (a weight [n, k] as `mul_mat` has it): a tile is 12 columns by 32 rows of left; each step reads 2 vectors of packed left
  and spreads 12 numbers of right; the tile is turned by shuffles when it is written.

Both keep 24 sums in registers, as the micro-kernels of BLIS do (Van Zee and van de Geijn 2015, "BLIS: A framework for rapidly instantiating BLAS
functionality"); the order of loops is that of Goto and van de Geijn 2008 ("Anatomy of high-performance matrix multiplication") without its copy of right.

Contract
--------
* An element is a sum over k in blocks, in order, each a chain of fused multiply-adds from 0: its bits depend on k and on the number of rows of
  left, not on where the arrays lie, nor on its place in the matrix. Edges are computed as whole tiles beside the result, and only their part is written.
* NaN and infinity spread as IEEE has it. The result may not overlap an operand; if it does, the bits are the same however the call is made.
* It runs in the thread that calls. The packed block (at most 1.1 MiB) is taken and given back in each call.

A file of its own, for what numba's cache watches is the file: nothing compiled elsewhere is called from here.

What this module does not see: ops, shapes that do not fit (`engine.kernels.tiles`), dtypes other than float32, how many threads a run may use.
"""

# ruff: noqa: ARG005, FBT001, PLR0917 - compiled code takes its words by position

from collections.abc import Callable
from typing import Any, Final

import numba
import numpy as np
from llvmlite import ir
from numba import extending, types

_intrinsic: Any = extending.intrinsic  # numba declares these with types that no caller satisfies

LANES: Final = 16
"""float32 in a vector of 512 bits."""
ROWS: Final = 8
COLUMNS: Final = 48
"""Tile over plain right: rows of left, columns of right."""
NARROW_COLUMNS: Final = 32
"""Columns of the tile for matrices that are a head wide: 64 columns would fill two tiles of 48 by two thirds."""
TURNED_ROWS: Final = 32
TURNED_COLUMNS: Final = 12
"""Tile over turned right."""

_MOST_ROWS: Final = 512
"""Rows of left packed at a time."""
_DEPTH: Final = 96
"""Steps of k in a block over plain right: 18 KiB of right, read by every tile of rows, stay in the first cache."""
_WIDTH: Final = 1536
"""Columns in a block over plain right: what is read of it and written stays in the second cache."""
_PACKED: Final = 262144
"""Elements of left packed at a time over turned right; fewer blocks of k, fewer sums of tiles that must be turned."""
_MANY: Final = 128
"""Rows of left from which on it pays to turn a shallow right (at most `_DEPTH`) panel by panel, rather than each tile of the result."""
_NARROW_COSTS: Final = 1.08
"""Time of a column in a narrow tile against one in a wide tile."""
_TURNED_WIDTH: Final = 48
"""Rows of turned right that meet a panel of left in turn, so that whole lines of the result are written together."""

_WORD = ir.IntType(64)
_REAL = ir.FloatType()
_VECTOR = ir.VectorType(_REAL, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)


# ------------------------------------------------------------------------------------------------------------ vectors


def _word(number: int) -> Any:
    return ir.Constant(_WORD, number)


def _read(builder: Any, address: Any, kind: Any) -> Any:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=4)


def _write(builder: Any, value: Any, address: Any) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=4)


def _at(builder: Any, address: Any, *offsets: Any) -> Any:
    for offset in offsets:
        address = builder.add(address, _word(offset) if isinstance(offset, int) else offset)
    return address


def _shuffled(builder: Any, one: Any, other: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), len(lanes)), lanes))


def _spread(builder: Any, real: Any) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), real, ir.Constant(ir.IntType(32), 0))
    return _shuffled(builder, first, ir.Constant(_VECTOR, ir.Undefined), [0] * LANES)


def _called(builder: Any, name: str, kind: Any, args: list[Any]) -> Any:
    known = builder.module.globals.get(name)
    return builder.call(ir.Function(builder.module, kind, name) if known is None else known, args)


def _fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return _called(builder, f"llvm.fma.v{LANES}f32", ir.FunctionType(_VECTOR, [_VECTOR] * 3), [x, y, z])


def _prefetch(builder: Any, address: Any) -> None:
    """Ask for the line of an address, into the second cache; harmless wherever it points."""
    number, pointer = ir.IntType(32), ir.IntType(8).as_pointer()
    flags = [ir.Constant(number, flag) for flag in (0, 2, 1)]  # to read, some locality, data
    kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
    _called(builder, "llvm.prefetch.p0", kind, [builder.inttoptr(address, pointer), *flags])


def _loop(builder: Any, count: Any, values: list[Any], step: Callable[[list[Any]], list[Any]]) -> list[Any]:
    """Do `values = step(values)` `count` times, `count` >= 1; return the last."""
    before, body, after = builder.block, builder.append_basic_block("body"), builder.append_basic_block("after")
    builder.branch(body)
    builder.position_at_end(body)
    left, carried = builder.phi(_WORD), [builder.phi(value.type) for value in values]
    found = step(carried)
    fewer = builder.sub(left, _word(1))
    for phi, start, again in zip([left, *carried], [count, *values], [fewer, *found], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(again, body)
    builder.cbranch(builder.icmp_signed(">", fewer, _word(0)), body, after)
    builder.position_at_end(after)
    return found


def _write_turned(builder: Any, vectors: list[Any], address: Any, pitch: Any, *, add: bool) -> None:
    """Write 4 vectors as 16 rows of 4 numbers, `pitch` bytes apart; with `add`, add them to what is there."""
    quads = range(0, LANES, 4)
    low = [lane for q in quads for lane in (q, q + 16, q + 1, q + 17)]
    high = [lane for q in quads for lane in (q + 2, q + 18, q + 3, q + 19)]
    first = [lane for q in quads for lane in (q, q + 1, q + 16, q + 17)]
    second = [lane for q in quads for lane in (q + 2, q + 3, q + 18, q + 19)]
    a, b, c, d = vectors
    pairs = [(_shuffled(builder, a, b, half), _shuffled(builder, c, d, half)) for half in (low, high)]
    turned = [_shuffled(builder, x, y, half) for x, y in pairs for half in (first, second)]
    for row in range(LANES):
        lanes = [row // 4 * 4 + i for i in range(4)]
        piece = _shuffled(builder, turned[row % 4], turned[row % 4], lanes)
        place = _at(builder, address, builder.mul(pitch, _word(row)))
        _write(builder, builder.fadd(piece, _read(builder, place, piece.type)) if add else piece, place)


def _routine(codegen: Callable[..., None], words: int) -> Any:
    """Return an intrinsic of `words` int64 that returns nothing; numba reads the number off the function's signature, so each is spelled out."""

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
    """out[ROWS, columns] = packed[k][ROWS] @ right[k, columns]; words: packed, right, its pitch, out, its pitch, k, what to prefetch, its pitch."""
    vectors, sums = columns // LANES, ROWS * columns // LANES

    def tile(builder: Any, packed: Any, right: Any, pitch: Any, out: Any, row: Any, k: Any, ahead: Any, stride: Any) -> None:
        def step(values: list[Any]) -> list[Any]:
            held, (a, b, next_line) = values[:sums], values[sums:]
            across = [_read(builder, _at(builder, b, 64 * j), _VECTOR) for j in range(vectors)]
            _prefetch(builder, next_line)
            found = []
            for r in range(ROWS):
                number = _spread(builder, _read(builder, _at(builder, a, 4 * r), _REAL))
                found += [_fused(builder, number, across[j], held[r * vectors + j]) for j in range(vectors)]
            return [*found, _at(builder, a, 4 * ROWS), _at(builder, b, pitch), _at(builder, next_line, stride)]

        found = _loop(builder, k, [_ZERO] * sums + [packed, right, ahead], step)
        for r in range(ROWS):
            start = _at(builder, out, builder.mul(row, _word(r)))
            for j in range(vectors):
                place, value = _at(builder, start, 64 * j), found[r * vectors + j]
                _write(builder, builder.fadd(value, _read(builder, place, _VECTOR)) if add else value, place)

    return _routine(tile, 8)


def _turned_tile(*, add: bool) -> Any:
    """out[TURNED_ROWS, TURNED_COLUMNS] = packed[k][TURNED_ROWS] @ right[TURNED_COLUMNS, k].T; words as `_plain_tile`."""
    vectors, sums = TURNED_ROWS // LANES, TURNED_ROWS * TURNED_COLUMNS // LANES

    def tile(builder: Any, packed: Any, right: Any, pitch: Any, out: Any, row: Any, k: Any, ahead: Any, stride: Any) -> None:
        starts = [builder.mul(pitch, _word(c)) for c in range(TURNED_COLUMNS)]

        def step(values: list[Any]) -> list[Any]:
            held, (a, b, next_line) = values[:sums], values[sums:]
            rows = [_read(builder, _at(builder, a, 64 * j), _VECTOR) for j in range(vectors)]
            _prefetch(builder, next_line)
            found = []
            for c in range(TURNED_COLUMNS):
                number = _spread(builder, _read(builder, _at(builder, b, starts[c]), _REAL))
                found += [_fused(builder, number, rows[j], held[c * vectors + j]) for j in range(vectors)]
            return [*found, _at(builder, a, 4 * TURNED_ROWS), _at(builder, b, 4), _at(builder, next_line, stride)]

        found = _loop(builder, k, [_ZERO] * sums + [packed, right, ahead], step)
        for j in range(vectors):
            start = _at(builder, out, builder.mul(row, _word(LANES * j)))
            for c in range(0, TURNED_COLUMNS, 4):
                four = [found[(c + i) * vectors + j] for i in range(4)]
                _write_turned(builder, four, _at(builder, start, 4 * c), row, add=add)

    return _routine(tile, 8)


def _pack(builder: Any, rows: Any, pitch: Any, packed: Any, step: Any, blocks: Any) -> None:
    """Write 4 rows of 16 * blocks numbers as columns of 4: number i of each row at packed + i * step."""

    def block(values: list[Any]) -> list[Any]:
        source, target = values
        four = [_read(builder, _at(builder, source, builder.mul(pitch, _word(r))), _VECTOR) for r in range(4)]
        _write_turned(builder, four, target, step, add=False)
        return [_at(builder, source, 4 * LANES), _at(builder, target, builder.mul(step, _word(LANES)))]

    _loop(builder, blocks, [rows, packed], block)


def _copy(width: int) -> Any:
    """Copy `width` numbers of each of `steps` rows, so that they lie side by side; words: rows, their pitch, packed, steps."""
    kind = ir.VectorType(_REAL, next(size for size in (16, 8, 4) if width % size == 0))

    def copy(builder: Any, rows: Any, pitch: Any, packed: Any, steps: Any) -> None:
        def row(values: list[Any]) -> list[Any]:
            source, target = values
            pieces = [(_read(builder, _at(builder, source, j), kind), j) for j in range(0, 4 * width, 4 * kind.count)]
            for piece, j in pieces:
                _write(builder, piece, _at(builder, target, j))
            return [_at(builder, source, pitch), _at(builder, target, 4 * width)]

        _loop(builder, steps, [rows, packed], row)

    return _routine(copy, 4)


_wide_first, _wide_next = _plain_tile(COLUMNS, add=False), _plain_tile(COLUMNS, add=True)
_narrow_first, _narrow_next = (_plain_tile(NARROW_COLUMNS, add=add) for add in (False, True))
_turned_first, _turned_next = _turned_tile(add=False), _turned_tile(add=True)
_pack_four = _routine(_pack, 5)
_copy_8, _copy_32, _copy_48 = _copy(8), _copy(32), _copy(48)


@_intrinsic
def _state(_: Any) -> Any:
    """Return the word of the processor that says how it rounds (MXCSR); 0 where there is none."""

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        place = builder.alloca(number)
        builder.store(ir.Constant(number, 0), place)
        if builder.module.triple.startswith("x86_64"):
            _called(builder, "llvm.x86.sse.stmxcsr", ir.FunctionType(ir.VoidType(), [byte]), [builder.bitcast(place, byte)])
        return builder.load(place)

    return types.uint32(), codegen


@_intrinsic
def _set_state(_: Any, word: Any) -> Any:  # noqa: ARG001 - numba reads the arity
    """Write that word."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        number, byte = ir.IntType(32), ir.IntType(8).as_pointer()
        place = builder.alloca(number)
        builder.store(args[0], place)
        if builder.module.triple.startswith("x86_64"):
            _called(builder, "llvm.x86.sse.ldmxcsr", ir.FunctionType(ir.VoidType(), [byte]), [builder.bitcast(place, byte)])
        return context.get_dummy_value()

    return types.void(types.uint32), codegen


_FLUSH: Final = 0x8040
"""Bits of that word: results below the normal range are 0, and so are such operands."""


# ----------------------------------------------------------------------------------------------------------- matrices

_inline: Any = numba.njit(error_model="numpy")


def _kernel(function: Callable[..., None]) -> Any:
    try:
        return numba.njit(error_model="numpy", cache=True)(function)
    except RuntimeError:  # numba found no folder to write to
        return numba.njit(error_model="numpy")(function)


@_inline
def _pack_rows(left: Any, first: int, start: int, depth: int, width: int, packed: Any) -> None:
    """packed[i, r] = left[first + r, start + i], r < width, zero beyond the last row; packed: depth * width numbers, width 8, 32 or 48."""
    rows = min(width, left.shape[0] - first)
    source = left.ctypes.data + first * left.strides[0] + start * left.strides[1]
    target, done = packed.ctypes.data, 0
    if rows == width and left.strides[0] == 4:
        done = depth
        if width == 8:
            _copy_8(source, left.strides[1], target, depth)
        elif width == 32:
            _copy_32(source, left.strides[1], target, depth)
        else:
            _copy_48(source, left.strides[1], target, depth)
    elif rows == width and left.strides[1] == 4 and depth >= LANES:
        done = depth // LANES * LANES
        for r in range(0, width, 4):
            _pack_four(source + r * left.strides[0], left.strides[0], target + 4 * r, 4 * width, depth // LANES)
    for i in range(done, depth):
        for r in range(rows):
            packed[i * width + r] = left[first + r, start + i]
        for r in range(rows, width):
            packed[i * width + r] = 0


@_inline
def _whole(size: int, unit: int) -> int:
    """Return `size` rounded up to a multiple of `unit`."""
    return (size + unit - 1) // unit * unit


@_inline
def _share(length: int, most: int) -> int:
    """Return the length of blocks that are at most `most` long and nearly equal."""
    count = max((length + most - 1) // most, 1)
    return (length + count - 1) // count


@_inline
def _room(size: int) -> Any:
    """Return memory for `size` numbers that begins with a line."""
    raw = np.empty(size + LANES, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + size]


@_inline
def _merge(part: Any, pitch: int, top: int, side: int, out: Any, rows: int, first: int, last: int, add: bool) -> None:
    """Write columns first.. of a tile that was computed beside the result, or add them."""
    for r in range(rows):
        for c in range(first, last):
            value = part[r * pitch + c]
            out[top + r, side + c] = out[top + r, side + c] + value if add else value


@_inline
def _ahead(block: int, pitch: int, width: int, done: int) -> int:
    """Return where to go on asking for the next block of right (rows of `width` bytes) after `done` bytes: the steps of one block share its lines."""
    return block + done // width * pitch + done % width


@_inline
def _tile(width: int, more: bool, a: int, b: int, out: int, row: int, steps: int, ahead: int, stride: int) -> None:
    """Do one tile of that many columns over a packed panel of right; `more` adds it to what is there."""
    if width == COLUMNS and more:
        _wide_next(a, b, 4 * COLUMNS, out, row, steps, ahead, stride)
    elif width == COLUMNS:
        _wide_first(a, b, 4 * COLUMNS, out, row, steps, ahead, stride)
    elif more:
        _narrow_next(a, b, 4 * NARROW_COLUMNS, out, row, steps, ahead, stride)
    else:
        _narrow_first(a, b, 4 * NARROW_COLUMNS, out, row, steps, ahead, stride)


@_inline
def _plain(left: Any, right: Any, out: Any, add: bool, width: int, depth: int, long: int, room: Any) -> None:
    (m, k), n = left.shape, right.shape[1]
    part, panel, packed = room[: ROWS * COLUMNS], room[ROWS * COLUMNS :], room[(ROWS + depth) * COLUMNS :]
    row = out.strides[0]
    for top in range(0, m, _MOST_ROWS):
        tiles = _whole(min(_MOST_ROWS, m - top), ROWS) // ROWS
        for origin in range(0, k, long):
            length = min(long, k - origin)
            for tile in range(tiles):
                _pack_rows(left, top + tile * ROWS, origin, length, ROWS, packed[tile * ROWS * length :])
            for side in range(0, n, _WIDTH):
                last = min(side + _WIDTH, n)
                stride = 4 * (last - side) // (tiles * (_whole(last - side, width) // width)) + 1
                for start in range(origin, origin + length, depth):
                    steps, more, done = min(depth, origin + length - start), add or start > 0, 0
                    later = right.ctypes.data + (start + steps) * right.strides[0] + side * right.strides[1]
                    for column in range(side, last, width):
                        at = min(column, n - width)
                        _pack_rows(right.T, at, start, steps, width, panel)
                        for tile in range(tiles):
                            source = packed.ctypes.data + 4 * ROWS * (tile * length + start - origin)
                            ahead = _ahead(later, right.strides[0], 4 * (last - side), done)
                            done += steps * stride
                            place = top + tile * ROWS
                            rows = min(ROWS, m - place)
                            if rows < ROWS or at < column:
                                _tile(width, False, source, panel.ctypes.data, part.ctypes.data, 4 * width, steps, ahead, stride)
                                _merge(part, width, place, at, out, rows, column - at, width, more)
                            else:
                                target = out.ctypes.data + place * row + at * 4
                                _tile(width, more, source, panel.ctypes.data, target, row, steps, ahead, stride)


@_inline
def _turned(left: Any, right: Any, out: Any, add: bool, depth: int, room: Any) -> None:
    (m, k), n = left.shape, right.shape[1]
    part, packed = room[: TURNED_ROWS * TURNED_COLUMNS], room[TURNED_ROWS * TURNED_COLUMNS :]
    pitch, row = right.strides[1], out.strides[0]
    for top in range(0, m, _MOST_ROWS):
        panels = _whole(min(_MOST_ROWS, m - top), TURNED_ROWS) // TURNED_ROWS
        for start in range(0, k, depth):
            steps, more = min(depth, k - start), add or start > 0
            for panel in range(panels):
                _pack_rows(left, top + panel * TURNED_ROWS, start, steps, TURNED_ROWS, packed[panel * TURNED_ROWS * steps :])
            for side in range(0, n, _TURNED_WIDTH):
                last = min(side + _TURNED_WIDTH, n)
                later = right.ctypes.data + last * pitch + start * 4
                stride = 4 * (last - side) // (panels * (_whole(last - side, TURNED_COLUMNS) // TURNED_COLUMNS)) + 1
                done = 0
                for panel in range(panels):
                    source = packed.ctypes.data + panel * TURNED_ROWS * steps * 4
                    place = top + panel * TURNED_ROWS
                    rows = min(TURNED_ROWS, m - place)
                    for column in range(side, last, TURNED_COLUMNS):
                        at = min(column, n - TURNED_COLUMNS)
                        ahead = _ahead(later, pitch, 4 * steps, done)
                        done += steps * stride
                        here = right.ctypes.data + at * pitch + start * 4
                        target = out.ctypes.data + place * row + at * 4
                        if rows < TURNED_ROWS or at < column:
                            _turned_first(source, here, pitch, part.ctypes.data, 4 * TURNED_COLUMNS, steps, ahead, stride)
                            _merge(part, TURNED_COLUMNS, place, at, out, rows, column - at, TURNED_COLUMNS, more)
                        elif more:
                            _turned_next(source, here, pitch, target, row, steps, ahead, stride)
                        else:
                            _turned_first(source, here, pitch, target, row, steps, ahead, stride)


@_inline
def _turns(m: int, k: int, right: Any) -> bool:
    """Return whether to leave right where it lies and turn each tile, not each panel."""
    return right.strides[3] != 4 and (m < _MANY or k > _DEPTH)


@_inline
def _width(n: int) -> int:
    """Return the columns of a panel: of two widths the one that wastes less on the last."""
    wide, narrow = _whole(n, COLUMNS), _whole(n, NARROW_COLUMNS)
    return COLUMNS if wide <= narrow * _NARROW_COSTS else NARROW_COLUMNS


@_kernel
def multiply(left: Any, right: Any, out: Any, add: bool) -> None:
    """Multiply batches: left [g, r, m, k], right [g, r, k, n], out [g, r, m, n], n >= COLUMNS; add to out if `add`.

    Right has unit stride along n or k, out along n; left any strides, and a batch axis of either operand may have stride 0.
    """
    m, n, k = out.shape[2], out.shape[3], left.shape[3]
    turns = _turns(m, k, right)
    high = TURNED_ROWS if turns else ROWS
    most, width = _whole(min(m, _MOST_ROWS), high), _width(n)
    depth = _whole(_share(k, max(_PACKED // most, LANES)), LANES) if turns else _share(k, _DEPTH)
    long = max(_PACKED // most // depth, 1) * depth
    beside = TURNED_ROWS * TURNED_COLUMNS if turns else (ROWS + depth) * COLUMNS
    room = _room(beside + most * min(depth if turns else long, k))
    state = _state()
    _set_state(state | np.uint32(_FLUSH))
    for g in range(out.shape[0]):
        for r in range(out.shape[1]):
            if turns:
                _turned(left[g, r], right[g, r], out[g, r], add, depth, room)
            else:
                _plain(left[g, r], right[g, r], out[g, r], add, width, depth, long, room)
    _set_state(state)
