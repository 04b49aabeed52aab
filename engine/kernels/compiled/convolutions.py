"""The numba kernels of convolutions: windows of images meet filters, without a matrix of columns.

    correlate:   out[n, f, ..] = sum over (c, tap) of filters[f, c, tap] * x[n, c, ..]
    correlate_filters: out[f, c, tap] = sum over n and pixels of dy[n, f, ..] * x[n, c, ..]

Some rows of an image at a time are *staged*: copied into a room that the second cache holds, with
zeros around and, where windows move by more than one pixel, columns and rows of one phase together.
Then the pixels that a tap meets in a row of windows are neighbours, and a table of distances, one
for each (c, tap), is all that a tile needs (Georganas et al. 2018, "Anatomy of High-Performance
Deep Learning Convolutions on SIMD Architectures", lays data so for good; here it lies as the caller
has it).

Contract
--------
* Arrays are dense, of one float dtype, float32 or float64; callers (`engine.kernels.convolution`)
  check shapes and give rooms that fit.
* No kernel here may lie over an operand.
* An element of `correlate` is one chain of fused multiply-adds, in the order of (c, tap). One of
  `correlate_filters` is a sum over images and blocks of rows, in order, of sums by lanes. Bits
  depend on shapes alone: not on where arrays lie, nor on their place in the image.
* Padding is zeros that are multiplied; what no window shows is not read.
"""

# ruff: noqa: PLR0917 - compiled code takes its words by position

from typing import Any

from engine.kernels.compiled.convolution_tiles import LEFT, RIGHT, ROWS, gathered, paired, put
from engine.kernels.compiled.jit import leaf, unlocked
from engine.kernels.compiled.vectors import LINE


@leaf
def _stage(x: Any, phases: Any, stride: Any, first: Any, held: Any) -> None:
    """held[c, phase, r, s] = x[c, (first + r) * stride + phase, ..] with zeros outside. x.

    (C, H, W); held: (C, phases, rows, pitch). `first` and `stride` are of rows and columns.
    """
    channels, height, width = x.shape
    pitch, zero = held.shape[3], x.dtype.type(0)
    for channel in range(channels):
        for phase in range(len(phases)):
            begin = first[1] * stride[1] + phases[phase, 1]  # the column of x at the left border
            low = min(max(0, -(begin // stride[1])), pitch)
            high = max(low, min(pitch, (width - 1 - begin) // stride[1] + 1))
            for r in range(held.shape[2]):
                h = (first[0] + r) * stride[0] + phases[phase, 0]
                row = held[channel, phase, r]
                if h < 0 or h >= height:
                    for s in range(pitch):
                        row[s] = zero
                    continue
                for s in range(low):
                    row[s] = zero
                if stride[1] == 1:
                    inside, seen = row[low:high], x[channel, h, begin + low :]
                    for s in range(inside.size):
                        inside[s] = seen[s]
                else:
                    for s in range(low, high):
                        row[s] = x[channel, h, begin + s * stride[1]]
                for s in range(high, pitch):
                    row[s] = zero


@leaf
def _distances(channels: int, taps: Any, pitch: int, rows: int, phases: int, size: int, table: Any) -> None:
    """Write the distance in bytes of the first pixel of each (channel, tap) from that of all."""
    at = 0
    for channel in range(channels):
        for tap in range(len(taps)):
            plane = channel * phases + taps[tap, 1]
            table[at] = size * ((plane * rows + taps[tap, 2]) * pitch + taps[tap, 3])
            at += 1


@leaf
def _pack(filters: Any, steps: Any, taps: Any, rows: int, channels: int, packed: Any) -> None:
    """packed[group, k, r] = filters[row * steps[0] + c * steps[1] + tap].

    The row is group * ROWS + r, and k is (c, tap).
    """
    at = 0
    for group in range(0, rows, ROWS):
        for channel in range(channels):
            for tap in range(len(taps)):
                for r in range(ROWS):
                    row = group + r
                    packed[at] = (
                        filters[row * steps[0] + channel * steps[1] + taps[tap, 0]]
                        if row < rows
                        else filters.dtype.type(0)
                    )
                    at += 1


@leaf
def _place(part: Any, rows: int, start: int, pitch: int, stop: int, size: Any, out: Any, begin: Any, pace: Any) -> None:
    """Write a tile to where its pixels belong: in out (rows, H, W), `pace` apart from `begin`.

    Pixel `start + i` of rows of `pitch` is column i of `part`; those from size[1] on are none.
    """
    across = part.shape[1]
    u, v, done = start // pitch, start % pitch, 0
    while done < across and u < stop:
        kept = min(across - done, size[1] - v)
        if kept > 0 and pace[1] == 1:
            target = out.ctypes.data + begin[1] * out.itemsize + (begin[0] + u * pace[0]) * out.strides[1]
            put(part, part.ctypes.data, target + v * out.itemsize, out.strides[0], rows, done, kept)
        else:
            for r in range(rows):
                for i in range(kept):
                    out[r, begin[0] + u * pace[0], begin[1] + (v + i) * pace[1]] = part[r, done + i]
        done += pitch - v
        u, v = u + 1, 0


@unlocked
def correlate(
    x: Any, filters: Any, steps: Any, taps: Any, phases: Any, stride: Any, first: Any, out: Any,
    begin: Any, pace: Any, size: Any, held: Any, packed: Any, table: Any, part: Any, block: int,
) -> None:  # fmt: skip
    """Write out[n, f, begin + pace * (u, v)] of all (u, v) below `size`.

    x: (N, C, H, W); filters: flat, of which `steps` says how far rows and channels are apart; taps:
    (T, 4), the place in a filter, the phase, and row and column in what is staged; phases: (P, 2);
    held: flat, P planes a channel of `block` rows and those that taps reach beyond, with a tile
    behind; packed, table: flat; part: (ROWS, pixels of a tile).
    """
    images, channels = x.shape[:2]
    rows, across = out.shape[1], part.shape[1]
    reach, wide = 0, 0
    for tap in range(len(taps)):
        reach, wide = max(reach, taps[tap, 2]), max(wide, taps[tap, 3])
    pitch, terms = size[1] + wide, channels * len(taps)
    lines = block + reach
    whole = held[: channels * len(phases) * lines * pitch].reshape((channels, len(phases), lines, pitch))
    _distances(channels, taps, pitch, lines, len(phases), x.itemsize, table)
    _pack(filters, steps, taps, rows, channels, packed)
    for image in range(images):
        for top in range(0, size[0], block):
            stop = min(top + block, size[0])
            _stage(x[image], phases, stride, (first[0] + top, first[1]), whole)
            for start in range(0, (stop - top) * pitch - wide, across):
                for group in range(0, rows, ROWS):
                    gathered(
                        x,
                        packed.ctypes.data + group * terms * x.itemsize,
                        held.ctypes.data + start * x.itemsize,
                        table.ctypes.data,
                        part.ctypes.data,
                        terms,
                    )
                    _place(
                        part, min(ROWS, rows - group), start, pitch, stop - top, size,
                        out[image, group:], (begin[0] + top * pace[0], begin[1]), pace,
                    )  # fmt: skip


@unlocked
def correlate_filters(
    dy: Any, low: int, x: Any, taps: Any, phases: Any, alone: Any, stride: Any, first: Any, out: Any,
    held: Any, slopes: Any, lefts: Any, rights: Any, mask: Any, sums: Any, block: int,
) -> None:  # fmt: skip
    """Write out[f, c, tap]: the sum over images and windows of dy[low + f] times what a tap shows.

    dy: (N, at least low + F, U, V); x: (N, C, H, W); out: (F, C, taps); taps, phases: as in
    `correlate`; alone: the one phase of dy; held,
    slopes: rooms for some rows of x and dy, a tile behind; lefts, rights: distances, whole tiles;
    mask: a row of dy, whole lines; sums: (tiles of F, tiles of (c, tap), whole lines).
    """
    images, _, height, width = dy.shape
    count = out.shape[0]
    channels, lanes = x.shape[1], LINE // x.itemsize
    reach, wide = 0, 0
    for tap in range(len(taps)):
        reach, wide = max(reach, taps[tap, 2]), max(wide, taps[tap, 3])
    across = (width + lanes - 1) // lanes
    pitch, terms = max(width + wide, across * lanes), channels * len(taps)
    lines = block + reach
    whole = held[: channels * len(phases) * lines * pitch].reshape((channels, len(phases), lines, pitch))
    seen = slopes[: count * block * pitch].reshape((count, 1, block, pitch))
    for i in range(len(lefts)):
        lefts[i] = min(i, count - 1) * block * pitch * x.itemsize
    _distances(channels, taps, pitch, lines, len(phases), x.itemsize, rights)
    for i in range(terms, len(rights)):
        rights[i] = rights[terms - 1]
    for i in range(mask.size):
        mask[i] = -1 if i < width else 0
    for one in range(sums.shape[0]):
        for other in range(sums.shape[1]):
            for i in range(sums.shape[2]):
                sums[one, other, i] = 0
    for image in range(images):
        for top in range(0, height, block):
            rows = min(block, height - top)
            _stage(x[image], phases, stride, (first[0] + top, first[1]), whole)
            _stage(dy[image, low : low + count], alone, (1, 1), (top, 0), seen)
            for one in range(sums.shape[0]):
                for other in range(sums.shape[1]):
                    paired(
                        x,
                        slopes.ctypes.data,
                        held.ctypes.data,
                        lefts.ctypes.data + 8 * LEFT * one,
                        rights.ctypes.data + 8 * RIGHT * other,
                        mask.ctypes.data,
                        sums.ctypes.data + x.itemsize * sums.shape[2] * (one * sums.shape[1] + other),
                        rows,
                        across,
                        pitch * x.itemsize,
                    )
    for f in range(count):
        for channel in range(channels):
            for tap in range(len(taps)):
                k = channel * len(taps) + tap
                out[f, channel, taps[tap, 0]] = sums[f // LEFT, k // RIGHT, f % LEFT * RIGHT + k % RIGHT]
