"""Ranges of bits: where the elements of a value lie, and how lists of ranges meet.

The bits of an element are `[p, p + width)` with `p = 8 * (offset + sum(index * stride)) +
bit_offset + last * width`, the last term for packed elements alone, whose last stride is 0. A list
of ranges is sorted, disjoint and not adjacent, unless it says row-major.

Complexity: O(ranges). A layout of more than `MAX_PIECES` ranges is refused.

What this module does not see: buffers, ops, plans.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

from allocsim.errors import ModelError

Ranges = tuple[tuple[int, int], ...]

MAX_PIECES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class ValueRecord:
    """An array in a buffer."""

    buffer: int
    width: int
    """Bits of an element; those below 8 are packed along the last dimension."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    bit_offset: int


def element_0(value: ValueRecord) -> int:
    """Return the first bit of element 0 in the buffer."""
    return 8 * value.offset + value.bit_offset


def pieces(value: ValueRecord) -> Ranges:
    """Return the ranges of a value in row-major order of its elements, neighbours joined."""
    if 0 in value.shape:
        return ()
    length = value.width
    outer: list[tuple[int, int]] = []
    for count, stride in reversed(_dims(value)):
        if count == 1:
            continue
        if not outer and stride == length:
            length *= count
        else:
            outer.append((count, stride))
    starts = _starts(element_0(value), outer[::-1])
    return tuple((start, start + length) for start in starts)


def runs_of(value: ValueRecord) -> Ranges:
    """Return the bits that a value covers."""
    if 0 in value.shape:
        return ()
    dims = [(count, stride) for count, stride in _dims(value) if count > 1 and stride != 0]
    low = element_0(value) + sum((count - 1) * stride for count, stride in dims if stride < 0)
    length = value.width
    outer: list[tuple[int, int]] = []
    for count, stride in sorted(((n, abs(s)) for n, s in dims), key=lambda dim: dim[1]):
        if not outer and stride <= length:
            length += stride * (count - 1)
        else:
            outer.append((count, stride))
    return merged((start, start + length) for start in _starts(low, outer))


def same_layout(one: ValueRecord, other: ValueRecord) -> bool:
    """Return whether shapes, widths, places in the byte and all strides that matter agree."""
    if (one.shape, one.width, one.bit_offset) != (other.shape, other.width, other.bit_offset):
        return False
    return all(n <= 1 or s == t for n, s, t in zip(one.shape, one.strides, other.strides, strict=True))


def overlaps_itself(value: ValueRecord) -> bool:
    """Return whether two elements of a value share a bit."""
    return sum(high - low for low, high in runs_of(value)) != prod(value.shape) * value.width


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges sorted, what overlaps or touches as one, empty ones left out."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if low >= high:
            continue
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def meet(one: Ranges, other: Ranges) -> Ranges:
    """Return what two lists of ranges share."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        low, high = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if low < high:
            found.append((low, high))
        i, j = (i + 1, j) if one[i][1] <= other[j][1] else (i, j + 1)
    return tuple(found)


def without(one: Ranges, holes: Ranges) -> Ranges:
    """Return what the first list has and the second has not."""
    found = []
    for start, high in one:
        low = start
        for hole_low, hole_high in holes:
            if hole_high <= low or hole_low >= high:
                continue
            if low < hole_low:
                found.append((low, hole_low))
            low = max(low, hole_high)
        if low < high:
            found.append((low, high))
    return tuple(found)


def inside(ranges: Ranges, nbits: int) -> Ranges:
    """Return the part of ranges in `[0, nbits)`."""
    return tuple((max(low, 0), min(high, nbits)) for low, high in ranges if low < nbits and high > 0)


def moved(ranges: Ranges, by: int) -> Ranges:
    """Return ranges at other places."""
    return tuple((low + by, high + by) for low, high in ranges)


def in_bytes(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the bytes that ranges of bits touch."""
    return merged((low // 8, -(-high // 8)) for low, high in ranges)


def _dims(value: ValueRecord) -> list[tuple[int, int]]:
    """Return (count, stride in bits) of each dimension."""
    dims = [(count, 8 * stride) for count, stride in zip(value.shape, value.strides, strict=True)]
    if value.width < 8 and dims:
        dims[-1] = (dims[-1][0], value.width)
    return dims


def _starts(base: int, dims: list[tuple[int, int]]) -> list[int]:
    """Return where each piece begins, in row-major order of the dimensions."""
    if prod(count for count, _ in dims) > MAX_PIECES:
        raise ModelError("", f"a layout of more than {MAX_PIECES} ranges is not supported")
    return [base + sum(place) for place in product(*(range(0, n * s, s) if s else (0,) * n for n, s in dims))]
