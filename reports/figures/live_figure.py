"""Live bytes over time, with the size of each plan.

The area is live bytes, a line is the size of the arenas of a plan.

The peak of the area is the bound: no plan that keeps every buffer intact for its lifetime is
smaller. A thin line under a plan's size is its *reach*, the highest end of a live slot at each
step: the gap between reach and area is fragmentation at that moment. Plans that place the same
buffers of the same program share one area; the areas of others are drawn as outlines.

Hatched grey on top of the area is what the first plan keeps beyond it because lifetimes are
believed too long. With a report, the red area are the bytes of that plan that two live buffers
share, a cross stands at each late read, and a line with its number at each cause.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from allocsim.model import Document
from allocsim.model.layout import Int64s
from reports.figures import style
from reports.figures.conflicts import (
    Conflict,
    Judgement,
    drawable,
    not_drawn,
    numbered_of,
    room,
    told,
    verdict_findings,
)
from reports.figures.fault_marks import mark_steps
from reports.figures.scene import LiveCurve, Scene, scene, scenes
from reports.number_format import count, nbytes, over, short

PLANS: Final = 7
"""Plans that get a line; further ones are counted."""

WITH_REACH: Final = 3
"""Up to this many plans show their reach."""

MARKED: Final = 50
"""Late reads that are marked; of more, so many, evenly chosen in time."""

COLUMNS: Final = 400
"""Parts of the axis of steps, some four pixels wide, of which an overlap takes one at least."""

LOWEST: Final = 1 / 100
"""Part of the axis of bytes that an overlap takes at least, so that its hatching shows."""

_DASHES: Final = ("solid", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 1)), (0, (9, 3)), (0, (3, 3)))


@style.styled
def live_bytes(document: Document, *, run: int | None = None, **judged: Unpack[Judgement]) -> Figure:
    """Draw live bytes over time and the size of every plan of the document that runs.

    Of one run only if `run` is given. A report gives the overlaps and late reads of the first run
    drawn. Raises ModelError for a run that does not exist.
    """
    report = judged.get("report")
    if run is not None:
        one = scene(document, run)
        found: tuple[Scene, ...] = () if one is None else (one,)
    else:
        found = _distinct(scenes(document))
    curves = [shown.live_bytes(shown.placed) for shown in found]
    alive = any(curve.peak for curve in curves)
    if not alive:
        why = "No buffer of the document is placed in an arena and used."
        return style.nothing("No live bytes", [why, *not_drawn(report, 0)], "nothing lives here")
    found_here = drawable(document, found[0], run or 0, report, judged.get("causes", ()))
    wrong = numbered_of(found_here or verdict_findings(document, found[0], run or 0, judged.get("verdict")))
    figure = style.canvas(11.5, 5.6 + room(wrong))
    axes = figure.add_subplot()
    shown, lives = found[:PLANS], curves[:PLANS]
    sizes = [scene.plan.peak_bytes if scene.plan is not None else 0 for scene in shown]
    areas = _areas(axes, lives)
    kept, shared = shown[0].wasted_bytes(), _shared(shown[0], found_here)
    top = max(*sizes, *(curve.peak for curve in lives), _waste(axes, lives[0], kept), shared.peak, 1)
    steps = max(scene.steps for scene in shown)
    if len(shown) <= WITH_REACH:
        for index, scene_ in enumerate(shown):
            if scene_.plan is not None:
                _stairs(axes, scene_.reach(), color=style.pale(style.PALETTE[index], 0.25), linewidth=0.7, zorder=3)
    style.step_axis(axes, steps)
    style.bytes_axis(axes.yaxis, top, "memory")
    axes.set_ylim(0, top * 1.08)
    _sizes(axes, shown, sizes, lives, top=top, steps=steps)
    _overlaps(axes, shared, found_here, steps, top)
    mark_steps(axes, wrong, steps)
    finding, details = _heading(shown, sizes, lives, areas, len(found))
    if kept is not None and kept.peak:
        details.append(
            f"hatched: kept because lifetimes are believed too long, at most {nbytes(kept.peak)} (step {kept.peak_at:,})"
        )
    late = sum(conflict.read is not None for conflict in found_here)
    if shared.peak or late:
        cut = report is not None and report.count > len(report.violations)
        least = "at least " if cut else ""
        red = (
            [f"red: {least}{nbytes(shared.peak)} that live buffers share (step {shared.peak_at:,})"]
            if shared.peak
            else []
        )
        crosses = (
            [
                f"crosses: {count(late, 'late read')}{'' if len(_late(found_here)) <= MARKED else f', {MARKED} of them, evenly chosen'}"
            ]
            if late
            else []
        )
        details.append("; ".join(red + crosses))
        finding = f"Live buffers overlap; {finding}" if shared.peak else f"Read late; {finding}"
    drawn = sum(bool(c.boxes) and (c.kind == "Overlap" or c.read is not None) for c in found_here)
    style.heading(axes, finding, [*details, *told(wrong), *not_drawn(report, drawn)])
    return figure


def _shared(shown: Scene, found: Sequence[Conflict]) -> LiveCurve:
    """Return the bytes that two or more live buffers share, over time, each byte once.

    O(n log n) for n rectangles, and O(n^2 log n) where all of them share bytes.
    """
    places = shown.plan.arena if shown.plan is not None else np.zeros(len(shown.nbytes), dtype=np.int32)
    boxes = {
        (int(places[conflict.buffer]), *box)
        for conflict in found
        if conflict.kind == "Overlap"
        for box in conflict.boxes
    }
    table = np.array(sorted(boxes), dtype=np.int64).reshape(-1, 5)
    rows = table[:, 1:]
    edges = np.unique(np.concatenate([[0, shown.steps], rows[:, 0], rows[:, 1]]))
    total = np.zeros(max(len(edges) - 1, 0), dtype=np.int64)
    for group in (group for arena in np.unique(table[:, 0]) for group in _groups(rows[table[:, 0] == arena])):
        own = np.unique(np.concatenate([group[:, 0], group[:, 1]]))
        for first, last in pairwise(own.tolist()):
            here = group[(group[:, 0] <= first) & (group[:, 1] >= last)]
            total[np.searchsorted(edges, first) : np.searchsorted(edges, last)] += _union(here[:, 2], here[:, 3])
    return LiveCurve(edges=edges, height=total)


def _groups(rows: Int64s) -> Iterator[Int64s]:
    """Yield the rectangles by groups that have no byte in common."""
    order = rows[np.argsort(rows[:, 2], kind="stable")]
    reach = np.maximum.accumulate(order[:, 3])
    cuts = np.flatnonzero(order[1:, 2] >= reach[:-1]) + 1
    return (group for group in np.split(order, cuts) if len(group))


def _union(low: Int64s, high: Int64s) -> int:
    """Return how many bytes some ranges, sorted by where they begin, have together."""
    if not len(low):
        return 0
    before = np.concatenate([low[:1], np.maximum.accumulate(high)[:-1]])
    return int(np.maximum(high - np.maximum(low, before), 0).sum())


def _waste(axes: Axes, live: LiveCurve, kept: LiveCurve | None) -> int:
    """Draw what is kept in vain on top of what lives; return the highest byte."""
    if kept is None or not kept.peak:
        return 0
    edges = np.union1d(live.edges, kept.edges)
    low, more = (
        curve.height[np.clip(np.searchsorted(curve.edges, edges[:-1], side="right") - 1, 0, len(curve.height) - 1)]
        for curve in (live, kept)
    )
    axes.fill_between(
        edges, np.append(low, low[-1]), np.append(low + more, (low + more)[-1]), step="post", facecolor=style.pale(style.GREY, 0.6),
        edgecolor=style.FAINT, hatch="////", linewidth=0, zorder=0.9, rasterized=len(edges) > 3 * style.RASTER_ABOVE, gid="waste",
    )  # fmt: skip
    return int((low + more).max())


def _overlaps(axes: Axes, shared: LiveCurve, found: Sequence[Conflict], steps: int, top: int) -> None:
    """Draw the bytes that two buffers share, none thinner than some pixels, and late reads."""
    if shared.peak:
        outlines = _stretches(shared, steps, top * LOWEST)
        axes.add_collection(
            PolyCollection(
                outlines, facecolors=style.pale(style.RED, 0.35), edgecolors=style.RED, hatch="xxxx", linewidths=0.8, zorder=2.5,
                gid="overlap",
            ),
            autolim=False,
        )  # fmt: skip
    late = _late(found)
    for step in late[
        np.unique(np.linspace(0, len(late) - 1, min(len(late), MARKED)).round().astype(np.int64))
    ].tolist():
        axes.plot(
            step + 0.5, top * 0.02, linestyle="none", clip_on=False, zorder=6, gid="late read", **style.MARKS[True]
        )


def _late(found: Sequence[Conflict]) -> Int64s:
    """Return the steps of late reads, each once, sorted."""
    return np.unique(np.array([conflict.read for conflict in found if conflict.read is not None], dtype=np.int64))


def _distinct(found: Sequence[Scene]) -> tuple[Scene, ...]:
    """Return the scenes with each plan and program once; a plan that runs twice is one line."""
    kept: dict[tuple[int, int], Scene] = {}
    for shown in found:
        kept.setdefault((id(shown.plan), id(shown.program)), shown)
    return tuple(kept.values())


def _areas(axes: Axes, lives: Sequence[LiveCurve]) -> int:
    """Draw each different curve of live bytes once, the first as an area; return the count."""
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
            colour = style.pale(style.PALETTE[index], 0.15)
            _stairs(axes, curve, color=colour, linewidth=0.9, zorder=2, linestyle=_DASHES[index])
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


def _stretches(shared: LiveCurve, steps: int, least: float) -> list[list[tuple[float, float]]]:
    """Return the outline (step, bytes) of each stretch that is not zero, none lower than `least`.

    It is as high in each of the columns of the axis as the curve at its highest there.
    """
    ends = np.linspace(0, steps, min(steps, COLUMNS) + 1)
    first = np.searchsorted(shared.edges, ends[:-1], side="right") - 1
    last = np.searchsorted(shared.edges, ends[1:], side="left")
    tall = [int(shared.height[low:high].max(initial=0)) for low, high in zip(first, last, strict=True)]
    outlines: list[list[tuple[float, float]]] = []
    for begin, end, size, before in zip(ends[:-1].tolist(), ends[1:].tolist(), tall, [0, *tall], strict=False):
        if not size:
            continue
        if not before:
            outlines.append([(begin, 0.0), (begin, 0.0)])
        height = max(float(size), least)
        outlines[-1][-1:] = [(begin, height), (end, height), (end, 0.0)]
    return outlines


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
