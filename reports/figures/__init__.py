"""The table of figures, one file for each.

Drawing code, and matplotlib with it, is imported when a figure is first used.

A figure is a function that returns a `matplotlib.figure.Figure`; `style.render` makes PNG, SVG or
PDF of one. To add a figure, write its file and give it a row: `FIGURES` for one drawn from a
document (it becomes a `--kind`), `RECORD_FIGURES` for one drawn from the record of a scenario's
run.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from reports.figures.audit_figure import audit_matrix
    from reports.figures.gantt import lifetimes
    from reports.figures.gradients_figure import gradient_ratio
    from reports.figures.live_figure import live_bytes
    from reports.figures.loss_figure import loss_curves
    from reports.figures.memory_figure import memory_map
    from reports.figures.modes_figure import mode_errors
    from reports.figures.planners import planner_ratios

__all__ = [
    "FIGURES",
    "RECORD_FIGURES",
    "audit_matrix",
    "gradient_ratio",
    "lifetimes",
    "live_bytes",
    "loss_curves",
    "memory_map",
    "mode_errors",
    "planner_ratios",
]

FIGURES: Final[dict[str, tuple[str, str]]] = {
    # kind: (module, function of a document)
    "map": ("memory_figure", "memory_map"),
    "lifetimes": ("gantt", "lifetimes"),
    "live": ("live_figure", "live_bytes"),
}

RECORD_FIGURES: Final[dict[str, tuple[str, str]]] = {
    # name: (module, function of a part of the record)
    "loss": ("loss_figure", "loss_curves"),
    "gradients": ("gradients_figure", "gradient_ratio"),
    "modes": ("modes_figure", "mode_errors"),
    "planners": ("planners", "planner_ratios"),
    "audit": ("audit_figure", "audit_matrix"),
}


def __getattr__(name: str) -> Callable[..., Any]:
    for module, function in (*FIGURES.values(), *RECORD_FIGURES.values()):
        if name == function:
            found: Callable[..., Any] = getattr(import_module(f"reports.figures.{module}"), function)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
