"""Modes against the reference: the largest error by layer at one step, and by step.

Errors are drawn on a logarithmic axis; curves that lie on one another stay visible, later ones
thinner and dashed. A mode that equals the reference to the bit has no logarithm: it stands on the
lower edge as a downward triangle; one that is not finite on the upper edge as an upward triangle.
The float64 mode is the reference's own rounding error, drawn as a band below which a difference is
nothing.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from reports.figures.style import GREY, PALETTE, canvas, heading, nothing, pale, styled
from reports.mode_rows import Errors, layers_at, over_steps, telling_step
from reports.number_format import count, figures, short

MARKERS: Final = ("o", "s", "D", "^", "v", "P", "X")
DASHES: Final = ("solid", (0, (5, 2)), (0, (2, 2)), (0, (6, 2, 1.5, 2)))
LOWEST: Final = 1e-9
"""Errors below this stand with it."""


@styled
def mode_errors(courses: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the errors of every mode; no course gives a figure that says so."""
    if not courses:
        return nothing("No modes", ["Nothing was compared."], "nothing to draw", (12.0, 5.6))
    figure = canvas(12.0, 5.6)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    step = telling_step(courses)
    layers, steps = layers_at(courses, step), over_steps(courses)
    numbered = [layer for layer in layers if layer is not None]
    beside = max(numbered, default=-1) + 1
    _panel(left, courses, {beside if layer is None else layer: errors for layer, errors in layers.items()})
    _panel(right, courses, dict(steps))
    left.set_xlabel(f"layer (at step {step}; {beside}: in no layer)")
    right.set_xlabel("training step")
    left.set_ylabel("largest error / largest magnitude  (log)")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", title="mode", alignment="left")
    heading(left, *_heading(courses))
    return figure


def _panel(axes: Axes, courses: Sequence[Mapping[str, Any]], places: Mapping[int, Errors]) -> None:
    x = np.array(list(places), dtype=np.float64)
    known = [
        error for errors in places.values() for error in errors if error is not None and isfinite(error) and error > 0
    ]
    floor, ceiling = max(min([*known, 1e-6]) / 10, LOWEST), max([*known, 1e-3]) * 10
    axes.set_yscale("log")
    axes.set_ylim(floor, ceiling)
    axes.yaxis.set_major_locator(LogLocator(numticks=9))
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda error, _: f"{error:g}" if 1e-3 <= error < 1e4 else f"{error:.0e}")
    )
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, min_n_ticks=1))
    for index, course in enumerate(courses):
        errors = [row[index] for row in places.values()]
        y = np.array([np.nan if error is None else error for error in errors], dtype=np.float64)
        name = short(course["mode"], 24)
        if course.get("dtype") == "f64" and course.get("nature") == "rounding":
            axes.fill_between(
                x, floor, np.maximum(y, floor), color=pale(GREY, 0.5), label=f"{name}: rounding", zorder=1
            )
            continue
        colour, marker = PALETTE[index % len(PALETTE)], MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]
        inside = np.where(y > 0, np.maximum(y, floor), np.nan)
        axes.plot(x, inside, marker=marker, markersize=max(9 - index, 4), linewidth=max(4 - 0.5 * index, 1), linestyle=DASHES[index % len(DASHES)],
                  color=colour, markeredgecolor="white", markeredgewidth=0.4, label=name, gid=f"mode {name}", zorder=3)  # fmt: skip
        shift = (index - (len(courses) - 1) / 2) * 0.08
        for edge, symbol, there in ((floor, "v", y == 0), (ceiling, "^", np.isnan(y))):
            if there.any():
                axes.plot(x[there] + shift, np.full(int(there.sum()), edge), linestyle="none", marker=symbol, markersize=6, color=colour,
                          clip_on=False, zorder=4)  # fmt: skip


def _heading(courses: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
    said: dict[str, list[str]] = {}
    for course in courses:
        said.setdefault(course.get("nature") or "different", []).append(short(course["mode"], 24))
    order = ("corruption", "different", "rounding", "equal")
    finding = "; ".join(f"{nature}: {', '.join(said[nature])}" for nature in order if nature in said)
    wrong = [course for course in courses if course.get("nature") in {"corruption", None} and course.get("first")]
    details = [f"{count(len(courses), 'mode')} against the reference; triangles on the lower edge are equal to the bit"]
    if wrong:
        first = wrong[0]["first"]
        size = "" if first.get("relative") is None else f", error {figures(first['relative'])}"
        details.append(
            f"{short(wrong[0]['mode'], 24)}: first wrong tensor {short(first['name'], 48)} at step {first['step']}{size}"
        )
    return finding, details
