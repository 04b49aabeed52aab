"""The table of figures, one file for each.

Drawing code, and matplotlib with it, is imported when a figure is first used.

A figure is a function that returns a `matplotlib.figure.Figure`; `style.render` makes PNG, SVG or
PDF of one. To add a figure, write its file and give it a row: `FIGURES` for one drawn from a
document (it becomes a `--kind`), `RECORD_FIGURES` for one drawn from the record of a scenario's
run.
"""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allocsim.model import Document
    from reports.figures.audit_figure import audit_matrix
    from reports.figures.by_category_figure import by_category
    from reports.figures.categories_figure import categories
    from reports.figures.chain_figure import chain
    from reports.figures.gantt import lifetimes
    from reports.figures.gradients_figure import gradient_ratio
    from reports.figures.interference_figure import interference
    from reports.figures.live_figure import live_bytes
    from reports.figures.loss_figure import loss_curves
    from reports.figures.memory_figure import memory_map
    from reports.figures.modes_figure import mode_errors
    from reports.figures.planners import planner_ratios
    from reports.figures.streams_figure import streams
    from reports.figures.verdicts_figure import verdict_matrix

__all__ = [
    "FIGURES", "RECORD_FIGURES", "DocumentFigure", "audit_matrix", "by_category", "categories", "chain",
    "drawing", "gradient_ratio", "interference", "judged", "lifetimes", "live_bytes", "loss_curves",
    "memory_map", "mode_errors", "planner_ratios", "streams", "verdict_matrix",
]  # fmt: skip


class DocumentFigure(NamedTuple):
    """One that is drawn from a document."""

    module: str
    function: str
    """Of a document, with `run=`, and what `judged` returns."""


FIGURES: Final[dict[str, DocumentFigure]] = {
    "map": DocumentFigure("memory_figure", "memory_map"),
    "lifetimes": DocumentFigure("gantt", "lifetimes"),
    "live": DocumentFigure("live_figure", "live_bytes"),
    "interference": DocumentFigure("interference_figure", "interference"),
    "chain": DocumentFigure("chain_figure", "chain"),
    "categories": DocumentFigure("categories_figure", "categories"),
    "streams": DocumentFigure("streams_figure", "streams"),
}

RECORD_FIGURES: Final[dict[str, tuple[str, str]]] = {
    # name: (module, function of a part of the record)
    "loss": ("loss_figure", "loss_curves"),
    "gradients": ("gradients_figure", "gradient_ratio"),
    "memory": ("by_category_figure", "by_category"),
    "modes": ("modes_figure", "mode_errors"),
    "planners": ("planners", "planner_ratios"),
    "audit": ("audit_figure", "audit_matrix"),
    "verdicts": ("verdicts_figure", "verdict_matrix"),
}


def judged(document: "Document", verdict: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what figures take of the judge: `report`, `causes`, which number its conflicts, and
    the `verdict` of a run's record, whose findings are shown where the report has none.
    """
    report = import_module("allocsim.diagnostics").check(document, of_each_kind=True)
    return {
        "report": report,
        "causes": import_module("reports.figures.conflicts").numbering(document, report),
        "verdict": verdict,
    }


def drawing(kind: str, document: "Document", found: Mapping[str, Any]) -> "Callable[..., Figure]":
    """Return what draws a figure of a document; `found` is that of `judged`."""
    row = FIGURES[kind]
    function: Callable[..., Figure] = getattr(import_module(f"reports.figures.{row.module}"), row.function)
    return partial(function, document, **found)


def __getattr__(name: str) -> Callable[..., Any]:
    rows = ((row.module, row.function) for row in FIGURES.values())
    for module, function in (*rows, *RECORD_FIGURES.values()):
        if name == function:
            found: Callable[..., Any] = getattr(import_module(f"reports.figures.{module}"), function)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
