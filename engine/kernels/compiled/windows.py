"""The numba kernels of windows that slide over images.

Contract
--------
* Images are x[N, C, H, W], dense; one float dtype per call, float32 or float64. Callers
  (`engine.kernels.windows`) check shapes.
* Aliasing. No kernel here may lie over an operand.
* Sums go place by place, in row-major order of the window, so bits do not depend on where arrays
  lie.
"""

# ruff: noqa: PLR0124 - a value that is not itself is a NaN, and that is how compiled code sees it

from typing import Any

from engine.kernels.compiled.jit import kernel, leaf


@leaf
def _seen(count: Any, length: Any, first: Any, step: Any) -> Any:
    """Return the range of the windows whose element lies in [0, length).

    That of window w lies at first + w * step.
    """
    low = max(0, -(first // step))
    return low, max(low, min(count, (length - 1 - first) // step + 1))


@leaf
def _fill(a: Any, number: Any) -> None:
    for i in range(a.size):
        a[i] = number


@kernel
def im2col(x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Write the elements of each window in a row, 0 where it reaches over the border.

    x: (N, C, H, W); out: (N, OH, OW, C * KH * KW).
    """
    images, channels, height, width = x.shape
    across, zero = out.shape[2], x.dtype.type(0)
    for image in range(images):
        for row in range(out.shape[1]):
            for channel in range(channels):
                for i in range(kernel[0]):
                    h = row * stride[0] - padding[0] + i * dilation[0]
                    for j in range(kernel[1]):
                        at = (channel * kernel[0] + i) * kernel[1] + j
                        first = j * dilation[1] - padding[1]
                        low, high = _seen(across, width, first, stride[1])
                        if h < 0 or h >= height:
                            low = high = across
                        windows = out[image, row, :, at]
                        _fill(windows[:low], zero)
                        if low < high:
                            inside, seen = windows[low:high], x[image, channel, h, first + low * stride[1] :]
                            for column in range(inside.size):
                                inside[column] = seen[column * stride[1]]
                        _fill(windows[high:], zero)


@kernel
def im2col_back(dy: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, out: Any) -> None:  # noqa: PLR0917 - compiled
    """Write zeros, with each element of each row added where `im2col` had read it.

    dy: (N, OH, OW, C * KH * KW); out: (N, C, H, W). Windows further down show a pixel in earlier
    rows of theirs, so they come first.
    """
    images, channels, height, width = out.shape
    down, across = dy.shape[1], dy.shape[2]
    for image in range(images):
        for channel in range(channels):
            for h in range(height):
                for w in range(width):
                    out[image, channel, h, w] = 0
        for up in range(down):
            row = down - 1 - up
            for channel in range(channels):
                for i in range(kernel[0]):
                    h = row * stride[0] - padding[0] + i * dilation[0]
                    if h < 0 or h >= height:
                        continue
                    for j in range(kernel[1]):
                        at = (channel * kernel[0] + i) * kernel[1] + j
                        first = j * dilation[1] - padding[1]
                        low, high = _seen(across, width, first, stride[1])
                        if low < high:
                            inside, seen = (
                                dy[image, row, low:high, at],
                                out[image, channel, h, first + low * stride[1] :],
                            )
                            for column in range(inside.size):
                                seen[column * stride[1]] += inside[column]


@kernel
def pool_index(x: Any, kernel: Any, stride: Any, padding: Any, out: Any) -> None:
    """Write the place h * W + w of the first largest (or first NaN) of each window.

    x: (planes, H, W); out: (planes, OH, OW) int32.
    """
    planes, height, width = x.shape
    for plane in range(planes):
        for row in range(out.shape[1]):
            for column in range(out.shape[2]):
                top, left = row * stride[0] - padding[0], column * stride[1] - padding[1]
                best = -1
                value = x[plane, 0, 0]
                for h in range(max(top, 0), min(top + kernel[0], height)):
                    for w in range(max(left, 0), min(left + kernel[1], width)):
                        seen = x[plane, h, w]
                        if best < 0 or (value == value and not seen <= value):
                            best, value = h * width + w, seen
                out[plane, row, column] = best
