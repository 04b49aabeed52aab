"""The kernel audit as a matrix.

It has a line for each kernel and operand, a column for each layout, and a mark for what was
measured.

Green is safe, red unsafe (or crashed, or hung), grey what never came to the test. A frame says who
counts on it: full where the author declares it, dashed where only a planner believes it. So what is
wrong is a red field with a frame.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from reports.figures.style import FAINT, GREEN, GREY, INK, RED, canvas, heading, nothing, pale, styled
from reports.number_format import short

COLOURS: Final = {"safe": pale(GREEN, 0.35), "unsafe": RED, "crashed": RED, "hung": RED, "not reached": pale(GREY, 0.5)}
MARKS: Final = {"crashed": "crashed", "hung": "hung", "not reached": "?"}
ORDER: Final = ("apart", "duplicate", "over", "duplicate over", "shifted", "partial", "views")
"""Columns, from the layouts that every kernel must allow to those that none has to."""

NAMED: Final = 4
"""Kernels named above the matrix for each layout."""

WRONG: Final = frozenset({"broken", "assumed"})


@styled
def audit_matrix(rows: Sequence[Mapping[str, Any]], of: str) -> Figure:
    """Draw the rows of `allocsim audit --json`; no row gives a figure that says so."""
    there = dict.fromkeys(str(row["layout"]) for row in rows)
    layouts = sorted(there, key=lambda layout: ORDER.index(layout) if layout in ORDER else len(ORDER))
    lines = list(dict.fromkeys(_line(row) for row in rows))
    size = 4.2 + 1.05 * max(len(layouts), 4), 1.9 + 0.24 * max(len(lines), 4)
    if not lines:
        return nothing("No kernels", ["Nothing was measured."], "nothing to draw", size)
    figure = canvas(*size)
    axes = figure.add_subplot()
    wrong = [row for row in rows if row["verdict"] in WRONG]
    for row in rows:
        x, y = layouts.index(str(row["layout"])), lines.index(_line(row))
        frame = INK if row["declared"] or row["believed"] else "none"
        style = "-" if row["declared"] else (0, (2, 1.5))
        face = COLOURS[row["measured"]]
        if face == RED and frame == "none":
            face = pale(RED, 0.75)
        axes.add_patch(
            Rectangle((x - 0.44, y - 0.4), 0.88, 0.8, facecolor=face, edgecolor=frame, linewidth=1.1, linestyle=style)
        )
        share = f"{row['unsafe_runs']}/{row['runs']}" if row["measured"] == "unsafe" and row.get("runs") else ""
        mark, ink = MARKS.get(row["measured"], share), "white" if face == RED else INK
        axes.text(x, y, mark, ha="center", va="center", fontsize=7, color=ink)
    axes.set_xlim(-0.5, len(layouts) - 0.5)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_xticks(range(len(layouts)), layouts)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(lines)), [short(line, 40) for line in lines])
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.text(0, -0.02, "full frame: declared   dashed: only believed by a planner   n/m: unsafe runs of all",
              transform=axes.transAxes, va="top", fontsize=8.5, color=FAINT)  # fmt: skip
    finding = "Every layout that is declared or believed is safe"
    if wrong:
        finding = f"{len(wrong)} declared or believed layout{'s are' if len(wrong) > 1 else ' is'} unsafe"
    heading(axes, finding, [f"{of}; green: safe, red: unsafe", *_named(wrong, layouts)], room=16)
    return figure


def _named(wrong: Sequence[Mapping[str, Any]], layouts: Sequence[str]) -> list[str]:
    """Return a line for each layout with a fault, with the first few kernels and operands."""
    found = {layout: [f"{row['op']} {row['source']}" for row in wrong if row["layout"] == layout] for layout in layouts}
    return [
        f"{layout}: {', '.join(short(name, 30) for name in names[:NAMED])}"
        + (f" and {len(names) - NAMED} more" if names[NAMED:] else "")
        for layout, names in found.items()
        if names
    ]


def _line(row: Mapping[str, Any]) -> str:
    variant = f" ({row['variant']})" if row.get("variant") else ""
    return f"{row['op']}{variant}, operand {row['source']}"
