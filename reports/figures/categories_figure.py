"""Live bytes by category, step by step: areas one on the other, each said at its widest place.

Categories are those of `allocsim.liveness.memory_categories`: what the values need, whatever the
plan. A program that says of no value to which pass it belongs has `temporaries` instead of
activations, gradients and workspace. Areas have a hatching each, so that no colour is needed to
tell them apart.

Causes that a judge found are lines with their numbers, and a line of words each.

What this module does not see: plans, and why something is wrong.
"""

from itertools import pairwise
from typing import Final, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocsim.liveness.memory_categories import CATEGORIES, by_category
from allocsim.model import Document, Program
from allocsim.model.layout import Int64s
from reports.figures import style
from reports.figures.conflicts import Judgement, faults, left_out, room, told
from reports.figures.fault_marks import mark_steps
from reports.figures.scene import scene
from reports.number_format import count, nbytes, short

COLOURS: Final = dict(
    zip(CATEGORIES, (style.NAVY, style.SKY, style.ORANGE, style.PURPLE, style.BLUE, style.GREEN), strict=True)
)
HATCHES: Final = dict(zip(CATEGORIES, ("", "..", "////", "xx", "\\\\", "--"), strict=True))
SAID: Final = {name: name for name in CATEGORIES} | {"gradients": "gradients of parameters"}
"""What a category is called in the picture; gradients of other values are workspace."""
UNTOLD: Final = "temporaries"
"""What the results of ops are called where no value says to which pass it belongs."""

COLUMNS: Final = 4000
"""Steps beyond which the highest of each stretch is drawn."""


@style.styled
def categories(document: Document, *, run: int = 0, **judged: Unpack[Judgement]) -> Figure:
    """Draw the live bytes of the program of one run; ModelError for a run that does not exist."""
    shown = scene(document, run)
    if shown is None or not len(shown.program.ops) or not shown.program.buffers.nbytes.sum():
        why = "The document has no program." if shown is None else "No op holds a byte."
        return style.nothing("No live bytes", [why], "nothing lives here")
    program = shown.program
    found = by_category(program)
    names = SAID | ({} if _is_told(program) else {"workspace": UNTOLD})
    kept = [name for name in CATEGORIES if found.live[name].any()]
    wrong = faults(document, shown, run, **judged)
    figure = style.canvas(11.5, 5.6 + room(wrong))
    axes = figure.add_subplot()
    edges, heights = thinned(np.stack([found.live[name] for name in kept]))
    top = areas(axes, edges, heights, kept)
    style.step_axis(axes, len(program.ops))
    style.bytes_axis(axes.yaxis, top, "live bytes")
    axes.set_ylim(0, top * 1.08)
    axes.axvline(found.fullest + 0.5, color=style.INK, linewidth=1.0, dashes=(4, 3), zorder=4, gid="fullest")
    mark_steps(axes, wrong, len(program.ops))
    at = found.at_fullest
    handles = [
        Patch(facecolor=style.pale(COLOURS[name], 0.45), edgecolor=COLOURS[name], hatch=HATCHES[name], label=f"{names[name]}  {nbytes(at[name])}")
        for name in reversed(kept)
    ]  # fmt: skip
    title = f"at step {found.fullest:,}"
    figure.legend(handles=handles, loc="outside right upper", title=title, alignment="left", handlelength=2.0)
    most = max(at, key=lambda name: at[name])
    style.heading(
        axes,
        f"{nbytes(sum(at.values()))} live at the fullest step ({found.fullest:,}), {nbytes(at[most])} of them {names[most]}",
        [
            f"{short(program.name, 60)}: {count(len(program.ops), 'op')}; bytes of buffers that a value keeps alive, whatever the plan",
            *([] if _is_told(program) else ["no value says to which pass it belongs (meta.stage)"]),
            *told(wrong),
            *left_out(wrong, **judged),
        ],
    )
    return figure


def _is_told(program: Program) -> bool:
    return any("stage" in meta for meta in program.values.meta.values())


def thinned(live: Int64s) -> tuple[Int64s, Int64s]:
    """Return edges and heights (categories, columns), of many steps the fullest of each stretch."""
    steps = live.shape[1]
    if steps <= COLUMNS:
        return np.arange(steps + 1), live
    edges = np.linspace(0, steps, COLUMNS + 1).astype(np.int64)
    total = live.sum(axis=0)
    fullest = [int(low + np.argmax(total[low:high])) for low, high in pairwise(edges.tolist())]
    return edges, live[:, fullest]


def areas(axes: Axes, edges: Int64s, heights: Int64s, names: list[str]) -> float:
    """Draw heights (names, columns) one on the other; return the highest sum."""
    low = np.zeros(heights.shape[1], dtype=np.float64)
    for name, height in zip(names, heights, strict=True):
        high = low + height
        axes.fill_between(
            edges, np.append(low, low[-1]), np.append(high, high[-1]), step="post", facecolor=style.pale(COLOURS[name], 0.45),
            edgecolor=COLOURS[name], hatch=HATCHES[name], linewidth=0.4 if len(edges) < style.RASTER_ABOVE else 0.0, zorder=2,
            rasterized=len(edges) > style.RASTER_ABOVE, gid=name,
        )  # fmt: skip
        low = high
    return float(low.max())
