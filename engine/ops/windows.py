"""Windows that slide over images: the columns of a convolution, and pooling.

Images are x[N, C, H, W]. A window has lengths `kernel` (KH, KW), moves by `stride`, and may reach
`padding` elements over the border, where there are zeros (`im2col`) or nothing (pooling: the mean
divides by KH * KW all the same, the maximum ignores them). `dilation` is the distance of
neighbouring elements of a window. There are OH = (H + 2 PH - DH (KH - 1) - 1) // SH + 1 windows
down, and OW likewise across.

* `im2col`: x -> [N, OH, OW, C * KH * KW], one row for each window, as ggml lays it; `im2col_back`,
  its adjoint, adds columns up into [N, C, H, W]. A product with them is a convolution, as ggml has
  it by parts; in one op, without the columns, it is `engine.ops.convolution`.
* `avg_pool`, `avg_pool_back`: means of windows -> [N, C, OH, OW], and the adjoint.
* `pool_index`: where in its plane (h * W + w) the largest of each window lies, the first of equals,
  i32 [N, C, OH, OW]. A window of NaN has its first NaN. No gradient flows; maximum pooling gathers
  by it (`engine.graph.composites.max_pool2d`).
"""

from collections.abc import Iterable
from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import checked_shape, counts, floating, whole

Pair = tuple[int, int]


def pairs(params: dict[str, Any]) -> None:
    """Put pairs for single numbers; raise EngineError unless all lengths make sense."""
    for name, least in (("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
        if name not in params:
            continue
        given = params[name]
        pair = params[name] = counts(name, given) if isinstance(given, Iterable) else (whole(name, given),) * 2
        if len(pair) != 2 or min(pair) < least:
            raise EngineError(f"{name} {given!r} is not two whole numbers of at least {least}")


def windows(image: tuple[int, ...], params: dict[str, Any]) -> Pair:
    """Return (OH, OW) for an image [.., H, W]; raise EngineError where not one window fits."""
    dilation = params.get("dilation", (1, 1))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(params["kernel"], dilation, strict=True))
    room = tuple(n + 2 * p - r for n, p, r in zip(image[-2:], params["padding"], reach, strict=True))
    if min(room) < 0:
        raise EngineError(f"a window of {reach} does not fit into {image[-2:]} with padding {params['padding']}")
    return (room[0] // params["stride"][0] + 1, room[1] // params["stride"][1] + 1)


def _image(x: Tensor) -> None:
    if len(x.shape) != 4:
        raise EngineError(f"{x} must have the axes image, channel, row and column")


def _im2col(params: dict[str, Any], x: Tensor) -> ResultLayout:
    _image(x)
    pairs(params)
    columns = x.shape[1] * params["kernel"][0] * params["kernel"][1]
    return ResultLayout(shape=(x.shape[0], *windows(x.shape, params), columns), dtype=floating(x))


def _adjoint(params: dict[str, Any], dy: Tensor) -> ResultLayout:
    """Return the layout of the image; the operand must be what its windows give."""
    shape = params["shape"] = checked_shape(params["shape"])
    _image(dy)
    pairs(params)
    if len(shape) != 4:
        raise EngineError(f"shape {shape} is not that of an image [N, C, H, W]")
    found = windows(shape, params)
    (kh, kw), (images, channels) = params["kernel"], shape[:2]
    wanted = (images, *found, channels * kh * kw) if "dilation" in params else (images, channels, *found)
    if dy.shape != wanted:
        raise EngineError(f"{dy} is not {list(wanted)}, which the windows of {shape} give")
    return ResultLayout(shape=shape, dtype=floating(dy))


def _pool(params: dict[str, Any], x: Tensor) -> ResultLayout:
    _image(x)
    pairs(params)
    if any(2 * p > k for p, k in zip(params["padding"], params["kernel"], strict=True)):
        raise EngineError(
            f"padding {params['padding']} is more than half of kernel {params['kernel']}: a window could be empty"
        )
    return ResultLayout(shape=(*x.shape[:2], *windows(x.shape, params)), dtype=floating(x))


def _pool_index(params: dict[str, Any], x: Tensor) -> ResultLayout:
    return ResultLayout(shape=_pool(params, x).shape, dtype="i32")


_POOL = "kernel, stride=(1, 1), padding=(0, 0)"
_COLUMNS = f"{_POOL}, dilation=(1, 1)"

RULES = (
    row(f"im2col(x, *, {_COLUMNS})", _im2col, x="im2col_back(g, shape=x.shape, **params)"),
    row(
        f"im2col_back(dy, *, shape, {_COLUMNS})",
        _adjoint,
        dy="im2col(g, kernel=kernel, stride=stride, padding=padding, dilation=dilation)",
    ),
    row(f"avg_pool(x, *, {_POOL})", _pool, x="avg_pool_back(g, shape=x.shape, **params)"),
    row(
        f"avg_pool_back(dy, *, shape, {_POOL})",
        _adjoint,
        dy="avg_pool(g, kernel=kernel, stride=stride, padding=padding)",
    ),
    row(f"pool_index(x, *, {_POOL})", _pool_index, x=None),
)
