"""What is in a picture, as text: titles, words, and shapes and marks by name, in the units of their
axes.

Two pictures with the same text show the same; colours, fonts and pixels are not in it.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection, PatchCollection, PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch


def seen(figure: Figure) -> str:
    """Return the text of a figure."""
    lines: list[str] = []
    title = figure.get_suptitle()
    if title:
        lines.append(f"figure: {one_line(title)}")
    for number, axes in enumerate(figure.axes):
        lines.append(f"axes {number}: {one_line(axes.get_title(loc='left'))}")
        lines += sorted(f"  {line}" for line in _of(axes))
    for legend in figure.legends:
        lines += [
            f"legend: {one_line(text.get_text())}"
            for text in (legend.get_title(), *legend.get_texts())
            if text.get_text()
        ]
    return "\n".join(lines) + "\n"


def _of(axes: Any) -> Iterator[str]:
    for found in axes.collections:
        name = found.get_gid()
        if name and isinstance(found, PolyCollection):
            hatch = found.get_hatch()
            words = f"{name}{f' hatched {hatch}' if hatch else ''}"
            yield from (f"{words} {_box(path.vertices)}" for path in found.get_paths() if len(path.vertices))
        elif name and isinstance(found, LineCollection):
            yield from (f"{name} {_box(segment)}" for segment in found.get_segments())
        elif name and isinstance(found, PatchCollection):
            yield from (
                f"{name} {_point(path.vertices[0])} to {_point(path.vertices[-1])}" for path in found.get_paths()
            )
    for line in axes.get_lines():
        if line.get_gid():
            data = np.column_stack([np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)])
            yield f"{line.get_gid()} {' '.join(_point(row) for row in data)}"
    for patch in axes.patches:
        if isinstance(patch, FancyBboxPatch) and patch.get_gid():
            yield (
                f"{patch.get_gid()} at "
                f"{_point((patch.get_x(), patch.get_y()))}{' hatched' if patch.get_hatch() else ''}"
            )
    for text in axes.texts:
        if text.get_text():
            yield f"{text.get_gid() or 'words'}: {one_line(text.get_text())}"


def one_line(text: str) -> str:
    """Return words on one line."""
    return " / ".join(text.splitlines())


def _box(vertices: Any) -> str:
    low, high = np.min(vertices, axis=0), np.max(vertices, axis=0)
    return f"{_point(low)} to {_point(high)}"


def _point(pair: Any) -> str:
    return f"({float(pair[0]):.4g}, {float(pair[1]):.4g})"
