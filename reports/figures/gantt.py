"""Lifetimes as bars, one row for each buffer.

A solid bar is what the program needs, a frame what a planner believes.

A frame that ends before its bar is a buffer believed dead too early, and the missing steps are red;
a frame that goes on behind its bar is waste, and hatched. A pinned buffer may go on without being
waste; a dot marks it. Rows are the largest buffers, in order of birth; those believed dead too
early come into it whatever their size. Buffers that nothing touches, and parameters and state
(which live throughout), have no row. Where the document holds no belief, the bars stand alone;
where it holds no ops, the belief is all there is.
"""

from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from allocsim.model import Document, Problem
from allocsim.model.layout import Int64s
from reports.figures.families import families
from reports.figures.scene import Scene, scene
from reports.figures.style import FAINT, GREY, INK, RASTER_ABOVE, RED, blank, canvas, heading, pale, step_axis, styled
from reports.number_format import count, nbytes, short

ROWS: Final = 40
"""Buffers shown by default."""

LABELLED_ROWS: Final = 64
"""More rows than this carry no names: they would cover one another."""


@styled
def lifetimes(document: Document, *, run: int = 0, limit: int | None = ROWS) -> Figure:
    """Draw the lifetimes of the `limit` largest buffers of one run (None: all of them).

    The belief is that of the run's plan, else the document's first problem for the program.
    Raises ModelError for a run that does not exist.
    """
    shown = scene(document, run)
    believed = shown.problem if shown is not None and len(shown.program.ops) else None
    rows = _rows(shown, believed, limit) if shown is not None else np.empty(0, dtype=np.int64)
    if shown is None or not len(rows):
        figure = canvas(9.0, 3.2)
        axes = figure.add_subplot()
        heading(
            axes,
            "No lifetimes",
            ["The document has no program." if shown is None else "No buffer but weights is used."],
        )
        blank(axes, "nothing lives here")
        return figure
    named = len(rows) <= LABELLED_ROWS
    figure = canvas(12.0, 1.9 + 0.185 * max(len(rows), 3) if named else 8.0)
    axes = figure.add_subplot()
    colours = families(shown, rows)
    _bars(axes, shown, rows, colours.colours if colours.by != "layer" else None, believed)
    step_axis(axes, max(shown.steps, _end(shown, rows, believed)))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    if named:
        labels = [
            f"{short(shown.program.buffers.names[b], 34) or f'buffer {b}'}  {nbytes(shown.nbytes[b])}"
            for b in rows.tolist()
        ]
        axes.set_yticks(range(len(rows)), labels, fontsize=8)
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(rows):,} buffers in order of birth")
    early, late = _wrong(shown, rows, believed)
    _legend(figure, shown, rows, believed, early=early, late=late, colours=colours if colours.by != "layer" else None)
    finding, details = _heading(shown, rows, believed)
    heading(axes, finding, details)
    return figure


def _rows(shown: Scene, believed: Problem | None, limit: int | None) -> Int64s:
    """Return the buffers to show, in order of birth: those that live and do not live throughout.

    Where not all can be shown, up to half the rows are the largest of those believed dead too
    early, the rest the largest.
    """
    candidates = np.flatnonzero(shown.used & ~shown.program.buffers.persistent)
    largest = candidates[np.argsort(-shown.nbytes[candidates], kind="stable")]
    early, _ = _wrong(shown, largest, believed)
    first = early if limit is None else early[: max(limit, 0) // 2]
    kept = np.concatenate([first, largest[~np.isin(largest, first)]])[: limit if limit is None else max(limit, 0)]
    order = np.lexsort((kept, shown.stop[kept], shown.start[kept]))
    return kept[order]


def _wrong(shown: Scene, rows: Int64s, believed: Problem | None) -> tuple[Int64s, Int64s]:
    """Return the rows believed to live too short, and the unpinned ones believed to live too
    long.
    """
    if believed is None:
        return rows[:0], rows[:0]
    start, stop = believed.start[rows], believed.stop[rows]
    short_of = (start > shown.start[rows]) | (stop < shown.stop[rows])
    beyond = ((start < shown.start[rows]) | (stop > shown.stop[rows])) & ~believed.pinned[rows]
    return rows[short_of], rows[beyond]


def _end(shown: Scene, rows: Int64s, believed: Problem | None) -> int:
    """Return where the time axis ends; beliefs that go on for ever do not stretch it."""
    if believed is None:
        return shown.steps
    return max(shown.steps, int(np.minimum(believed.stop[rows], shown.steps + 1).max()))


def _bars(axes: Axes, shown: Scene, rows: Int64s, colours: Any, believed: Problem | None) -> None:
    place = np.arange(len(rows), dtype=np.float64)
    start, stop = shown.start[rows].astype(float), shown.stop[rows].astype(float)
    raster = len(rows) > RASTER_ABOVE // 3
    named = len(rows) <= LABELLED_ROWS
    faces = [pale(colours[b] if colours is not None else "#0072B2", 0.25) for b in rows.tolist()]
    _boxes(
        axes,
        start,
        stop,
        place,
        0.3 if named else 0.5,
        facecolors=faces,
        linewidths=0,
        rasterized=raster,
        gid="derived",
    )
    if believed is None:
        return
    end = float(_end(shown, rows, believed))
    low, high = np.minimum(believed.start[rows], end).astype(float), np.minimum(believed.stop[rows], end).astype(float)
    pinned = believed.pinned[rows]
    edge = 0.8 if named else 0.0
    for first, last, unless in ((low, np.minimum(start, high), pinned), (np.maximum(stop, low), high, pinned)):
        waste = (last > first) & ~unless
        _boxes(
            axes, first[waste], last[waste], place[waste], 0.3 if named else 0.5, facecolors=pale(GREY, 0.55), edgecolors=FAINT,
            hatch="////" if named else None, linewidths=0, rasterized=raster, gid="waste",
        )  # fmt: skip
    if named:
        _boxes(axes, low, high, place, 0.42, facecolors="none", edgecolors=INK, linewidths=edge, gid="believed")
        if pinned.any():  # an empty line that is not clipped would still claim the corner of the figure
            axes.plot(
                high[pinned],
                place[pinned],
                linestyle="none",
                marker="o",
                markersize=4,
                color=INK,
                clip_on=False,
                zorder=5,
            )
    for first, last in ((start, np.minimum(low, stop)), (np.maximum(high, start), stop)):
        missed = last > first
        _boxes(
            axes, first[missed], last[missed], place[missed], 0.3 if named else 0.5, facecolors=RED, edgecolors=RED,
            linewidths=1.2, rasterized=raster, gid="missed", zorder=4,
        )  # fmt: skip


def _boxes(axes: Axes, low: Any, high: Any, place: Any, half: float, *, zorder: float = 2, **look: Any) -> None:
    """Add one rectangle for each row, `half` a row high to either side."""
    if not len(low):
        return
    corners = [
        [(a, y - half), (a, y + half), (b, y + half), (b, y - half)]
        for a, b, y in zip(low.tolist(), high.tolist(), place.tolist(), strict=True)
    ]
    axes.add_collection(PolyCollection(corners, zorder=zorder, **look), autolim=False)


def _legend(
    figure: Figure, shown: Scene, rows: Int64s, believed: Problem | None, *, early: Int64s, late: Int64s, colours: Any
) -> None:
    handles: list[Any] = []
    needed = "needed by the ops" if len(shown.program.ops) else "believed lifetime"
    if colours is None or len(colours.legend) < 2:
        handles.append(Patch(facecolor=pale("#0072B2", 0.25), label=needed))
    if believed is not None:
        if len(rows) <= LABELLED_ROWS:
            handles.append(Patch(facecolor="none", edgecolor=INK, linewidth=0.8, label="believed by the planner"))
        if len(early):
            handles.append(Patch(facecolor=RED, label="needed, believed dead"))
        if len(late):
            handles.append(
                Patch(
                    facecolor=pale(GREY, 0.55),
                    edgecolor=FAINT,
                    hatch="////",
                    linewidth=0,
                    label="believed live, not needed",
                )
            )
        if believed.pinned[rows].any() and len(rows) <= LABELLED_ROWS:
            handles.append(Line2D([], [], linestyle="none", marker="o", markersize=4, color=INK, label="pinned"))
    if handles:
        figure.legend(
            handles=handles, loc="outside lower left", ncols=len(handles), columnspacing=1.6, handlelength=1.6
        )
    if colours is not None and len(colours.legend) > 1:
        title = f"{needed},\n{'made by' if colours.by == 'kind' else colours.by}"
        patches = [Patch(facecolor=pale(colour, 0.25), label=label) for label, colour in colours.legend]
        figure.legend(handles=patches, loc="outside right upper", title=title, alignment="left", handlelength=1.0)


def _heading(shown: Scene, rows: Int64s, believed: Problem | None) -> tuple[str, list[str]]:
    everything = _rows(shown, believed, None)
    part = len(rows) < len(everything)
    early, late = _wrong(shown, everything, believed)
    which = f"{len(rows):,} of {count(len(everything), 'buffer')}, the largest and those believed dead too early,"
    largest = f"the {len(rows):,} largest of {count(len(everything), 'buffer')}"
    whose = (which if len(early) else largest) if part else count(len(rows), "buffer")
    if believed is None:
        life = shown.stop[rows] - shown.start[rows]
        finding = (
            f"Half of {whose} live {count(int(np.median(life)), 'step')} or less"
            if len(rows) > 1
            else "Lifetime of 1 buffer"
        )
    elif len(early):
        verb = "is" if len(early) == 1 else "are"
        finding = f"{len(early):,} of {count(len(everything), 'buffer')} {verb} believed dead while still needed"
    elif len(late):
        held = int(np.minimum(believed.stop[late] - believed.start[late], shown.steps).sum())
        needed = int((shown.stop[late] - shown.start[late]).sum())
        finding = f"Every believed lifetime is long enough; {len(late):,} are longer than needed, by {held - needed:,} steps in all"
    else:
        pinned = int(believed.pinned[everything].sum())
        longer = f"; {pinned:,} {'is' if pinned == 1 else 'are'} pinned to the end" if pinned else ""
        finding = f"The believed lifetimes of {count(len(everything), 'buffer')} are those the ops need{longer}"
    seen = int(np.isin(early, rows).sum())
    details = [
        f"{short(shown.source, 60)}: {whose} that {'live' if len(everything) != 1 else 'lives'} for a part of the run"
    ]
    if seen < len(early):
        details.append(f"{len(early) - seen:,} more believed dead too early are not shown")
    if len(rows) > 1:
        details[0] += ", in order of birth"
    return finding, details
