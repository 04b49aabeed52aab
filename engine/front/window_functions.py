"""Windows and sizes of images and volumes, made of ops of the table, with PyTorch's names.

Images are [N, C, H, W], volumes [N, C, D, H, W].

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.axis_functions import index_select
from engine.front.core_functions import concat, conv2d, gather, op, pad, stack, where
from engine.front.elementwise_functions import clone
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor
from engine.ops.shapes import counts, whole

Lengths = int | Sequence[int]


def _each(what: str, given: Lengths, count: int) -> tuple[int, ...]:
    """Return a number for each of some axes, one that is given for all of them alike."""
    found = counts(what, given) if isinstance(given, Iterable) else (whole(what, given),) * count
    if len(found) != count:
        raise EngineError(f"{what} {given!r}: {count} whole numbers are needed, or one for all")
    return found


@in_float32
def unfold(
    x: EagerTensor, kernel: Lengths, *, stride: Lengths = 1, padding: Lengths = 0, dilation: Lengths = 1
) -> EagerTensor:
    """Return the windows of x[N, C, H, W] as columns [N, C KH KW, windows], row by row.

    Raises EngineError where not one window fits, or x has other axes.
    """
    rows = op("im2col", x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)
    return rows.reshape(rows.shape[0], rows.shape[1] * rows.shape[2], rows.shape[3]).transpose(0, 2, 1)


@in_float32
def conv3d(
    x: EagerTensor,
    weight: EagerTensor,
    bias: EagerTensor | None = None,
    *,
    stride: Lengths = 1,
    padding: Lengths = 0,
    dilation: Lengths = 1,
    groups: int = 1,
) -> EagerTensor:
    """Return the cross-correlation of x[N, C, D, H, W] with weight[F, C / groups, KD, KH, KW]: [N,
    F, OD, OH, OW], plus `bias` [F].

    As one `conv2d` of C KD channels for each depth, so x is copied KD times. Stride, padding and
    dilation are one number, or three.
    """
    if x.ndim != 5 or weight.ndim != 5 or x.shape[1] != weight.shape[1] * groups:
        raise EngineError(f"conv3d of {x.shape} with {weight.shape}: [N, C, D, H, W] and [F, C / groups, KD, KH, KW]")
    steps, wide, apart = (
        _each(what, given, 3) for what, given in (("stride", stride), ("padding", padding), ("dilation", dilation))
    )
    if min(*steps, *apart) < 1:
        raise EngineError(f"conv3d: stride {stride} and dilation {dilation} are at least 1")
    deep = pad(x, (0, 0, wide[0], 0, 0), (0, 0, wide[0], 0, 0)) if wide[0] else x
    kernel, filters = weight.shape[2:], weight.shape[0]
    count = (deep.shape[2] - apart[0] * (kernel[0] - 1) - 1) // steps[0] + 1
    if count < 1:
        raise EngineError(f"conv3d: a window of depth {apart[0] * (kernel[0] - 1) + 1} does not fit into {x.shape}")
    starts = range(0, apart[0] * kernel[0], apart[0])
    parts = [deep[:, :, start : start + (count - 1) * steps[0] + 1 : steps[0]] for start in starts]
    channels = x.shape[1] * kernel[0]
    images = stack(parts, 2).transpose(0, 3, 1, 2, 4, 5).reshape(x.shape[0] * count, channels, *x.shape[3:])
    y = conv2d(
        images,
        weight.reshape(filters, weight.shape[1] * kernel[0], *kernel[1:]),
        bias,
        stride=steps[1:],
        padding=wide[1:],
        dilation=apart[1:],
        groups=groups,
    )
    return y.reshape(x.shape[0], count, *y.shape[1:]).transpose(0, 2, 1, 3, 4)


@in_float32
def adaptive_avg_pool2d(x: EagerTensor, size: Lengths) -> EagerTensor:
    """Return x[.., H, W] in `size` (OH, OW), or OH = OW: means over stretches of floor(i H / OH) to
    ceil((i + 1) H / OH), which may overlap.
    """
    if x.ndim < 2 or min(_each("size", size, 2)) < 1:
        raise EngineError(f"adaptive_avg_pool2d of shape {x.shape} to {size}: [.., H, W], and lengths of at least 1")
    for axis, count in zip((-2, -1), _each("size", size, 2), strict=True):
        length, rest = x.shape[axis], (slice(None),) * (-1 - axis)
        spans = [slice(i * length // count, -(-(i + 1) * length // count)) for i in range(count)]
        x = concat([x[(..., span, *rest)].mean(axis, keepdims=True) for span in spans], axis)
    return x


@in_float32
def interpolate(x: EagerTensor, size: Lengths, *, mode: str = "nearest") -> EagerTensor:
    """Return images x[.., H, W] in another size (OH, OW), or OH = OW: the `nearest` element, or
    `bilinear` with the corners of pixels aligned (PyTorch's `align_corners=False`).

    Other modes and scale factors are not taken.
    """
    wanted = _each("size", size, 2)
    if mode not in {"nearest", "bilinear"} or x.ndim < 2 or min(*wanted, *x.shape[-2:]) < 1:
        raise EngineError(f"interpolate: {x.shape} to {wanted}, {mode!r}; lengths of at least 1, nearest or bilinear")
    found = x
    for axis, count in ((-1, wanted[1]), (-2, wanted[0])):
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


@in_float32
def grid_sample(
    x: EagerTensor,
    grid: EagerTensor,
    *,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> EagerTensor:
    """Return x[N, C, H, W] at the places (x, y) of grid[N, OH, OW, 2]: [N, C, OH, OW].

    -1 and 1 are the borders of the image, or the middles of its outer pixels (`align_corners`).
    Mode `bilinear` or `nearest` (halves to the even pixel, no gradient by the grid); beyond the
    border there are `zeros`, the pixels of the `border`, or what its `reflection` shows. The
    gradient of a place that was moved to the middle of an outer pixel, or lies there, is 0 but
    among zeros. A place that is NaN is beyond, and so is an infinite one, where PyTorch has NaN.
    Places are read: a recorded model may sample what it computes, at places that are constant.
    """
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[-1] != 2 or grid.shape[0] != x.shape[0]:
        raise EngineError(f"grid_sample of {x.shape} at {grid.shape}: [N, C, H, W] and [N, OH, OW, 2] are needed")
    if mode not in {"bilinear", "nearest"} or padding_mode not in {"zeros", "border", "reflection"}:
        raise EngineError(f"grid_sample: {mode!r}, {padding_mode!r}; bilinear or nearest, zeros, border or reflection")
    place: list[EagerTensor] = [
        _pixels(grid[..., 1 - k], x.shape[2 + k], padding_mode, align=align_corners) for k in (0, 1)
    ]
    if mode == "nearest":
        return _pixel(x, [np.rint(along.data) for along in place])
    low = [np.floor(along.data) for along in place]
    corners = []
    for down in (0, 1):
        for across in (0, 1):
            apart: Any = (
                along - at if far else (at + 1) - along
                for along, at, far in zip(place, low, (down, across), strict=True)
            )
            tall, wide = (weight.reshape(weight.shape[0], 1, *weight.shape[1:]) for weight in apart)
            corners.append(_pixel(x, [low[0] + down, low[1] + across], tall * wide))
    return corners[0] + corners[1] + corners[2] + corners[3]


def _pixels(along: EagerTensor, length: int, padding_mode: str, *, align: bool) -> EagerTensor:
    """Return places from -1 to 1 as pixels; those beyond the border where they are taken from."""
    found = (along + 1.0) * ((length - 1) / 2) if align else ((along + 1.0) * float(length) - 1.0) * 0.5
    if padding_mode == "zeros":
        return found
    if padding_mode == "reflection":
        found = _reflected(found, *((0.0, length - 1.0) if align else (-0.5, length - 0.5)))
    most = length - 1.0
    return where((found > 0.0) & (found < most), found, found.detach().clamp(0.0, most))


def _reflected(at: EagerTensor, low: float, high: float) -> EagerTensor:
    """Return places as two mirrors show them, one at either end of a stretch (a pixel at least)."""
    long = max(high - low, 1.0)
    over = (at - low) % (2 * long)
    return where(over > long, 2 * long - over, over) + low


def _pixel(x: EagerTensor, place: Sequence[Any], weight: EagerTensor | None = None) -> EagerTensor:
    """Return the pixels [N, C, OH, OW] of x at whole places [N, OH, OW], times a weight [N, 1, OH,
    OW]; 0 where there is none.
    """
    count, channels, height, width = x.shape
    down, across = place
    inside = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    ids = np.where(inside, down, 0) * width + np.where(inside, across, 0)
    ids = np.broadcast_to(
        ids.reshape(count, 1, -1 if count else 0), (count, channels, ids.size // max(count, 1))
    ).astype(np.int32)
    found = gather(x.reshape(count, channels, height * width), ids, -1).reshape(count, channels, *down.shape[1:])
    inside = inside[:, None]
    kept = where(inside, found, 0.0)
    return kept if weight is None else kept * where(inside, weight, 0.0)


__all__ = ["adaptive_avg_pool2d", "conv3d", "grid_sample", "interpolate", "unfold"]
