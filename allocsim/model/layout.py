"""Where the bytes, or bits, of a strided value lie: the arithmetic of layouts.

Convention: a layout is (shape, strides, offset, itemsize); strides and offset are bytes, possibly
negative or zero; the bytes of the element at `index` are `[p, p + itemsize)` with
`p = offset + sum(index * stride)`. All ranges are half-open. A shape with a zero in it touches no
bytes; a scalar (shape `()`) touches one element.

Elements narrower than a byte are packed along the last dimension, whose stride is written 0: the
bits of the element at `index` are `[p, p + width)` with
`p = 8 * (offset + sum(index * stride)) + bit_offset + last * width`, and bit 0 is the lowest of
byte 0. The elements along the last dimension are one *row*; it has `row_bits` bits. A row starts
`bit_offset` bits after a whole byte.

The *runs* of a layout are its bytes as the smallest list of disjoint, sorted, non-adjacent ranges.
The *hull* is the single range from its lowest to its highest byte. A layout is *dense* if it is one
run, that is if runs and hull agree. A layout *overlaps itself* if two of its elements share a byte
(packed: a bit).

What this module does not see: buffers, slots and addresses. It knows one value at a time.
"""

from math import prod

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError

Int64s = NDArray[np.int64]

MAX_RANK = 32
"""Most dimensions of a value; numpy's own limit is 64, no runtime surveyed has more than 16."""

MAX_RUNS = 1 << 22
"""Most byte runs of one value; more are refused. It is a bound on memory (64 MiB) that no real
program reaches.
"""

LIMIT = 1 << 62
"""Largest magnitude of any number in the model (docs/format.md): sums of two of them still fit 64
bits.
"""

PACKED_LIMIT = LIMIT // 8
"""Highest byte that a packed value may reach, so that its place in bits is within `LIMIT`."""


def contiguous_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the byte strides of a dense row-major layout of `shape`."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def dense_strides(shape: tuple[int, ...], width: int) -> tuple[int, ...]:
    """Return the byte strides of a contiguous row-major layout of elements of `width` bits; packed
    rows are padded to whole bytes.
    """
    if width >= 8 or not shape:
        return contiguous_strides(shape, width // 8)
    row = -(-max(shape[-1], 1) * width // 8)
    return (*contiguous_strides(shape[:-1], row), 0)


def dense_nbytes(shape: tuple[int, ...], width: int) -> int:
    """Return the bytes that a value of `shape` with `dense_strides` takes."""
    if width >= 8 or not shape:
        return prod(shape) * max(width // 8, 1)
    return prod(shape[:-1]) * -(-shape[-1] * width // 8)


def row_bits(shape: tuple[int, ...], width: int) -> int:
    """Return the bits of one row: all packed elements along the last dimension, or one element that
    is not packed.
    """
    return shape[-1] * width if width < 8 and shape else width


def hull(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, itemsize: int) -> tuple[int, int]:
    """Return the range from the lowest to the highest byte touched.

    `(offset, offset)` for an empty shape.
    """
    if 0 in shape:
        return offset, offset
    low = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    high = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    return low, high + itemsize


def byte_runs(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, itemsize: int) -> Int64s:
    """Return the runs as an int64 array (k, 2) of half-open ranges, sorted, disjoint and not
    adjacent.

    O(rank + k log k). Raises ModelError where k would exceed `MAX_RUNS`.
    """
    if 0 in shape:
        return np.empty((0, 2), dtype=np.int64)
    low, _ = hull(shape, strides, offset, itemsize)
    dims = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1 and s != 0)
    length = itemsize
    outer = 0
    while outer < len(dims) and dims[outer][0] <= length:
        # stride <= length: neighbouring copies touch or overlap, so their union is one longer run
        stride, count = dims[outer]
        length += stride * (count - 1)
        outer += 1
    pieces = prod(n for _, n in dims[outer:])
    if pieces > MAX_RUNS:
        raise ModelError("", f"the layout falls into {pieces} byte runs; at most {MAX_RUNS} are supported")
    starts = np.array([low], dtype=np.int64)
    for stride, count in dims[outer:]:
        starts = (starts[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    starts.sort()
    return merge_runs(np.stack([starts, starts + length], axis=1))


def bit_runs(shape: tuple[int, ...], strides: tuple[int, ...], offset: int, width: int, bit_offset: int = 0) -> Int64s:
    """Return the runs in bits, int64 (k, 2), sorted, disjoint and not adjacent.

    Eight times the byte runs where nothing is packed.

    `offset` and `strides` are bytes; no byte may lie beyond `PACKED_LIMIT`. Complexity and errors
    are those of `byte_runs`.
    """
    if 0 in shape:
        return np.empty((0, 2), dtype=np.int64)
    rows, steps = (shape[:-1], strides[:-1]) if width < 8 else (shape, strides)
    return byte_runs(rows, tuple(8 * stride for stride in steps), 8 * offset + bit_offset, row_bits(shape, width))


def merge_runs(runs: Int64s) -> Int64s:
    """Return ranges sorted by start with overlapping and adjacent ones merged and empty ones
    dropped. O(k log k).
    """
    runs = runs[runs[:, 1] > runs[:, 0]]
    if len(runs) <= 1:
        return runs
    if np.any(runs[1:, 0] < runs[:-1, 0]):
        runs = runs[np.argsort(runs[:, 0], kind="stable")]
    reach = np.maximum.accumulate(runs[:, 1])
    first = np.concatenate([[True], runs[1:, 0] > reach[:-1]])
    last = np.concatenate([first[1:], [True]])
    return np.stack([runs[first, 0], reach[last]], axis=1)


def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> bool:
    """Return whether two elements of `width` bits share a byte, or packed ones a bit.

    Exact; O(rank log rank) for nested layouts.
    """
    if 0 in shape:
        return False
    if width < 8:  # packed elements of one row never overlap, so whole rows count as the elements, in bits
        shape, strides, unit = shape[:-1], tuple(8 * stride for stride in strides[:-1]), row_bits(shape, width)
    else:
        unit = width // 8
    dims = sorted((abs(s), n) for n, s in zip(shape, strides, strict=True) if n > 1)
    extent = unit
    for stride, count in dims:
        if stride < extent:
            break
        extent += stride * (count - 1)
    else:
        return False  # every stride is at least the extent of the dimensions inside it
    if any(stride < unit for stride, _ in dims):
        return True
    runs = byte_runs(shape, strides, 0, unit)
    return int((runs[:, 1] - runs[:, 0]).sum()) != prod(shape) * unit


def same_layout(
    a: tuple[tuple[int, ...], tuple[int, ...], int], b: tuple[tuple[int, ...], tuple[int, ...], int]
) -> bool:
    """Return whether two (shape, strides, width) agree in all but the strides of dimensions of
    length <= 1.
    """
    (shape, strides, width), (other_shape, other_strides, other_width) = a, b
    if shape != other_shape or width != other_width:
        return False
    return all(n <= 1 or s == t for n, s, t in zip(shape, strides, other_strides, strict=True))
