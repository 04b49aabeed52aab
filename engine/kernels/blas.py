"""`out += left @ right` by numpy's own BLAS, without a temporary.

The call uses beta = 1, which numpy's calls never do.

The library is numpy's OpenBLAS, already loaded; its symbols have a prefix and 64-bit integers, and
are private to numpy. So they are looked for and tried (`gemm`), and where they are not there the
caller makes the temporary. A matrix must have unit stride on one axis (`lead`).

What this module does not see: which op asks, and whether the arrays overlap.
"""

import ctypes
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from engine.kernels.binding import Array

SYMBOLS: Final = {np.dtype(np.float32): "scipy_cblas_sgemm64_", np.dtype(np.float64): "scipy_cblas_dgemm64_"}
REALS: Final = {np.dtype(np.float32): ctypes.c_float, np.dtype(np.float64): ctypes.c_double}

ROWS: Final = 101
PLAIN: Final = 111
TURNED: Final = 112
"""CBLAS: row-major order; a matrix as it is, or transposed."""


class Product(NamedTuple):
    """What a call needs in addition to the addresses."""

    function: Any
    turns: tuple[int, int]
    """Of left and right: `PLAIN` or `TURNED`."""
    sizes: tuple[int, int, int]
    """m, n, k."""
    leads: tuple[int, int, int]
    """Elements from one row to the next, of left, right and out as they lie."""


@lru_cache(maxsize=2)
def gemm(dtype: np.dtype[Any]) -> Any:
    """Return CBLAS's gemm for a dtype as a ctypes function.

    Returns None if numpy's library has none that computes a product.
    """
    from threadpoolctl import threadpool_info  # noqa: PLC0415 - scans the loaded libraries

    paths = [row["filepath"] for row in threadpool_info() if row["user_api"] == "blas" and "numpy" in row["filepath"]]
    if dtype not in SYMBOLS or not paths:
        return None
    function = getattr(ctypes.CDLL(paths[0]), SYMBOLS[dtype], None)
    if function is None:
        return None
    real, word, pointer = REALS[dtype], ctypes.c_int64, ctypes.c_void_p
    function.restype = None
    function.argtypes = [*[ctypes.c_int] * 3, word, word, word, real, pointer, word, pointer, word, real, pointer, word]
    left, right, out = np.array([[2, 3]], dtype), np.array([[5], [7]], dtype), np.array([[11]], dtype)
    add_product(left, right, out, Product(function, (PLAIN, PLAIN), (1, 1, 2), (2, 1, 1)))
    return function if out[0, 0] == 42 else None


def lead(matrix: Array) -> tuple[int, int] | None:
    """Return (`PLAIN` or `TURNED`, elements from one row to the next) of a matrix.

    Returns None if BLAS cannot take it as it is.
    """
    (rows, columns), (down, across), size = matrix.shape, matrix.strides, matrix.itemsize
    if (across == size or columns <= 1) and (rows <= 1 or (down >= columns * size and down % size == 0)):
        return PLAIN, max(down // size if rows > 1 else columns, columns, 1)
    if (down == size or rows <= 1) and (columns <= 1 or (across >= rows * size and across % size == 0)):
        return TURNED, max(across // size if columns > 1 else rows, rows, 1)
    return None


def product(left: Array, right: Array, out: Array) -> Product | None:
    """Return what `add_product` needs for these arrays, None if BLAS cannot take one of them."""
    function, leads = gemm(out.dtype), [lead(matrix) for matrix in (left, right, out)]
    if function is None or leads[0] is None or leads[1] is None or leads[2] is None or leads[2][0] != PLAIN:
        return None
    sizes = (*out.shape, left.shape[1])
    return Product(function, (leads[0][0], leads[1][0]), sizes, (leads[0][1], leads[1][1], leads[2][1]))


def add_product(left: Array, right: Array, out: Array, how: Product) -> None:
    """Add `left @ right` to `out`."""
    a, b, c = (matrix.ctypes.data for matrix in (left, right, out))
    how.function(ROWS, *how.turns, *how.sizes, 1.0, a, how.leads[0], b, how.leads[1], 1.0, c, how.leads[2])
