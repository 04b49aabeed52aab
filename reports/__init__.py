"""Figures, report folders and pages: the only place that draws.

`plot` makes one picture of a document, `plot_comparison` one of planners, `plot_audit` one of
kernels, `write_report` the folder of a scenario's run, `interactive.html` one page to look about
in. All write whole files or none. Nothing here imports matplotlib before a picture is asked for,
and nothing here knows scenarios, the engine or the command line.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from allocsim.errors import OutputError, UnknownNameError
from allocsim.files import replacing
from reports.figures import FIGURES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allocsim.model import Document
    from reports.folder import write_report

SUFFIXES: Final = (".png", ".svg", ".pdf")
"""Of the files that pictures are written to."""

__all__ = ["draw", "plot", "plot_audit", "plot_comparison", "write_report"]


def __getattr__(name: str) -> Any:
    if name != "write_report":  # the one name from a module that loads the model
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("reports.folder").write_report


def draw(document: "Document", kind: str, *, run: int = 0) -> "Figure":
    """Return the figure of a kind (a key of `reports.figures.FIGURES`).

    For `map` and `lifetimes`, the conflicts the checks find are in it.

    Raises UnknownNameError for another kind, ModelError for a run that does not exist.
    """
    if kind not in FIGURES:
        raise UnknownNameError("kind of figure", kind, FIGURES)
    module, function = FIGURES[kind]
    options: dict[str, Any] = (
        {"report": import_module("allocsim.checks").check(document)} if kind in {"map", "lifetimes"} else {}
    )
    figure: Figure = getattr(import_module(f"reports.figures.{module}"), function)(document, run=run, **options)
    return figure


def plot(document: "Document", kind: str, path: str | Path, *, run: int = 0) -> None:
    """Draw one run of a document into a file; its suffix (a row of `SUFFIXES`) decides the format.

    Raises OutputError for another suffix or where the file cannot be written, UnknownNameError for
    another kind, ModelError for a run that does not exist. The file appears whole or not at all.
    """
    if kind not in FIGURES:
        raise UnknownNameError("kind of figure", kind, FIGURES)
    _write(path, lambda: draw(document, kind, run=run))


def plot_comparison(rows: Sequence[tuple[str, str, float | None, bool]], path: str | Path) -> None:
    """Draw (problem, planner, peak over bound or None, sound) rows into a file.

    File and errors are as of `plot`.
    """
    _write(path, lambda: import_module("reports.figures.planners").planner_ratios(rows))


def plot_audit(rows: Sequence[Mapping[str, Any]], of: str, path: str | Path) -> None:
    """Draw the rows of a kernel audit (`allocsim audit --json`) into a file.

    File and errors are as of `plot`.
    """
    _write(path, lambda: import_module("reports.figures.audit_figure").audit_matrix(rows, of))


def _write(path: str | Path, drawn: "Callable[[], Figure]") -> None:
    target = Path(path)
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise OutputError(f"{path}: the suffix {target.suffix!r} names no format of pictures; .png, .svg and .pdf do")
    with replacing(target) as place:
        place.write_bytes(import_module("reports.figures.style").render(drawn(), suffix))
