"""The memory map: steps from left to right, addresses from bottom to top.

Each buffer is a rectangle at its slot, as long as its lifetime.

A buffer taken over in place ends at the step of the handover; a short dark bar on the border marks
it. Conflicts are red on paled colours, numbered above the axes, and said in words below them. The
dashed line is the bound: the most bytes live at once in this arena.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from allocsim.checks.violations import Report
from allocsim.errors import ModelError
from allocsim.model import Document
from allocsim.model.layout import Int64s
from reports.figures.conflicts import URGENT, Conflict, conflicts, findings
from reports.figures.families import Families, families
from reports.figures.overplotting import DEPTH, Window, paint, topmost
from reports.figures.scene import LiveCurve, Scene, scene
from reports.figures.style import (
    GREY,
    INK,
    RASTER_ABOVE,
    RED,
    blank,
    bytes_axis,
    canvas,
    heading,
    pale,
    spread,
    step_axis,
    styled,
)
from reports.number_format import count, nbytes, over, short

LABELLED: Final = 6
"""Conflicts that get a number and a line of words."""

LINE: Final = 170
"""Characters of a line of words below the map."""

NAMED_BUFFERS: Final = 40
"""Up to this many rectangles carry their buffer's name, where it fits."""

PLACES: Final = (0.5, 0.25, 0.75, 0.1, 0.9)
"""Where along a rectangle its name goes: the first place where no other stands."""


@styled
def memory_map(
    document: Document,
    *,
    run: int = 0,
    arena: int = 0,
    report: Report | None = None,
    verdict: Mapping[str, Any] | None = None,
    by: str | None = None,
) -> Figure:
    """Draw one arena of one run.

    `report` gives the conflicts; without one the map says nothing about right or wrong. Where it
    has none to show, the findings of `verdict` (the object in a run's record) are shown instead:
    what a kernel does wrong under a legal plan. `by` colours by `layer`, `kind` or `role` (None:
    what fits). A document without a plan, or an arena with nothing in it, gives a figure that says
    so. Raises ModelError for a run or an arena that does not exist, UnknownNameError for another
    `by`.
    """
    shown = scene(document, run)
    if not 0 <= arena < max(len(document.arenas), 1):
        raise ModelError("arena", f"{arena} does not exist; there are {len(document.arenas)}, counted from 0")
    buffers = shown.shown(arena) if shown is not None else np.empty(0, dtype=np.int64)
    if shown is None or shown.plan is None or not len(buffers):
        figure = canvas(9.0, 3.2)
        axes = figure.add_subplot()
        found = report.count if report is not None else 0
        heading(axes, "No memory map", [_why_empty(shown, document.arenas[arena].name if document.arenas else "")])
        blank(axes, "nothing is placed here" + (f"\n{count(found, 'violation')} in the report" if found else ""))
        return figure
    figure = canvas(12.5, 7.2)
    axes = figure.add_subplot()
    drawn, elsewhere = conflicts(shown, arena, run, report)
    faults = () if drawn else findings(shown, arena, run, verdict)
    colours = families(shown, buffers, by)
    mask = np.zeros(len(shown.nbytes), dtype=np.bool_)
    mask[buffers] = True
    live = shown.live_bytes(mask)
    top = int((shown.plan.offset[buffers] + (shown.nbytes[buffers] - 1)).max()) + 1  # the end may be 2^63
    reach = max([top, *(box[3] for conflict in drawn for box in conflict.boxes)])
    floor = min(0, int(shown.plan.offset[buffers].min()))
    handed = shown.handovers[shown.plan.arena[shown.handovers[:, 2]] == arena]
    stop = visible(shown, handed)
    window = 0.0, float(shown.steps), float(floor), float(reach)
    hidden = _rectangles(axes, shown, buffers, stop, colours, window=window, faded=bool(drawn or faults))
    _handovers(axes, shown, handed)
    _names(axes, shown, buffers, stop, colours, faded=bool(drawn or faults))
    step_axis(axes, shown.steps)
    bytes_axis(axes.yaxis, reach, "address in the arena")
    axes.set_ylim(floor, floor + (reach - floor) * 1.04)
    axes.grid(visible=False)
    _conflicts(axes, drawn + faults, shown.steps, window)
    _lines(axes, top, live)
    _legend(figure, axes, colours, handed=len(handed), drawn=len(drawn), faults=len(faults))
    apart = int((shown.plan.arena < 0).sum())
    place = f"arena {short(document.arenas[arena].name, 24)!r}"
    placed = f"{count(len(buffers), 'buffer')} in {place}, {apart:,} in memory of their own or nowhere"
    details = [f"{short(shown.source, 60)}: {placed}, {len(handed):,} taken in place"]
    if elsewhere:
        details.append(
            f"{count(elsewhere, 'violation')} of another run, another arena or a belief, or not listed in the report: not drawn here"
        )
    if hidden:
        details.append(f"{count(hidden, 'buffer')} under {DEPTH:.0f} others and more: grey")
    judged = count(len(shown.program.ops), "op") if len(shown.program.ops) else count(len(buffers), "buffer")
    said = _finding(drawn, faults, judged, report=report)
    size = _size(top, live.peak)
    words = (
        f"{said}; {size}" if said else f"{count(len(buffers), 'buffer')} in {'an' if size[0] == '8' else 'a'} {size}"
    )
    heading(axes, words, details, room=20 if drawn or faults else 0)
    return figure


def visible(shown: Scene, handed: Int64s) -> Int64s:
    """Return where each rectangle ends.

    A donor's before the step of the handover, which is drawn as the recipient's.
    """
    stop = shown.stop.copy()
    stop[handed[:, 1]] = handed[:, 0]
    return np.maximum(stop, shown.start + (shown.stop > shown.start))


def _rectangles(
    axes: Axes, shown: Scene, buffers: Int64s, stop: Int64s, colours: Families, *, window: Window, faded: bool
) -> int:
    """Draw the buffers, a later one over an earlier.

    Return how many lie too deep to be drawn one by one.
    """
    assert shown.plan is not None
    order = buffers[np.argsort(shown.start[buffers], kind="stable")]
    x0, x1 = shown.start[order].astype(float), stop[order].astype(float)
    y0 = shown.plan.offset[order].astype(float)
    y1 = y0 + shown.nbytes[order]
    boxes = np.stack([x0, x1, y0, y1], axis=1)
    top = topmost(boxes, window)
    paint(axes, boxes[~top], window, pale(GREY, 0.55 if faded else 0.0), alpha=1.0, zorder=1.9, gid="hidden")
    order, (x0, x1, y0, y1) = order[top], boxes[top].T
    corners = np.stack(
        [np.stack([x0, y0], 1), np.stack([x0, y1], 1), np.stack([x1, y1], 1), np.stack([x1, y0], 1)], axis=1
    )
    faces = [pale(colours.colours[index], 0.55 if faded else 0.0) for index in order.tolist()]
    few = len(order) <= RASTER_ABOVE // 4
    collection = PolyCollection(
        list(corners), facecolors=faces, edgecolors="white" if few else "none", linewidths=0.5 if few else 0.0,
        antialiaseds=few, rasterized=len(order) > RASTER_ABOVE, zorder=2, gid="buffers",
    )  # fmt: skip
    axes.add_collection(collection, autolim=False)
    return int((~top).sum())


def _handovers(axes: Axes, shown: Scene, handed: Int64s) -> None:
    if not len(handed):
        return
    assert shown.plan is not None
    x, donor, recipient = handed.T
    low = shown.plan.offset[recipient]
    high = low + np.minimum(shown.nbytes[donor], shown.nbytes[recipient])
    bars = np.stack([np.stack([x, low], 1), np.stack([x, high], 1)], axis=1).astype(float)
    crowd = min(1.0, 60 / len(handed))
    axes.add_collection(
        LineCollection(
            list(bars), colors=INK, linewidths=0.5 + 1.1 * crowd, rasterized=len(handed) > RASTER_ABOVE, capstyle="butt",
            zorder=3, gid="handovers",
        ),
        autolim=False,
    )  # fmt: skip


def _names(axes: Axes, shown: Scene, buffers: Int64s, stop: Int64s, colours: Families, *, faded: bool) -> None:
    """Write the names into the rectangles of a small map that are large enough for them.

    Where rectangles overlap, beside each other.
    """
    assert shown.plan is not None
    if len(buffers) > NAMED_BUFFERS:
        return
    written: list[tuple[float, float, float]] = []
    height = float((shown.plan.offset[buffers] + (shown.nbytes[buffers] - 1)).max()) + 1.0 or 1.0
    for buffer in buffers.tolist():
        name = shown.program.buffers.names[buffer]
        wide = (stop[buffer] - shown.start[buffer]) / max(shown.steps, 1) * 118  # characters across the axes
        if shown.nbytes[buffer] / height < 0.04 or wide < 4 or not name:
            continue
        luminance = float(np.dot(mpl.colors.to_rgb(colours.colours[buffer]), (0.299, 0.587, 0.114)))
        label, y = short(name, int(wide)), float(shown.plan.offset[buffer] + shown.nbytes[buffer] / 2)
        half = (len(label) + 1) / 118 * max(shown.steps, 1) / 2
        places = [shown.start[buffer] + part * (stop[buffer] - shown.start[buffer]) for part in PLACES]
        free = (x for x in places if all(abs(x - a) >= half + b or abs(y - c) >= 0.035 * height for a, b, c in written))
        x = next(free, None)
        if x is None:
            continue
        written.append((float(x), half, y))
        axes.text(
            x,
            y,
            label,
            ha="center",
            va="center",
            fontsize=9,
            clip_on=True,
            zorder=6,
            color=INK if faded or luminance > 0.5 else "white",
        )


def _conflicts(axes: Axes, drawn: tuple[Conflict, ...], steps: int, window: Window) -> None:
    boxes = [box for conflict in drawn for box in conflict.boxes][::-1]  # the first of the report on top
    if not boxes:
        return
    rows = np.array(boxes, dtype=np.float64)
    top = topmost(rows, window)
    paint(axes, rows[~top], window, RED, alpha=0.45, zorder=4.9, gid="more conflicts")
    corners = [[(a, low), (a, high), (b, high), (b, low)] for a, b, low, high in rows[top].tolist()]
    collection = PolyCollection(
        corners, facecolors=mpl.colors.to_rgba(RED, 0.45), edgecolors=RED, linewidths=1.3,
        rasterized=len(boxes) > RASTER_ABOVE, zorder=5, gid="conflicts", clip_on=False,
    )  # fmt: skip
    axes.add_collection(collection, autolim=False)
    first = _labelled(drawn)
    middles = [(conflict.boxes[0][0] + conflict.boxes[0][1]) / 2 / max(steps, 1) for conflict in first]
    for number, (conflict, middle, place) in enumerate(
        zip(first, middles, spread(middles, 0.026, 0.0, 1.0), strict=True), start=1
    ):
        axes.annotate(
            str(number), (middle * max(steps, 1), conflict.boxes[0][3]), (place, 1.0), xycoords="data",
            textcoords=("axes fraction", "axes fraction"), ha="center", va="bottom", fontsize=8.5, fontweight="bold", color="white",
            bbox={"boxstyle": "circle,pad=0.22", "facecolor": RED, "edgecolor": "none"},
            arrowprops={"arrowstyle": "-", "color": RED, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 0},
            annotation_clip=False, zorder=6,
        )  # fmt: skip
    words = [
        line
        for number, conflict in enumerate(first, start=1)
        for line in wrap(f"{number}  {conflict.words}", LINE, subsequent_indent="     ")
    ]
    if len(drawn) > len(first):
        words.append(f"and {len(drawn) - len(first):,} more")
    axes.annotate(
        "\n".join(words), (0, 0), (0, -42), xycoords="axes fraction", textcoords="offset points", ha="left", va="top",
        fontsize=8.5, color=RED, linespacing=1.4, annotation_clip=False,
    )  # fmt: skip


def _labelled(drawn: Sequence[Conflict]) -> list[Conflict]:
    """Return the conflicts to number: for each victim the gravest, first come first.

    An overlap is no news beside its stale read.
    """
    ranked = sorted(drawn, key=lambda conflict: URGENT.get(conflict.kind, len(URGENT)))
    by_victim: dict[int, Conflict] = {}
    for conflict in ranked:
        by_victim.setdefault(conflict.buffer, conflict)
    return list(by_victim.values())[:LABELLED]


def _lines(axes: Axes, top: int, live: LiveCurve) -> None:
    """Draw the plan's peak and the bound, told apart by their dashes.

    Where they are one, one line says so.
    """
    same = live.peak == top
    axes.axhline(top, color=INK, linewidth=1.1, zorder=4, label=f"peak {nbytes(top)}" + (" = bound" if same else ""))
    if not same:
        axes.axhline(
            live.peak,
            color=INK,
            linewidth=1.1,
            dashes=(5, 3),
            zorder=4,
            label=f"bound (most bytes live) {nbytes(live.peak)}",
        )


def _legend(figure: Figure, axes: Axes, colours: Families, *, handed: int, drawn: int, faults: int) -> None:
    handles: list[Any] = []
    faded = bool(drawn or faults)
    if faded:
        words = f"conflict ({drawn:,})" if drawn else "fault found by the verdict"
        handles.append(Patch(facecolor=pale(RED, 0.55), edgecolor=RED, label=words))
    if handed:
        handles.append(
            Line2D([], [], color=INK, marker="|", linestyle="none", markersize=11, label=f"taken in place ({handed:,})")
        )
    handles += [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), columnspacing=1.6, handlelength=1.6)
    if colours.layers:
        scale = ListedColormap(
            [pale(mpl.colormaps["viridis"](0.08 + 0.84 * n / 255), 0.55 if faded else 0.0) for n in range(256)]
        )
        mappable = mpl.cm.ScalarMappable(norm=mpl.colors.Normalize(0, max(colours.layers - 1, 1)), cmap=scale)
        bar = figure.colorbar(mappable, ax=axes, pad=0.015, fraction=0.03, aspect=32)
        bar.set_label("layer (grey: none)")
        bar.ax.yaxis.set_major_locator(mpl.ticker.MaxNLocator(nbins=8, integer=True))
        bar.outline.set_visible(False)
        return
    patches = [Patch(facecolor=pale(colour, 0.55 if faded else 0.0), label=label) for label, colour in colours.legend]
    titles = {"kind": "made by", "role": "role", "layer": "layer"}
    figure.legend(
        handles=patches, loc="outside right upper", title=titles[colours.by], alignment="left", handlelength=1.0
    )


def _finding(drawn: Sequence[Conflict], faults: Sequence[Conflict], judged: str, *, report: Report | None) -> str:
    """Say what was found among `judged` (`623 ops`), empty where no check was run."""
    if drawn:
        kinds = Counter(conflict.kind for conflict in drawn)
        named = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        return f"{count(len(drawn), 'conflict')} in {judged} ({named})"
    legal = "" if report is None else f"No conflict{'' if report.clean else ' here'} in {judged}"
    if faults:
        named = ", ".join(dict.fromkeys(conflict.kind for conflict in faults))
        return f"{legal}, and yet a fault of class {named}" if legal else f"A fault of class {named}"
    return legal


def _size(top: int, bound: int) -> str:
    if top < bound:
        return f"{nbytes(top)} arena, less than the {nbytes(bound)} that live at once"
    return f"{nbytes(top)} arena, {over(top, bound)}"


def _why_empty(shown: Scene | None, arena: str) -> str:
    if shown is None:
        return "The document has no program."
    if shown.plan is None:
        return f"The document has no plan for {short(shown.program.name)!r}."
    return f"The plan of {short(shown.source)!r} puts no buffer that is used into arena {short(arena)!r}."
