"""Overlapping rectangles: which are drawn one by one, and what the others cover.

A sound plan covers its map at most once, so its rectangles cost no more than the picture has
pixels. A plan that lays a million buffers over each other would have each pixel painted a million
times. Beyond `DEPTH` times the area of the map only the topmost rectangles are drawn; the others
are one picture of what they cover.

Complexity: O(rectangles + pixels).

What this module does not see: what a rectangle stands for.
"""

from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.typing import ColorType
from numpy.typing import NDArray

from allocsim.model import Bools

Floats = NDArray[np.float64]

DEPTH: Final = 64.0
"""How often rectangles may cover the whole map before not all are drawn one by one."""

GRID: Final = (1000, 600)
"""Columns and rows of the picture of what the others cover."""

Window = tuple[float, float, float, float]
"""First and last step, lowest and highest address of a map."""


def topmost(boxes: Floats, window: Window) -> Bools:
    """Return which rectangles to draw one by one.

    Rectangles are (n, 4) first, last, low, high in painting order. What reaches out of the window
    counts as far as it is seen: an enlarged part shows a few steps of long lives.
    """
    first, last, low, high = window
    area = max(last - first, 1.0) * max(high - low, 1.0)
    seen = np.clip(boxes, (first, first, low, low), (last, last, high, high))
    covered = np.cumsum(((seen[:, 1] - seen[:, 0]) * (seen[:, 3] - seen[:, 2]) / area)[::-1])[::-1]
    mask: Bools = covered <= DEPTH
    return mask


def covered(boxes: Floats, window: Window) -> Bools:
    """Return which cells of a grid (rows from the bottom, columns) some rectangle touches."""
    first, last, low, high = window
    columns, rows = GRID
    x = np.clip((boxes[:, :2] - first) / max(last - first, 1.0) * columns, 0, columns)
    y = np.clip((boxes[:, 2:] - low) / max(high - low, 1.0) * rows, 0, rows)
    x0, y0 = (
        np.minimum(np.floor(x[:, 0]).astype(np.int64), columns - 1),
        np.minimum(np.floor(y[:, 0]).astype(np.int64), rows - 1),
    )
    x1, y1 = (
        np.maximum(np.ceil(x[:, 1]).astype(np.int64), x0 + 1),
        np.maximum(np.ceil(y[:, 1]).astype(np.int64), y0 + 1),
    )
    depth = np.zeros((rows + 1, columns + 1), dtype=np.int64)
    for row, column, step in ((y0, x0, 1), (y0, x1, -1), (y1, x0, -1), (y1, x1, 1)):
        np.add.at(depth, (row, column), step)
    mask: Bools = depth.cumsum(axis=0).cumsum(axis=1)[:rows, :columns] > 0
    return mask


def paint(
    axes: Axes, boxes: Floats, window: Window, colour: ColorType, *, alpha: float, zorder: float, gid: str
) -> None:
    """Draw what rectangles cover as one picture."""
    if not len(boxes):
        return
    picture: Any = np.zeros((*GRID[::-1], 4))
    picture[covered(boxes, window)] = mpl.colors.to_rgba(colour, alpha)
    first, last, low, high = window
    axes.imshow(
        picture, extent=(first, max(last, first + 1), low, max(high, low + 1)), origin="lower", aspect="auto",
        interpolation="nearest", zorder=zorder, gid=gid,
    )  # fmt: skip
