"""Computes which element of the operand each element of a kernel's result reads, in memory order.

HLO's elementwise ops keep the logical index of an element, but not its place in memory: `copy` of
f32[20,20]{1,0} to {0,1} transposes in memory. XLA emits a kernel as one loop over its result in
memory order. The result may therefore share bytes with an operand if each element reads the operand
at its own place:

| the k-th element of the result reads the operand at place p | outcome |
|---|---|
| p = k, for all | safe |
| p < k for some k: an earlier turn of the loop wrote that place | unsafe |
| p > k for some k, otherwise p = k | unknown: correct in this order, which XLA does not guarantee |

Places are a permutation of an array's elements; None is the identity permutation.

What this module does not see: ops that compute an element from several elements; slices
(`hlo_windows`).
"""

import re
from math import prod
from typing import Final

import numpy as np

from allocsim.model.layout import Int64s
from allocsim.systems.xla.hlo_text import Instruction, Leaf
from allocsim.systems.xla.hlo_windows import MOST, SAFE, UNKNOWN, UNSAFE

MOVING: Final = frozenset(("transpose", "reverse", "reshape"))
"""Ops that only move elements: each element is one element of the operand at some index."""

Places = Int64s | None


class NotKnownError(Exception):
    """Raised if the places are unknown: the operand or the result is tiled, is not an array, or has
    more than `MOST` elements, or the two have different numbers of elements.
    """


def passed(places: Places, line: Instruction, source: Leaf | None) -> Places:
    """Return the places that the result of `line` reads, given the places that its operand reads.

    Args:
        places: the places of the operand's elements, in the order of its memory.
        line: an elementwise op, an op in `MOVING`, or `bitcast`.
        source: the layout of the operand.

    Raises:
        NotKnownError: the places are unknown, or `dimensions` is missing. O(elements) at most.
    """
    if line.opcode == "bitcast":
        return places
    result = line.shape.get(())
    if result is None or source is None or source.dims is None or result.dims is None:
        raise NotKnownError
    if source.tiled or result.tiled or prod(source.dims) != prod(result.dims):
        raise NotKnownError
    if line.opcode not in MOVING and _order(source) == _order(result) and source.dims == result.dims:
        return places
    if prod(source.dims) > MOST:
        raise NotKnownError
    read = np.arange(prod(source.dims), dtype=np.int64) if places is None else places
    logical = read.reshape([source.dims[axis] for axis in _slowest_first(source)])
    logical = logical.transpose(np.argsort(_slowest_first(source)))
    moved = _moved(logical, line).reshape(result.dims)
    found: Int64s = np.ascontiguousarray(moved.transpose(_slowest_first(result))).reshape(-1)
    return None if np.array_equal(found, np.arange(len(found))) else found


def safety(places: Places) -> int:
    """Return SAFE, UNSAFE or UNKNOWN for an in-place result, given the places that it reads."""
    if places is None:
        return SAFE
    late = np.arange(len(places)) - places
    return UNSAFE if late.max(initial=0) > 0 else SAFE if not late.any() else UNKNOWN


def _moved(logical: Int64s, line: Instruction) -> Int64s:
    """Return the operand's elements at the result's indices: transposed, flipped or unchanged."""
    if line.opcode == "transpose":
        return logical.transpose(_dimensions(line))
    if line.opcode == "reverse":
        return np.flip(logical, _dimensions(line))
    return logical


def _dimensions(line: Instruction) -> tuple[int, ...]:
    found = re.search(r"\bdimensions=\{([\d,]*)\}", line.attributes)
    if found is None:
        raise NotKnownError
    return tuple(int(number) for number in found[1].split(",") if number)


def _slowest_first(leaf: Leaf) -> tuple[int, ...]:
    """Return the axes sorted by stride, largest first."""
    assert leaf.dims is not None
    return tuple(reversed(leaf.minor_to_major)) or tuple(range(len(leaf.dims)))


def _order(leaf: Leaf) -> tuple[int, ...]:
    """Return the axes longer than 1, largest stride first. Two arrays with the same shape and order
    have the same layout.
    """
    assert leaf.dims is not None
    return tuple(axis for axis in _slowest_first(leaf) if leaf.dims[axis] != 1)


__all__ = ["MOVING", "NotKnownError", "Places", "passed", "safety"]
