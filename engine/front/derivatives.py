"""Derivatives of functions: Jacobians, Hessians, products with them, and a map over rows.

    jacobian(f, x)                 # d f(x)[i] / d x[j]: shape [*f(x).shape, *x.shape]
    hessian(f, x)                  # of a function of one number
    jvp(f, (x,), (v,))             # f(x), and its derivative along v: forward mode

Each calls the function once, on copies that want a gradient. Forward mode is the transpose of the
transpose, as in `engine.autodiff.jvp`: the vector-Jacobian product is linear in its vector, and is
differentiated by it. `vmap` is a loop: it saves writing one, not time.

What this module does not see: plans, and how a gradient is computed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.functions import stack
from engine.front.tensors import EagerTensor, tensor

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
        for leaf in leaves:
            leaf.zero_grad()
        result.backward(unit)
        for rows, leaf in zip(found, leaves, strict=True):
            if leaf.grad is not None:
                rows[place] = leaf.grad.data
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
        leaf.zero_grad()
        result.backward(create_graph=True)
        found = leaf.grad
        leaf.zero_grad()
        return leaf * 0.0 if found is None else found

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
    result.backward(vector, create_graph=True)
    total: EagerTensor | None = None
    for leaf, given in zip(leaves, along, strict=True):
        if leaf.grad is not None and leaf.grad.requires_grad:
            part = (leaf.grad * tensor(given, dtype=leaf.dtype)).sum()
            total = part if total is None else total + part
    vector.zero_grad()
    if total is not None:
        total.backward()
    return result.detach(), zero if vector.grad is None else vector.grad


def vmap(function: Function, axis: int = 0) -> Function:
    """Return the function over every row of its operands along `axis`, the results stacked."""

    def mapped(*operands: EagerTensor) -> EagerTensor:
        if not operands:
            raise EngineError("vmap was given no operand")
        lengths = {x.shape[axis] for x in operands}
        if len(lengths) != 1:
            raise EngineError(f"vmap: the operands have {sorted(lengths)} rows along axis {axis}")
        first = (slice(None),) * (axis % operands[0].ndim)
        return stack([function(*(x[(*first, row)] for x in operands)) for row in range(lengths.pop())])

    return mapped


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


__all__ = ["hessian", "jacobian", "jvp", "vmap"]
