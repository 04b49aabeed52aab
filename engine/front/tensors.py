"""Tensors people type: operators, broadcasting, `backward`, `.grad`.

    from engine import tensor

W, x, b = tensor(2.0, requires_grad=True), tensor(3.0, requires_grad=True), tensor(1.0,
requires_grad=True) y = (W * x + b) ** 2 y.backward() y.item(), W.grad.item(), x.grad.item(),
b.grad.item()      # 49.0, 42.0, 28.0, 14.0

Values are computed at once, each by the engine's own kernel (`engine.front.record`); `backward`
builds the engine's graph out of what was recorded, extends, plans and runs it
(`engine.front.reverse`). There is one engine.

Shapes are numpy's, and so are broadcasting and `x[...]` (`engine.front.indexing`); a scalar has
shape (). float32 and float64 are computed with; float16, bfloat16, float8_e4m3fn and float8_e5m2
have to be asked for, are computed with in float32 and rounded after each op, and promote as
PyTorch's 16-bit ones do; int32 is for indices and has to be asked for. Floating arrays keep their
dtype, all else becomes float32, numbers beside a tensor take the tensor's. `==`, `!=`, `<`, `<=`,
`>`, `>=` compare element by element and give zeros and ones without history; tensors are keys by
identity. Infinities and NaN are results like any other, without a warning. What is no method is in
`engine.front.functions`.

Gradients: a tensor made with `requires_grad` is a *leaf*; `backward` adds into the `.grad` of each
leaf, which is a tensor of its own without a gradient, or None. What is computed under `no_grad()`,
and what is detached, has no history.

In place: methods that end in `_`, and `x[...] = y`, change the bytes, and all views and detached
twins see it (`engine.front.in_place`). They stay differentiable, but on a leaf that wants a
gradient they need `no_grad()` (or a detached twin). `backward` refuses with an EngineError if a
derivative needs a value that was overwritten since, and naming it costs nothing otherwise.

Threads: tensors may be computed and differentiated from any number of threads; gradients of leaves
that threads share are all added, in the order in which the passes end. Changing a tensor in place
while another thread uses it is the caller's to order.

What this module does not see: graphs, plans, kernels.
"""

from collections.abc import Callable, Iterator, Sequence
from math import inf
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from allocsim.errors import EngineError
from engine.front import indexing
from engine.front.arguments import Shape, dtype_of, held, keeps, lengths, number, one_axis, several_axes
from engine.front.broadcasting import broadcast, meet, product
from engine.front.in_place import ChangeableValue
from engine.front.indexing import reshaped
from engine.front.record import DTYPES, ArrayLayout, Eager, Node, apply, composed, constant, itself, tracking
from engine.front.recording import unread
from engine.front.reverse import DEFAULT_ALLOCATOR, gradients
from engine.front.rounding_once import in_float32
from engine.front.stepwise import hooked, recorded_gradients
from engine.front.value import no_grad
from engine.graph import composites
from engine.graph.composites import largest
from engine.kernels.binding import Array
from engine.ops import OPS
from engine.ops.shapes import counts, real

_accumulating: Final = Lock()
"""Held while gradients are added to leaves, which several threads may share."""


def _function(kind: str, words: str) -> "Callable[[EagerTensor], EagerTensor]":
    """Return the method that is one row of the table."""

    def function(self: "EagerTensor") -> "EagerTensor":
        return _unary(kind, self)

    function.__name__, function.__qualname__, function.__doc__ = kind, f"EagerTensor.{kind}", f"Return {words}."
    return function


class EagerTensor(ChangeableValue):
    """A value with operators and functions; see the module header."""

    __slots__ = ()

    # gradients

    def backward(
        self,
        gradient: "ArrayLike | EagerTensor | None" = None,
        *,
        allocator: str = DEFAULT_ALLOCATOR,
        create_graph: bool = False,
    ) -> None:
        """Add the gradient of sum(self * gradient) into `.grad` of every leaf it depends on.

        Args:
            gradient: shaped like this tensor; may be left out for one element, and is 1 then. With
                `create_graph` a tensor's history is kept.
            allocator: who plans the memory: a name of `allocsim.allocators` or
                `package.module:function`.
            create_graph: record the gradients, so that they can be differentiated again; they are
                then computed op by op, as the front computes everything, and no plan is made.

        Raises:
            EngineError: there is nothing to differentiate, a derivative is missing, or a value it
                needs was changed in place.
            PlannerError: the allocator's plan is not sound; nothing runs then.
        """
        node, given = self._seeded(gradient)
        if create_graph:
            start = constant(given)
            if isinstance(gradient, EagerTensor) and gradient.requires_grad:
                start = broadcast(gradient.astype(self.dtype), self.shape)
            for leaf, made_of in recorded_gradients(node, start):
                owner: EagerTensor = leaf.leaf_of
                found = made_of if leaf.recipe is not None or not leaf.hooks else hooked(leaf, made_of)
                # leaves may have been handed one node
                own = apply("cont", (found,), {"shape": None}, track=tracking.get())
                more = EagerTensor(own, owner.shape)
                with _accumulating:
                    owner.grad = more if owner.grad is None else owner.grad + more
            return
        made = [(leaf, _asked(leaf, data)) for leaf, data in gradients(node, given, allocator)]
        with _accumulating:
            for leaf, data in made:
                owner = leaf.leaf_of
                total = data if owner.grad is None else data + owner.grad._node.array  # noqa: SLF001 - of ours
                owner.grad = EagerTensor(constant(total), owner.shape)

    def slopes(self, gradient: "ArrayLike", leaves: "Sequence[EagerTensor]") -> list[Array]:
        """Return what `backward` would add to each of some leaves, zeros where that is nothing; no
        `.grad` changes, and no hook of another leaf is asked.
        """
        node, given = self._seeded(gradient)
        slopes = {id(leaf): np.zeros(leaf.shape, leaf.dtype) for leaf in leaves}
        for stage, data in gradients(node, given):  # several of a leaf that was changed on the way
            key = id(stage.leaf_of)
            if key in slopes:
                slopes[key] = slopes[key] + _asked(stage, data).reshape(slopes[key].shape)
        return [slopes[id(leaf)] for leaf in leaves]

    def _seeded(self, gradient: "ArrayLike | EagerTensor | None") -> tuple[Node, Array]:
        """Return the node a pass begins at, and its first numbers; errors as of `backward`."""
        node = self._present()
        unread(node, "backward")
        if node.dtype == "i32":
            raise EngineError(f"{node} holds whole numbers, such as argmax gives, and nothing that requires a gradient")
        if not node.needs_grad:
            raise EngineError(f"{node} depends on nothing that requires a gradient")
        if gradient is None and self.size != 1:
            raise EngineError(f"{node} has {self.size} elements; give the gradient, or take the sum")
        try:
            seed = np.asarray(1.0 if gradient is None else gradient, self.dtype)
        except (TypeError, ValueError) as error:
            raise EngineError(f"the gradient given for {node}: {error}") from None
        if seed.size != self.size or (seed.ndim and seed.shape != self.shape):
            raise EngineError(f"the gradient has shape {seed.shape}; {node} has {self.shape}")
        return node, np.array(seed.reshape(node.shape), order="C")

    # operators

    def __add__(self, other: Any) -> "EagerTensor":
        return binary("add", self, other)

    def __sub__(self, other: Any) -> "EagerTensor":
        return binary("sub", self, other)

    def __mul__(self, other: Any) -> "EagerTensor":
        if isinstance(other, (int, float)):
            return _unary("scale", self, s=number("*", other, self.dtype))
        return binary("mul", self, other)

    def __truediv__(self, other: Any) -> "EagerTensor":
        return binary("div", self, other)

    def __radd__(self, other: Any) -> "EagerTensor":
        return binary("add", self, other)

    def __rsub__(self, other: Any) -> "EagerTensor":
        return binary("add", _unary("neg", self), other)

    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> "EagerTensor":
        return binary("div", operand(other, self), self)

    def __neg__(self) -> "EagerTensor":
        return _unary("neg", self)

    def __pos__(self) -> "EagerTensor":
        return self

    def __abs__(self) -> "EagerTensor":
        return self.abs()

    def __pow__(self, exponent: Any) -> "EagerTensor":
        if isinstance(exponent, np.ndarray | np.number) and exponent.ndim == 0:
            exponent = exponent.item()
        if isinstance(exponent, (int, float)):
            return _unary("sqr", self) if exponent == 2 else _unary("pow", self, p=real("**", exponent))
        return _power(self, operand(exponent, self))

    def __rpow__(self, base: Any) -> "EagerTensor":
        return _power(operand(base, self), self)

    @in_float32
    def __mod__(self, other: Any) -> "EagerTensor":
        return remainder(self, operand(other, self))

    @in_float32
    def __rmod__(self, other: Any) -> "EagerTensor":
        return remainder(operand(other, self), self)

    def __floordiv__(self, other: Any) -> "EagerTensor":
        return _unary("floor", self / other)

    def __rfloordiv__(self, other: Any) -> "EagerTensor":
        return _unary("floor", other / self)

    def __and__(self, other: Any) -> "EagerTensor":
        return (self != 0.0) * (operand(other, self) != 0.0)

    def __or__(self, other: Any) -> "EagerTensor":
        return binary("maximum", self != 0.0, operand(other, self) != 0.0)

    def __invert__(self) -> "EagerTensor":
        return self == 0.0

    def __matmul__(self, other: Any) -> "EagerTensor":
        return EagerTensor(*product(self, operand(other, self)))

    def __rmatmul__(self, other: Any) -> "EagerTensor":
        return EagerTensor(*product(operand(other, self), self))

    def __eq__(self, other: object) -> "EagerTensor":  # type: ignore[override] # element by element, as numpy's
        return binary("equal", self, other) if _comparable(other) else NotImplemented

    def __ne__(self, other: object) -> "EagerTensor":  # type: ignore[override] # as above
        return binary("not_equal", self, other) if _comparable(other) else NotImplemented

    __hash__ = object.__hash__

    def __lt__(self, other: Any) -> "EagerTensor":
        return binary("less", self, other)

    def __le__(self, other: Any) -> "EagerTensor":
        return binary("less_equal", self, other)

    def __gt__(self, other: Any) -> "EagerTensor":
        return binary("greater", self, other)

    def __ge__(self, other: Any) -> "EagerTensor":
        return binary("greater_equal", self, other)

    def __getitem__(self, key: Any) -> "EagerTensor":
        node, shape = indexing.at(self._present(), self.shape, key)
        return EagerTensor(itself(node) if node is self._node else node, shape)

    def __iter__(self) -> Iterator["EagerTensor"]:
        return (self[place] for place in range(len(self)))

    # functions

    exp = _function("exp", "e ** x")
    log = _function("log", "the natural logarithm")
    sqrt = _function("sqrt", "the square root")
    abs = _function("abs", "|x|; its derivative at 0 is 0")
    sin = _function("sin", "the sine")
    cos = _function("cos", "the cosine")
    tanh = _function("tanh", "the hyperbolic tangent")
    relu = _function("relu", "max(x, 0); its derivative at 0 is 0")
    sigmoid = _function("sigmoid", "1 / (1 + exp(-x))")
    softplus = _function("softplus", "log(1 + exp(x))")
    silu = _function("silu", "x * sigmoid(x)")

    def gelu(self, *, exact: bool = False) -> "EagerTensor":
        """Return gelu by tanh, or by erf if `exact`."""
        return _unary("gelu_erf" if exact else "gelu", self)

    def clamp(self, low: float | None = None, high: float | None = None) -> "EagerTensor":
        """Return min(max(x, low), high); None is no bound."""
        least, most = -inf if low is None else real("clamp", low), inf if high is None else real("clamp", high)
        return _unary("clamp", self, low=least, high=most)

    def softmax(self, axis: int = -1) -> "EagerTensor":
        """Return exp(x) over its sum along `axis`."""
        return self._along(axis, "soft_max")

    def log_softmax(self, axis: int = -1) -> "EagerTensor":
        """Return x - log(sum(exp(x))) along `axis`."""
        return self._along(axis, "log_soft_max")

    def astype(self, dtype: Any) -> "EagerTensor":
        """Return the numbers in another dtype, rounded to nearest even; the gradient comes back."""
        try:
            wanted = DTYPES[dtype_of(dtype)]
        except (KeyError, TypeError):
            raise EngineError(f"{dtype!r} is none of {', '.join(map(str, DTYPES))}") from None
        return self if wanted == self._node.dtype else _unary("cast", self, dtype=wanted)

    # shapes and sums

    def sum(self, axis: int | Shape | None = None, *, keepdims: bool = False) -> "EagerTensor":
        """Return the sum over all axes, or over those named."""
        if axis is None and not keepdims:
            return EagerTensor(apply("sum", (self._present(),), {}, track=tracking.get()), ())
        return self._over("sum_axes", axis, keepdims=keepdims)

    def mean(self, axis: int | Shape | None = None, *, keepdims: bool = False) -> "EagerTensor":
        """Return the mean over all axes, or those named; EngineError where that is no element."""
        return self._over("mean", axis, keepdims=keepdims)

    def max(self, axis: int | None = None, *, keepdims: bool = False) -> "EagerTensor":
        """Return the largest along an axis, or of all; the gradient goes to the first of equals."""
        return _extremum(self, axis, keepdims=keepdims)

    def min(self, axis: int | None = None, *, keepdims: bool = False) -> "EagerTensor":
        """Return the smallest along an axis, or of all; the first of equals gets the gradient."""
        return -_extremum(-self, axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None) -> "EagerTensor":
        """Return the place of the first largest along an axis, or of all: int32, no gradient."""
        x, place = (self.reshape(-1), 0) if axis is None else (self, one_axis(self._node, self.ndim, axis))
        node = apply("argmax", (x._present(),), {"axis": place}, track=tracking.get())  # noqa: SLF001 - of this class
        return EagerTensor(node, x.shape[:place] + x.shape[place + 1 :])

    def reshape(self, *shape: Any) -> "EagerTensor":
        """Return the elements in another shape, one length of which may be -1.

        A view where they lie densely or only axes of length 1 come and go, else a copy.
        """
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        wanted = lengths(self._node, self.size, counts("reshape", given))
        node = self._present()
        if wanted == self.shape:
            return EagerTensor(itself(node), wanted)
        return EagerTensor(reshaped(node, wanted), wanted)

    def transpose(self, *axes: Any) -> "EagerTensor":
        """Return a view with axes in the given order, numbers or one tuple; by default reversed."""
        given = counts("transpose", axes[0] if len(axes) == 1 and isinstance(axes[0], (tuple, list)) else axes)
        order = (
            tuple(a % self.ndim if -self.ndim <= a < self.ndim else a for a in given) or tuple(range(self.ndim))[::-1]
        )
        if order == tuple(range(self.ndim)):
            return EagerTensor(itself(self._present()), self.shape)
        node = apply("permute", (self._present(),), {"axes": order}, track=tracking.get())
        return EagerTensor(node, node.shape)

    def broadcast_to(self, *shape: Any) -> "EagerTensor":
        """Return the elements repeated into a shape, as numpy broadcasts."""
        given = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        wanted = counts("broadcast_to", given)
        node = broadcast(self, wanted)
        return EagerTensor(itself(node) if node is self._node else node, wanted)

    @property
    def T(self) -> "EagerTensor":  # noqa: N802 - numpy's name
        """The transpose."""
        return self.transpose()

    def _along(self, axis: int, kind: str) -> "EagerTensor":
        """Return an op over the last axis, over another one."""
        place, last = one_axis(self._node, self.ndim, axis), self.ndim - 1
        if place == last:
            return _unary(kind, self, **OPS[kind].params)
        order = (*(a for a in range(self.ndim) if a != place), place)
        back = (*range(place), last, *range(place, last))
        found = _unary(kind, self.transpose(*order), **OPS[kind].params)._node  # noqa: SLF001 - of this class
        for op, params in (("permute", {"axes": back}), ("cont", {"shape": None})):  # with bytes of its own
            found = apply(op, (found,), params, track=tracking.get())
        return EagerTensor(found, self.shape)

    def _over(self, kind: str, axis: int | Shape | None, *, keepdims: bool) -> "EagerTensor":
        axes = tuple(sorted(several_axes(self._node, self.ndim, axis)))
        if not axes:
            return self
        node = apply(kind, (self._present(),), {"axes": axes, "keepdims": keepdims}, track=tracking.get())
        return EagerTensor(
            node, tuple(1 if a in axes else n for a, n in enumerate(self.shape) if keepdims or a not in axes)
        )


def remainder(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return a - floor(a / b) * b, of the sign of b as Python's %; its derivative by a is 1."""
    shape = meet("remainder", a, b)
    return EagerTensor(composed(composites.remainder, *(broadcast(x, shape) for x in (a, b))), shape)


def tensor(
    data: ArrayLike | EagerTensor,
    requires_grad: bool = False,  # noqa: FBT001, FBT002 - as everybody types it
    *,
    dtype: Any = None,
    name: str = "",
) -> EagerTensor:
    """Return a new leaf with a copy of `data`.

    Args:
        data: a number, nested sequences of them, or an array.
        requires_grad: whether `backward` shall leave a gradient in it.
        dtype: float32 or float64; float16, bfloat16 or int32 (indices). That of a
            floating array by default, else float32.
        name: for messages.

    Raises:
        EngineError: no numbers, another dtype, a number that the dtype does not hold, or a gradient
            is wanted of whole numbers.
    """
    try:
        given = np.asarray(data)
        wanted = (
            dtype_of(dtype)
            if dtype is not None
            else given.dtype
            if hasattr(data, "dtype") and keeps(given.dtype)
            else np.dtype(np.float32)
        )
        if given.dtype.kind not in "fiub" and given.dtype not in DTYPES:
            raise EngineError(f"{name or 'tensor'}: {given.dtype} is no dtype of real numbers")
        array = held(name or "tensor", given, wanted)
    except (TypeError, ValueError) as error:
        raise EngineError(f"{name or 'tensor'}: {error}") from None
    if array.dtype not in DTYPES:
        raise EngineError(f"{name or 'tensor'}: dtype {array.dtype} is none of {', '.join(map(str, DTYPES))}")
    if requires_grad and array.dtype.kind == "i":
        raise EngineError(f"{name or 'tensor'}: whole numbers have no gradient; give a floating dtype")
    shape = array.shape
    laid = array if shape else np.full(1, array)
    node = Node(laid, ArrayLayout.of(laid), needs_grad=requires_grad)
    node.name = name
    made = EagerTensor(node, shape)
    if requires_grad:
        node.leaf_of = made
    return made


def operand(value: Any, beside: EagerTensor) -> EagerTensor:
    """Return a value as a tensor.

    A number in the dtype of the tensor `beside` it, an array of a dtype of ours in its own.
    """
    if isinstance(value, EagerTensor):
        return value
    if isinstance(value, (int, float)):
        return EagerTensor(constant(np.array([number("a number", value, beside.dtype)], beside.dtype)), ())
    return tensor(value, dtype=None if isinstance(value, np.ndarray) and keeps(value.dtype) else beside.dtype)


def within(what: str, value: Any, beside: EagerTensor) -> EagerTensor:
    """Return a value as a tensor; EngineError where a tensor `beside` it would broadcast to it."""
    found = operand(value, beside)
    if meet(what, beside, found) != beside.shape:
        raise EngineError(f"{what}: shape {found.shape} does not broadcast to {beside.shape}")
    return found


def _asked(leaf: Node, gradient: Array) -> Array:
    """Return what the hooks of a leaf make of its gradient."""
    return gradient if leaf.recipe is not None or not leaf.hooks else hooked(leaf, constant(gradient)).array.copy()


def _unary(kind: str, x: EagerTensor, **params: Any) -> EagerTensor:
    node = x._node  # noqa: SLF001
    if node.shared is not None:
        node = x._present()  # noqa: SLF001
    return EagerTensor(apply(kind, (node,), params, track=tracking.get()), x.shape)


_SWAPS = frozenset({"add", "mul", "equal", "not_equal"})
"""Kinds whose operands may change places, to the bit."""


def binary(kind: str, a: EagerTensor, other: Any) -> EagerTensor:
    """Return an op of two operands that broadcast; a number beside narrower ones is of f32."""
    if isinstance(other, (int, float)) and a.dtype.itemsize <= 2:
        return binary(kind, a.astype(np.float32), other).astype(a.dtype)
    b = other if isinstance(other, EagerTensor) else operand(other, a)
    left, right, track = a._node, b._node, tracking.get()  # noqa: SLF001
    if left.shared is not None or right.shared is not None:
        left, right = a._present(), b._present()  # noqa: SLF001
    if a.shape == b.shape:
        return EagerTensor(apply(kind, (left, right), track=track), a.shape)
    shape = meet(kind, a, b)
    full = shape or (1,)
    if left.shape != full and right.shape == full and kind in _SWAPS:
        left, right = right, left
    if left.shape != full:
        left = apply("repeat", (left,), {"shape": full}, track=track)
    return EagerTensor(apply(kind, (left, right), track=track), shape)


def _comparable(other: object) -> bool:
    """Whether `==` compares element by element; beside None, texts and the like it is False."""
    return isinstance(other, (EagerTensor, int, float, np.ndarray, np.number, list, tuple))


def _power(base: EagerTensor, exponent: EagerTensor) -> EagerTensor:
    shape = meet("**", base, exponent)
    return EagerTensor(Eager.op("power", broadcast(base, shape), broadcast(exponent, shape)), shape)


def _extremum(x: EagerTensor, axis: int | None, *, keepdims: bool) -> EagerTensor:
    if axis is None:
        found = _extremum(x.reshape(-1), 0, keepdims=False)
        return found.reshape((1,) * x.ndim) if keepdims else found
    node = x._present()  # noqa: SLF001 - of ours
    place = one_axis(node, x.ndim, axis)
    kept = tuple(1 if a == place else n for a, n in enumerate(x.shape))
    found = EagerTensor(composed(largest, node, axis=place), kept)
    return found if keepdims else found.reshape(kept[:place] + kept[place + 1 :])


__all__ = ["EagerTensor", "binary", "no_grad", "operand", "tensor", "within"]
