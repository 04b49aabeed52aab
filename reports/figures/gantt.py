"""Lifetimes as bars, one row for each buffer.

A solid bar is what the program needs, a frame what a planner believes.

A frame that ends before its bar is a buffer believed dead too early, and the missing steps are red;
a frame that goes on behind its bar is waste, and hatched. A pinned buffer may go on without being
waste; a dot marks it. With a report, a cross marks each late read on its victim's row, and a
triangle the step in which the bytes were taken, on the row of who took them; the names of all
parties of a violation are red, behind the numbers of their causes, or an exclamation mark where
they have none. Which buffers have a
row says `lifetime_rows`. A bar is never drawn thinner than a few pixels. Buffers that nothing
touches, and parameters and state (which live throughout), have no row. Where the document holds no
belief, the bars stand alone; where it holds no ops, the belief is all there is.
"""

from typing import Any, Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from allocsim.model import Document, Problem
from allocsim.model.layout import Int64s
from reports.figures import lifetime_rows, style
from reports.figures.conflicts import Judgement, faults, not_drawn, room, told
from reports.figures.families import families
from reports.figures.lifetime_rows import Mark, wrong
from reports.figures.scene import Scene, scene
from reports.number_format import count, nbytes, short

ROWS: Final = 40
"""Buffers shown by default."""

NONE: Final = "nothing lives here"
"""Where no row is."""

LABELLED_ROWS: Final = 64
"""More rows than this carry no names: they would cover one another."""

MARKED: Final = 200
"""Late reads and taken bytes that are marked."""

PINNED: Final[dict[str, Any]] = {"linestyle": "none", "marker": "o", "markersize": 4, "color": style.INK}
"""How the end of a pinned buffer looks."""

THINNEST: Final = 1 / 400
"""Part of the time axis that a bar takes at least: some four pixels."""


@style.styled
def lifetimes(document: Document, *, run: int = 0, limit: int | None = ROWS, **judged: Unpack[Judgement]) -> Figure:
    """Draw the lifetimes of the `limit` buffers of one run that matter most (None: all of them).

    The belief is that of the run's plan, else the document's first problem for the program.
    A report gives the parties of violations and the late reads. Raises ModelError for a run that
    does not exist.
    """
    report = judged.get("report")
    shown = scene(document, run)
    if shown is None:
        return style.nothing("No lifetimes", ["The document has no program.", *not_drawn(report, 0)], NONE)
    believed = shown.problem if len(shown.program.ops) else None
    wrong_here = faults(document, shown, run, **judged)
    numbers = lifetime_rows.numbers(wrong_here)
    rows = lifetime_rows.rows(shown, believed, report, run=run, limit=limit, first=numbers)
    if not len(rows):
        return style.nothing("No lifetimes", ["No buffer but weights is used.", *not_drawn(report, 0)], NONE)
    parties = list(dict.fromkeys([*numbers, *lifetime_rows.in_conflict(report, run)]))
    named = len(rows) <= LABELLED_ROWS
    figure = style.canvas(12.0, room(wrong_here) + (1.9 + 0.185 * max(len(rows), 3) if named else 8.0))
    axes = figure.add_subplot()
    colours = families(shown, rows)
    _bars(axes, shown, rows, colours.colours if colours.by != "layer" else None, believed)
    style.step_axis(axes, max(shown.steps, _end(shown, rows, believed)))
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    if named:
        red = set(parties)
        labels = [
            f"{numbers[b] + '  ' if b in numbers else '! ' if b in red else ''}{short(shown.program.buffers.names[b], 34) or f'buffer {b}'}  {nbytes(shown.nbytes[b])}"
            for b in rows.tolist()
        ]
        axes.set_yticks(range(len(rows)), labels, fontsize=8)
        for label, b in zip(axes.get_yticklabels(), rows.tolist(), strict=True):
            label.set_color(style.RED if b in red else style.INK)
        axes.tick_params(axis="y", length=0)
    else:
        axes.set_yticks([])
        axes.set_ylabel(f"{len(rows):,} buffers in order of birth")
    drawn, hidden = _mark(axes, rows, lifetime_rows.marks(report, run, wrong_here)) if named else ((), 0)
    early, late = wrong(shown, rows, believed)
    _legend(
        figure, shown, rows, believed, early=early, late=late, marks=drawn,
        colours=colours if colours.by != "layer" else None,
    )  # fmt: skip
    finding, details = _heading(
        shown, rows, believed, parties=parties, where="in a conflict" if report is None or report.count else "involved in a fault under a legal plan",
        cut=report is not None and report.count > len(report.violations),
    )  # fmt: skip
    if hidden:
        details.append(f"{count(hidden, 'mark')} of other buffers, or beyond the {MARKED} first, not drawn")
    seen = lifetime_rows.told(report, run, rows) if named else 0
    style.heading(axes, finding, [*details, *told(wrong_here), *not_drawn(report, seen)])
    return figure


def _mark(axes: Axes, rows: Int64s, found: tuple[Mark, ...]) -> tuple[tuple[Mark, ...], int]:
    """Mark late reads and what took the bytes; return what was drawn, and how many were not."""
    place = {int(buffer): row for row, buffer in enumerate(rows.tolist())}
    drawn = tuple(mark for mark in found if mark.buffer in place)[:MARKED]
    for mark in drawn:
        axes.plot(
            mark.step + 0.5, place[mark.buffer], linestyle="none", clip_on=False, zorder=6,
            **style.MARKS[mark.late_read], gid="late read" if mark.late_read else "taken",
        )  # fmt: skip
    return drawn, len(found) - len(drawn)


def _end(shown: Scene, rows: Int64s, believed: Problem | None) -> int:
    """Return where the time axis ends; beliefs that go on for ever do not stretch it."""
    if believed is None:
        return shown.steps
    return max(shown.steps, int(np.minimum(believed.stop[rows], shown.steps + 1).max()))


def _bars(axes: Axes, shown: Scene, rows: Int64s, colours: Any, believed: Problem | None) -> None:
    place = np.arange(len(rows), dtype=np.float64)
    start, stop = shown.start[rows].astype(float), shown.stop[rows].astype(float)
    thinnest = max(shown.steps, _end(shown, rows, believed)) * THINNEST
    raster = len(rows) > style.RASTER_ABOVE // 3
    named = len(rows) <= LABELLED_ROWS
    faces = [style.pale(colours[b] if colours is not None else "#0072B2", 0.25) for b in rows.tolist()]
    _boxes(
        axes,
        start,
        np.maximum(stop, start + thinnest),
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
            axes, first[waste], np.maximum(last, first + thinnest)[waste], place[waste], 0.3 if named else 0.5, facecolors=style.pale(style.GREY, 0.55), edgecolors=style.FAINT,
            hatch="////" if named else None, linewidths=0, rasterized=raster, gid="waste",
        )  # fmt: skip
    if named:
        _boxes(axes, low, high, place, 0.42, facecolors="none", edgecolors=style.INK, linewidths=edge, gid="believed")
        if pinned.any():  # an empty line that is not clipped would still claim the corner of the figure
            axes.plot(high[pinned], place[pinned], clip_on=False, zorder=5, **PINNED)
    for first, last in ((start, np.minimum(low, stop)), (np.maximum(high, start), stop)):
        missed = last > first
        _boxes(
            axes, first[missed], np.maximum(last, first + thinnest)[missed], place[missed], 0.3 if named else 0.5, facecolors=style.RED, edgecolors=style.RED,
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
    figure: Figure,
    shown: Scene,
    rows: Int64s,
    believed: Problem | None,
    *,
    early: Int64s,
    late: Int64s,
    marks: tuple[Mark, ...],
    colours: Any,
) -> None:
    handles: list[Any] = []
    needed = "needed by the ops" if len(shown.program.ops) else "believed lifetime"
    if colours is None or len(colours.legend) < 2:
        handles.append(Patch(facecolor=style.pale("#0072B2", 0.25), label=needed))
    if believed is not None:
        if len(rows) <= LABELLED_ROWS:
            handles.append(Patch(facecolor="none", edgecolor=style.INK, linewidth=0.8, label="believed by the planner"))
        if len(early):
            handles.append(Patch(facecolor=style.RED, label="needed, believed dead"))
        if len(late):
            handles.append(
                Patch(
                    facecolor=style.pale(style.GREY, 0.55),
                    edgecolor=style.FAINT,
                    hatch="////",
                    linewidth=0,
                    label="believed live, not needed",
                )
            )
        if believed.pinned[rows].any() and len(rows) <= LABELLED_ROWS:
            handles.append(Line2D([], [], label="pinned", **PINNED))
    for late_read, words in ((True, "read late"), (False, "took the bytes")):
        if any(mark.late_read == late_read for mark in marks):
            handles.append(Line2D([], [], linestyle="none", label=words, **style.MARKS[late_read]))
    if handles:
        figure.legend(
            handles=handles, loc="outside lower left", ncols=len(handles), columnspacing=1.6, handlelength=1.6
        )
    if colours is not None and len(colours.legend) > 1:
        title = f"{needed},\n{'made by' if colours.by == 'kind' else colours.by}"
        patches = [Patch(facecolor=style.pale(colour, 0.25), label=label) for label, colour in colours.legend]
        figure.legend(handles=patches, loc="outside right upper", title=title, alignment="left", handlelength=1.0)


def _heading(
    shown: Scene, rows: Int64s, believed: Problem | None, *, parties: list[int], where: str, cut: bool
) -> tuple[str, list[str]]:
    everything = lifetime_rows.rows(shown, believed, None, run=0, limit=None)
    part = len(rows) < len(everything)
    early, late = wrong(shown, everything, believed)
    first = [
        words
        for words, some in (
            (f"those {where}", bool(parties)),
            ("those believed dead too early", bool(len(early))),
            ("those believed longest in vain", bool(len(late))),
        )
        if some
    ]
    which = ", ".join([*first, "those alive at the peak and the largest"])
    whose = f"{len(rows):,} of {count(len(everything), 'buffer')} ({which})" if part else count(len(rows), "buffer")
    if parties and not len(early):
        verb = "is" if len(parties) == 1 else "are"
        least = "At least " if cut else ""
        finding = f"{least}{count(len(parties), 'buffer')} {verb} {where}"
    elif believed is None:
        life = shown.stop[everything] - shown.start[everything]
        finding = (
            f"Half of {count(len(everything), 'buffer')} live {count(int(np.median(life)), 'step')} or less"
            if len(everything) > 1
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
    missing = sum(buffer not in rows for buffer in parties if not shown.program.buffers.persistent[buffer])
    details = [
        f"{short(shown.source, 60)}: {whose} that {'live' if len(everything) != 1 else 'lives'} for a part of the run"
    ]
    if seen < len(early):
        details.append(f"{len(early) - seen:,} more believed dead too early are not shown")
    if missing:
        details.append(f"{missing:,} more {where} are not shown")
    if len(rows) > 1:
        details[0] += ", in order of birth"
    return finding, details
