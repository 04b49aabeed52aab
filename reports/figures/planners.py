"""Planners against the lower bound: one line for each planner, one dot for each problem.

A bar is the geometric mean.

The horizontal axis is peak over bound, from 1 or what is below it; planners stand by their mean,
the best on top. A plan that is not sound is a red cross, what is beyond the edge an arrow there. A
planner without a plan for some problem has no mean and stands at the end, with the number of its
failures. The title names the best of those that were asked about all problems and are sound.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from reports.figures.style import BLUE, FAINT, ORANGE, RED, canvas, heading, nothing, styled
from reports.number_format import short

Ratio = tuple[str, str, float | None, bool]
"""(problem, planner, peak over bound or None, whether the plan is sound)."""

FURTHEST = 3.0
"""Ratios beyond this are arrows at the edge; their mean is written beside them."""


@styled
def planner_ratios(rows: Sequence[Ratio]) -> Figure:
    """Draw the ratios of all planners on all problems; no row gives a figure that says so."""
    planners = sorted(
        dict.fromkeys(planner for _, planner, _, _ in rows), key=lambda name: (_mean(rows, name) or math.inf, name)
    )
    problems = list(dict.fromkeys(problem for problem, _, _, _ in rows))
    size = 10.0, 1.9 + 0.3 * max(len(planners), 4)
    if not planners:
        return nothing("No planners", ["Nothing was compared."], "nothing to draw", size)
    figure = canvas(*size)
    axes = figure.add_subplot()
    finite = [ratio for _, _, ratio, _ in rows if ratio is not None and math.isfinite(ratio)]
    right = min(max([1.1, *finite]), FURTHEST)
    left = min([1.0, *finite])
    room = (right - left) * 0.03
    for line, planner in enumerate(planners):
        own = [(ratio, sound) for _, name, ratio, sound in rows if name == planner]
        sound = np.array([r for r, good in own if r is not None and good and r <= right])
        far = np.array([right for r, good in own if r is not None and good and r > right])
        axes.plot(
            far, np.full(len(far), line), ">", color=BLUE, markersize=8, markeredgewidth=0, zorder=6, gid="beyond"
        )
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
            bar = [min(mean, right)] * 2, [line - 0.32, line + 0.32]
            axes.plot(*bar, color=ORANGE, linewidth=3, solid_capstyle="butt", zorder=5)
        axes.annotate(words, (1, line), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", va="center",
                      fontsize=9, color=FAINT, annotation_clip=False)  # fmt: skip
    axes.set_yticks(range(len(planners)), [_label(rows, name, len(problems)) for name in planners])
    axes.set_ylim(len(planners) - 0.4, -0.6)
    axes.set_xlim(left - room, right + room)
    axes.set_xlabel(
        "peak / lower bound" + (f" (arrow: beyond {FURTHEST:g})" if max(finite, default=0) > FURTHEST else "")
    )
    heading(axes, *_heading(rows, planners, problems))
    return figure


def _mean(rows: Sequence[Ratio], planner: str) -> float | None:
    """Return the geometric mean of a planner's ratios; None where one is missing."""
    ratios = [ratio for _, name, ratio, _ in rows if name == planner]
    if any(ratio is None or not math.isfinite(ratio) or ratio <= 0 for ratio in ratios):
        return None
    return math.exp(sum(math.log(ratio) for ratio in ratios if ratio) / len(ratios))


def _placed(rows: Sequence[Ratio], planner: str) -> int:
    """Return how many problems a planner was asked about."""
    return len({problem for problem, name, _, _ in rows if name == planner})


def _label(rows: Sequence[Ratio], planner: str, problems: int) -> str:
    asked = _placed(rows, planner)
    return short(planner, 32) + ("" if asked == problems else f" ({asked} of {problems})")


def _heading(rows: Sequence[Ratio], planners: Sequence[str], problems: Sequence[str]) -> tuple[str, list[str]]:
    unsound = sorted({planner for _, planner, ratio, sound in rows if ratio is not None and not sound})
    best = next((name for name in planners if name not in unsound and _placed(rows, name) == len(problems)), None)
    mean = None if best is None else _mean(rows, best)
    finding = (
        "No planner places everything soundly" if mean is None else f"{best} is within {mean:.3f} of the lower bound"
    )
    details = [
        f"{len(planners)} planners on {len(problems)} problem{'' if len(problems) == 1 else 's'}; bar: geometric mean, dot: problem"
    ]
    if unsound:
        details.append(f"unsound (red cross): {', '.join(short(name, 24) for name in unsound)}")
    return finding, details
