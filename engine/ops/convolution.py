"""Convolutions of images and filters, each as one op, and their adjoints.

    conv_2d(x[N, C, H, W], w[F, C, KH, KW]) -> [N, F, OH, OW]
        y[n, f, u, v] = sum over c, i, j of w[f, c, i, j] * x[n, c, u SH + i DH - PH, v SW + j DW - PW]
    conv_2d_back_x(dy[N, F, OH, OW], w, shape=[N, C, H, W])    the gradient of x
    conv_2d_back_w(dy[N, F, OH, OW], x, shape=[F, C, KH, KW])  the gradient of w

It is the cross-correlation that libraries call a convolution; stride S, padding P with zeros and
dilation D are as for `im2col` (`engine.ops.windows`). All three are linear in each argument, and
each is the adjoint of the other two: so derivatives of any order are made of them. conv_2d is
ggml's CONV_2D; conv_2d_back_x without padding is its CONV_TRANSPOSE_2D.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Shape, Tensor
from engine.ops.shapes import checked_shape, floating
from engine.ops.windows import pairs, windows


def _result(image: Shape, filters: Shape, params: dict[str, Any]) -> Shape:
    """Return [N, F, OH, OW]; raise EngineError unless images and filters fit."""
    pairs(params)
    if len(image) != 4 or len(filters) != 4 or image[1] != filters[1] or min(filters[2:]) < 1:
        raise EngineError(
            f"[N, C, H, W] and [F, C, KH, KW] must be given, C being the same and a window at least one pixel; "
            f"there are {list(image)} and {list(filters)}"
        )
    return image[0], filters[0], *windows(image, {**params, "kernel": filters[2:]})


def _conv(params: dict[str, Any], x: Tensor, w: Tensor) -> ResultLayout:
    return ResultLayout(shape=_result(x.shape, w.shape, params), dtype=floating(x, w))


def _back_x(params: dict[str, Any], dy: Tensor, w: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    return _adjoint(dy, w, shape, _result(shape, w.shape, params))


def _back_w(params: dict[str, Any], dy: Tensor, x: Tensor) -> ResultLayout:
    shape = params["shape"] = checked_shape(params["shape"])
    return _adjoint(dy, x, shape, _result(x.shape, shape, params))


def _adjoint(dy: Tensor, other: Tensor, shape: Shape, wanted: Shape) -> ResultLayout:
    if dy.shape != wanted:
        raise EngineError(f"{dy} is not {list(wanted)}, which {other} and the shape {shape} make")
    return ResultLayout(shape=shape, dtype=floating(dy, other))


_WINDOWS = "stride=(1, 1), padding=(0, 0), dilation=(1, 1)"
_SAME = "stride=stride, padding=padding, dilation=dilation"

RULES = (
    row(
        f"conv_2d(x, w, *, {_WINDOWS})",
        _conv,
        x=f"conv_2d_back_x(g, w, shape=x.shape, {_SAME})",
        w=f"conv_2d_back_w(g, x, shape=w.shape, {_SAME})",
    ),
    row(
        f"conv_2d_back_x(dy, w, *, shape, {_WINDOWS})",
        _back_x,
        dy=f"conv_2d(g, w, {_SAME})",
        w=f"conv_2d_back_w(dy, g, shape=w.shape, {_SAME})",
    ),
    row(
        f"conv_2d_back_w(dy, x, *, shape, {_WINDOWS})",
        _back_w,
        dy=f"conv_2d(x, g, {_SAME})",
        x=f"conv_2d_back_x(dy, g, shape=x.shape, {_SAME})",
    ),
)
