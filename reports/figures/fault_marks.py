"""Causes on an axis of steps: a dashed red line with the number of its cause where each is seen.

*Where*: the step of the late read, else that in which the bytes were taken, else the first step of
what is shown of it. Causes of one step share a line.

What this module does not see: what is wrong; it is told.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from matplotlib.axes import Axes

from allocsim.model.layout import Int64s
from reports.figures.conflicts import Conflict
from reports.figures.style import RED

NEAR: Final = 1 / 60
"""Part of the axis of steps within which numbers cover one another."""


def seen_at(conflict: Conflict) -> int:
    """Return the step at which a conflict is marked."""
    steps = (conflict.read, conflict.taken, conflict.boxes[0][0])
    return next(step for step in steps if step is not None)


def mark_steps(axes: Axes, found: Sequence[Conflict], steps: int, at: Int64s | None = None) -> None:
    """Draw the line and the number of each of `conflicts.faults` on axes of `steps` steps.

    `at` is when each op begins, where that is another time.
    """

    def place(conflict: Conflict) -> int:
        return seen_at(conflict) if at is None else int(at[seen_at(conflict)])

    for step, group in groupby(sorted(found, key=lambda each: (place(each), each.number)), key=place):
        axes.axvline(step + 0.5, color=RED, linewidth=1.2, linestyle=(0, (4, 2)), zorder=6, gid="cause")
        numbers = ", ".join(str(each.number) for each in group)
        beside = step + 0.5 > steps * (1 - NEAR)
        axes.annotate(
            numbers, (step + 0.5, 1), (-4 if beside else 4, -3), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="right" if beside else "left", va="top", color=RED, fontsize=10, fontweight="bold", zorder=7, gid="number",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
        )  # fmt: skip
