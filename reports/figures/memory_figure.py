"""The memory map: steps from left to right, addresses from bottom to top.

Each buffer is a rectangle at its slot, as long as its lifetime.

A buffer taken over in place ends at the step of the handover; a short dark bar on the border marks
it. Conflicts are red on paled colours; the first ones carry the number of their cause in what
`allocsim check` prints, and are said in words below. Their parties are hatched (`map_boxes`). What
is thinner than a few pixels is shown again, enlarged: the first conflict and the peak
(`map_views`). The dashed line is the bound: the most bytes live at once in this arena.
"""

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final, Unpack

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from allocsim.errors import ModelError
from allocsim.judge.violations import Report
from allocsim.model import Document
from allocsim.model.layout import Int64s
from reports.figures import map_boxes
from reports.figures.conflicts import Conflict, Judgement, conflicts, findings, numbered_of
from reports.figures.families import Families, families
from reports.figures.map_boxes import PARTY_LOOKS, PARTY_WORDS, MapBoxes
from reports.figures.map_views import View, views
from reports.figures.overplotting import DEPTH
from reports.figures.scene import LiveCurve, Scene, scene
from reports.figures.style import INK, MARKS, RED, bytes_axis, canvas, heading, nothing, pale, spread, step_axis, styled
from reports.number_format import count, nbytes, over, short

LINE: Final = 150
"""Characters of a line of words below the map."""

INCHES: Final = (10.4, 4.4)
"""Width and height of the axes of the whole map, about."""


@styled
def memory_map(
    document: Document, *, run: int = 0, arena: int = 0, by: str | None = None, **judged: Unpack[Judgement]
) -> Figure:
    """Draw one arena of one run.

    `by` colours by `layer`, `kind` or `role` (None: what fits). A document without a plan, or an
    arena with nothing in it, gives a figure that says so. Raises ModelError for a run or an arena
    that does not exist, UnknownNameError for another `by`.
    """
    report = judged.get("report")
    shown = scene(document, run)
    if not 0 <= arena < max(len(document.arenas), 1):
        raise ModelError("arena", f"{arena} does not exist; there are {len(document.arenas)}, counted from 0")
    buffers = shown.shown(arena) if shown is not None else np.empty(0, dtype=np.int64)
    if shown is None or shown.plan is None or not len(buffers):
        return _nothing(document, shown, arena, report)
    drawn, elsewhere = conflicts(shown, arena, run, report, judged.get("causes", ()))
    faults = () if drawn else findings(shown, arena, run, judged.get("verdict"))
    colours = families(shown, buffers, by)
    mask = np.zeros(len(shown.nbytes), dtype=np.bool_)
    mask[buffers] = True
    live = shown.live_bytes(mask)
    top = int((shown.plan.offset[buffers] + (shown.nbytes[buffers] - 1)).max()) + 1  # the end may be 2^63
    reach = max([top, *(box[3] for conflict in drawn for box in conflict.boxes)])
    floor = min(0, int(shown.plan.offset[buffers].min()))
    handed = shown.handovers[shown.plan.arena[shown.handovers[:, 2]] == arena]
    order = buffers[np.argsort(shown.start[buffers], kind="stable")]
    boxes = MapBoxes(
        shown=shown, buffers=order, stop=visible(shown, handed), colours=colours, faded=bool(drawn or faults)
    )
    numbered = numbered_of(drawn + faults)
    enlarged = views(boxes, numbered, live, (float(floor), float(reach)))
    figure = canvas(12.5, 7.2 + 0.5 * boxes.faded + 3.0 * bool(enlarged))
    rows = figure.subplot_mosaic(
        [["map"] * max(len(enlarged), 1), [view.title for view in enlarged]] if enlarged else [["map"]],
        height_ratios=[5, 2.6] if enlarged else [1],
    )
    axes = rows["map"]
    whole = View(title="", window=(0.0, float(shown.steps), float(floor), float(reach)))
    hidden, roles = _paint(axes, boxes, handed, whole, drawn + faults, numbered=numbered, inches=INCHES)
    step_axis(axes, shown.steps)
    bytes_axis(axes.yaxis, reach, "address in the arena")
    axes.set_ylim(floor, floor + (reach - floor) * 1.04)
    axes.grid(visible=False)
    _numbers(axes, numbered, shown.steps, len(drawn) + len(faults))
    _lines(axes, top, live)
    for view in enlarged:
        _enlarge(rows[view.title], boxes, handed, view, drawn + faults, numbered=numbered)
    _legend(figure, axes, colours, roles, numbered, handed=len(handed), drawn=len(drawn), faults=len(faults))
    details = _details(document, shown, (run, arena), placed=len(buffers), handed=len(handed))
    if elsewhere:
        details.append(
            f"{count(elsewhere, 'violation')} of another run, another arena or a belief, or not listed in the report: not drawn here"
        )
    if hidden:
        details.append(f"{count(hidden, 'buffer')} under {DEPTH:.0f} others and more: grey")
    among = count(len(shown.program.ops), "op") if len(shown.program.ops) else count(len(buffers), "buffer")
    said = _finding(drawn, faults, among, report=report)
    size = _size(top, live.peak)
    words = (
        f"{said}; {size}" if said else f"{count(len(buffers), 'buffer')} in {'an' if size[0] == '8' else 'a'} {size}"
    )
    heading(axes, words, details, room=20 if drawn or faults else 0)
    return figure


def visible(shown: Scene, handed: Int64s) -> Int64s:
    """Return where each rectangle ends: a donor's before the handover, drawn as the recipient's."""
    stop = shown.stop.copy()
    stop[handed[:, 1]] = handed[:, 0]
    return np.maximum(stop, shown.start + (shown.stop > shown.start))


def _nothing(document: Document, shown: Scene | None, arena: int, report: Report | None) -> Figure:
    found = report.count if report is not None else 0
    why = _why_empty(shown, document.arenas[arena].name if document.arenas else "")
    words = "nothing is placed here" + (f"\n{count(found, 'violation')} in the report" if found else "")
    return nothing("No memory map", [why], words)


def _details(document: Document, shown: Scene, at: tuple[int, int], *, placed: int, handed: int) -> list[str]:
    assert shown.plan is not None
    run, arena = at
    apart = int((shown.plan.arena < 0).sum())
    place = f"{count(placed, 'buffer')} in arena {short(document.arenas[arena].name, 24)!r}"
    details = [
        f"{short(shown.source, 60)}: {place}, {apart:,} in memory of their own or nowhere, {handed:,} taken in place"
    ]
    others = len(np.unique(shown.plan.arena[shown.placed & (shown.plan.arena >= 0)])) - 1
    runs = [count(len(document.runs) - 1, "other run")] if len(document.runs) > 1 else []
    more = [*([count(others, "other arena")] if others > 0 else []), *runs]
    which = f"run {run}; " if len(document.runs) > 1 else ""
    return [*details, f"{which}{' and '.join(more)} not drawn here"] if more else details


def _paint(
    axes: Axes, boxes: MapBoxes, handed: Int64s, view: View, drawn: Sequence[Conflict], *,
    numbered: Sequence[Conflict], inches: tuple[float, float],
) -> tuple[int, tuple[str, ...]]:  # fmt: skip
    """Draw what a view shows of a map; return how many buffers are hidden and the roles drawn."""
    seen = boxes.within(view.window)
    hidden = map_boxes.draw_buffers(axes, seen, view.window)
    map_boxes.draw_handovers(axes, boxes.shown, handed)
    map_boxes.draw_names(axes, seen, view.window, inches, map_boxes.roles_in(numbered))
    map_boxes.draw_conflicts(axes, drawn, view.window)
    return hidden, map_boxes.draw_parties(axes, seen, numbered)


def _enlarge(
    axes: Axes, boxes: MapBoxes, handed: Int64s, view: View, drawn: Sequence[Conflict], *, numbered: Sequence[Conflict]
) -> None:
    first, last, low, high = view.window
    near = handed[(handed[:, 0] >= first) & (handed[:, 0] <= last)]
    inside = [conflict for conflict in drawn if any(box[0] < last and box[1] > first for box in conflict.boxes)]
    _paint(axes, boxes, near, view, inside, numbered=numbered, inches=(5.0, 2.2))
    axes.set_xlim(first, last)
    axes.set_ylim(low, high)
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(mpl.ticker.MaxNLocator(nbins=4, integer=True))
    axes.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda y, _: f"{y:,.0f}"))
    axes.tick_params(labelsize=8)
    axes.set_xlabel("step", fontsize=8.5)
    axes.set_ylabel("address (bytes)", fontsize=8.5)
    axes.grid(visible=False)
    axes.set_title(view.title, loc="left", fontsize=9.5, fontweight="bold")


def _numbers(axes: Axes, numbered: Sequence[Conflict], steps: int, total: int) -> None:
    """Write the numbers of conflicts above the map, and what they are below it."""
    if not numbered:
        return
    middles = [(conflict.boxes[0][0] + conflict.boxes[0][1]) / 2 / max(steps, 1) for conflict in numbered]
    for conflict, middle, place in zip(numbered, middles, spread(middles, 0.026, 0.0, 1.0), strict=True):
        axes.annotate(
            str(conflict.number), (middle * max(steps, 1), conflict.boxes[0][3]), (place, 1.0), xycoords="data",
            textcoords=("axes fraction", "axes fraction"), ha="center", va="bottom", fontsize=8.5, fontweight="bold", color="white",
            bbox={"boxstyle": "circle,pad=0.22", "facecolor": RED, "edgecolor": "none"},
            arrowprops={"arrowstyle": "-", "color": RED, "linewidth": 0.8, "shrinkA": 2, "shrinkB": 0},
            annotation_clip=False, zorder=7, gid="number",
        )  # fmt: skip
    words = [
        line
        for conflict in numbered
        for line in wrap(f"{conflict.number}  {conflict.words}", LINE, subsequent_indent="     ")
    ]
    if total > len(numbered):
        words.append(f"and {total - len(numbered):,} more")
    axes.annotate(
        "\n".join(words), (0, 0), (0, -42), xycoords="axes fraction", textcoords="offset points", ha="left", va="top",
        fontsize=8.5, color=RED, linespacing=1.4, annotation_clip=False,
    )  # fmt: skip


def _lines(axes: Axes, top: int, live: LiveCurve) -> None:
    """Draw the plan's peak and the bound with dashes apart; where they are one, one line."""
    same = live.peak == top
    axes.axhline(top, color=INK, linewidth=1.1, zorder=4, label=f"peak {nbytes(top)}" + (" = bound" if same else ""))
    if not same:
        words = f"bound (most bytes live) {nbytes(live.peak)}"
        axes.axhline(live.peak, color=INK, linewidth=1.1, dashes=(5, 3), zorder=4, label=words)


def _legend(
    figure: Figure, axes: Axes, colours: Families, roles: Sequence[str], numbered: Sequence[Conflict], *, handed: int,
    drawn: int, faults: int,
) -> None:  # fmt: skip
    handles: list[Any] = []
    faded = bool(drawn or faults)
    if faded:
        words = f"conflict ({drawn:,})" if drawn else "fault found by the verdict"
        handles.append(Patch(facecolor=pale(RED, 0.55), edgecolor=RED, label=words))
    handles += [Patch(facecolor="none", label=PARTY_WORDS[role], **PARTY_LOOKS[role]) for role in roles]
    for late, words, steps in (
        (True, "read late", [conflict.read for conflict in numbered]),
        (False, "bytes taken", [conflict.taken for conflict in numbered]),
    ):
        if any(step is not None for step in steps):
            handles.append(Line2D([], [], linestyle="none", label=words, **MARKS[late]))
    if handed:
        handles.append(
            Line2D([], [], color=INK, marker="|", linestyle="none", markersize=11, label=f"taken in place ({handed:,})")
        )
    handles += [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=min(len(handles), 5), columnspacing=1.6, handlelength=2.2
    )
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
        cut = report is not None and report.count > len(report.violations)
        return f"{'At least ' if cut else ''}{count(len(drawn), 'conflict')} in {judged} ({named})"
    legal = "" if report is None else f"No conflict in {judged}"
    if report is not None and not report.clean:
        legal = f"{count(report.count, 'violation')} in {judged}, none with bytes in this map"
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
