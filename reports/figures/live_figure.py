"""Live bytes over time, with the size of each plan.

The area is live bytes, a line is the size of the arenas of a plan.

The peak of the area is the bound: no plan that keeps every buffer intact for its lifetime is
smaller. A thin line under a plan's size is its *reach*, the highest end of a live slot at each
step: the gap between reach and area is fragmentation at that moment. Plans that place the same
buffers of the same program share one area; the areas of others are drawn as outlines.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from allocsim.model import Document
from reports.figures import style
from reports.figures.scene import LiveCurve, Scene, scene, scenes
from reports.number_format import count, nbytes, over, short

PLANS: Final = 7
"""Plans that get a line; further ones are counted."""

WITH_REACH: Final = 3
"""Up to this many plans show their reach."""

_DASHES: Final = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 1)), (0, (9, 3)), (0, (3, 3)))


@style.styled
def live_bytes(document: Document, *, run: int | None = None) -> Figure:
    """Draw live bytes over time and the size of every plan of the document that runs.

    Of one run only if `run` is given.

    Raises ModelError for a run that does not exist.
    """
    if run is not None:
        one = scene(document, run)
        found: tuple[Scene, ...] = () if one is None else (one,)
    else:
        found = _distinct(scenes(document))
    curves = [shown.live_bytes(shown.placed) for shown in found]
    alive = any(curve.peak for curve in curves)
    figure = style.canvas(11.5, 5.6) if alive else style.canvas(9.0, 3.2)
    axes = figure.add_subplot()
    if not alive:
        style.heading(axes, "No live bytes", ["No buffer of the document is placed in an arena and used."])
        style.blank(axes, "nothing lives here")
        return figure
    shown, lives = found[:PLANS], curves[:PLANS]
    sizes = [scene.plan.peak_bytes if scene.plan is not None else 0 for scene in shown]
    areas = _areas(axes, lives)
    top = max(*sizes, *(curve.peak for curve in lives), 1)
    steps = max(scene.steps for scene in shown)
    if len(shown) <= WITH_REACH:
        for index, scene_ in enumerate(shown):
            if scene_.plan is not None:
                _stairs(axes, scene_.reach(), color=style.pale(style.PALETTE[index], 0.25), linewidth=0.7, zorder=3)
    style.step_axis(axes, steps)
    style.bytes_axis(axes.yaxis, top, "memory")
    axes.set_ylim(0, top * 1.08)
    _sizes(axes, shown, sizes, lives, top=top, steps=steps)
    style.heading(axes, *_heading(shown, sizes, lives, areas, len(found)))
    return figure


def _distinct(found: Sequence[Scene]) -> tuple[Scene, ...]:
    """Return the scenes with each pair of plan and program once.

    A plan that runs twice is one line.
    """
    kept: dict[tuple[int, int], Scene] = {}
    for shown in found:
        kept.setdefault((id(shown.plan), id(shown.program)), shown)
    return tuple(kept.values())


def _areas(axes: Axes, lives: Sequence[LiveCurve]) -> int:
    """Draw each different curve of live bytes once, the first as an area.

    Return how many there are.
    """
    drawn: list[LiveCurve] = []
    for index, curve in enumerate(lives):
        if not curve.peak or any(
            np.array_equal(c.edges, curve.edges) and np.array_equal(c.height, curve.height) for c in drawn
        ):
            continue
        if not drawn:
            edges, height = curve.edges, curve.height
            axes.fill_between(
                edges, np.append(height, height[-1]), step="post", color=style.pale(style.BLUE, 0.72), linewidth=0, zorder=1,
                rasterized=len(edges) > 3 * style.RASTER_ABOVE, gid="live",
            )  # fmt: skip
            _stairs(axes, curve, color=style.pale(style.BLUE, 0.1), linewidth=0.9, zorder=2)
        else:
            _stairs(
                axes,
                curve,
                color=style.pale(style.PALETTE[index], 0.15),
                linewidth=0.9,
                zorder=2,
                linestyle=_DASHES[index],
            )
        drawn.append(curve)
    return len(drawn)


def _stairs(axes: Axes, curve: LiveCurve, **look: Any) -> None:
    raster = len(curve.edges) > 3 * style.RASTER_ABOVE
    axes.step(curve.edges, np.append(curve.height, curve.height[-1:]), where="post", rasterized=raster, **look)


def _sizes(
    axes: Axes, found: Sequence[Scene], sizes: Sequence[int], lives: Sequence[LiveCurve], *, top: int, steps: int
) -> None:
    """Draw the sizes and the bound, each said at the right end of its line."""
    highest = max(lives, key=lambda curve: curve.peak)
    bound = highest.peak
    labels: list[tuple[float, str, str]] = [
        (bound, f"bound {nbytes(bound)}\n(alive at step {highest.peak_at:,})", style.INK)
    ]
    axes.axhline(bound, color=style.INK, linewidth=1.0, dashes=(4, 3), zorder=4)
    for index, (shown, size, live) in enumerate(zip(found, sizes, lives, strict=True)):
        if shown.plan is None or not size:
            continue
        axes.axhline(size, color=style.PALETTE[index], linewidth=1.8, linestyle=_DASHES[index], zorder=5)
        labels.append(
            (size, f"{short(shown.source, 30)}\n{nbytes(size)}, {over(size, live.peak)}", style.PALETTE[index])
        )
    places = style.spread([height for height, _, _ in labels], top * 0.085, 0.0, top * 1.05)
    for (height, words, colour), place in zip(labels, places, strict=True):
        axes.annotate(
            words, (max(steps, 1), height), (1.025, place), textcoords=("axes fraction", "data"), va="center", ha="left",
            fontsize=8.5, color=style.INK, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 1.0, "shrinkA": 1, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def _heading(
    shown: Sequence[Scene], sizes: Sequence[int], lives: Sequence[LiveCurve], areas: int, total: int
) -> tuple[str, list[str]]:
    planned = [(size, scene_, live) for size, scene_, live in zip(sizes, shown, lives, strict=True) if size]
    first = shown[0]
    bound = max(curve.peak for curve in lives)
    details = [
        f"{short(first.program.name, 60)}: {count(len(first.program.ops), 'op')}; live bytes of the buffers that have a slot, in-place pairs counted once"
    ]
    if planned and len(shown) <= WITH_REACH:
        details.append("thin line in a plan's colour: the highest end of a live slot at that step")
    if areas > 1:
        details.append(
            "The plans place different buffers: each has its own live bytes; the bound is the highest of them."
        )
    if total > len(shown):
        details.append(f"{count(total - len(shown), 'further plan')} not shown")
    if not planned:
        return f"At most {nbytes(bound)} live at once", details
    if len(planned) == 1:
        size, scene_, live = planned[0]
        name = short(scene_.source, 30)
        if size < live.peak:
            return f"{name} takes {nbytes(size)}, less than the {nbytes(live.peak)} that live at once", details
        return f"{name} takes {nbytes(size)}, {over(size, live.peak)}", details
    low, high = min(planned, key=lambda row: row[0]), max(planned, key=lambda row: row[0])
    return (
        f"Plans take {nbytes(low[0])} ({short(low[1].source, 24)}) to {nbytes(high[0])} ({short(high[1].source, 24)}); at most {nbytes(bound)} live at once",
        details,
    )
