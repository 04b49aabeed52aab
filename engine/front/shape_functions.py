"""Making tensors, moving their elements, and products by axes, with PyTorch's names.

What is made takes `dtype` (float32 by default) and no gradient. Axes and shapes are numpy's.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.axis_functions import index_select, sort
from engine.front.core_functions import concat, gather, node_of, pad, place_of, row, scatter, split, where
from engine.front.elementwise_functions import clone, isnan
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, tensor
from engine.ops.shapes import counts, real, whole


def zeros(shape: Sequence[int], *, dtype: Any = np.float32) -> EagerTensor:
    """Return zeros of a shape."""
    return full(shape, 0.0, dtype=dtype)


def ones(shape: Sequence[int], *, dtype: Any = np.float32) -> EagerTensor:
    """Return ones of a shape."""
    return full(shape, 1.0, dtype=dtype)


def full(shape: Sequence[int], value: float, *, dtype: Any = np.float32) -> EagerTensor:
    """Return one number in every place of a shape."""
    return tensor(_numbers("full", np.full, counts("full", shape), value), dtype=dtype)


def eye(rows: int, columns: int | None = None, *, dtype: Any = np.float32) -> EagerTensor:
    """Return ones on the diagonal, zeros elsewhere."""
    return tensor(_numbers("eye", np.eye, whole("eye", rows), columns), dtype=dtype)


def arange(start: float, stop: float | None = None, step: float = 1, *, dtype: Any = np.float32) -> EagerTensor:
    """Return numbers from `start` (0, where one is given) to below `stop`, `step` apart."""
    first, last = (0, start) if stop is None else (start, stop)
    return tensor(_numbers("arange", np.arange, first, last, step), dtype=dtype)


def linspace(start: float, stop: float, count: int, *, dtype: Any = np.float32) -> EagerTensor:
    """Return `count` numbers at equal distances, both ends among them."""
    return tensor(_numbers("linspace", np.linspace, start, stop, whole("linspace", count)), dtype=dtype)


def expand(x: EagerTensor, *shape: int) -> EagerTensor:
    """Return x broadcast to a shape, in which -1 keeps a length."""
    given = counts("expand", shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape)
    own = (1,) * (len(given) - x.ndim) + x.shape
    return x.broadcast_to(*(n if want == -1 else want for want, n in zip(given, own, strict=False)))


def repeat_interleave(x: EagerTensor, count: int, axis: int | None = None) -> EagerTensor:
    """Return each element along an axis `count` times in turn; of all elements without one."""
    flat, place = (x.reshape(-1), 0) if axis is None else (x, axis)
    place, times = place_of(flat, place), whole("repeat_interleave", count)
    return index_select(flat, place, _numbers("repeat_interleave", np.repeat, np.arange(flat.shape[place]), times))


def swapaxes(x: EagerTensor, one: int, other: int) -> EagerTensor:
    """Return a view with two axes exchanged."""
    order, a, b = list(range(x.ndim)), place_of(x, one), place_of(x, other)
    order[a], order[b] = b, a
    return x.transpose(*order)


def movedim(x: EagerTensor, source: int, place: int) -> EagerTensor:
    """Return a view with one axis at another place, the others in their order."""
    moved = place_of(x, source)
    order = [axis for axis in range(x.ndim) if axis != moved]
    order.insert(place_of(x, place), moved)
    return x.transpose(*order)


def masked_select(x: EagerTensor, mask: Any) -> EagerTensor:
    """Return the elements where a mask is not 0, in one dimension; at the prompt alone."""
    chosen = _numbers("masked_select", np.broadcast_to, np.asarray(mask) != 0, x.shape)
    found: EagerTensor = x[chosen]
    return found


def nonzero(x: EagerTensor) -> EagerTensor:
    """Return where elements are not 0, in order: int32 [count, axes]; at the prompt alone."""
    node_of(x)
    return tensor(np.argwhere(x.data != 0), dtype=np.int32)


def unique(x: EagerTensor) -> EagerTensor:
    """Return the distinct numbers in order, without a gradient, each NaN for itself; at the prompt
    alone.

    Places and counts (PyTorch's `return_inverse`, `return_counts`) are not given.
    """
    node_of(x)
    return tensor(np.unique(x.data, equal_nan=False), dtype=x.dtype)


def meshgrid(*tensors: EagerTensor, indexing: str = "ij") -> tuple[EagerTensor, ...]:
    """Return vectors (or scalars) as tensors over all their combinations: the first along axis 0,
    the second along axis 1, which `indexing="xy"` exchanges.
    """
    if indexing not in {"ij", "xy"} or any(x.ndim > 1 for x in tensors):
        raise EngineError(f"meshgrid of {[x.shape for x in tensors]}, {indexing!r}: vectors are needed, and ij or xy")
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    shape = [tensors[place].size for place in order]
    wide = [[-1 if place == order[k] else 1 for place in range(len(order))] for k in range(len(order))]
    return tuple(x.reshape(*form).broadcast_to(*shape) for x, form in zip(tensors, wide, strict=True))


def put_along_dim(x: EagerTensor, ids: Any, values: Any, axis: int = -1) -> EagerTensor:
    """Return x with values laid at ids along an axis, PyTorch's `scatter` (`fn.scatter` adds): what
    `take_along_dim` takes. Of a place named twice the last value is kept.

    Values are a number, or shaped like ids, which are at most as long as x along each other axis.
    """
    places, place = np.asarray(ids), place_of(x, axis)
    if places.dtype.kind not in "iu" or places.ndim != x.ndim:
        raise EngineError(f"put_along_dim: ids of {places.dtype}{list(places.shape)} for a tensor of shape {x.shape}")
    key = [*np.ogrid[tuple(slice(n) for n in places.shape)]]
    key[place] = places
    made = clone(x)
    made[tuple(key)] = values
    return made


def scatter_add(x: EagerTensor, axis: int, ids: Any, values: EagerTensor) -> EagerTensor:
    """Return x with each element of values added at its index along an axis; ids and values have
    one shape, at most as long as x along each other axis.
    """
    place = place_of(x, axis)
    added = scatter(values, ids, x.shape[place], place)
    left = [n - m for n, m in zip(x.shape, added.shape, strict=False)]
    if added.ndim != x.ndim or min(left) < 0:
        raise EngineError(f"scatter_add: values of shape {values.shape} do not fit into {x.shape} along axis {axis}")
    return x + pad(added, [0] * x.ndim, left) if any(left) else x + added


def index_add(x: EagerTensor, axis: int, ids: Any, values: EagerTensor) -> EagerTensor:
    """Return x with the rows of values along an axis added to those that ids [n] name."""
    place = place_of(x, axis)
    form = [-1 if each == place else 1 for each in range(x.ndim)]
    node_of(values)
    places = _numbers("index_add", np.broadcast_to, np.reshape(ids, form), values.shape)
    return scatter_add(x, axis, places, values)


@in_float32
def diff(x: EagerTensor, axis: int = -1) -> EagerTensor:
    """Return each element less the one before it along an axis."""
    before = (slice(None),) * place_of(x, axis)
    made: EagerTensor = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return made


def softmin(x: EagerTensor, axis: int = -1) -> EagerTensor:
    """Return softmax(-x)."""
    return row("neg", x).softmax(axis)


def median(x: EagerTensor, axis: int = -1) -> EagerTensor:
    """Return the lower middle element along an axis, or NaN where one is; it gets the gradient."""
    place = place_of(x, axis)
    return _ordered(x, place, (x.shape[place] - 1) // 2)


@in_float32
def quantile(x: EagerTensor, share: float, axis: int = -1) -> EagerTensor:
    """Return what lies at a share, from 0 to 1, of the ordered elements along an axis, between two
    in proportion; NaN where one is.
    """
    if not 0 <= real("quantile", share) <= 1:
        raise EngineError(f"quantile: {share} is no share from 0 to 1")
    axis = place_of(x, axis)
    place = share * (x.shape[axis] - 1)
    low, high = (_ordered(x, axis, int(end(place))) for end in (np.floor, np.ceil))
    made: EagerTensor = low + (high - low) * float(place - np.floor(place))
    return made


def _ordered(x: EagerTensor, axis: int, number: int) -> EagerTensor:
    """Return the element with this number along an axis, in order; NaN where one is."""
    if not x.shape[axis]:
        raise EngineError(f"shape {x.shape} has no elements along axis {axis}")
    found, last = split(index_select(sort(x, axis)[0], axis, [number, x.shape[axis] - 1]), 2, axis)
    return where(isnan(last), last, found).reshape(*x.shape[:axis], *x.shape[axis + 1 :])


def pixel_shuffle(x: EagerTensor, factor: int) -> EagerTensor:
    """Return x[N, C f f, H, W] as images [N, C, H f, W f] of which each pixel was f f channels."""
    f = whole("pixel_shuffle", factor)
    if x.ndim != 4 or f < 1 or x.shape[1] % f**2:
        raise EngineError(f"pixel_shuffle of shape {x.shape}: [N, C, H, W] is needed, {f} x {f} dividing C")
    n, channels, h, w = x.shape
    parts = x.reshape(n, channels // f**2, f, f, h, w).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, channels // f**2, h * f, w * f)


def take_along_dim(x: EagerTensor, ids: Any, axis: int = -1) -> EagerTensor:
    """Return the elements at ids along an axis, as `gather`."""
    return gather(x, ids, axis)


def hstack(tensors: Sequence[EagerTensor]) -> EagerTensor:
    """Return tensors beside each other: along axis 1, or 0 where that is the only one."""
    return concat(tensors, 1 if tensors and tensors[0].ndim > 1 else 0)


def _numbers(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function of numpy's makes; EngineError for what it refuses."""
    try:
        return function(*arguments)
    except (TypeError, ValueError, ZeroDivisionError, MemoryError) as error:
        raise EngineError(f"{what}: {error}") from None


__all__ = [
    "arange", "diff", "expand", "eye", "full", "hstack", "index_add", "linspace", "masked_select", "median",
    "meshgrid", "movedim", "nonzero", "ones", "pixel_shuffle", "put_along_dim", "quantile",
    "repeat_interleave", "scatter_add", "softmin", "swapaxes", "take_along_dim", "unique", "zeros",
]  # fmt: skip
