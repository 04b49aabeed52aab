"""Decides whether a fusion that updates a part of an array may read a slice of that array in place.

XLA emits a loop fusion that ends in a `dynamic-update-slice` as a loop over only the update, if the
result may have the bytes of the array (XLA `CanBeEmittedFusedDynamicUpdateSliceInPlace`). Turn k of
the loop computes element k of the update and then writes it. A slice of the same array is therefore
read while a part of the array is overwritten:

| elements that are read | outcome |
|---|---|
| no written element, or each written element in the turn that writes it | safe |
| some elements after the turn that writes them | unsafe: openxla/xla#49176 |
| some elements only before the turn that writes them | unknown: correct in this order, which XLA does not guarantee |

What this module does not see: other uses of the array in the fusion (`hlo_in_place` does).
"""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

import numpy as np

from allocsim.model.layout import Int64s
from allocsim.systems.xla.hlo_text import Instruction, Leaf

SAFE, UNSAFE, UNKNOWN = 0, 1, 2

MOST: Final = 1 << 22
"""The most elements of an array that is examined element by element."""

_LIMITS: Final = re.compile(r"\[(\d{1,18}):(\d{1,18})(?::(\d{1,18}))?\]")


def read_through(
    row: Instruction,
    users: Mapping[str, Sequence[Instruction]],
    by_name: Mapping[str, Instruction],
    same: frozenset[str],
) -> int:
    """Return `SAFE`, `UNSAFE` or `UNKNOWN`: may the result of a fusion share bytes with an array
    that the fusion reads through the slice `row`?

    `same` has the ops that compute element k of the result from element k of the operand.

    O(elements) in time and memory.
    """
    line = row
    while line.opcode != "dynamic-update-slice":
        following = users.get(line.name, ())
        if len(following) != 1 or following[0].opcode not in same | {"dynamic-update-slice"}:
            return UNKNOWN
        before, line = line, following[0]
    if not line.root or line is row or line.operands[1:2] != (before.name,) or line.operands.count(before.name) > 1:
        return UNKNOWN
    read, written = _sliced(row, by_name), _updated(line, by_name)
    if read is None or written is None or read.size != written.size:
        return UNKNOWN
    if not len(both := np.intersect1d(read, written)):
        return SAFE
    late = _turns(read, both) - _turns(written, both)
    return UNSAFE if late.max() > 0 else SAFE if not late.any() else UNKNOWN


def _turns(places: Int64s, chosen: Int64s) -> Int64s:
    """Return the turn (index in `places`) of each element of `chosen`; `places` has no repeats."""
    order = np.argsort(places)
    turns: Int64s = order[np.searchsorted(places, chosen, sorter=order)]
    return turns


def _array(name: str, by_name: Mapping[str, Instruction]) -> tuple[int, ...] | None:
    """Return an array's shape; None if it is tiled, not row-major, or has over `MOST` elements."""
    leaf: Leaf | None = by_name[name].shape.get(()) if name in by_name else None
    if leaf is None or leaf.dims is None or leaf.tiled or prod(leaf.dims) > MOST:
        return None
    return leaf.dims if leaf.minor_to_major in ((), tuple(range(len(leaf.dims)))[::-1]) else None


def _sliced(row: Instruction, by_name: Mapping[str, Instruction]) -> Int64s | None:
    """Return the places in the operand that a slice reads, in slice order; None if unknown."""
    shape = _array(row.operands[0], by_name) if row.operands else None
    limits = _LIMITS.findall(row.attributes.partition("slice={")[2].partition("}")[0])
    if shape is None or len(limits) != len(shape) or any(step == "0" for _, _, step in limits):
        return None
    key = tuple(slice(int(low), int(high), int(step or 1)) for low, high, step in limits)
    places: Int64s = np.arange(prod(shape), dtype=np.int64).reshape(shape)[key].reshape(-1)
    return places


def _updated(row: Instruction, by_name: Mapping[str, Instruction]) -> Int64s | None:
    """Return the places that an update with constant starts writes; None if unknown."""
    if len(row.operands) < 2:
        return None
    whole, part = (_array(name, by_name) for name in row.operands[:2])
    starts = [by_name[name].argument for name in row.operands[2:] if name in by_name]
    if whole is None or part is None or len(whole) != len(part) or len(starts) != len(whole):
        return None
    if not all(re.fullmatch(r"-?\d{1,18}", start) for start in starts):
        return None
    key = []
    for start, length, of in zip(starts, part, whole, strict=True):
        first = min(max(int(start), 0), max(of - length, 0))
        key.append(slice(first, first + length))
    places: Int64s = np.arange(prod(whole), dtype=np.int64).reshape(whole)[tuple(key)].reshape(-1)
    return places


__all__ = ["SAFE", "UNKNOWN", "UNSAFE", "read_through"]
