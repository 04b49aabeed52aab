"""Products by tiles: which arrays they take, when they are faster than a BLAS, and the call.

The tiles are in `engine.kernels.compiled.products`.

All is decided when a kernel is bound, by layouts, sizes and the processor. Importing this loads no
numba.

What this module does not see: ops.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple

import numpy as np

from engine.kernels.binding import Array, Call, meets, scratch, strided
from engine.kernels.threads import cut, parts, together
from engine.kernels.tuning import Tuning, kept
from engine.kernels.vector_width import lanes, wide

COLUMNS: Final = 48
"""Fewest columns: the width of a tile."""
WASTE: Final = 1.05
"""Most rows or columns of tiles for each one of a product, where `Range.whole`: an edge is computed
as whole tiles, and copied."""


class Range(NamedTuple):
    """Sizes at which tiles are quicker."""

    rows: int
    below: int
    terms: int
    columns: int
    """Fewest rows and what they stay below, fewest terms of a sum, fewest columns."""
    whole: bool = True
    """Whether the tiles must come out nearly even."""


_ANY: Final = 1 << 40
MEASURED: Final = {
    (16, False): (
        Range(8, 33, 16, 96),
        Range(16, 100, 576, 192, whole=False),
        Range(33, 100, 16, 48),
        Range(100, _ANY, 64, 96),
    ),
    (16, True): (
        Range(8, 512, 192, 192, whole=False),
        Range(32, 129, 64, 48),
        Range(128, 512, 64, 192),
        Range(512, _ANY, 192, 576),
    ),
    (8, False): (Range(8, 33, 16, 48), Range(33, 257, 64, 300)),
    (8, True): (Range(9, 65, 576, 576, whole=False), Range(65, 257, 576, 576)),
}
"""(Lanes, right turned?) -> where tiles beat OpenBLAS, by `benchmarks/products.py --grid`."""

EACH: Final = 2
"""Pieces of a batch for each thread: matrices are few, and seldom a multiple of the threads. Each
piece packs in a room of its own, so that more would lie in no cache."""


def fits(left: Array, right: Array, out: Array) -> bool:
    """Return whether these arrays can be multiplied here.

    Float32, one rank of 2 to 4, unit strides, at least `COLUMNS` columns.
    """
    return (
        left.dtype == right.dtype == out.dtype == np.float32
        and left.ndim == right.ndim == out.ndim
        and 2 <= out.ndim <= 4
        and 4 in right.strides[-2:]
        and out.strides[-1] == 4
        and out.shape[-1] >= COLUMNS
        and right.shape[-2] > 0
    )


def pays(left: Array, right: Array) -> bool:
    """Return whether the tiles are quicker than a BLAS here (`MEASURED`)."""
    (m, k), n = left.shape[-2:], right.shape[-1]
    if not wide():
        return False
    turned = right.strides[-1] != 4
    even = _even(m, n, turned=turned)
    return any(
        each.rows <= m < each.below and k >= each.terms and n >= each.columns and (even or not each.whole)
        for each in MEASURED[lanes(), turned]
    )


def _even(m: int, n: int, *, turned: bool) -> bool:
    """Return whether a result of m rows and n columns is nearly made of whole tiles."""
    width = lanes()
    if turned:
        return _waste(m, 2 * width if width == 16 else 3 * width) <= WASTE
    return _waste(m, width // 2) <= WASTE and min(_waste(n, 3 * width), _waste(n, 2 * width)) <= WASTE


def _waste(length: int, unit: int) -> float:
    """Return what is computed, in whole units, for each one wanted."""
    return -(-length // unit) * unit / max(length, 1)


def chosen(left: Array, right: Array, out: Array) -> bool:
    """Return whether these arrays are multiplied here: they fit, and it pays."""
    return fits(left, right, out) and pays(left, right)


def room(rows: int, terms: int) -> Array:
    """Return what a product of so many rows and terms needs to pack its operands."""
    from engine.kernels import compiled  # noqa: PLC0415 - numba loads with the first product that is worth it

    return scratch((compiled.products.room_for(rows, terms),), np.dtype(np.float32))


def call(left: Array, right: Array, out: Array, *, add: bool = False, packed: Array | None = None) -> Call:
    """Return the call of `out = left @ right`, or with `add` of `out += left @ right`.

    The arrays must fit; batch axes of left and right may be 1. Calls that follow one another may
    share `packed`, the `room` of the largest.
    """
    arrays = [_spread(x, out.shape[:-2]) for x in (left, right, out)]
    how = Tuning() if meets(out, left, right) else tuned()  # what is read may be written: its order makes bits
    args = (*arrays, room(*left.shape[-2:]) if packed is None else packed, how, add)
    return _multiply(), args


def shared_call(left: Array, right: Array, out: Array, *, add: bool = False) -> Call:
    """Return the same call by as many threads as are allowed, each with a piece of its own.

    The bits are those of one thread.
    """
    pieces = pieces_of(left, right, out)
    return together([call(*taken(left, right, out, piece), add=add) for piece in pieces])


def pieces_of(left: Array, right: Array, out: Array, *, by_blas: bool = False) -> list[tuple[slice, ...]]:
    """Return where to cut the result of a product: an index over all its axes for each piece.

    Between matrices if there are enough of them, since nothing is packed twice then; else along
    columns, at multiples of `COLUMNS`. Not where the result meets an operand: parts would race.
    """
    batch, columns = out.shape[:-2], out.shape[-1]
    matrices, tiles = prod(batch), columns // COLUMNS
    units = max(matrices, tiles)
    wanted = parts(out.size * left.shape[-1], units, out=out, reads=(left, right), by_blas=by_blas)
    whole = (slice(None),) * 2
    if wanted > 1 and matrices >= min(wanted, tiles):
        return [(*some, *whole) for some in _batches(batch, wanted)]
    sides = cut(columns, min(wanted, max(tiles, 1)), COLUMNS)
    return [(*(slice(None),) * (out.ndim - 1), side) for side in sides]


def _batches(shape: tuple[int, ...], count: int) -> list[tuple[slice, ...]]:
    """Return pieces of the batch axes, some for each of `count` threads, as even as they come."""
    found: list[tuple[slice, ...]] = [()]
    for length in shape:
        each = max(min(length, -(-EACH * count // len(found))), 1)
        found = [(*outer, some) for outer in found for some in cut(length, each)]
    return found


def taken(left: Array, right: Array, out: Array, piece: tuple[slice, ...]) -> tuple[Array, Array, Array]:
    """Return what a piece of the result is made of, and the piece; a batch axis of 1 stays."""
    *batch, rows, columns = piece
    of_left, of_right = (
        x[*(some if length > 1 else slice(None) for some, length in zip(batch, x.shape[:-2], strict=True))]
        for x in (left, right)
    )
    return of_left[..., rows, :], of_right[..., columns], out[piece]


@lru_cache(maxsize=1)
def _multiply() -> Callable[..., object]:
    """Return the compiled product: all calls have arrays of the same types."""
    from engine.kernels import compiled  # noqa: PLC0415 - as above

    matrix, line = np.empty((1, 1, 1, 1), np.float32), np.empty(1, np.float32)
    args = matrix, matrix, matrix, line, Tuning(), False
    return compiled.entry(compiled.products.multiply, args, layout="A")


@lru_cache(maxsize=1)
def tuned() -> Tuning:
    """Return how products go through the memory of this machine."""
    from engine.kernels import compiled  # noqa: PLC0415 - as above

    return kept(_multiply(), compiled.products.room_for, compiled.DIGEST)


def _spread(x: Array, batch: tuple[int, ...]) -> Array:
    """Return a view of rank 4, batch axes first; one of length 1 goes over all of the batch."""
    if not batch:
        return x[None, None]
    ones = 2 - len(batch)
    strides = [0 if length == 1 else stride for length, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    shape = (*(1,) * ones, *batch, *x.shape[-2:])
    return strided(x, shape, (*(0,) * ones, *strides, *x.strides[-2:]))
