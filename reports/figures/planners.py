"""Planners against the lower bound: one line for each planner, one dot for each problem.

A bar is the geometric mean.

The horizontal axis is peak over bound, 1 at its left; planners stand by their mean, the best on
top. A plan that is not sound is a red cross, and a planner without a plan for some problem has no
mean and stands at the end, with the number of its failures.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from reports.figures.style import BLUE, FAINT, ORANGE, RED, blank, canvas, heading, styled
from reports.number_format import short

Ratio = tuple[str, str, float | None, bool]
"""(problem, planner, peak over bound or None, whether the plan is sound)."""

FURTHEST = 3.0
"""Ratios beyond this stand at the edge, with their value."""


@styled
def planner_ratios(rows: Sequence[Ratio]) -> Figure:
    """Draw the ratios of all planners on all problems; no row gives a figure that says so."""
    planners = sorted(
        dict.fromkeys(planner for _, planner, _, _ in rows), key=lambda name: (_mean(rows, name) or math.inf, name)
    )
    problems = list(dict.fromkeys(problem for problem, _, _, _ in rows))
    figure = canvas(10.0, 1.9 + 0.3 * max(len(planners), 4))
    axes = figure.add_subplot()
    if not planners:
        heading(axes, "No planners", ["Nothing was compared."])
        blank(axes, "nothing to draw")
        return figure
    finite = [ratio for _, _, ratio, _ in rows if ratio is not None and math.isfinite(ratio)]
    right = min(max([1.1, *finite]), FURTHEST)
    room = (right - 1.0) * 0.03
    for line, planner in enumerate(planners):
        own = [(ratio, sound) for _, name, ratio, sound in rows if name == planner]
        sound = np.array([min(r, right) for r, good in own if r is not None and good])
        bad = np.array([min(r, right) for r, good in own if r is not None and not good])
        axes.plot(
            sound, np.full(len(sound), line), "o", color=BLUE, alpha=0.55, markersize=5, markeredgewidth=0, zorder=3
        )
        axes.plot(bad, np.full(len(bad), line), "x", color=RED, markersize=7, markeredgewidth=2, zorder=4)
        mean = _mean(rows, planner)
        failures = sum(ratio is None for ratio, _ in own)
        words = (
            f"{failures} of {len(own)} failed" if mean is None and failures else "" if mean is None else f"{mean:.3f}"
        )
        if mean is not None:
            axes.plot(
                [min(mean, right)] * 2,
                [line - 0.32, line + 0.32],
                color=ORANGE,
                linewidth=3,
                solid_capstyle="butt",
                zorder=5,
            )
        axes.annotate(words, (1, line), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", va="center",
                      fontsize=9, color=FAINT, annotation_clip=False)  # fmt: skip
    axes.set_yticks(range(len(planners)), [short(name, 32) for name in planners])
    axes.set_ylim(len(planners) - 0.4, -0.6)
    axes.set_xlim(1.0 - room, right + room)
    axes.set_xlabel(
        "peak / lower bound" + (f" (beyond {FURTHEST:g} at the edge)" if max(finite, default=0) > FURTHEST else "")
    )
    heading(axes, *_heading(rows, planners, problems))
    return figure


def _mean(rows: Sequence[Ratio], planner: str) -> float | None:
    """Return the geometric mean of a planner's ratios; None where one is missing."""
    ratios = [ratio for _, name, ratio, _ in rows if name == planner]
    if any(ratio is None or not math.isfinite(ratio) or ratio <= 0 for ratio in ratios):
        return None
    return math.exp(sum(math.log(ratio) for ratio in ratios if ratio) / len(ratios))


def _heading(rows: Sequence[Ratio], planners: Sequence[str], problems: Sequence[str]) -> tuple[str, list[str]]:
    best = _mean(rows, planners[0])
    unsound = sorted({planner for _, planner, ratio, sound in rows if ratio is not None and not sound})
    finding = (
        f"{planners[0]} is within {best:.3f} of the lower bound" if best is not None else "No planner places everything"
    )
    details = [
        f"{len(planners)} planners on {len(problems)} problem{'' if len(problems) == 1 else 's'}; bar: geometric mean, dot: problem"
    ]
    if unsound:
        details.append(f"unsound (red cross): {', '.join(short(name, 24) for name in unsound)}")
    return finding, details
