"""The methods of a tensor that change its bytes.

| | |
|---|---|
| `add_ sub_ mul_ div_`, `+= -= *= /=` | arithmetic |
| `x[key] = y`, `copy_`, `zero_` | other elements; a gradient flows into what was laid, zero into what was there |
| `set_(index, values)` | any index of numpy's, outside the history |

All views and detached twins see a change; where a gradient flows, views have the history of the
changed base (`engine.front.rebasing`, which tells what was copied for it). A gradient that is kept
(`retain_grad`) is that of the latest value; a hook stays with the value it was hung on, and on a
leaf with the leaf. A leaf that
wants a gradient changes only under `no_grad()` or through a detached twin. Under `no_grad()` the
way of a gradient stays as it is, whatever the bytes become.

While a model is recorded all of them but `set_` are ops of the program; a column or a parameter is
not changed.
"""

from typing import Any, Final, Self

import numpy as np

from allocsim.errors import EngineError
from engine.front import indexing
from engine.front.arguments import held
from engine.front.rebasing import base_of, kept_apart, pasted, reviewed, succeed
from engine.front.record import Node, apply, constant, tracking
from engine.front.recording import Recording, followed, unchanged, unread
from engine.front.value import EagerValue
from engine.ops.shapes import FLOATS


class ChangeableValue(EagerValue):
    """A value whose bytes can be changed; see the module header."""

    __slots__ = ()
    kept = False
    """Whether it is a state (`engine.front.states`), which a recorded model may write."""

    def add_(self, other: Any) -> Self:
        """Add in place."""
        return self._arithmetic("add_", self + other)

    def sub_(self, other: Any) -> Self:
        """Subtract in place."""
        return self._arithmetic("sub_", self - other)

    def mul_(self, other: Any) -> Self:
        """Multiply in place."""
        return self._arithmetic("mul_", self * other)

    def div_(self, other: Any) -> Self:
        """Divide in place."""
        return self._arithmetic("div_", self / other)

    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_

    def _arithmetic(self, op: str, result: Self) -> Self:
        return self._replace(op, result._node)

    def zero_(self) -> Self:
        """Set all elements to zero."""
        return self.copy_(0.0, op="zero_")

    def copy_(self, values: Any, *, op: str = "copy_") -> Self:
        """Set all elements; `values` broadcasts, and is cast to the dtype."""
        if not self._followed(values):
            return self.set_(..., values, op=op)
        return self._replace(op, self._instead(self._laid(values, op)))

    def __setitem__(self, key: Any, values: Any) -> None:
        if self._is_unknown_mask(key):
            self._replace("[...] =", self._masked(key, values))
            return
        items = indexing.items_of(key)
        looked_up = any(isinstance(item, np.ndarray) for item in items)
        seen = self if looked_up else self[items]  # type: ignore[index]
        node = seen._node  # noqa: SLF001 - of ours
        if (
            not looked_up
            and isinstance(values, EagerValue)
            and values is not self  # `x[:] = x` is a new version of x, as `x.copy_(x)` is
            and values.requires_grad == seen.requires_grad  # else the history changes, though no byte does
            and _same_bytes(values._node, node)  # noqa: SLF001 - `x[key] += y` lays y where it is
        ):
            return
        if not looked_up and node.shared is not None and node.shared is self._node.shared:
            seen.copy_(values, op="[...] =")
        elif self._followed(values):
            laid = indexing.laid_at(self._present(), self.shape, items, self._given(values, "[...] ="))
            self._replace("[...] =", laid)
        else:
            self.set_(items, values, op="[...] =")

    def _is_unknown_mask(self, key: Any) -> bool:
        """Whether a key is a mask that follows from the columns of the model that is recorded."""
        return isinstance(key, EagerValue) and key.dtype.kind != "i" and followed(key._node)  # noqa: SLF001 - of ours

    def _masked(self, mask: Any, values: Any) -> Node:
        """Return what the bytes are to hold where a mask of their leading axes is 1, of which
        nobody knows how many these are.
        """
        rest = self.shape[mask.ndim :]
        if not _is_mask(mask._node):  # noqa: SLF001 - of ours
            raise EngineError(
                f"[{mask._node}] = of {self._node}: a mask of a recorded model is made by comparing, say x != 0; "  # noqa: SLF001 - of ours
                "these numbers may be any"
            )
        if mask.shape != self.shape[: mask.ndim]:
            raise EngineError(f"[mask] = of {self._node}: the mask has shape {mask.shape}, not that of its axes")
        if np.ndim(values) > len(rest):
            raise EngineError(
                f"[mask] = of {self._node}: how many rows a mask picks depends on its numbers while the model is "
                f"recorded; lay what broadcasts to {rest}, or use where(mask, y, x)"
            )
        node = mask.detach().astype(self.dtype).reshape(*mask.shape, *(1,) * len(rest))._present()  # noqa: SLF001 - of ours
        hit = apply("repeat", (node,), {"shape": self.shape or (1,)}, track=tracking.get())
        return apply("where", (hit, self._laid(values, "[mask] ="), self._present()), track=tracking.get())

    def set_(self, index: Any, values: Any, *, op: str = "set_") -> Self:
        """Do `data[index] = values`; `op` is what messages call it."""
        for read in (self, values) if isinstance(values, EagerValue) else (self,):
            unread(read._node, op)  # noqa: SLF001 - of ours
        if self._followed(values):
            raise EngineError(f"{op} of {self._node} has no derivative; use no_grad() or a detached tensor")
        try:
            laid = values.data if isinstance(values, EagerValue) else held(op, np.asarray(values), self.dtype)
            first = next((place for place, n in enumerate(laid.shape) if n != 1), laid.ndim)
            laid = laid.reshape(laid.shape[first:])  # numpy bears axes of length 1 in front, but not beside a mask
            self._node.array.reshape(self.shape, copy=False)[index] = laid
        except (IndexError, ValueError, TypeError) as error:
            raise EngineError(f"{op} of {self._node}: {error}") from None
        self._changed(op)
        return self

    def _followed(self, values: Any) -> bool:
        """Whether a gradient flows, or a model is recorded, through this or what it is given."""
        if not tracking.get():
            return False
        through = (self, values) if isinstance(values, EagerValue) else (self,)
        return any(value.requires_grad or followed(value._node) for value in through)  # noqa: SLF001 - of ours

    def _given(self, values: Any, op: str) -> Node:
        """Return a node of values in the dtype of this tensor, of the shape they have."""
        if not isinstance(values, EagerValue):
            try:
                return constant(np.atleast_1d(held(op, np.asarray(values), self._node.array.dtype)))
            except (TypeError, ValueError) as error:
                raise EngineError(f"{op} of {self._node}: {error}") from None
        node = values._present()  # noqa: SLF001 - of ours
        if node.dtype == self._node.dtype:
            return node
        return apply("cast", (node,), {"dtype": self._node.dtype}, track=tracking.get())

    def _laid(self, values: Any, op: str) -> Node:
        """Return a node of its own that holds `values`, of the shape and dtype of this tensor."""
        full, node, track = self.shape or (1,), self._given(values, op), tracking.get()
        if node.shape == full:
            return apply("cont", (node,), {"shape": None}, track=track)
        try:
            return indexing.laid_into(full, node)
        except EngineError:
            raise EngineError(f"{op} of {self._node}: {node} does not broadcast to {self.shape}") from None

    def _instead(self, laid: Node) -> Node:
        """Return what is laid as a value that follows from what was there, with a gradient of
        zero, unless it has a way of its own.
        """
        old = self._present()
        if laid.needs_grad or followed(laid) or laid.dtype not in FLOATS:
            return laid
        never = constant(np.zeros(old.shape, old.array.dtype))
        return apply("where", (never, old, laid), track=tracking.get())

    def _replace(self, op: str, made: Node) -> Self:
        """Put a new value into the own bytes, and its history behind them."""
        old = self._node
        if made.shape != old.shape:
            raise EngineError(f"{op} of {old}: the result has shape {made.shape}, not {self.shape}")
        if made.needs_grad and old.storage.changes.kept:
            raise EngineError(
                f"{op} of state {old}: {made} has a gradient's history, which would grow from run to run; "
                "compute it under no_grad(), or detach() it"
            )
        if not made.needs_grad and not followed(made):
            np.copyto(old.array, made.array)
            self._changed(op)
            self._present()
            self._node.name = old.name
            return self
        if old.needs_grad and self.is_leaf:
            raise EngineError(
                f"{op} of {old}: a leaf that wants a gradient changes only under no_grad() or through detach()"
            )
        unchanged(old, op)
        storage = old.storage
        base = base_of(old, op) if storage.viewed else None
        if not isinstance(tracking.get(), Recording):
            kept_apart(made, old, op)
        whole = None if base is None else pasted(base, old, made, op)
        np.copyto(old.array, made.array)
        self._changed(op, rebased=True)
        if base is not None and whole is not None:
            storage.whole = whole
            whole.leaf_of, base.leaf_of = base.leaf_of, None
            self._node = reviewed(old)
        else:
            self._node, made.name = made, old.name
            made.array, made.laid, made.shared = old.array, old.laid, storage
            made.version, made.rebased = storage.changes.version, storage.rebased
        self._node.leaf_of, old.leaf_of = old.leaf_of, None
        succeed(old, self._node)
        return self

    def _changed(self, op: str, *, rebased: bool = False) -> None:
        storage = self._node.storage
        storage.changes.version += 1
        storage.changes.by = op
        storage.rebased += rebased


_COMPARING: Final = frozenset({"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "all_finite"})
_KEEPING: Final = frozenset({"mul", "maximum", "minimum", "where", "cast", "repeat", "reshape", "cont", "stop_gradient", "slice", "permute", "transpose"})  # fmt: skip
"""Ops that make zeros and ones of zeros and ones."""


def _is_mask(node: Node) -> bool:
    """Whether a value is zeros and ones whatever the batch: comparisons and what follows."""
    if node.kind is None:
        return not followed(node) and bool(((node.array == 0) | (node.array == 1)).all())
    return node.kind in _COMPARING or (node.kind in _KEEPING and all(map(_is_mask, node.sources)))


def _same_bytes(a: Node, b: Node) -> bool:
    one, other = (node.array.__array_interface__ for node in (a, b))
    return one["data"] == other["data"] and a.strides == b.strides and a.shape == b.shape
