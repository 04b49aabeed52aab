"""How operands of several shapes meet: broadcasting, and numpy's matrix product.

Shapes are numpy's; what comes back are nodes, as in `engine.front.indexing`.
"""

import numpy as np

from allocsim.errors import EngineError
from engine.front.arguments import Shape
from engine.front.indexing import repeated, reshaped
from engine.front.record import Node, apply, tracking
from engine.front.value import EagerValue


def meet(what: str, *values: EagerValue) -> Shape:
    """Return the shape they broadcast to."""
    try:
        return np.broadcast_shapes(*(x.shape for x in values))
    except ValueError:
        shapes = " and ".join(str(x.shape) for x in values)
        raise EngineError(
            f"{what}({', '.join(str(x._node) for x in values)}): the shapes {shapes} do not broadcast"  # noqa: SLF001
        ) from None


def broadcast(x: EagerValue, shape: Shape) -> Node:
    """Return the node of `x` repeated into `shape`."""
    return repeated(x._present(), shape or (1,))  # noqa: SLF001


def product(a: EagerValue, b: EagerValue) -> tuple[Node, Shape]:
    """Return a @ b by numpy's rules, as `mul_mat(b.T, a)`, and its shape."""
    left, right, track = a._present(), b._present(), tracking.get()  # noqa: SLF001 - of what values are made of
    if not a.ndim or not b.ndim:
        raise EngineError(f"matmul of {left} and {right}: a scalar has no matrix product; use *")
    if a.ndim == 1:
        left = reshaped(left, (1, *a.shape))
    if b.ndim == 1:
        right = reshaped(right, (*b.shape, 1))
    if left.shape[-1] != right.shape[-2]:
        raise EngineError(
            f"matmul of {a._node} and {b._node}: the lengths {left.shape[-1]} and {right.shape[-2]} differ"  # noqa: SLF001
        )
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise EngineError(f"matmul of {left} and {right}: the batches do not broadcast") from None
    shape = (*batch, *((left.shape[-2],) if a.ndim > 1 else ()), *((right.shape[-1],) if b.ndim > 1 else ()))
    if left.shape[:-2] != batch:
        left = apply("repeat", (left,), {"shape": (*batch, *left.shape[-2:])}, track=track)
    node = apply("mul_mat", (apply("transpose", (right,), track=track), left), track=track)
    return reshaped(node, shape), shape
