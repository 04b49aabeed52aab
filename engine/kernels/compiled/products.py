"""The kernel that multiplies float32 matrices by register tiles of vectors of 512 or 256 bits.

    out[.., m, n] = left[.., m, k] @ right[.., k, n], or out += that

With few rows on the left (a short text) a BLAS spends much of its time on repacking the right, the
weight of a layer. Here a right that lies along k is read where it is, and so is one that lies along
n unless many tiles meet it and its rows crowd each other out of the cache: then it is packed a
panel at a time. What comes next is asked for meanwhile. Left is packed block by block. The tiles
are micro-kernels as those of BLIS (Van Zee and van de Geijn 2015, "BLIS: A framework for rapidly
instantiating BLAS functionality"), the order of loops that of Goto and van de Geijn 2008 ("Anatomy
of high-performance matrix multiplication").

Contract
--------
* An element is a sum over blocks of k, in order, each a chain of fused multiply-adds from 0. Its
  bits depend on m, k and n and on how right lies, not on where arrays lie, nor on its place in the
  matrix: edges are computed as whole tiles beside the result, and their part is copied. What was
  measured of the machine (`engine.kernels.tuning`) changes none.
* Numbers below the normal range are 0, as operands and as results (XLA does so too): a gradient
  over many classes is full of them, and on some processors a product takes many times as long where
  it meets one. NaN and infinity spread as IEEE has it.
* The result may not overlap an operand; if it does, the bits are the same however the call is made.
* It runs in the thread that calls, in the room it is given.

What this module does not see: shapes that do not fit (`engine.kernels.tiles`), other dtypes, how
many threads a run may use.
"""

# ruff: noqa: FBT001, PLR0917 - compiled code takes its words by position

from typing import Any, Final

import numpy as np

from engine.kernels.compiled.jit import leaf, unlocked
from engine.kernels.compiled.registers import (
    COLUMNS,
    FLUSH,
    LANES,
    NARROW_COLUMNS,
    ROWS,
    TURNED_COLUMNS,
    TURNED_ROWS,
    copy_narrow,
    copy_rows,
    copy_turned,
    copy_wide,
    narrow_first,
    narrow_next,
    pack_four,
    set_state,
    state,
    turned_first,
    turned_next,
    wide_first,
    wide_next,
)

_MOST_ROWS: Final = 512
"""Rows of left packed at a time."""
_DEPTH: Final = 96
"""Steps of k in a block over plain right: 18 KiB of right, read by every tile of rows, stay in the
first cache."""
_NEAR: Final = 32768
"""Elements of left packed at a time over plain right, if that is more than one block: with few rows
a block is a short piece of each."""
_PACKED: Final = 262144
"""Elements of left packed at a time over turned right; fewer blocks of k, fewer sums of tiles that
must be turned."""
_MANY: Final = 128
"""Rows of left from which on it pays to turn a shallow right (at most `_DEPTH`) panel by panel,
rather than each tile of the result."""
_TURNED_WIDTH: Final = 48
"""Rows of turned right that meet a panel of left in turn, so that whole lines of the result are
written together."""


@leaf
def _pack_rows(left: Any, first: int, start: int, depth: int, width: int, packed: Any) -> None:
    """packed[i, r] = left[first + r, start + i], r < width, zero beyond the last row.

    Packed: depth * width numbers, width that of a side of a tile.
    """
    rows = min(width, left.shape[0] - first)
    source = left.ctypes.data + first * left.strides[0] + start * left.strides[1]
    target, done = packed.ctypes.data, 0
    if rows == width and left.strides[0] == 4:
        done = depth
        if width == ROWS:
            copy_rows(source, left.strides[1], target, depth)
        elif width == NARROW_COLUMNS:
            copy_narrow(source, left.strides[1], target, depth)
        elif width == COLUMNS:
            copy_wide(source, left.strides[1], target, depth)
        else:
            copy_turned(source, left.strides[1], target, depth)
    elif rows == width and left.strides[1] == 4 and depth >= LANES:
        done = depth // LANES * LANES
        for r in range(0, width, 4):
            pack_four(source + r * left.strides[0], left.strides[0], target + 4 * r, 4 * width, depth // LANES)
    for i in range(done, depth):
        for r in range(rows):
            packed[i * width + r] = left[first + r, start + i]
        for r in range(rows, width):
            packed[i * width + r] = 0


@leaf
def _whole(size: int, unit: int) -> int:
    """Return `size` rounded up to a multiple of `unit`."""
    return (size + unit - 1) // unit * unit


@leaf
def _share(length: int, most: int) -> int:
    """Return the length of blocks that are at most `most` long and nearly equal."""
    count = max((length + most - 1) // most, 1)
    return (length + count - 1) // count


@leaf
def _merge(part: Any, pitch: int, top: int, side: int, out: Any, rows: int, first: int, last: int, add: bool) -> None:
    """Write columns first.. of a tile that was computed in scratch memory, or add them."""
    for r in range(rows):
        for c in range(first, last):
            value = part[r * pitch + c]
            out[top + r, side + c] = out[top + r, side + c] + value if add else value


@leaf
def _ahead(block: int, pitch: int, width: int, done: int) -> int:
    """Return where prefetching of the next block of right goes on after `done` bytes.

    Rows have `width` bytes; the steps of one block share its lines.
    """
    return block + done // width * pitch + done % width


@leaf
def _tile(
    width: int, more: bool, a: int, b: int, pitch: int, out: int, row: int, steps: int, ahead: int, stride: int
) -> None:
    """Do one tile of that many columns over a packed panel of right.

    `more` adds it to what is there.
    """
    if width == COLUMNS and more:
        wide_next(a, b, pitch, out, row, steps, ahead, stride)
    elif width == COLUMNS:
        wide_first(a, b, pitch, out, row, steps, ahead, stride)
    elif more:
        narrow_next(a, b, pitch, out, row, steps, ahead, stride)
    else:
        narrow_first(a, b, pitch, out, row, steps, ahead, stride)


@leaf
def _plain(
    left: Any, right: Any, out: Any, add: bool, width: int, depth: int, long: int, room: Any, tuning: Any
) -> None:
    (m, k), n = left.shape, right.shape[1]
    part, panel, packed = room[: ROWS * COLUMNS], room[ROWS * COLUMNS :], room[(ROWS + depth) * COLUMNS :]
    aside, row, (in_place, block, _, asks) = part.ctypes.data, out.strides[0], tuning
    direct = right.strides[1] == 4 and (m <= in_place or right.strides[0] // 64 % 8 != 0)
    for top in range(0, m, _MOST_ROWS):
        tiles = _whole(min(_MOST_ROWS, m - top), ROWS) // ROWS
        for origin in range(0, k, long):
            length = min(long, k - origin)
            for tile in range(tiles):  # along the rows of left, as they lie; block by block, as they are used
                for start in range(origin, origin + length, depth):
                    steps = min(depth, origin + length - start)
                    at = ROWS * ((start - origin) * tiles + tile * steps)
                    _pack_rows(left, top + tile * ROWS, start, steps, ROWS, packed[at:])
            for side in range(0, n, block):
                last = min(side + block, n)
                stride = asks * (4 * (last - side) // (tiles * (_whole(last - side, width) // width)) + 1)
                for start in range(origin, origin + length, depth):
                    steps, more, done = min(depth, origin + length - start), add or start > 0, 0
                    later = right.ctypes.data + (start + steps) * right.strides[0] + side * right.strides[1]
                    for column in range(side, last, width):
                        at = min(column, n - width)
                        if direct:
                            here, pitch = right.ctypes.data + start * right.strides[0] + at * 4, right.strides[0]
                        else:
                            _pack_rows(right.T, at, start, steps, width, panel)
                            here, pitch = panel.ctypes.data, 4 * width
                        for tile in range(tiles):
                            source = packed.ctypes.data + 4 * ROWS * ((start - origin) * tiles + tile * steps)
                            ahead = _ahead(later, right.strides[0], 4 * (last - side), done) if asks else source
                            done += steps * stride
                            place = top + tile * ROWS
                            rows = min(ROWS, m - place)
                            if rows < ROWS or at < column:
                                _tile(width, False, source, here, pitch, aside, 4 * width, steps, ahead, stride)
                                _merge(part, width, place, at, out, rows, column - at, width, more)
                            else:
                                target = out.ctypes.data + place * row + at * 4
                                _tile(width, more, source, here, pitch, target, row, steps, ahead, stride)


@leaf
def _turned(left: Any, right: Any, out: Any, add: bool, depth: int, room: Any, asks: int) -> None:
    (m, k), n = left.shape, right.shape[1]
    part, packed = room[: TURNED_ROWS * TURNED_COLUMNS], room[TURNED_ROWS * TURNED_COLUMNS :]
    pitch, row = right.strides[1], out.strides[0]
    for top in range(0, m, _MOST_ROWS):
        panels = _whole(min(_MOST_ROWS, m - top), TURNED_ROWS) // TURNED_ROWS
        for start in range(0, k, depth):
            steps, more = min(depth, k - start), add or start > 0
            for panel in range(panels):
                _pack_rows(
                    left, top + panel * TURNED_ROWS, start, steps, TURNED_ROWS, packed[panel * TURNED_ROWS * steps :]
                )
            for side in range(0, n, _TURNED_WIDTH):
                last = min(side + _TURNED_WIDTH, n)
                later = right.ctypes.data + last * pitch + start * 4
                blocks = panels * (_whole(last - side, TURNED_COLUMNS) // TURNED_COLUMNS)
                stride = asks * (4 * (last - side) // blocks + 1)
                done = 0
                for panel in range(panels):
                    source = packed.ctypes.data + panel * TURNED_ROWS * steps * 4
                    place = top + panel * TURNED_ROWS
                    rows = min(TURNED_ROWS, m - place)
                    for column in range(side, last, TURNED_COLUMNS):
                        at = min(column, n - TURNED_COLUMNS)
                        ahead = _ahead(later, pitch, 4 * steps, done) if asks else source
                        done += steps * stride
                        here = right.ctypes.data + at * pitch + start * 4
                        target = out.ctypes.data + place * row + at * 4
                        if rows < TURNED_ROWS or at < column:
                            turned_first(
                                source, here, pitch, part.ctypes.data, 4 * TURNED_COLUMNS, steps, ahead, stride
                            )
                            _merge(part, TURNED_COLUMNS, place, at, out, rows, column - at, TURNED_COLUMNS, more)
                        elif more:
                            turned_next(source, here, pitch, target, row, steps, ahead, stride)
                        else:
                            turned_first(source, here, pitch, target, row, steps, ahead, stride)


@leaf
def _turns(m: int, k: int, right: Any) -> bool:
    """Return whether to leave right where it lies and turn each tile, not each panel."""
    return right.strides[3] != 4 and (m < _MANY or k > _DEPTH)


@leaf
def _width(n: int, narrow: int) -> int:
    """Return the columns of a panel: of two widths the one that wastes less on the last."""
    return COLUMNS if 100 * _whole(n, COLUMNS) <= narrow * _whole(n, NARROW_COLUMNS) else NARROW_COLUMNS


@unlocked
def multiply(left: Any, right: Any, out: Any, room: Any, tuning: Any, add: bool) -> None:
    """Multiply batches: left [g, r, m, k], right [g, r, k, n], out [g, r, m, n], n >= COLUMNS.

    Add to out if `add`.

    Right has unit stride along n or k, out along n; left any strides, and a batch axis of either
    operand may have stride 0. `room`: `room_for(m, k)`. `tuning`: the numbers of an
    `engine.kernels.tuning.Tuning`.
    """
    m, n, k = out.shape[2], out.shape[3], left.shape[3]
    turns = _turns(m, k, right)
    most, width = _whole(min(m, _MOST_ROWS), TURNED_ROWS if turns else ROWS), _width(n, tuning[2])
    depth = _whole(_share(k, max(_PACKED // most, LANES)), LANES) if turns else _share(k, _DEPTH)
    long = max(_NEAR // most // depth, 1) * depth
    before = state()
    set_state(before | np.uint32(FLUSH))
    for g in range(out.shape[0]):
        for r in range(out.shape[1]):
            if turns:
                _turned(left[g, r], right[g, r], out[g, r], add, depth, room, tuning[3])
            else:
                _plain(left[g, r], right[g, r], out[g, r], add, width, depth, long, room, tuning)
    set_state(before)


def room_for(m: int, k: int) -> int:
    """Return how many numbers of room a product of m rows and k terms may need.

    Tiles and panels, and what is packed of left.
    """
    rows = -(-min(m, _MOST_ROWS) // TURNED_ROWS) * TURNED_ROWS
    return (ROWS + _DEPTH) * COLUMNS + min(rows * (k + LANES), _PACKED + rows * LANES)
