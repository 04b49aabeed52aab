"""Convolutions of images and filters as bound kernels: forward, and its adjoints for both.

The arithmetic is in `engine.kernels.compiled.convolutions`, imported at the first bind. What is
worked out here, from shapes alone, is which pixels each element of a filter (a *tap*) meets.

A window at row u of windows has its tap i at row u * stride + i * dilation - padding of the image.
That is (u + shift) * stride + phase, with 0 <= phase < stride: rows of one phase lie together in
what is staged. The adjoint by the image goes phase by phase of the image instead: row u of phase a
gets, of the filters, the taps i with (a + padding - i * dilation) divisible by the stride, each
from row u + that quotient of dy.

The scratch is some rows of one image (`STAGED` bytes, or one row of windows if that is more) and
the packed filters, whatever the batch is; a plan does not see it.

Where several threads are allowed, each part of a large call (`engine.kernels.threads`) has scratch
of its own: results are cut by images or by rows of windows, gradients of filters by filters, so
that no sum is cut.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from engine.kernels.binding import Array, Arrays, Call, on_dense, one_call, require, scratch
from engine.kernels.rowwise import call
from engine.kernels.threads import cut, parts, together

STAGED: Final = 320 * 1024
"""Bytes of an image staged at a time: with filters and results the second cache holds them."""
NEAR: Final = 16 * 1024
"""Bytes of four planes of dy staged at a time: the first cache holds them beside what they meet."""
LINE: Final = 64
ROWS: Final = 8
VECTORS: Final = 3
LEFT: Final = 4
RIGHT: Final = 6
"""Tiles of `engine.kernels.compiled.convolution_tiles`, which loads numba."""


class TapMeeting(NamedTuple):
    """Which pixels the taps meet along one axis."""

    taps: tuple[tuple[int, int, int], ...]
    """(place in the filter, phase, shift) of each."""

    @property
    def first(self) -> int:
        """The least shift."""
        return min(shift for _, _, shift in self.taps)

    @property
    def reach(self) -> int:
        """Rows that are staged beyond those of the results."""
        return max(shift for _, _, shift in self.taps) - self.first


def _forth(size: int, stride: int, padding: int, dilation: int) -> TapMeeting:
    places = [(i, i * dilation - padding) for i in range(size)]
    return TapMeeting(tuple((i, place % stride, place // stride) for i, place in places))


def _back(size: int, stride: int, padding: int, dilation: int, phase: int) -> TapMeeting:
    places = [(i, phase + padding - i * dilation) for i in range(size)]
    return TapMeeting(tuple((i, 0, place // stride) for i, place in places if place % stride == 0))


def _tables(down: TapMeeting, right: TapMeeting, width: int) -> tuple[Array, Array]:
    """Return the taps (place in the filter, number of the phase, row, column), and those phases."""
    pairs = [(i, j) for i in down.taps for j in right.taps]
    phases = sorted({(i[1], j[1]) for i, j in pairs})
    top, left = down.first, right.first
    taps = [(i[0] * width + j[0], phases.index((i[1], j[1])), i[2] - top, j[2] - left) for i, j in pairs]
    return np.array(taps, np.int64), np.array(phases, np.int64)


def _axes(params: Mapping[str, Any], kernel: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Return (taps, stride, padding, dilation) of rows and of columns."""
    words = (tuple(map(int, params[name])) for name in ("stride", "padding", "dilation"))
    return list(zip(kernel, *words, strict=True))


def _block(length: int, most: int) -> int:
    """Return the length of blocks of at most `most` (at least 1) that are nearly equal."""
    count = -(-length // max(most, 1))
    return -(-length // count)


class Correlation(NamedTuple):
    """What is computed where: every `pace`-th row and column of `out` from `begin` on."""

    x: Array
    filters: Array
    steps: tuple[int, int]
    taps: Array
    phases: Array
    stride: tuple[int, int]
    first: tuple[int, int]
    reach: tuple[int, int]
    out: Array
    begin: tuple[int, int]
    pace: tuple[int, int]
    size: tuple[int, int]
    """Rows and columns of windows."""

    def images(self, kept: slice) -> "Correlation":
        """Return that of some images."""
        return self._replace(x=self.x[kept], out=self.out[kept])

    def rows(self, kept: slice) -> "Correlation":
        """Return that of some rows of windows."""
        return self._replace(
            first=(self.first[0] + kept.start, self.first[1]),
            begin=(self.begin[0] + kept.start * self.pace[0], self.begin[1]),
            size=(kept.stop - kept.start, self.size[1]),
        )

    def call(self) -> Call:
        """Return the call, with scratch of its own."""
        x, out, size = self.x, self.out, self.size
        across, terms = VECTORS * LINE // x.itemsize, x.shape[1] * len(self.taps)
        line = x.shape[1] * len(self.phases) * (size[1] + self.reach[1])
        block = _block(size[0], STAGED // (line * x.itemsize) - self.reach[0])
        rooms = (
            scratch((line * (block + self.reach[0]) + across,), x.dtype),
            scratch((-(-out.shape[1] // ROWS) * ROWS * terms,), x.dtype),
            scratch((terms,), self.taps.dtype),
            scratch((ROWS, across), x.dtype),
        )
        return call(
            "correlate", x, self.filters, self.steps, self.taps, self.phases, self.stride, self.first, out, self.begin,
            self.pace, size, *rooms, block,
        )  # fmt: skip


def _correlation(  # noqa: PLR0917 - what a compiled kernel takes, in its order
    x: Array, filters: Array, steps: tuple[int, int], met: tuple[TapMeeting, TapMeeting], width: int,
    stride: tuple[int, int], out: Array, begin: tuple[int, int], pace: tuple[int, int],
) -> Call:  # fmt: skip
    """Return the call that writes every `pace`-th row and column of `out` from `begin` on."""
    taps, phases = _tables(*met, width)
    down, right = (len(range(at, n, step)) for at, n, step in zip(begin, out.shape[2:], pace, strict=True))
    first, reach = (met[0].first, met[1].first), (met[0].reach, met[1].reach)
    whole = Correlation(
        x, filters.reshape(-1), steps, taps, phases, stride, first, reach, out, begin, pace, (down, right)
    )
    axis, units = (whole.images, len(x)) if len(x) >= down else (whole.rows, down)
    work = len(x) * down * right * out.shape[1] * x.shape[1] * len(taps)
    count = parts(work, units, out=out, reads=(x, filters))
    return together([axis(kept).call() for kept in cut(units, count)])


def _check(kind: str, params: Mapping[str, Any], x: Array, w: Array, y: Array) -> list[tuple[int, int, int, int]]:
    """Return `_axes`; raise EngineError unless x[N, C, H, W] and w[F, C, KH, KW] make y."""
    fits = x.ndim == w.ndim == y.ndim == 4 and x.dtype == w.dtype == y.dtype
    said = f"{kind}: {x.dtype}{list(x.shape)} and {w.dtype}{list(w.shape)} do not fit {y.dtype}{list(y.shape)}"
    require(fits and x.shape[1] == w.shape[1] and y.shape[:2] == (x.shape[0], w.shape[0]), said)
    axes = _axes(params, w.shape[2:])
    found = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, s, p, d) in zip(x.shape[2:], axes, strict=True)]
    require(found == list(y.shape[2:]), said)
    return axes


@on_dense
def bind_conv_2d(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind x[N, C, H, W], w[F, C, KH, KW] -> [N, F, OH, OW]; params stride, padding, dilation."""
    (x, w), (y,) = operands, results
    down, right = _check("conv_2d", params, x, w, y)
    if not x.size or not w.size:
        return y.fill, (0,)
    steps, stride = (w[0].size, w[0, 0].size), (down[1], right[1])
    return _correlation(x, w, steps, (_forth(*down), _forth(*right)), right[0], stride, y, (0, 0), (1, 1))


@on_dense
def bind_conv_2d_back_x(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind dy[N, F, OH, OW], w[F, C, KH, KW] -> [N, C, H, W], what `bind_conv_2d` has of x."""
    (dy, w), (out,) = operands, results
    down, right = _check("conv_2d_back_x", params, out, w, dy)
    if not dy.size or not w.size:
        return out.fill, (0,)
    steps, pace, calls = (w[0, 0].size, w[0].size), (down[1], right[1]), []
    for begin in np.ndindex(*(min(step, n) for step, n in zip(pace, out.shape[2:], strict=True))):
        met = _back(*down, begin[0]), _back(*right, begin[1])
        if all(meeting.taps for meeting in met):
            calls.append(_correlation(dy, w, steps, met, right[0], (1, 1), out, begin, pace))
        else:
            calls.append((np.copyto, (out[:, :, begin[0] :: pace[0], begin[1] :: pace[1]], out.dtype.type(0))))
    return one_call(*calls)


@on_dense
def bind_conv_2d_back_w(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """Bind dy[N, F, OH, OW], x[N, C, H, W] -> [F, C, KH, KW], what `bind_conv_2d` has of w."""
    (dy, x), (out,) = operands, results
    down, right = _check("conv_2d_back_w", params, x, out, dy)
    if not dy.size or not x.size or not out.size:
        return out.fill, (0,)
    met = _forth(*down), _forth(*right)
    taps, phases = _tables(*met, right[0])
    count = parts(dy.size * x.shape[1] * len(taps), -(-len(out) // LEFT), out=out, reads=(dy, x))
    return together([
        _filter_sums(dy, x, taps, phases, (down[1], right[1]), met, out, slice(LEFT * kept.start, LEFT * kept.stop))
        for kept in cut(-(-len(out) // LEFT), count)
    ])  # fmt: skip


def _filter_sums(  # noqa: PLR0917 - what a compiled kernel takes, in its order
    dy: Array, x: Array, taps: Array, phases: Array, stride: tuple[int, int], met: tuple[TapMeeting, TapMeeting],
    out: Array, kept: slice,
) -> Call:  # fmt: skip
    """Return the call that writes those filters of `out`, with scratch of its own."""
    out = out[kept]
    lanes = LINE // x.itemsize
    lines = -(-dy.shape[3] // lanes) * lanes
    pitch = max(dy.shape[3] + met[1].reach, lines)
    planes = x.shape[1] * len(phases)
    most = min(STAGED // (planes * pitch * x.itemsize) - met[0].reach, NEAR // (LEFT * pitch * x.itemsize))
    block = _block(dy.shape[2], most)
    tiles = -(-len(out) // LEFT), -(-x.shape[1] * len(taps) // RIGHT)
    rooms = (
        scratch((planes * (block + met[0].reach) * pitch + met[1].reach + lanes,), x.dtype),
        scratch((len(out) * block * pitch + lanes,), x.dtype),
        *(scratch((count * side,), taps.dtype) for count, side in zip(tiles, (LEFT, RIGHT), strict=True)),
        scratch((lines,), np.dtype(f"i{x.itemsize}")),
        scratch((*tiles, -(-LEFT * RIGHT // lanes) * lanes), x.dtype),
    )
    first, flat = (met[0].first, met[1].first), out.reshape((*out.shape[:2], out[0, 0].size))
    alone = np.zeros((1, 2), np.int64)
    return call("correlate_filters", dy, kept.start, x, taps, phases, alone, stride, first, flat, *rooms, block)
