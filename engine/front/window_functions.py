"""Windows and sizes of images, made of ops of the table, with PyTorch's names.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Sequence

import numpy as np

from allocsim.errors import EngineError
from engine.front.axis_functions import index_select
from engine.front.elementwise_functions import clone
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor
from engine.ops.shapes import whole


@in_float32
def interpolate(x: EagerTensor, size: Sequence[int], *, mode: str = "nearest") -> EagerTensor:
    """Return images x[.., H, W] in another size: the `nearest` element, or `bilinear` with the
    corners of pixels aligned (PyTorch's `align_corners=False`).

    Other modes and scale factors are not taken.
    """
    if mode not in {"nearest", "bilinear"} or len(size) != 2 or x.ndim < 2:
        raise EngineError(f"interpolate: shape {x.shape} to {tuple(size)}, {mode!r}; two lengths, nearest or bilinear")
    found = x
    for axis, count in ((-1, whole("interpolate", size[1])), (-2, whole("interpolate", size[0]))):
        if count != x.shape[axis]:
            found = _nearest(found, axis, count) if mode == "nearest" else _linear(found, axis, count)
    return clone(x) if found is x else found


def _nearest(x: EagerTensor, axis: int, wanted: int) -> EagerTensor:
    return index_select(x, axis, np.arange(wanted) * x.shape[axis] // wanted)


def _linear(x: EagerTensor, axis: int, wanted: int) -> EagerTensor:
    count = x.shape[axis]
    at = np.maximum((np.arange(wanted) + 0.5) * count / wanted - 0.5, 0.0)
    low = np.minimum(at.astype(int), count - 1)
    share = (at - low).reshape(-1, *(1,) * (-1 - axis)).astype(x.dtype)
    high = index_select(x, axis, np.minimum(low + 1, count - 1))
    found: EagerTensor = index_select(x, axis, low) * (1 - share) + high * share
    return found


__all__ = [
    "interpolate",
]
