"""Live bytes of a step of training by category, as predicted and as measured, on one scale.

Drawn from the record of a run (`memory`): category -> live bytes in each step, twice. The upper
half is what the program was predicted to hold, the lower what a run of it held
(`engine.training.measured_memory`). Colours and hatching are those of `categories_figure`.

What this module does not see: documents, plans, how the bytes were measured.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocsim.liveness.memory_categories import CATEGORIES
from allocsim.model.layout import Int64s
from reports.figures import style
from reports.figures.categories_figure import COLOURS, HATCHES, areas, thinned
from reports.number_format import count, nbytes, short

SIDES = ("predicted", "measured")


@style.styled
def by_category(memory: Mapping[str, Any]) -> Figure:
    """Draw the `memory` of a record: `predicted` and `measured`, category -> live bytes by step."""
    steps = max((len(column) for side in SIDES for column in memory[side].values()), default=0)
    found = {side: _stacked(memory[side], steps) for side in SIDES}
    kept = [i for i in range(len(CATEGORIES)) if any(live[i].any() for live in found.values())]
    if not kept:
        why = ["No step of the run held a byte."]
        return style.nothing("No live bytes", why, "nothing lives here", (11.5, 7.6))
    figure = style.canvas(11.5, 7.6)
    names = [CATEGORIES[i] for i in kept]
    top = max(int(live.sum(axis=0).max()) for live in found.values())
    rows = figure.subplots(2, 1, sharex=True, sharey=True)
    for axes, (side, live) in zip(rows, found.items(), strict=True):
        edges, heights = thinned(live[kept])
        areas(axes, edges, heights, names)
        style.step_axis(axes, live.shape[1])
        style.bytes_axis(axes.yaxis, top, f"{side} live bytes")
        axes.set_ylim(0, top * 1.08)
    fullest = {side: live[:, int(live.sum(axis=0).argmax())] for side, live in found.items()}
    handles = [
        Patch(
            facecolor=style.pale(COLOURS[name], 0.45), edgecolor=COLOURS[name], hatch=HATCHES[name],
            label=f"{name}  {nbytes(int(fullest['predicted'][i]))}, {nbytes(int(fullest['measured'][i]))}",
        )
        for i, name in reversed(list(zip(kept, names, strict=True)))
    ]  # fmt: skip
    title = "at the fullest step:\npredicted, measured"
    figure.legend(handles=handles, loc="outside right upper", title=title, alignment="left", handlelength=2.0)
    name, taken = short(str(memory.get("program") or "the program"), 60), nbytes(int(memory.get("taken") or 0))
    said = {side: int(column.sum()) for side, column in fullest.items()}
    style.heading(
        rows[0],
        f"{nbytes(said['predicted'])} predicted at the fullest step, {nbytes(said['measured'])} measured",
        [f"{name}: {count(steps, 'op')}; the run took {taken} with gaps and padding"],
    )
    return figure


def _stacked(side: Mapping[str, Any], steps: int) -> Int64s:
    """Return live bytes (categories, steps); what is not in the record is none."""
    live = np.zeros((len(CATEGORIES), steps), np.int64)
    for row, name in zip(live, CATEGORIES, strict=True):
        column = side.get(name) or []
        row[: len(column)] = column
    return live
