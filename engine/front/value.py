"""The value behind a tensor of the front: its properties, its gradient and its history.

`engine.front.in_place` adds the methods that change its bytes, `engine.front.tensors` those that
make new tensors.

A value stands for one *node* (`engine.front.record`), which is one version of some bytes; after a
change in place `_present` takes a node of what they hold now. What may be changed, and when, is
said in the header of `engine.front.tensors`.

What this module does not see: operators, functions, backward.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, Self

import numpy as np

from allocsim.errors import EngineError
from engine.front.arguments import Shape
from engine.front.gradient_functions import GradientFunction
from engine.front.rebasing import based, reviewed, succeed
from engine.front.record import Node, StorageHistory, alias, apply, constant, tracking
from engine.front.recording import Recording, unread
from engine.kernels.binding import Array


class EagerValue:
    """Bytes, what they came from, and (of a leaf) their gradient."""

    __slots__ = ("__weakref__", "_node", "grad", "shape")
    __array_ufunc__ = None  # numpy leaves mixed operators to us
    __hash__ = object.__hash__

    def __init__(self, node: Node, shape: Shape) -> None:
        self._node = node
        self.shape = shape
        """numpy's; () of a scalar."""
        self.grad: Self | None = None
        """Sum of all gradients since it was None or zero."""

    # what it is

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into or through it."""
        return self._current().needs_grad

    @property
    def is_leaf(self) -> bool:
        """Whether it was made by no recorded op."""
        return self._current().kind is None

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64; float16, bfloat16 or int32 where that was asked for."""
        return self._node.array.dtype

    @property
    def data(self) -> Array:
        """The bytes themselves, read-only; `set_` and the other methods in `_` write."""
        unread(self._node, "data")
        view = self._node.array.reshape(self.shape, copy=False).view()
        view.flags.writeable = False
        return view

    @property
    def version(self) -> int:
        """How often its storage was changed in place."""
        return self._node.storage.changes.version

    def numpy(self) -> Array:
        """Return a copy as a numpy array."""
        unread(self._node, "numpy()")
        return self._node.array.reshape(self.shape).copy()

    def item(self) -> float:
        """Return the only element; raise EngineError if there are several."""
        if self.size != 1:
            raise EngineError(f"{self._node} has {self.size} elements; item needs one")
        unread(self._node, "item()")
        return float(self._node.array.item())

    def __float__(self) -> float:
        return self.item()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:  # noqa: FBT001 - numpy's protocol
        return np.array(self.data, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar tensor has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self.item())

    def __repr__(self) -> str:
        name = f", name={self._node.name!r}" if self._node.name else ""
        grad = ", requires_grad=True" if self.requires_grad else ""
        return (
            f"tensor({np.array2string(self._node.array.reshape(self.shape), separator=', ', prefix='tensor(')}, "
            f"dtype={self.dtype}{grad}{name})"
        )

    def named(self, name: str) -> Self:
        """Give it a name for messages and return it."""
        self._node.name = name
        return self

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.grad = None

    def detach(self) -> Self:
        """Return the same bytes without history; changes in place are seen by both."""
        now = tracking.get()
        if isinstance(now, Recording) and self._node in now.known:
            return type(self)(apply("stop_gradient", (self._present(),), {}, track=now), self.shape)
        twin = constant(self._node.array)
        twin.shared = StorageHistory(twin.serial, self._node.storage.changes)
        twin.version = twin.shared.changes.version
        return type(self)(twin, self.shape)

    def _current(self) -> Node:
        """Return the node that says whose gradient this is: the present one, where the base of a
        view got another history.
        """
        node = self._node
        return based(self._present()) if node.shared is not None and node.shared.whole is not None else node

    def _present(self) -> Node:
        """Return the node of what the bytes hold now."""
        node = self._node
        if not node.stale:
            return node
        if node.rebased != node.storage.rebased:
            if node.storage.whole is None:
                raise EngineError(
                    f"{node} shares the bytes that {node.storage.changes.by} changed in place, with a gradient, "
                    "after it was made; take it again"
                )
            self._node = reviewed(node)
            self._node.leaf_of, node.leaf_of = node.leaf_of, None
        elif node.kind is not None:
            self._node = alias(node)
        else:
            self._node = Node(node.array, node.laid, node.storage, needs_grad=node.needs_grad)
            self._node.name, self._node.hooks = node.name, node.hooks  # of the leaf, whatever it holds
            self._node.leaf_of = node.leaf_of
        succeed(node, self._node)
        return self._node

    # its gradient and its history

    def retain_grad(self) -> None:
        """Let backward passes leave a gradient in this result too, as they do in leaves."""
        node = based(self._node_with_gradient("retain_grad"))
        node.leaf_of = self if node.leaf_of is None else node.leaf_of

    def register_hook(self, hook: "Callable[[Self], Self | None]") -> "Callable[[], None]":
        """Ask `hook` about the gradient of this tensor in every backward pass through it.

        It is given the gradient, all of it, before it flows on, and may return another of its shape
        in its place. A pass with a hook on a result runs op by op, without a plan; on leaves hooks
        are asked after the planned pass. Returns what takes the hook away again.
        """
        node = based(self._node_with_gradient("register_hook"))
        shape, kind = self.shape, type(self)

        def asked(gradient: Node) -> Node | None:
            answer = hook(kind(gradient, shape))
            return None if answer is None else _answered(answer, gradient)

        if node.hooks is None:
            node.hooks = []
        hooks = node.hooks
        hooks.append(asked)

        def remove() -> None:
            if asked in hooks:
                hooks.remove(asked)

        return remove

    @property
    def grad_fn(self) -> GradientFunction | None:
        """The op that made it, to walk from (`engine.front.gradient_functions`); None for a leaf
        and for what needs no gradient.
        """
        node = self._current()
        return GradientFunction(node) if node.needs_grad and node.kind is not None else None

    def _node_with_gradient(self, what: str) -> Node:
        node = self._present()
        unread(node, what)
        if not node.needs_grad:
            raise EngineError(f"{what}: {node} has no gradient")
        return node


def _answered(answer: Any, gradient: Node) -> Node:
    """Return the node of what a hook answered: a tensor, or numbers of the gradient's dtype."""
    if isinstance(answer, EagerValue):
        return answer._present()  # noqa: SLF001 - of ours
    try:
        return constant(np.array(np.broadcast_to(answer, gradient.shape), gradient.array.dtype, order="C"))
    except (TypeError, ValueError) as error:
        raise EngineError(f"a hook answers {type(answer).__name__}: {error}") from None


@contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing inside: results have no history, and leaves may be changed in place.

    While a model is recorded, its ops are kept all the same; no gradient flows through them.
    """
    now = tracking.get()
    token = tracking.set(now.silent() if isinstance(now, Recording) else False)
    try:
        yield
    finally:
        tracking.reset(token)
