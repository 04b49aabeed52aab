"""A bug before and after: the graph round the fault over its memory, without the defect and with
it.

Two columns of one form. Above, the ops with an arc to each reader (`arc_graph`); the ops that the
verdict names have a red frame and say what they do, and the arc of a late read is red. Below, on
the same axis, the slots of the plan that runs, with the parties hatched as in the memory map: both
times those of the arena in which the fault lies, and of a large program those near its parties. Of
a session the run is shown in which the fault strikes.

What this module does not see: where the two documents come from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocsim.judge.violations import Report
from allocsim.model import Document
from reports.figures import map_boxes, style
from reports.figures.arc_graph import GraphLooks, draw_graph
from reports.figures.conflicts import Conflict, conflicts, findings, numbered_of
from reports.figures.deeds import deeds, findings_of, run_of
from reports.figures.families import families
from reports.figures.map_boxes import PARTY_LOOKS, PARTY_WORDS, MapBoxes
from reports.figures.memory_figure import visible
from reports.figures.scene import Scene, scene

OPS: Final = 24
"""Ops of a larger program that are shown: those round the fault."""

ROOM: Final = 4.0
"""Bytes that are shown of a larger program, over those of the parties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorySide:
    """One of the two documents, as it was judged."""

    title: str
    document: Document
    report: Report
    verdict: Mapping[str, Any]
    """The object in a run's record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Focus:
    """Where the fault lies, as both sides show it."""

    arena: int
    parties: frozenset[str]
    """Names of the buffers that take part."""


@style.styled
def story(title: str, sides: tuple[StorySide, StorySide], lines: tuple[str, ...] = ()) -> Figure:
    """Draw both sides; `lines` stand below the title. O(n log n)."""
    run = run_of(sides[1].verdict)
    figure = style.canvas(15.0, 7.6)
    panels = figure.subplots(2, 2, sharex="col", height_ratios=[3, 4], squeeze=False)
    roles: dict[str, None] = {}
    near = deeds(sides[1].verdict, run)
    focus: Focus | None = None
    for column, side in reversed(list(enumerate(sides))):  # the fault says what is to be seen of the other side
        upper, lower = panels[0][column], panels[1][column]
        here = min(run, max(len(side.document.runs) - 1, 0))
        drawn, focus = _side((upper, lower), side, here, near, focus)
        roles |= dict.fromkeys(drawn)
        words = f"{side.title}" + (f", run {run}" if len(side.document.runs) > 1 else "")
        ink = style.RED if side.verdict.get("class") else style.INK
        upper.set_title(words, loc="left", fontsize=11, fontweight="bold", color=ink)
    handles = [Patch(facecolor="none", label=PARTY_WORDS[role], **PARTY_LOOKS[role]) for role in roles]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), handlelength=2.2)
    below = "\n".join(part for line in lines for part in wrap(line, 190))
    figure.suptitle(title + (f"\n{below}" if below else ""), x=0.01, ha="left", fontsize=10.5, linespacing=1.3)
    return figure


def _side(
    panels: tuple[Axes, Axes], side: StorySide, run: int, near: Mapping[int, str], focus: Focus | None
) -> tuple[list[str], Focus | None]:
    """Draw one side, of a large program the steps round those of `near`; return the roles in it,
    and where the fault lies.
    """
    upper, lower = panels
    shown = scene(side.document, run)
    if shown is None or not len(shown.program.ops):
        style.blank(upper, "no op runs here")
        style.blank(lower, "")
        return [], focus
    marked = deeds(side.verdict, run)
    window = _window(len(shown.program.ops), near or marked)
    looks = GraphLooks(face=lambda _step: "#F3F4F5", marked=marked, late=_late(side.verdict, run))
    draw_graph(upper, shown.program, looks, window=window)
    upper.tick_params(axis="x", length=0, labelbottom=False)
    roles, focus = _slots(lower, side, shown, run, focus, steps=window)
    style.step_axis(lower, len(shown.program.ops))
    lower.set_xlim(*window)
    return roles, focus


def _late(verdict: Mapping[str, Any], run: int) -> frozenset[tuple[int, int]]:
    """Return the arcs of one run from the op that made what is lost to its late reader."""
    pairs = set()
    for finding in findings_of(verdict):
        ends = [finding.get(party) or {} for party in ("victim", "reader")]
        steps = [int(end["op"]) for end in ends if end.get("run") in (None, run) and end.get("op") is not None]
        if len(steps) == len(ends) and steps[0] < steps[1]:
            pairs.add((steps[0], steps[1]))
    return frozenset(pairs)


def _window(steps: int, marked: Mapping[int, str]) -> tuple[float, float]:
    if steps <= 2 * OPS or not marked:
        return 0.0, float(max(steps, 1))
    low, high = min(marked), max(marked) + 1
    if high - low > 2 * OPS:  # the late read, and what lies before it
        low = high - OPS
    room = max((OPS - (high - low)) / 2, 2)
    return float(max(int(low - room), 0)), float(min(int(high + room), steps))


def _slots(
    axes: Axes, side: StorySide, shown: Scene, run: int, focus: Focus | None, *, steps: tuple[float, float]
) -> tuple[list[str], Focus | None]:
    """Draw the slots of the fault's arena; return the roles drawn, and where that is."""
    document = side.document
    by_arena = {arena: _found(side, shown, arena, run) for arena in range(len(document.arenas))}
    arena = max(by_arena, key=lambda number: (bool(by_arena[number]), len(shown.shown(number)), -number), default=0)
    if focus is not None and not by_arena[arena] and focus.arena in by_arena:
        arena = focus.arena
    buffers = shown.shown(arena)
    if shown.plan is None or not len(buffers):
        style.blank(axes, "nothing is placed here")
        return [], focus
    drawn = by_arena[arena]
    handed = shown.handovers[shown.plan.arena[shown.handovers[:, 2]] == arena]
    order = buffers[np.argsort(shown.start[buffers], kind="stable")]
    near, cut = _squeezed(shown, order)
    colours = families(shown, buffers, "kind")
    boxes = MapBoxes(shown=near, buffers=order, stop=visible(near, handed), colours=colours, faded=bool(drawn))
    drawn = tuple(
        replace(conflict, boxes=tuple(_moved(box, shown, near, conflict.buffer) for box in conflict.boxes))
        for conflict in drawn
    )
    numbered = numbered_of(drawn)
    names = shown.program.buffers.names
    if focus is None:
        focus = Focus(arena=arena, parties=frozenset(names[buffer] for c in numbered for _, buffer in c.parties))
    of_parties = np.array([names[buffer] in focus.parties for buffer in order])
    low, high = _height(boxes, of_parties, large=steps != (0.0, float(len(shown.program.ops))))
    window = (*steps, low, high)
    map_boxes.draw_buffers(axes, boxes, window)
    map_boxes.draw_handovers(axes, near, handed)
    map_boxes.draw_names(axes, boxes, window, (6.3, 3.3), map_boxes.roles_in(numbered))
    map_boxes.draw_conflicts(axes, drawn, window)
    roles = map_boxes.draw_parties(axes, boxes, numbered)
    style.bytes_axis(axes.yaxis, high, "slots, gaps cut" if cut else "address in the arena")
    if cut:  # what is written beside the axis would be no addresses
        axes.set_yticks([])
    axes.set_ylim(low, high)  # last: ticks outside would widen it
    axes.grid(visible=False)
    return list(roles), focus


def _height(boxes: MapBoxes, of_parties: Any, *, large: bool) -> tuple[float, float]:
    """Return the bytes shown: all, or of a large program `ROOM` times those of the parties."""
    corners = boxes.corners
    low, high = min(float(corners[:, 2].min()), 0.0), float(corners[:, 3].max())
    if large and of_parties.any():
        below, above = corners[of_parties, 2].min(), corners[of_parties, 3].max()
        middle, half = (below + above) / 2, (above - below) * ROOM / 2
        low, high = max(low, middle - half), min(high, middle + half)
    return low, low + (high - low) * 1.04


def _found(side: StorySide, shown: Scene, arena: int, run: int) -> tuple[Conflict, ...]:
    drawn, _ = conflicts(shown, arena, run, side.report)
    return drawn or findings(shown, arena, run, side.verdict)


def _squeezed(shown: Scene, buffers: Any) -> tuple[Scene, bool]:
    """Return the scene with wide unused gaps between slots cut, and whether there is one."""
    assert shown.plan is not None
    offset = shown.plan.offset
    ends = offset + shown.nbytes
    order = buffers[np.argsort(offset[buffers], kind="stable")]
    widest = max(int(shown.nbytes[buffers].max()), 1)
    moved, reach, shift = offset.copy(), min(0, int(offset[order[0]])), 0
    for buffer in order.tolist():
        gap = int(offset[buffer]) - reach
        shift += max(gap - widest, 0)
        moved[buffer] = offset[buffer] - shift
        reach = max(reach, int(ends[buffer]))
    if not shift:
        return shown, False
    return replace(shown, plan=replace(shown.plan, offset=moved)), True


def _moved(box: tuple[int, int, int, int], shown: Scene, near: Scene, buffer: int) -> tuple[int, int, int, int]:
    assert shown.plan is not None
    assert near.plan is not None
    by = int(near.plan.offset[buffer] - shown.plan.offset[buffer])
    return box[0], box[1], box[2] + by, box[3] + by
