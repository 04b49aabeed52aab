"""Windows and sizes of images, made of ops of the table, with PyTorch's names.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, tensor
from engine.ops.shapes import whole


@in_float32
def interpolate(x: EagerTensor, size: Sequence[int], *, mode: str = "nearest") -> EagerTensor:
    """Return images x[.., H, W] in another size: the `nearest` element, or `bilinear` with the
    corners of pixels aligned (PyTorch's `align_corners=False`).

    As a product with a matrix for each axis.
    """
    if mode not in _WEIGHTS or len(size) != 2 or x.ndim < 2:
        raise EngineError(f"interpolate: shape {x.shape} to {tuple(size)}, {mode!r}; two lengths, nearest or bilinear")
    down, across = (
        _WEIGHTS[mode](x.shape[place], whole("interpolate", n)) for place, n in ((-2, size[0]), (-1, size[1]))
    )
    return tensor(down, dtype=x.dtype) @ x @ tensor(across.T, dtype=x.dtype)


def _nearest(count: int, wanted: int) -> Any:
    return np.eye(count)[np.arange(wanted) * count // wanted]


def _linear(count: int, wanted: int) -> Any:
    at = np.maximum((np.arange(wanted) + 0.5) * count / wanted - 0.5, 0.0)
    low = np.minimum(at.astype(int), count - 1)
    high, share = np.minimum(low + 1, count - 1), (at - low)[:, None]
    return np.eye(count)[low] * (1 - share) + np.eye(count)[high] * share


_WEIGHTS = {"nearest": _nearest, "bilinear": _linear}
"""Mode -> the matrix [wanted, count] of one axis."""


__all__ = [
    "interpolate",
]
