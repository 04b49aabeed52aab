"""Functions along axes, of the order of elements and of shapes, made of ops of the table.

Names are PyTorch's, axes numpy's: `axis` is one, or several where a docstring says axes, None all
elements. What chooses elements (`sort`, `topk`, `argmin`) gives whole numbers of 32 bits for where
they lie; a gradient goes to the chosen. NaN sorts behind all numbers in both directions.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Iterable, Sequence
from math import prod as product
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.arguments import several_axes
from engine.front.broadcasting import meet
from engine.front.core_functions import concat, gather, node_of, op, pad, place_of, split, straight_through, where
from engine.front.elementwise_functions import isinf, root
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, operand
from engine.ops.shapes import counts, real, whole

Axes = int | Sequence[int] | None


def _places(x: EagerTensor, axes: Axes) -> tuple[int, ...]:
    return several_axes(node_of(x), x.ndim, axes)


def _swapped(x: EagerTensor, place: int) -> EagerTensor:
    """Return x with one axis and the last exchanged; done twice it is x."""
    order = list(range(x.ndim))
    order[place], order[-1] = order[-1], order[place]
    return x.transpose(*order)


# sums


@in_float32
def var(x: EagerTensor, axis: Axes = None, *, correction: float = 1, keepdims: bool = False) -> EagerTensor:
    """Return the variance over axes: squares from the mean, over n - correction."""
    places = _places(x, axis)
    count = product(x.shape[place] for place in places)
    apart = x - x.mean(places, keepdims=True)
    return (apart * apart).sum(places, keepdims=keepdims) * _over(max(count - correction, 0))


@in_float32
def std(x: EagerTensor, axis: Axes = None, *, correction: float = 1, keepdims: bool = False) -> EagerTensor:
    """Return the square root of the variance; its derivative where that is 0 is 0, as PyTorch's."""
    return root(var(x, axis, correction=correction, keepdims=keepdims))


def _over(count: float) -> float:
    return 1 / count if count else float("inf")


@in_float32
def norm(x: EagerTensor, p: float = 2.0, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:
    """Return (sum of |x| ** p) ** (1 / p) over axes; p may be infinite, or 0 (how many are not 0).

    The derivative by a 0 is 0; of an infinite p equals share it.
    """
    places, p = _places(x, axis), float(p)
    if p == 0:
        return (x != 0.0).sum(places, keepdims=keepdims)
    if p == 1:
        return x.abs().sum(places, keepdims=keepdims)
    if p == 2:
        return root((x * x).sum(places, keepdims=keepdims))
    if p in (float("inf"), float("-inf")):
        return (amax if p > 0 else amin)(x.abs(), places, keepdims=keepdims)
    nothing = 0.0 if p > 0 else float("inf")
    return _power_of_size(_power_of_size(x, p, nothing).sum(places, keepdims=keepdims), 1 / p, nothing)


def _power_of_size(x: EagerTensor, p: float, nothing: float) -> EagerTensor:
    """Return |x| ** p, `nothing` and without a slope where x is 0."""
    none = x == 0.0
    return where(none, nothing, where(none, 1.0, x.abs()) ** p)


@in_float32
def normalize(x: EagerTensor, p: float = 2.0, axis: int = -1, eps: float = 1e-12) -> EagerTensor:
    """Return x over its norm along an axis, which counts as `eps` at least."""
    return x / norm(x, p, axis, keepdims=True).clamp(real("normalize", eps))


@in_float32
def cosine_similarity(a: EagerTensor, b: Any, axis: int = -1, eps: float = 1e-8) -> EagerTensor:
    """Return the cosine of the angle between a and b along an axis; norms count as eps at least."""
    node_of(a)
    other = operand(b, a)
    shape = meet("cosine_similarity", a, other)
    a, other = a.broadcast_to(*shape), other.broadcast_to(*shape)
    lengths = norm(a, 2, axis).clamp(eps) * norm(other, 2, axis).clamp(eps)
    return (a * other).sum(axis) / lengths


@in_float32
def logsumexp(x: EagerTensor, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:
    """Return log(sum(exp(x))) over axes without overflow."""
    places = _places(x, axis)
    most = _largest(x.detach(), places)
    most = where(isinf(most), 0.0, most)
    found = (x - most).exp().sum(places, keepdims=True).log() + most
    return found if keepdims else _without(found, places)


def _largest(x: EagerTensor, places: Sequence[int]) -> EagerTensor:
    """Return the largest over axes, which stay as lengths of 1."""
    for place in places:
        x = x.max(place, keepdims=True)
    return x


@in_float32
def amax(x: EagerTensor, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:
    """Return the largest over axes; equals share the gradient, which `x.max` gives to the first."""
    places = _places(x, axis)
    most = _largest(x.detach(), places)
    same = x == most
    shares = same / same.sum(places, keepdims=True)
    found = straight_through(most, (x * shares).sum(places, keepdims=True))
    return found if keepdims else _without(found, places)


def amin(x: EagerTensor, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:
    """Return the smallest over axes; equals share the gradient."""
    return -amax(-x, axis, keepdims=keepdims)


def _without(x: EagerTensor, places: Sequence[int]) -> EagerTensor:
    return x.reshape(tuple(n for place, n in enumerate(x.shape) if place not in places))


@in_float32
def prod(x: EagerTensor, axis: int | None = None, *, keepdims: bool = False) -> EagerTensor:
    """Return the product along an axis, or of all; right where elements are 0, and so its
    gradients.

    Halves are multiplied, log2(n) times, so rounding differs from a product from left to right.
    """
    x, place = (x.reshape(-1), 0) if axis is None else (x, place_of(x, axis))
    y = _swapped(x, place)
    if not y.shape[-1]:
        y = pad(y, [0] * y.ndim, [0] * (y.ndim - 1) + [1], 1.0)
    while y.shape[-1] > 1:
        if y.shape[-1] % 2:
            y = pad(y, [0] * y.ndim, [0] * (y.ndim - 1) + [1], 1.0)
        one, other = split(y, 2, -1)
        y = one * other
    found = _swapped(y, place)
    return found if keepdims and axis is not None else _without(found, (place,))


def _scanned(x: EagerTensor, place: int, *, times: bool) -> EagerTensor:
    """Return sums or products up to each element (Hillis and Steele 1986): O(n log n)."""
    y, step, count = _swapped(x, place), 1, x.shape[place]
    while step < count:
        before = [0] * (y.ndim - 1) + [step]
        moved = pad(y[..., :-step], before, [0] * y.ndim, 1.0 if times else 0.0)
        y, step = y * moved if times else y + moved, 2 * step
    return _swapped(y, place)


@in_float32
def cumsum(x: EagerTensor, axis: int) -> EagerTensor:
    """Return the sums up to each element along an axis."""
    return _scanned(x, place_of(x, axis), times=False)


@in_float32
def cumprod(x: EagerTensor, axis: int) -> EagerTensor:
    """Return the products up to each element along an axis."""
    return _scanned(x, place_of(x, axis), times=True)


def any(x: EagerTensor, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:  # noqa: A001 - as it is called
    """Return 1 where an element over axes is not 0, else 0."""
    return (x != 0.0).sum(_places(x, axis), keepdims=keepdims) > 0.0


def all(x: EagerTensor, axis: Axes = None, *, keepdims: bool = False) -> EagerTensor:  # noqa: A001 - as above
    """Return 1 where no element over axes is 0, else 0."""
    return (x == 0.0).sum(_places(x, axis), keepdims=keepdims) == 0.0


def allclose(a: Any, b: Any, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Return whether |a - b| is at most atol + rtol |b| everywhere; reads the numbers."""
    try:
        return bool(np.allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol, equal_nan=equal_nan))
    except ValueError as error:
        raise EngineError(f"allclose: {error}") from None


# order


def argmin(x: EagerTensor, axis: int | None = None) -> EagerTensor:
    """Return the place of the first smallest along an axis, or of all; int32."""
    return (-x).argmax(axis)


def argsort(x: EagerTensor, axis: int = -1, *, descending: bool = False) -> EagerTensor:
    """Return the places of elements in order along an axis; of equals the first is first; int32."""
    place = place_of(x, axis)
    return op("argsort", -x if descending else x, axis=place)


def sort(x: EagerTensor, axis: int = -1, *, descending: bool = False) -> tuple[EagerTensor, EagerTensor]:
    """Return the elements in order along an axis, and where they lay."""
    places = argsort(x, axis, descending=descending)
    return gather(x, places, axis), places


def topk(x: EagerTensor, k: int, axis: int = -1, *, largest: bool = True) -> tuple[EagerTensor, EagerTensor]:
    """Return the k largest (or smallest) along an axis in order, and where they lay."""
    place, k = place_of(x, axis), whole("topk", k)
    if not 0 <= k <= x.shape[place]:
        raise EngineError(f"topk: {k} of {x.shape[place]} elements along axis {axis}")
    key = (slice(None),) * place + (slice(k),)
    places = argsort(x, axis, descending=largest)[key]
    return gather(x, places, axis), places


# shapes


def unsqueeze(x: EagerTensor, axis: int) -> EagerTensor:
    """Return x with a new axis of length 1 at a place."""
    if not -x.ndim - 1 <= whole("unsqueeze", axis) <= x.ndim:
        raise EngineError(f"unsqueeze: {axis} is none of the {x.ndim + 1} places of an axis")
    place = axis % (x.ndim + 1)
    return x.reshape(*x.shape[:place], 1, *x.shape[place:])


def squeeze(x: EagerTensor, axis: Axes = None) -> EagerTensor:
    """Return x without its axes of length 1, or without those named that have length 1."""
    return _without(x, [place for place in _places(x, axis) if x.shape[place] == 1])


def flatten(x: EagerTensor, first: int = 0, last: int = -1) -> EagerTensor:
    """Return x with the axes from first to last as one."""
    if not x.ndim:
        return x.reshape(1)
    low, high = place_of(x, first), place_of(x, last)
    if low > high:
        raise EngineError(f"flatten: axis {first} is behind axis {last}")
    return x.reshape(*x.shape[:low], product(x.shape[low : high + 1]), *x.shape[high + 1 :])


def chunk(x: EagerTensor, count: int, axis: int = 0) -> tuple[EagerTensor, ...]:
    """Return views of ceil(n / count) elements each along an axis, the last of what is left."""
    place, count = place_of(x, axis), whole("chunk", count)
    if count < 1:
        raise EngineError(f"chunk: into {count} parts; at least 1")
    length, size = x.shape[place], -(-x.shape[place] // count)
    sizes = [min(size, length - start) for start in range(0, length, size)] if size else [0]
    return split(x, sizes, place)


def unbind(x: EagerTensor, axis: int = 0) -> tuple[EagerTensor, ...]:
    """Return the slices along an axis, that axis gone."""
    place = place_of(x, axis)
    return tuple(_without(part, (place,)) for part in split(x, [1] * x.shape[place], place))


def flip(x: EagerTensor, axes: int | Sequence[int]) -> EagerTensor:
    """Return x with the order along axes turned round."""
    turned = _places(x, axes)
    return x[tuple(slice(None, None, -1 if place in turned else 1) for place in range(x.ndim))]


def roll(x: EagerTensor, shift: int, axis: int) -> EagerTensor:
    """Return x with elements moved on along an axis, the last ones to the front."""
    place, shift = place_of(x, axis), whole("roll", shift)
    by = shift % x.shape[place] if x.shape[place] else 0
    if not by:
        return x
    kept, moved = split(x, [x.shape[place] - by, by], place)
    return concat([moved, kept], place)


def tile(x: EagerTensor, times: int | Sequence[int]) -> EagerTensor:
    """Return x repeated so many times along each of the last axes; new axes in front."""
    given = counts("tile", times) if isinstance(times, Iterable) else (whole("tile", times),)
    node_of(x)
    wide = (1,) * (x.ndim - len(given)) + given
    x = x.reshape(*(1,) * (len(wide) - x.ndim), *x.shape)
    for place, n in enumerate(wide):
        x = concat([x] * n, place) if n else x[(slice(None),) * place + (slice(0),)]
    return x


def index_select(x: EagerTensor, axis: int, ids: Any) -> EagerTensor:
    """Return the slices of x that numbers name along an axis."""
    place = place_of(x, axis)
    order = [place, *(a for a in range(x.ndim) if a != place)]
    back = sorted(range(x.ndim), key=lambda a: order[a])
    return x.transpose(*order)[np.asarray(ids)].transpose(*back)


def _below(x: EagerTensor, diagonal: int) -> Any:
    if x.ndim < 2:
        raise EngineError(f"a triangle of shape {x.shape}: two axes are needed")
    return np.tri(x.shape[-2], x.shape[-1], k=diagonal, dtype=bool)


def _corner(x: EagerTensor, kept: Any) -> EagerTensor:
    return where(np.broadcast_to(kept, x.shape).astype(np.float32), x, 0.0)


def tril(x: EagerTensor, diagonal: int = 0) -> EagerTensor:
    """Return x with 0 above a diagonal of its last two axes."""
    return _corner(x, _below(x, diagonal))


def triu(x: EagerTensor, diagonal: int = 0) -> EagerTensor:
    """Return x with 0 below a diagonal of its last two axes."""
    return _corner(x, ~_below(x, diagonal - 1))


def diagonal(x: EagerTensor) -> EagerTensor:
    """Return the main diagonal of the last two axes, as the last axis."""
    if x.ndim < 2:
        raise EngineError(f"diagonal of shape {x.shape}: two axes are needed")
    rows, columns = x.shape[-2:]
    flat = x.reshape(*x.shape[:-2], rows * columns)
    return flat[..., : min(rows, columns) * (columns + 1) : columns + 1]


@in_float32
def trace(x: EagerTensor) -> EagerTensor:
    """Return the sum of the main diagonal of a matrix."""
    return diagonal(x).sum(-1)


__all__ = [
    "all", "allclose", "amax", "amin", "any", "argmin", "argsort", "chunk", "cosine_similarity", "cumprod",
    "cumsum", "diagonal", "flatten", "flip", "index_select", "logsumexp", "norm", "normalize", "prod", "roll",
    "sort", "squeeze", "std", "tile", "topk", "trace", "tril", "triu", "unbind", "unsqueeze", "var",
]  # fmt: skip
