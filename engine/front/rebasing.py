"""What a change in place does to the history of tensors that share bytes, where a gradient flows.

Values are immutable as far as gradients are concerned, and a tensor's bytes are not. Two things
cannot be had by naming the new value alone; both are computed by a copy, and the copy is told
(`CopyWarning`, once for each line of code, as warnings are):

* **The old bytes are needed.** The derivative of `y *= x` by x is the old y: it is copied before it
  is overwritten (`kept_apart`). Only what the changing op itself reads is; a value that an earlier
  op needs is refused by `backward`, as in PyTorch.
* **The bytes are seen by others.** A view changed in place changes the base and all other views.
  The base gets a new value, its elements with those of the view in their places (`pasted`), held by
  the storage (`StorageHistory.whole`); tensors over these bytes take their value from it when they
  are next used (`reviewed`). Elements are found by addresses, so any chain of views will do. Values
  of the new base are not read again: only its history matters, the bytes are where they were.

Refused: a view of a leaf that wants a gradient, or one that was made under `no_grad` of a tensor
that wants one; bytes of which nobody holds the base densely.

What this module does not see: operators, tensors people hold.
"""

import sys
import warnings
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from engine.front.extension import SOURCE, template
from engine.front.record import Node, apply, constant, itself, tracking
from engine.front.recording import followed, unchanged
from engine.kernels.binding import Array


class CopyWarning(UserWarning):
    """A change in place was computed by a copy, since a gradient needs more than the bytes hold."""


def tell_copy(what: str, nbytes: int) -> None:
    """Tell of a copy, at the line of code that is not of the front."""
    level, frame = 1, sys._getframe()  # noqa: SLF001 - what `skip_file_prefixes` of Python 3.12 does
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_FRONT):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{what}; copied, {nbytes} bytes", CopyWarning, stacklevel=level)


_FRONT: Final = __file__.rpartition("rebasing")[0]


def kept_apart(made: Node, old: Node, op: str) -> None:
    """Let the op that made a new value read its operand `old` from a copy, where its derivative
    needs it; `old` is about to be overwritten.
    """
    recipe = made.recipe
    if recipe is None or not made.needs_grad or old not in made.sources:
        return
    needed = tuple(k for k, source in enumerate(made.sources) if source.needs_grad and recipe.flows[k])
    parts = template(recipe, needed, (made.dtype, made.shape, made.strides))
    read = {SOURCE - reference for part in parts for step in part.steps for reference in step.operands}
    if not any(source is old and k in read for k, source in enumerate(made.sources)):
        return
    copy = apply("cont", (old,), {"shape": None}, track=tracking.get())
    made.serial, copy.serial = copy.serial, made.serial  # sources have lower ones
    made.sources = tuple(copy if source is old else source for source in made.sources)
    tell_copy(f"{op} of {old}: its derivative needs the value that it overwrites", copy.array.nbytes)


def pasted(base: Node, seen: Node, made: Node, op: str) -> Node:
    """Return the new value of a node's base, in which `made` stands where the node lies."""
    dense = seen.storage.seen
    assert dense is not None
    if base.array.shape == made.shape and seen.array.nbytes == dense.nbytes and made.contiguous and seen.contiguous:
        whole = made
    else:
        track, n = tracking.get(), base.array.size
        ids = np.arange(n, dtype=np.int32)
        ids[_places(seen.array, dense).reshape(-1)] = n + np.arange(made.array.size, dtype=np.int32)
        flat = [_shaped(node, (node.array.size,)) for node in (base, made)]
        both = apply("concat", tuple(flat), {"axis": 0}, track=track)
        whole = _shaped(apply("gather", (both, constant(ids)), {"axis": 0}, track=track), base.array.shape)
    tell_copy(f"{op} of {seen}: others see these bytes, and a gradient flows through them", whole.array.nbytes)
    return whole


def reviewed(node: Node) -> Node:
    """Return the node of what the bytes of `node` hold now, by the history of their base."""
    storage, track = node.storage, tracking.get() or True
    whole, dense = storage.whole, storage.seen
    assert whole is not None
    assert dense is not None
    if whole.array.shape == node.array.shape and node.contiguous:
        made = itself(whole, track=track)
    else:
        ids = constant(_places(node.array, dense).reshape(-1).astype(np.int32))
        found = apply("gather", (_shaped(whole, (whole.array.size,)), ids), {"axis": 0}, track=track)
        made = _shaped(found, node.array.shape)
    made.array, made.laid, made.name = node.array, node.laid, node.name
    made.shared, made.version, made.rebased = storage, storage.changes.version, storage.rebased
    return made


def _shaped(node: Node, shape: tuple[int, ...]) -> Node:
    if node.array.shape == shape:
        return node
    track = tracking.get() or True
    dense = node if node.contiguous else apply("cont", (node,), {"shape": None}, track=track)
    return apply("reshape", (dense,), {"shape": shape}, track=track)


def base_of(seen: Node, op: str) -> Node:
    """Return the value that the bytes of a node hold now as a whole: what the view was taken of.

    Raises EngineError where the base may not be changed through it.
    """
    node, storage = seen, seen.storage
    if storage.whole is not None:
        return storage.whole
    while node.recipe is not None and node.recipe.result is None and node.sources[0].shared is storage:  # a view
        node = node.sources[0]
    unchanged(node, op)
    if node.recipe is None and node.needs_grad:
        raise EngineError(
            f"{op} of {seen}: a view of a leaf that wants a gradient changes only under no_grad() or through detach()"
        )
    if node.needs_grad or node.recipe is not None or followed(node):
        if not node.contiguous:
            raise EngineError(f"{op} of {seen}: it is a view of {node}, which does not lie densely")
        storage.seen = node.array
        return node
    if storage.wanted_grad:
        raise EngineError(f"{op} of {seen}: it was taken under no_grad() of what has a gradient; take it again")
    storage.seen = _owner(node.array)
    return constant(storage.seen.copy())


def based(node: Node) -> Node:
    """Return the node that all uses of a node's bytes follow from: the whole, or itself."""
    storage = node.shared
    whole = None if storage is None or storage.base != node.serial else storage.whole
    return node if whole is None else whole


def succeed(old: Node, new: Node) -> None:
    """Let a node stand for the same tensor as an older one."""
    if new.storage.base == old.serial:
        new.storage.base = new.serial


def _owner(array: Array) -> Array:
    """Return the array whose memory this one is a view of; one that is dense."""
    found: Any = array
    while getattr(found, "base", None) is not None:
        found = found.base
    if not isinstance(found, np.ndarray) or not found.flags.c_contiguous or found.dtype != array.dtype:
        raise EngineError(f"an array of {array.dtype}{list(array.shape)} is a view of memory that is no dense tensor")
    return found


def _places(array: Array, owner: Array) -> Array:
    """Return the number of each element among those of the owner."""
    start, first = (x.__array_interface__["data"][0] for x in (array, owner))
    at = np.full(array.shape, (start - first) // array.itemsize, np.int64)
    for axis, (n, step) in enumerate(zip(array.shape, array.strides, strict=True)):
        along = [1] * array.ndim
        along[axis] = n
        at += (np.arange(n) * (step // array.itemsize)).reshape(along)
    return at
