"""Matrix products, bound to tiles or to numpy's BLAS.

A view with unit stride on one matrix axis is used as it is, without a temporary.

    mul_mat(a[.., n, k], b[.., m, k]) -> [.., m, n]    b @ a.T     (ggml's orientation: a weight is stored [out, in])
    out_prod(a[.., k, n], b[.., k, m]) -> [.., m, n]   b.T @ a     (the gradient of a weight, or of an input)
    add_out_prod(acc[m, n], a[k, n], b[k, m])  acc + b.T @ a     (a gradient that adds up; beta = 1, no temporary)

Batch dimensions of a divide those of b: batch i of b meets batch i // (b / a) of a (grouped heads).
A matrix whose axes both step by more than an element is copied into scratch, bound once. Bits
depend on shapes, orientation, processor and, where BLAS multiplies, threads, not on placement.

Two ways to compute (`engine.kernels.tiles`, float32 on processors with vectors of 512 or 256 bits;
BLAS), chosen when bound, by layout and sizes alone. Large products are shared between the threads
that a run may use: tiles to the same bits; what BLAS does may differ in last digits with their
number.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.kernels import blas, tiles
from engine.kernels.binding import Array, Arrays, Bind, Call, in_turn, require, same_place, scratch
from engine.kernels.threads import together


def blas_ready(matrix: Array) -> bool:
    """Whether BLAS takes the last two axes as they are.

    One of unit stride, the other a whole number of elements, no overlap.
    """
    (rows, columns), (down, across), size = matrix.shape[-2:], matrix.strides[-2:], matrix.itemsize
    unit = (across == size and down >= columns * size and down % size == 0) or (
        down == size and across >= rows * size and across % size == 0
    )
    return unit or rows <= 1 or columns <= 1


def _grouped(kind: str, a: Array, b: Array, out: Array) -> Arrays:
    """Return views whose batches broadcast: b, out (.., g, r, matrix), a (.., g, 1, matrix)."""
    rank = max(a.ndim, b.ndim) - 2
    heads = (1,) * (rank + 2 - a.ndim) + a.shape[:-2]
    batch = (1,) * (rank + 2 - b.ndim) + b.shape[:-2]
    fits = all(g and n % g == 0 for g, n in zip(heads, batch, strict=True) if g != n)
    require(fits, f"{kind}: batch {list(a.shape[:-2])} does not divide {list(b.shape[:-2])}")
    plain = all(g in (1, n) for g, n in zip(heads, batch, strict=True))
    shared = [x for g in heads for x in ([g] if plain else [g, 1])]
    split = [x for g, n in zip(heads, batch, strict=True) for x in ([n] if plain else [g, n // g if g else 1])]
    return (
        a.reshape((*shared, *a.shape[-2:]), copy=False),
        b.reshape((*split, *b.shape[-2:]), copy=False),
        out.reshape((*split, *out.shape[-2:]), copy=False),
    )


def _by_blas(left: Array, right: Array, out: Array) -> Call:
    """Return the call of `out = left @ right`, in pieces where BLAS itself has one thread."""
    pieces = tiles.pieces_of(left, right, out, by_blas=True)
    return together([(np.matmul, tiles.taken(left, right, out, piece)) for piece in pieces])


def bind_product(kind: str, *, inner_last: bool, tiled: bool) -> Bind:
    """(a, b) -> [.., m, n]; `inner_last`.

    The contracted axis is the last (mul_mat), else the one before (out_prod).

    `tiled`: by `engine.kernels.tiles` where they fit and pay, else by BLAS; bits differ between the
    two.
    """

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        (a, b), (out,) = operands, results
        require(min(a.ndim, b.ndim, out.ndim) >= 2, f"{kind}: needs matrices, got {list(a.shape)} and {list(b.shape)}")
        right, left = (a.swapaxes(-1, -2), b) if inner_last else (a, b.swapaxes(-1, -2))
        batch = left.shape[:-2]
        fits = left.shape[-1] == right.shape[-2] and out.shape == (*batch, left.shape[-2], right.shape[-1])
        require(fits and a.dtype == b.dtype == out.dtype,
                f"{kind}: {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)} give no {out.dtype}{list(out.shape)}")  # fmt: skip
        sources = tuple(x if blas_ready(x) else scratch(x.shape, x.dtype) for x in (right, left))
        target = out if out.strides[-1] == out.itemsize and blas_ready(out) else scratch(out.shape, out.dtype)
        y, x, z = _grouped(kind, sources[0], sources[1], target)
        product = tiles.shared_call(x, y, z) if tiled and tiles.chosen(x, y, z) else _by_blas(x, y, z)
        before = [(np.copyto, (s, o)) for s, o in zip(sources, (right, left), strict=True) if s is not o]
        if not before and target is out:
            return product
        return in_turn, (*before, product, *([] if target is out else [(np.copyto, (out, target))]))

    return bind


def bind_add_out_prod(*, tiled: bool) -> Bind:
    """(acc[m, n], a[k, n], b[k, m]) -> acc + b.T @ a, in acc's own bytes and without a copy."""

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        (acc, a, b), (out,) = operands, results
        fits = (
            acc.ndim == a.ndim == b.ndim == 2
            and a.shape[0] == b.shape[0]
            and acc.shape == out.shape == (b.shape[1], a.shape[1])
        )
        require(fits and acc.dtype == a.dtype == b.dtype == out.dtype,
                f"add_out_prod: {acc.dtype}{list(acc.shape)} and the product of {list(a.shape)} and {list(b.shape)} do not fit")  # fmt: skip
        started = [] if same_place(acc, out) else [(np.copyto, (out, acc))]
        left, right = (x if blas.lead(x) else np.empty(x.shape, x.dtype) for x in (b.T, a))
        staged = [(np.copyto, (s, x)) for s, x in ((left, b.T), (right, a)) if s is not x]
        if tiled and tiles.chosen(left, right, out):
            return in_turn, (*staged, *started, tiles.shared_call(left, right, out, add=True))
        if blas.product(left, right, out) is not None:
            pieces = tiles.pieces_of(left, right, out, by_blas=True)
            sums: list[Call] = [
                (blas.add_product, (*some, blas.product(*some)))
                for some in (tiles.taken(left, right, out, piece) for piece in pieces)
            ]
            return in_turn, (*staged, *started, together(sums))
        term = np.empty(out.shape, out.dtype)
        return in_turn, (*staged, *started, (np.matmul, (left, right, term)), (np.add, (out, term, out)))

    return bind
