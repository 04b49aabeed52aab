"""Tensors people type: operators, broadcasting, `backward`, `.grad`.

    from engine import tensor

    W, x, b = tensor(2.0, requires_grad=True), tensor(3.0, requires_grad=True), tensor(1.0, requires_grad=True)
    y = (W * x + b) ** 2
    y.backward()
    y.item(), W.grad.item(), x.grad.item(), b.grad.item()      # 49.0, 42.0, 28.0, 14.0

Values are computed at once, each by the engine's own kernel (`engine.front.record`); `backward` builds the engine's graph out of what was
recorded, extends, plans and runs it (`engine.front.reverse`). There is one engine.

Shapes are numpy's, and so is broadcasting; a scalar has shape (). dtypes are float32 and float64: arrays of these keep theirs, Python
numbers and all else become float64, a number beside a tensor takes the tensor's. `x ** p` takes a constant; where p is a tensor it is
exp(p log x), for positive x. Infinities and NaN are results like any other, without a warning.

Gradients: a tensor made with `requires_grad` is a *leaf*; `backward` adds into the `.grad` of each leaf, which is a tensor of its own without a
gradient, or None. What is computed under `no_grad()`, and what is detached, has no history.

In place: methods that end in `_` change the bytes, and all views and detached twins see it. `add_ sub_ mul_ div_` stay differentiable; the others, and
all on a leaf that wants a gradient, need `no_grad()` (or a detached twin). `backward` refuses with an EngineError if a derivative needs a value
that was overwritten since, and naming it costs nothing otherwise. Changing a view in place where that needs a gradient is refused.

What this module does not see: graphs, plans, kernels.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import log, prod
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from allocsim.errors import EngineError
from engine.front.record import DTYPES, Laid, Node, Storage, alias, apply, constant
from engine.front.reverse import DEFAULT_ALLOCATOR, gradients
from engine.kernels.binding import Array

Shape = tuple[int, ...]

_tracking: ContextVar[bool] = ContextVar("tracking", default=True)


class Tensor:
    """A value, what it came from, and (of a leaf) its gradient; see the module header."""

    __slots__ = ("__weakref__", "_node", "grad", "shape")
    __array_ufunc__ = None  # numpy leaves mixed operators to us
    __hash__ = object.__hash__

    def __init__(self, node: Node, shape: Shape) -> None:
        self._node = node
        self.shape = shape
        """numpy's; () of a scalar."""
        self.grad: Tensor | None = None
        """Sum of all gradients since it was None or zero."""

    # what it is

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow into or through it."""
        return self._node.needs_grad

    @property
    def is_leaf(self) -> bool:
        """Whether it was made by no recorded op."""
        return self._node.kind is None

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
        """float32 or float64."""
        return self._node.array.dtype

    @property
    def data(self) -> Array:
        """The bytes themselves, read-only; `set_` and the other methods in `_` write."""
        view = self._node.array.reshape(self.shape, copy=False).view()
        view.flags.writeable = False
        return view

    @property
    def version(self) -> int:
        """How often its storage was changed in place."""
        return self._node.storage.version

    def numpy(self) -> Array:
        """Return a copy as a numpy array."""
        return self._node.array.reshape(self.shape).copy()

    def item(self) -> float:
        """Return the only element; raise EngineError if there are several."""
        if self.size != 1:
            raise EngineError(f"{self._node} has {self.size} elements; item needs one")
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
        return f"tensor({np.array2string(self.data, separator=', ', prefix='tensor(')}, dtype={self.dtype}{grad}{name})"

    def named(self, name: str) -> Self:
        """Give it a name for messages and return it."""
        self._node.name = name
        return self

    # gradients

    def backward(self, gradient: "ArrayLike | Tensor | None" = None, *, allocator: str = DEFAULT_ALLOCATOR) -> None:
        """Add the gradient of sum(self * gradient) into `.grad` of every leaf it depends on.

        Args:
            gradient: shaped like this tensor; may be left out for one element, and is 1 then.
            allocator: who plans the memory: a name of `allocsim.allocators` or `package.module:function`.

        Raises:
            EngineError: there is nothing to differentiate, a derivative is missing, or a value it needs was changed in place.
        """
        node = self._present()
        if not node.needs_grad:
            raise EngineError(f"{node} depends on nothing that requires a gradient")
        if gradient is None and self.size != 1:
            raise EngineError(f"{node} has {self.size} elements; give the gradient, or take the sum")
        seed = np.asarray(1.0 if gradient is None else gradient, self.dtype)
        if seed.size != self.size or (seed.ndim and seed.shape != self.shape):
            raise EngineError(f"the gradient has shape {seed.shape}; {node} has {self.shape}")
        for leaf, found in gradients(node, np.ascontiguousarray(seed.reshape(node.shape)), allocator):
            owner: Tensor = leaf.leaf_of
            total = found if owner.grad is None else found + owner.grad._node.array  # noqa: SLF001 - of this class
            owner.grad = Tensor(constant(total), owner.shape)

    def zero_grad(self) -> None:
        """Forget the gradient."""
        self.grad = None

    def detach(self) -> "Tensor":
        """Return the same bytes without history; changes in place are seen by both."""
        twin = constant(self._node.array, self._node.storage)
        twin.rebased = None
        return Tensor(twin, self.shape)

    def _present(self) -> Node:
        """Return the node of what the bytes hold now."""
        node = self._node
        if node.version == node.storage.version:
            return node
        if node.rebased is not None and node.rebased != node.storage.rebased:
            raise EngineError(
                f"{node} shares the bytes that {node.storage.changed_by} changed in place, with a gradient, after it was made; take it again"
            )
        if node.kind is not None:
            self._node = alias(node)
        else:
            self._node = Node(node.array, node.laid, node.storage, needs_grad=node.needs_grad)
            self._node.name = node.name
            self._node.leaf_of = node.leaf_of
            self._node.rebased = node.rebased
        return self._node

    # operators

    def __add__(self, other: Any) -> "Tensor":
        return _binary("add", self, other)

    def __sub__(self, other: Any) -> "Tensor":
        return _binary("sub", self, other)

    def __mul__(self, other: Any) -> "Tensor":
        if isinstance(other, (int, float)):
            return _unary("scale", self, s=float(other))
        return _binary("mul", self, other)

    def __truediv__(self, other: Any) -> "Tensor":
        return _binary("div", self, other)

    def __radd__(self, other: Any) -> "Tensor":
        return _binary("add", self, other)

    def __rsub__(self, other: Any) -> "Tensor":
        return _binary("add", _unary("neg", self), other)

    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> "Tensor":
        return _binary("div", _operand(other, self), self)

    def __neg__(self) -> "Tensor":
        return _unary("neg", self)

    def __pos__(self) -> "Tensor":
        return self

    def __pow__(self, exponent: Any) -> "Tensor":
        if isinstance(exponent, (int, float)):
            return _unary("sqr", self) if exponent == 2 else _unary("pow", self, p=float(exponent))
        return _binary("mul", self.log(), exponent).exp()

    def __rpow__(self, base: Any) -> "Tensor":
        if isinstance(base, (int, float)) and base > 0:
            return (self * log(base)).exp()
        return _operand(base, self).__pow__(self)

    def __matmul__(self, other: Any) -> "Tensor":
        return _product(self, _operand(other, self))

    def __rmatmul__(self, other: Any) -> "Tensor":
        return _product(_operand(other, self), self)

    # functions

    def exp(self) -> "Tensor":
        """Return e ** x."""
        return _unary("exp", self)

    def log(self) -> "Tensor":
        """Return the natural logarithm."""
        return _unary("log", self)

    def sqrt(self) -> "Tensor":
        """Return the square root."""
        return _unary("sqrt", self)

    def abs(self) -> "Tensor":
        """Return |x|; its derivative at 0 is 0."""
        return _unary("abs", self)

    def sin(self) -> "Tensor":
        """Return the sine."""
        return _unary("sin", self)

    def cos(self) -> "Tensor":
        """Return the cosine."""
        return _unary("cos", self)

    def tanh(self) -> "Tensor":
        """Return the hyperbolic tangent."""
        return _unary("tanh", self)

    def relu(self) -> "Tensor":
        """Return max(x, 0); its derivative at 0 is 0."""
        return _unary("relu", self)

    def sigmoid(self) -> "Tensor":
        """Return 1 / (1 + exp(-x))."""
        return _unary("sigmoid", self)

    def softplus(self) -> "Tensor":
        """Return log(1 + exp(x))."""
        return _unary("softplus", self)

    def silu(self) -> "Tensor":
        """Return x * sigmoid(x)."""
        return _unary("silu", self)

    def gelu(self, *, exact: bool = False) -> "Tensor":
        """Return gelu by tanh, or by erf if `exact`."""
        return _unary("gelu_erf" if exact else "gelu", self)

    def clamp(self, low: float, high: float) -> "Tensor":
        """Return min(max(x, low), high)."""
        return _unary("clamp", self, low=float(low), high=float(high))

    def log_softmax(self) -> "Tensor":
        """Return x - log(sum(exp(x))) over the last axis."""
        return _unary("log_soft_max", self)

    # shapes and sums

    def sum(self, axis: int | Shape | None = None, *, keepdims: bool = False) -> "Tensor":
        """Return the sum over all axes, or over those named."""
        axes = _axes(self, axis)
        kept = tuple(1 if a in axes else n for a, n in enumerate(self.shape))
        shape = kept if keepdims else tuple(n for a, n in enumerate(self.shape) if a not in axes)
        node, track = self._present(), _tracking.get()
        if len(axes) == self.ndim:
            total = Tensor(apply("sum", (node,), {}, track=track), ())
        else:
            total = Tensor(apply("repeat_back", (node,), {"shape": kept}, track=track), kept)
        return total.reshape(shape)

    def mean(self, axis: int | Shape | None = None, *, keepdims: bool = False) -> "Tensor":
        """Return the mean over all axes, or over those named; raise EngineError where that is no element."""
        count = prod(self.shape[a] for a in _axes(self, axis))
        if not count:
            raise EngineError(f"{self._node} has no elements to take the mean of")
        return self.sum(axis, keepdims=keepdims) * (1.0 / count)

    def reshape(self, *shape: Any) -> "Tensor":
        """Return the elements in another shape, one length of which may be -1; a view where they lie densely, else a copy."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        wanted = _lengths(self, tuple(int(n) for n in given))
        if wanted == self.shape:
            return self
        node, track = self._present(), _tracking.get()
        if (wanted or (1,)) == node.shape:
            return Tensor(node, wanted)
        if not node.contiguous:
            node = apply("cont", (node,), {"shape": None}, track=track)
        return Tensor(apply("reshape", (node,), {"shape": wanted or (1,)}, track=track), wanted)

    def transpose(self, *axes: int) -> "Tensor":
        """Return a view with the axes in the order given, reversed by default."""
        order = tuple(a % self.ndim if -self.ndim <= a < self.ndim else a for a in axes) or tuple(range(self.ndim))[::-1]
        if order == tuple(range(self.ndim)):
            return self
        node = apply("permute", (self._present(),), {"axes": order}, track=_tracking.get())
        return Tensor(node, node.shape)

    @property
    def T(self) -> "Tensor":  # noqa: N802 - numpy's name
        """The transpose."""
        return self.transpose()

    # in place

    def add_(self, other: Any) -> Self:
        """Add in place."""
        return self._replace("add_", self + other)

    def sub_(self, other: Any) -> Self:
        """Subtract in place."""
        return self._replace("sub_", self - other)

    def mul_(self, other: Any) -> Self:
        """Multiply in place."""
        return self._replace("mul_", self * other)

    def div_(self, other: Any) -> Self:
        """Divide in place."""
        return self._replace("div_", self / other)

    def zero_(self) -> Self:
        """Set all elements to zero."""
        return self.set_(..., 0.0, op="zero_")

    def copy_(self, values: Any) -> Self:
        """Set all elements; `values` broadcasts."""
        return self.set_(..., values, op="copy_")

    def set_(self, index: Any, values: Any, *, op: str = "set_") -> Self:
        """Do `data[index] = values`; `op` is what messages call it."""
        if _tracking.get() and (self.requires_grad or (isinstance(values, Tensor) and values.requires_grad)):
            raise EngineError(f"{op} of {self._node} has no derivative; use no_grad() or a detached tensor")
        try:
            self._node.array.reshape(self.shape, copy=False)[index] = values.data if isinstance(values, Tensor) else values
        except (IndexError, ValueError, TypeError) as error:
            raise EngineError(f"{op} of {self._node}: {error}") from None
        self._changed(op)
        return self

    def _replace(self, op: str, result: "Tensor") -> Self:
        """Put the value of `result` into the own bytes, and its history behind them."""
        if result.shape != self.shape:
            raise EngineError(f"{op} of {self._node}: the result has shape {result.shape}, not {self.shape}")
        made = result._node  # noqa: SLF001 - of this class
        if made.needs_grad and self.is_leaf and self.requires_grad:
            raise EngineError(
                f"{op} of {self._node}: a leaf that wants a gradient changes only under no_grad() or through detach()"
            )
        shared = self._node
        if made.needs_grad and (shared.array.base is not None or shared.kind in _VIEW_KINDS):
            raise EngineError(f"{op} of {shared}: a view cannot be changed in place where that needs a gradient")
        np.copyto(self._node.array, made.array)
        name = shared.name
        self._changed(op, rebased=made.needs_grad)
        if made.needs_grad:
            made.array, made.laid, made.storage = shared.array, shared.laid, shared.storage
            made.version, made.rebased = shared.storage.version, shared.storage.rebased
            self._node = made
        else:
            self._present()
        self._node.name = name
        return self

    def _changed(self, op: str, *, rebased: bool = False) -> None:
        storage = self._node.storage
        storage.version += 1
        storage.changed_by = op
        storage.rebased += rebased


_VIEW_KINDS = ("reshape", "permute", "transpose")


def tensor(
    data: ArrayLike | Tensor,
    requires_grad: bool = False,  # noqa: FBT001, FBT002 - as everybody types it
    *,
    dtype: Any = None,
    name: str = "",
) -> Tensor:
    """Return a new leaf with a copy of `data`.

    Args:
        data: a number, nested sequences of them, or an array.
        requires_grad: whether `backward` shall leave a gradient in it.
        dtype: float32 or float64; that of a floating array by default, else float64.
        name: for messages.

    Raises:
        EngineError: no numbers, or another dtype.
    """
    try:
        given = np.asarray(data)
        wanted = np.dtype(dtype) if dtype is not None else given.dtype if given.dtype in DTYPES else np.dtype(np.float64)
        if given.dtype.kind not in "fiub":
            raise EngineError(f"{name or 'tensor'}: {given.dtype} is no dtype of real numbers")
        array = np.array(given, wanted, order="C")
    except (TypeError, ValueError) as error:
        raise EngineError(f"{name or 'tensor'}: {error}") from None
    if array.dtype not in DTYPES:
        raise EngineError(f"{name or 'tensor'}: dtype {array.dtype} is none of float32, float64")
    shape = array.shape
    held = array if shape else np.full(1, array)
    node = Node(held, Laid.of(held), Storage(), needs_grad=requires_grad)
    node.name = name
    made = Tensor(node, shape)
    if requires_grad:
        node.leaf_of = made
    return made


@contextmanager
def no_grad() -> Iterator[None]:
    """Record nothing inside: results have no history, and leaves may be changed in place."""
    token = _tracking.set(False)
    try:
        yield
    finally:
        _tracking.reset(token)


def _operand(value: Any, beside: Tensor) -> Tensor:
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (int, float)):
        return Tensor(constant(np.array([value], beside.dtype)), ())
    made = tensor(value)
    return made if isinstance(value, np.ndarray) and value.dtype in DTYPES else tensor(value, dtype=beside.dtype)


def _unary(kind: str, x: Tensor, **params: Any) -> Tensor:
    return Tensor(apply(kind, (x._present(),), params, track=_tracking.get()), x.shape)  # noqa: SLF001


_SWAPS = frozenset({"add", "mul"})
"""Kinds whose operands may change places, to the bit."""


def _binary(kind: str, a: Tensor, other: Any) -> Tensor:
    b = other if isinstance(other, Tensor) else _operand(other, a)
    track = _tracking.get()
    left, right = a._present(), b._present()  # noqa: SLF001
    if a.shape == b.shape:
        return Tensor(apply(kind, (left, right), track=track), a.shape)
    try:
        shape = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise EngineError(f"{kind}({left}, {right}): the shapes {a.shape} and {b.shape} do not broadcast") from None
    full = shape or (1,)
    if left.shape != full and right.shape == full and kind in _SWAPS:
        left, right = right, left
    if left.shape != full:
        left = apply("repeat", (left,), {"shape": full}, track=track)
    return Tensor(apply(kind, (left, right), track=track), shape)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return a @ b by numpy's rules, as `mul_mat(b.T, a)`."""
    if not a.ndim or not b.ndim:
        raise EngineError(f"matmul of {a._node} and {b._node}: a scalar has no matrix product; use *")  # noqa: SLF001
    x = a if a.ndim > 1 else a.reshape(1, a.shape[0])
    y = b if b.ndim > 1 else b.reshape(b.shape[0], 1)
    if x.shape[-1] != y.shape[-2]:
        raise EngineError(f"matmul of {a._node} and {b._node}: the lengths {x.shape[-1]} and {y.shape[-2]} differ")  # noqa: SLF001
    try:
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise EngineError(f"matmul of {a._node} and {b._node}: the batches do not broadcast") from None  # noqa: SLF001
    track = _tracking.get()
    left, right = x._present(), y._present()  # noqa: SLF001
    if left.shape[:-2] != batch:
        left = apply("repeat", (left,), {"shape": (*batch, *left.shape[-2:])}, track=track)
    node = apply("mul_mat", (apply("transpose", (right,), track=track), left), track=track)
    shape = (*batch, *((x.shape[-2],) if a.ndim > 1 else ()), *((y.shape[-1],) if b.ndim > 1 else ()))
    return Tensor(node, node.shape).reshape(shape)


def _axes(x: Tensor, axis: int | Shape | None) -> Shape:
    given = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    if any(not -x.ndim <= a < x.ndim for a in given) or len({a % x.ndim for a in given}) != len(given):
        raise EngineError(f"axis {axis} does not name distinct axes of {x._node}")  # noqa: SLF001
    return tuple(a % x.ndim for a in given)


def _lengths(x: Tensor, shape: Shape) -> Shape:
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known and x.size % known == 0:
        shape = tuple(x.size // known if n == -1 else n for n in shape)
    if min(shape, default=0) < 0 or prod(shape) != x.size:
        raise EngineError(f"{x._node} has {x.size} elements; shape {shape} does not hold them")  # noqa: SLF001
    return shape
