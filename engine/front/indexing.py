"""The meaning of `x[...]` at the front.

Slices are views, indices are looked up, and both have derivatives.

A key is numpy's: whole numbers, slices, `None`, `...`, and at most one array of whole numbers,
which takes the place of its axis. Numbers and slices of positive steps are one `slice` and a
`reshape`, which are views; a negative step, and an array, look up rows by `get_rows`, a copy, so
that an element named twice gets the sum of both gradients. Negative numbers count from the end.
Masks and several arrays are refused: `where` and `gather` say what is meant.

All functions take and return nodes; the shape of a scalar is (1,), as everywhere in the engine, and
its shape () stands beside it.
"""

from collections.abc import Iterator
from math import prod
from operator import index
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.record import Eager, Node, composed, constant
from engine.kernels.binding import Array
from engine.ops import views
from engine.ops.views import contiguous

Shape = tuple[int, ...]


def at(x: Node, shape: Shape, key: Any) -> tuple[Node, Shape]:
    """Return `x[key]` and its shape; EngineError, with the key, for one that names no elements."""
    starts, lengths, steps = [0] * len(shape), list(shape), [1] * len(shape)
    left, looked = list[int](), list[tuple[int, Array]]()
    axis = 0
    for item in _expanded(shape, key):
        if item is None:
            left.append(1)
            continue
        length = shape[axis]
        if isinstance(item, slice):
            try:
                start, stop, step = item.indices(length)
            except (TypeError, ValueError) as error:
                raise EngineError(f"[{_said(key)}]: {error}") from None
            picked = range(start, stop, step)
            if step > 0:
                starts[axis], lengths[axis], steps[axis] = (
                    start if picked else 0,
                    len(picked),
                    step if len(picked) > 1 else 1,
                )
            else:
                looked.append((len(left), np.array(picked, np.int32)))
            left.append(len(picked) if step > 0 else length)
        elif isinstance(item, np.ndarray):
            looked.append((len(left), _within(x, axis, item, length)))
            left.append(length)
        else:
            starts[axis], lengths[axis] = int(_within(x, axis, np.array([item]), length)[0]), 1
        axis += 1
    if tuple(lengths) != shape:
        x = Eager.op("slice", x, starts=tuple(starts), lengths=tuple(lengths), steps=tuple(steps))
    node = reshaped(x, tuple(left))
    found = tuple(left)
    for place, ids in reversed(looked):
        node, found = _looked_up(node, found, place, ids)
    return node, found


def rows(table: Node, ids: Array) -> Node:
    """Return the rows of a matrix that ids of any shape name: [V, D] -> [*ids, D]."""
    flat = constant(np.ascontiguousarray(_within(table, 0, ids, table.shape[0]).reshape(-1), np.int32))
    return rows_at(table, flat, ids.shape)


def rows_at(table: Node, flat: Node, shape: Shape) -> Node:
    """Return the rows of a matrix that int32 numbers in one dimension name, in that shape: [*shape,
    D].
    """
    found = Eager.op("get_rows", composed(contiguous, table), flat)
    return reshaped(found, (*shape, table.shape[1]))


def reshaped(x: Node, shape: Shape) -> Node:
    """Return the elements in another shape that holds them.

    A view where they lie densely or only axes of length 1 come and go, else a copy.
    """
    made: Node = composed(views.reshaped, x, shape or (1,))
    return made


def _expanded(shape: Shape, key: Any) -> Iterator[Any]:
    """Give one item for each axis, and None for each new one."""
    items = [_item(item) for item in (key if isinstance(key, tuple) else (key,))]
    named = sum(item is not None and item is not Ellipsis for item in items)
    dots = sum(item is Ellipsis for item in items)
    if named > len(shape) or dots > 1:
        raise EngineError(f"[{_said(key)}] names {named} axes of {len(shape)}{' with several ...' if dots > 1 else ''}")
    arrays = [place for place, item in enumerate(items) if isinstance(item, np.ndarray)]
    if len(arrays) > 1:
        raise EngineError(f"[{_said(key)}] has several arrays; look them up one after the other, or use gather")
    fixed = [place for place, item in enumerate(items) if isinstance(item, (int, np.ndarray))]
    if arrays and fixed != list(range(fixed[0], fixed[0] + len(fixed))):
        raise EngineError(
            f"[{_said(key)}] has a number apart from an array, which numpy reads in its own way; take one "
            "after the other"
        )
    rest = [slice(None)] * (len(shape) - named)
    for item in items if dots else (*items, Ellipsis):
        yield from rest if item is Ellipsis else (item,)


def _item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        raise EngineError(f"[{item}] is no index; where(condition, a, b) chooses by truth")
    try:
        return index(item)
    except TypeError:
        try:
            found = np.asarray(item)
        except (TypeError, ValueError) as error:
            raise EngineError(f"[{_said(item)}]: {error}") from None
    if found.dtype.kind == "b":
        raise EngineError(
            f"[{_said(item)}] is of bool; where(condition, a, b) chooses by truth, and set_(mask, values) lays "
            "values there"
        )
    if found.dtype.kind not in "iu" and found.size:
        raise EngineError(
            f"[{_said(item)}] is of {found.dtype}; an index is a whole number, a slice, None, ... or an array "
            "of whole numbers"
        )
    return found.astype(np.int64)


def _said(key: Any) -> str:
    text = " ".join(str(key).split())
    return text if len(text) < 60 else text[:57] + "..."


def _within(x: Node, axis: int, ids: Array, length: int) -> Array:
    if ids.size and not -length <= int(ids.min()) <= int(ids.max()) < length:
        worst = int(ids.max()) if int(ids.max()) >= length else int(ids.min())
        raise EngineError(f"index {worst} is none of the {length} elements of axis {axis} of {x}")
    return np.where(ids < 0, ids + length, ids)


def _looked_up(x: Node, shape: Shape, place: int, ids: Array) -> tuple[Node, Shape]:
    """Put what `ids` name of one axis in the place of that axis."""
    order = (place, *(a for a in range(len(shape)) if a != place))
    first = x if place == 0 else Eager.op("permute", x, axes=order)
    rest = tuple(shape[a] for a in order[1:])
    found = reshaped(rows(reshaped(first, (shape[place], prod(rest))), ids), (*ids.shape, *rest))
    rank = ids.ndim
    back = (*(rank + a for a in range(place)), *range(rank), *(rank + a for a in range(place, len(rest))))
    whole = (*ids.shape, *rest)
    if back != tuple(range(len(whole))):
        found = Eager.op("permute", found, axes=back)
    return found, tuple(whole[a] for a in back)
