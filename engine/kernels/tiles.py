"""Products by tiles: which arrays they take, when they are faster than a BLAS, and the call.

The tiles are in `engine.kernels.compiled.products`.

All is decided when a kernel is bound, by layouts, sizes and the processor. Importing this loads no
numba.

What this module does not see: ops.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np

from allocsim import processor
from engine.kernels.binding import Array, Call, scratch
from engine.kernels.threads import cut, parts, together

COLUMNS: Final = 48
"""Fewest columns: the width of a tile."""
ROWS: Final = 8
"""Fewest rows for which packing pays."""
DEPTH: Final = 16
"""Fewest terms of a sum for which reading and writing the result pays."""
SMALL: Final = 64**3
"""Multiplications up to which OpenBLAS has code of its own that is quicker, if right has unit
stride along its columns."""


@lru_cache(maxsize=1)
def wide() -> bool:
    """Return whether this processor has vectors of 512 bits.

    On others the tiles are right but slow.
    """
    return "avx512f" in processor.flags()


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
    """Return whether the tiles are quicker than a BLAS here.

    Measured by `benchmarks/products.py`.
    """
    (m, k), n = left.shape[-2:], right.shape[-1]
    return wide() and m >= ROWS and k >= DEPTH and (m * k * n > SMALL or right.strides[-1] != 4)


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
    args = (*arrays, room(*left.shape[-2:]) if packed is None else packed, add)
    return _multiply(), args


def shared_call(left: Array, right: Array, out: Array, *, add: bool = False) -> Call:
    """Return the same call by as many threads as are allowed, each with columns of its own.

    Columns are cut at multiples of `COLUMNS`; the bits are those of one thread.
    """
    columns = out.shape[-1]
    count = parts(out.size * left.shape[-1], columns // COLUMNS)
    kept = [slice(COLUMNS * piece.start, COLUMNS * piece.stop) for piece in cut(columns // COLUMNS, count)]
    kept[-1] = slice(kept[-1].start, columns)
    return together([call(left, right[..., some], out[..., some], add=add) for some in kept])


@lru_cache(maxsize=1)
def _multiply() -> Callable[..., object]:
    """Return the compiled product: all calls have arrays of the same types."""
    from engine.kernels import compiled  # noqa: PLC0415 - as above

    matrix, line = np.empty((1, 1, 1, 1), np.float32), np.empty(1, np.float32)
    return compiled.entry(compiled.products.multiply, (matrix, matrix, matrix, line, False), layout="A")


def _spread(x: Array, batch: tuple[int, ...]) -> Array:
    """Return a view of rank 4, batch axes first; one of length 1 goes over all of the batch."""
    if not batch:
        return x[None, None]
    ones = 2 - len(batch)
    strides = [0 if length == 1 else stride for length, stride in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    shape = (*(1,) * ones, *batch, *x.shape[-2:])
    return np.lib.stride_tricks.as_strided(x, shape, (*(0,) * ones, *strides, *x.strides[-2:]))
