"""Derivatives of functions: Jacobians, Hessians, products with them, and a map over rows.

    jacobian(f, x)                 # d f(x)[i] / d x[j]: shape [*f(x).shape, *x.shape]
    hessian(f, x)                  # of a function of one number
    jvp(f, (x,), (v,))             # f(x), and its derivative along v: forward mode
    vjp(f, (x,), v)                # f(x), and the gradients of its product with v
    hvp(f, x, v)                   # f(x), and the Hessian's product with v
    grad(y, xs)                    # of tensors that are there: gradients by any of them

Each calls the function once, on copies that want a gradient, and leaves `.grad` of whatever else it
reads as it is. Forward mode is the transpose of the transpose, as in `engine.autodiff.jvp`: the
vector-Jacobian product is linear in its vector, and is differentiated by it. `vmap` is a loop: it
saves writing one, not time.

What this module does not see: plans, and how a gradient is computed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Final, Literal

import numpy as np

from allocsim.errors import EngineError
from engine.front.differences import GradCheck, gradcheck
from engine.front.functions import concat, stack
from engine.front.randomness import evaluation
from engine.front.record import Node, tracking
from engine.front.recording import unread
from engine.front.stepwise import all_gradients
from engine.front.tensors import EagerTensor, no_grad, tensor
from engine.ops.shapes import whole

Function = Callable[..., EagerTensor]


def jacobian(function: Function, *inputs: Any) -> Any:
    """Return the derivative of every element of `function(*inputs)` by every element of an input.

    One pass for each element of the result.

    Args:
        function: tensors -> a tensor of any shape.
        inputs: tensors or arrays of floating numbers.

    Returns:
        A tensor [*result.shape, *input.shape]; a tuple of them where there are several inputs. Zero
        where the result does not depend on the input.

    Raises EngineError where there is no input, or the result is no tensor.
    """
    leaves = _leaves("jacobian", inputs)
    result = _called("jacobian", function, leaves)
    found = [np.zeros((*result.shape, *leaf.shape), leaf.dtype) for leaf in leaves]
    for place in np.ndindex(result.shape) if result.requires_grad else ():
        unit = np.zeros(result.shape, result.dtype)
        unit[place] = 1.0
        for rows, slope in zip(found, result.slopes(unit, leaves), strict=True):
            rows[place] = slope
    made = tuple(tensor(rows) for rows in found)
    return made[0] if len(made) == 1 else made


def hessian(function: Function, x: Any) -> EagerTensor:
    """Return the second derivative of a function of one number by x: [*x.shape, *x.shape].

    One pass for each element of x. Raises EngineError where the result has several elements.
    """

    def slope(leaf: EagerTensor) -> EagerTensor:
        result = _called("hessian", function, (leaf,))
        if result.size != 1:
            raise EngineError(f"hessian: the function gives shape {result.shape}; one number is needed")
        if not result.requires_grad:
            return leaf * 0.0
        found: EagerTensor = grad(result, leaf, create_graph=True, unused="zeros")
        return found

    made: EagerTensor = jacobian(slope, x)
    return made


def jvp(function: Function, inputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[EagerTensor, EagerTensor]:
    """Return `function(*inputs)` and its derivative along `tangents`, one for each input.

    Two passes, whatever the number of elements. Raises EngineError where a tangent does not fit.
    """
    leaves = _leaves("jvp", inputs)
    if len(tangents) != len(leaves):
        raise EngineError(f"jvp: {len(tangents)} tangents for {len(leaves)} inputs")
    result = _called("jvp", function, leaves)
    along = [np.asarray(given.data if isinstance(given, EagerTensor) else given) for given in tangents]
    for place, (leaf, given) in enumerate(zip(leaves, along, strict=True)):
        if given.shape != leaf.shape:
            raise EngineError(f"jvp: tangent {place} has shape {given.shape}; the input has {leaf.shape}")
    zero = tensor(np.zeros(result.shape, result.dtype))
    if not result.requires_grad:
        return result.detach(), zero
    vector = tensor(np.zeros(result.shape, result.dtype), True)
    slopes = grad(result, leaves, vector, create_graph=True, unused="zeros")
    parts = [(slope * tensor(given, dtype=slope.dtype)).sum() for slope, given in zip(slopes, along, strict=True)]
    found: EagerTensor = grad(sum(parts[1:], parts[0]), vector, unused="zeros")
    return result.detach(), found


def grad(
    y: EagerTensor,
    xs: EagerTensor | Sequence[EagerTensor],
    gradient: Any = None,
    *,
    create_graph: bool = False,
    unused: Literal["error", "none", "zeros"] = "error",
) -> Any:
    """Return the gradient of sum(y * gradient) by each of `xs`; no `.grad` changes.

    Args:
        y: what is differentiated.
        xs: a tensor, or several: leaves, or results that y was computed from.
        gradient: of the shape of y; may be left out for one element, and is 1 then.
        create_graph: record the gradients, so that they can be differentiated again.
        unused: what comes back for an x that y does not depend on: an error, None, or zeros, which
            is what the gradient of a linear function's gradient is.

    Returns:
        A tensor of the shape of x; a tuple of them where several are given. Computed op by op;
        nothing is planned.

    Raises EngineError where an x is unused, or as `backward` does.
    """
    several = not isinstance(xs, EagerTensor)
    wanted: list[EagerTensor] = [xs] if isinstance(xs, EagerTensor) else list(xs)
    if unused not in _UNUSED:
        raise EngineError(f"unused is {unused!r}; there are {', '.join(_UNUSED)}")
    if not isinstance(y, EagerTensor):
        raise EngineError(f"grad: {type(y).__name__} is no tensor, and has no history to differentiate")
    end = y._present()  # noqa: SLF001 - of ours
    unread(end, "grad")
    if gradient is None and y.size != 1:
        raise EngineError(f"{end} has {y.size} elements; give the gradient, or take the sum")
    one = np.ones(y.shape) if gradient is None else gradient
    given = one if isinstance(one, EagerTensor) else tensor(one, dtype=y.dtype)
    if given.shape != y.shape:
        raise EngineError(f"the gradient has shape {given.shape}; {end} has {y.shape}")
    seed = given.astype(y.dtype)._present()  # noqa: SLF001 - of ours
    with nullcontext() if create_graph else no_grad():
        found = all_gradients(end, seed) if end.needs_grad else {}
        stages = [node for node in found if node.recipe is None and node.leaf_of is not None]
        made = tuple(_taken(x, found, [node for node in stages if node.leaf_of is x], unused) for x in wanted)
    return made if several else made[0]


_UNUSED: Final = ("error", "none", "zeros")


def _taken(x: EagerTensor, found: Mapping[Node, Node], stages: Sequence[Node], unused: str) -> EagerTensor | None:
    """Return the gradient by x: of a leaf that was changed on the way, by all that it held."""
    node = x._current()  # noqa: SLF001 - of ours
    parts = [EagerTensor(found[each], x.shape) for each in dict.fromkeys((node, *stages)) if each in found]
    if parts:
        return sum(parts[1:], parts[0])
    if unused == "error":
        raise EngineError(f"grad: what is differentiated does not depend on {node}; unused='zeros' takes it for 0")
    return tensor(np.zeros(x.shape, x.dtype), dtype=x.dtype) if unused == "zeros" else None


def vjp(function: Function, inputs: Sequence[Any], gradient: Any = None) -> tuple[EagerTensor, tuple[EagerTensor, ...]]:
    """Return `function(*inputs)`, and the gradient of its product with `gradient` by each input.

    One pass; zeros by an input that the result does not depend on.
    """
    leaves = _leaves("vjp", inputs)
    result = _called("vjp", function, leaves)
    return result.detach(), grad(result, leaves, gradient, unused="zeros")


def hvp(function: Function, x: Any, along: Any) -> tuple[EagerTensor, EagerTensor]:
    """Return a function of one number at x, and the product of its Hessian with `along` [*x.shape].

    Two passes, whatever the number of elements. Raises EngineError where the result has several
    elements, or `along` does not fit.
    """
    (leaf,) = _leaves("hvp", (x,))
    result = _called("hvp", function, (leaf,))
    way = tensor(along.data if isinstance(along, EagerTensor) else along, dtype=leaf.dtype)
    if result.size != 1 or way.shape != leaf.shape:
        raise EngineError(
            f"hvp: the function gives {result.shape}, one number is needed; {way.shape} along {leaf.shape}"
        )
    slope = grad(result.reshape(()), leaf, create_graph=True, unused="zeros")
    return result.detach(), grad((slope * way).sum(), leaf, unused="zeros")


def gradgradcheck(function: Function, *inputs: Any, **how: Any) -> GradCheck:
    """Compare second derivatives of `function(*inputs)` with central differences of the first.

    What is checked is the vector-Jacobian product as a function of the inputs and of the vector;
    `how` and errors are those of `gradcheck`.
    """
    leaves = _leaves("gradgradcheck", inputs)
    shape = _called("gradgradcheck", function, leaves).shape
    vector = np.random.default_rng(1).uniform(0.5, 1.5, shape)

    def slopes(*given: EagerTensor) -> EagerTensor:
        token = tracking.set(True)  # differences are taken under no_grad()
        try:
            *xs, v = (x if x.requires_grad else tensor(x.data, True) for x in given)
            found = grad(function(*xs), xs, v, create_graph=True, unused="zeros")
            return concat([part.reshape(-1) for part in found])
        finally:
            tracking.reset(token)

    return gradcheck(slopes, *(leaf.data for leaf in leaves), vector, **how)


def vmap(function: Function, in_axes: Any = 0, out_axes: int = 0) -> Function:
    """Return the function over every row of its operands, the results stacked along `out_axes`.

    `in_axes` is the axis that each operand is taken along, one for all or one for each; None gives
    the function that operand whole.
    """

    def mapped(*operands: EagerTensor) -> EagerTensor:
        axes = (
            tuple(in_axes)
            if isinstance(in_axes, Sequence) and not isinstance(in_axes, str)
            else (in_axes,) * len(operands)
        )
        if len(axes) != len(operands) or all(axis is None for axis in axes):
            raise EngineError(f"vmap: {len(operands)} operands along {in_axes}; one of them must be taken by rows")
        taken = [None if axis is None else _axis(x, axis) for x, axis in zip(operands, axes, strict=True)]
        lengths = {x.shape[axis] for x, axis in zip(operands, taken, strict=True) if axis is not None}
        if len(lengths) != 1:
            raise EngineError(f"vmap: the operands have {sorted(lengths)} rows along {in_axes}")
        rows = [
            function(
                *(
                    x if axis is None else x[(*(slice(None),) * axis, row)]
                    for x, axis in zip(operands, taken, strict=True)
                )
            )
            for row in range(lengths.pop())
        ]
        return stack(rows, out_axes)

    return mapped


def _axis(x: EagerTensor, axis: int) -> int:
    if not -x.ndim <= whole("vmap: axis", axis) < x.ndim:
        raise EngineError(f"vmap: axis {axis} is none of the {x.ndim} axes of an operand")
    return axis % x.ndim


@contextmanager
def inference_mode() -> Iterator[None]:
    """Record nothing inside, and have models run as they are used (`engine.evaluation`)."""
    with no_grad(), evaluation():
        yield


def _leaves(what: str, inputs: Sequence[Any]) -> list[EagerTensor]:
    if not inputs:
        raise EngineError(f"{what} was given no input")
    arrays = [x.data if isinstance(x, EagerTensor) else x for x in inputs]
    return [tensor(array, True, name=f"input {place}") for place, array in enumerate(arrays)]


def _called(what: str, function: Function, leaves: Sequence[EagerTensor]) -> EagerTensor:
    result = function(*leaves)
    if not isinstance(result, EagerTensor):
        raise EngineError(f"{what}: the function gives {type(result).__name__}; a tensor is needed")
    return result
