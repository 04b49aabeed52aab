"""The meaning of `x[...]` at the front.

Slices are views, indices are looked up, and both have derivatives.

A key is numpy's: whole numbers, slices, `None`, `...`, arrays of whole numbers and masks. Numbers
and slices of positive steps are one `slice` and a `reshape`, which are views; a negative step, an
array, several, and masks look up rows by `get_rows`, a copy, so that an element named twice gets
the sum of both gradients. Negative numbers count from the end. A mask is an array of bool, or a
tensor of zeros and ones, as comparisons give; how many rows it picks depends on its numbers, so in
a recorded model it may be laid into (`x[mask] = y`) and not looked up.

All functions take and return nodes; the shape of a scalar is (1,), as everywhere in the engine, and
its shape () stands beside it.
"""

from collections.abc import Iterator
from math import prod
from operator import index
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.record import Eager, Node, apply, composed, constant, tracking
from engine.front.recording import followed
from engine.kernels.binding import Array
from engine.ops import views
from engine.ops.row import contiguous

Shape = tuple[int, ...]
Items = tuple[Any, ...]
"""What a key is made of: whole numbers, slices, None, `...`, arrays of int64 or bool."""


def at(x: Node, shape: Shape, key: Any) -> tuple[Node, Shape]:
    """Return `x[key]` and its shape; EngineError, with the key, for one that names no elements."""
    items = items_of(key)
    if scattered(items):
        places, rest = _places(x, shape, items)
        looked_at = rows(reshaped(x, (prod(shape[: len(shape) - len(rest)]), prod(rest))), places)
        return reshaped(looked_at, (*places.shape, *rest)), (*places.shape, *rest)
    starts, lengths, steps = [0] * len(shape), list(shape), [1] * len(shape)
    left, looked = list[int](), list[tuple[int, Array]]()
    axis = 0
    for item in _expanded(shape, items):
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
                starts[axis], lengths[axis] = start if picked else 0, len(picked)
                steps[axis] = step if len(picked) > 1 else 1
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


def scattered(items: Items) -> bool:
    """Whether a key names rows anywhere: several arrays, a mask, or an array and a number apart."""
    arrays = [place for place, item in enumerate(items) if isinstance(item, np.ndarray)]
    if len(arrays) != 1 or items[arrays[0]].dtype.kind == "b":
        return bool(arrays)
    fixed = [place for place, item in enumerate(items) if isinstance(item, (int, np.ndarray))]
    return fixed != list(range(fixed[0], fixed[0] + len(fixed)))


def laid_at(x: Node, shape: Shape, items: Items, values: Node) -> Node:
    """Return x with the elements that a key names replaced by values, which broadcast to them; of
    an element named twice the last is kept, as by numpy. A gradient flows to what was laid and to
    what was left.
    """
    places, rest = _places(x, shape, items)
    wanted = (*places.shape, *rest) or (1,)
    try:
        new = laid_into(wanted, values)
    except EngineError:
        raise EngineError(f"[{_said(items)}] = of {x}: {values} does not broadcast to {list(wanted)}") from None
    count, width = prod(shape[: len(shape) - len(rest)]), prod(rest)
    if not places.size or not width:  # what is given is an operand all the same; and -0.0 - 0.0 is -0.0
        return Eager.op("sub", x, Eager.op("sum", new))
    source, hit = np.zeros(count, np.int32), np.zeros((count, width), x.array.dtype)
    source[places.reshape(-1)] = np.arange(places.size, dtype=np.int32)
    hit[places.reshape(-1)] = 1
    moved = rows_at(reshaped(new, (places.size, width)), constant(source), shape[: len(shape) - len(rest)])
    return Eager.op("where", constant(hit.reshape(x.shape)), reshaped(moved, shape), x)


def _places(x: Node, shape: Shape, items: Items) -> tuple[Array, Shape]:
    """Return which rows a key names, by number, in the shape that numpy gives them, and the axes
    that a row has: those behind the last one that the key restricts.
    """
    named = sum(item.ndim if _is_mask(item) else item is not None for item in items if item is not Ellipsis)
    within = len(shape) if Ellipsis in [item for item in items if not isinstance(item, np.ndarray)] else named
    if named > len(shape):
        raise EngineError(f"[{_said(items)}] names {named} axes of {len(shape)}")
    try:
        found = np.arange(prod(shape[:within])).reshape(shape[:within])[items]
    except (IndexError, ValueError) as error:
        raise EngineError(f"[{_said(items)}] of {x}: {error}") from None
    return np.asarray(found), shape[within:]


def _is_mask(item: Any) -> bool:
    return isinstance(item, np.ndarray) and item.dtype.kind == "b"


def repeated(x: Node, shape: Shape) -> Node:
    """Return x repeated into a shape by numpy's rules; itself where it has it.

    Raises EngineError where it does not broadcast to it: `repeat` alone would tile as well.
    """
    if x.shape == shape:
        return x
    if not _fits(x.shape, shape):
        raise EngineError(f"{x} does not broadcast to {shape}")
    return apply("repeat", (x,), {"shape": shape}, track=tracking.get())


def laid_into(shape: Shape, values: Node) -> Node:
    """Return values repeated into a shape they are laid into, where axes of length 1 may be too
    many in front; errors as of `repeated`.
    """
    over = max(len(values.shape) - len(shape), 0)
    return repeated(
        values if any(n != 1 for n in values.shape[:over]) else reshaped(values, values.shape[over:]), shape
    )


def _fits(shape: Shape, wanted: Shape) -> bool:
    try:
        return np.broadcast_shapes(shape, wanted) == wanted
    except ValueError:
        return False


def rows(table: Node, ids: Array) -> Node:
    """Return the rows of a matrix that ids of any shape name: [V, D] -> [*ids, D]."""
    flat = constant(np.ascontiguousarray(_within(table, 0, ids, table.shape[0]).reshape(-1), np.int32))
    return rows_at(table, flat, ids.shape)


def rows_at(table: Node, flat: Node, shape: Shape) -> Node:
    """Return the rows of a matrix that int32 numbers name, in the shape of these: [*shape, D]."""
    found = Eager.op("get_rows", composed(contiguous, table), flat)
    return reshaped(found, (*shape, table.shape[1]))


def reshaped(x: Node, shape: Shape) -> Node:
    """Return the elements in another shape that holds them.

    A view where they lie densely or only axes of length 1 come and go, else a copy.
    """
    made: Node = composed(views.reshaped, x, shape or (1,))
    return made


def items_of(key: Any) -> Items:
    """Return what a key is made of: whole numbers, slices, None, `...`, arrays of int64 or bool.

    Raises EngineError for what is no index, and for numbers that nobody knows yet.
    """
    return tuple(_item(item) for item in (key if isinstance(key, tuple) else (key,)))


def _expanded(shape: Shape, items: Items) -> Iterator[Any]:
    """Give one item for each axis, and None for each new one."""
    key = items
    named = sum(item is not None and item is not Ellipsis for item in items)
    dots = sum(item is Ellipsis for item in items)
    if named > len(shape) or dots > 1:
        raise EngineError(f"[{_said(key)}] names {named} axes of {len(shape)}{' with several ...' if dots > 1 else ''}")
    rest = [slice(None)] * (len(shape) - named)
    for item in items if dots else (*items, Ellipsis):
        yield from rest if item is Ellipsis else (item,)


def _item(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, np.bool_)):
        return np.asarray(item)
    if hasattr(item, "_node") and followed(item._node):  # noqa: SLF001 - of ours
        raise EngineError(
            f"[{item._node}] follows from columns or parameters, and what it picks would be the same in every run "  # noqa: SLF001 - of ours
            "of the recorded model; where(mask, x, y) and masked_fill(x, mask, value) keep the shape, gather and "
            "embedding take tensors of indices"
        )
    try:
        return index(item)
    except TypeError:
        try:
            found = np.asarray(item)
        except (TypeError, ValueError) as error:
            raise EngineError(f"[{_said(item)}]: {error}") from None
    if found.dtype.kind == "b":
        return found
    if found.dtype.kind != "i" and hasattr(item, "requires_grad") and ((found == 0) | (found == 1)).all():
        return found != 0
    if found.dtype.kind not in "iu" and found.size:
        raise EngineError(
            f"[{_said(item)}] is of {found.dtype}; an index is a whole number, a slice, None, ..., an array of "
            "whole numbers, or a mask of bool or of zeros and ones"
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
