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
from reports.figures import FIGURES, RECORD_FIGURES, drawing, judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from allocsim.model import Document
    from reports.folder import write_report

SUFFIXES: Final = (".png", ".svg", ".pdf")
"""Of the files that pictures are written to."""

__all__ = [
    "check_suffix", "draw", "plot", "plot_audit", "plot_comparison", "plot_figure", "plot_record",
    "write_report",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name != "write_report":  # the one name from a module that loads the model
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("reports.folder").write_report


def draw(document: "Document", kind: str, *, run: int | None = None) -> "Figure":
    """Return the figure of a kind (a key of `reports.figures.FIGURES`).

    The conflicts that the checks find are in it, where the kind shows conflicts. `run` chooses one;
    None is the run of the first late read, else of the first violation, else the first, and for
    `live` the plans of all.

    Raises UnknownNameError for another kind, ModelError for a run that does not exist.
    """
    if kind not in FIGURES:
        raise UnknownNameError("kind of figure", kind, FIGURES)
    found = judged(document)
    if run is None and kind != "live":
        run = import_module("reports.figures.conflicts").telling_run(found["report"])
    figure: Figure = drawing(kind, document, found)(**({} if run is None else {"run": run}))
    return figure


def plot(document: "Document", kind: str, path: str | Path, *, run: int | None = None) -> None:
    """Draw one run of a document into a file; its suffix (a row of `SUFFIXES`) decides the format.

    Raises OutputError for another suffix or where the file cannot be written, UnknownNameError for
    another kind, ModelError for a run that does not exist. The file appears whole or not at all.
    """
    if kind not in FIGURES:
        raise UnknownNameError("kind of figure", kind, FIGURES)
    plot_figure(lambda: draw(document, kind, run=run), path)


def plot_comparison(rows: Sequence[tuple[str, str, float | None, bool]], path: str | Path) -> None:
    """Draw (problem, planner, peak over bound or None, sound) rows into a file, as `plot` does."""
    plot_record("planners", rows, path)


def plot_audit(rows: Sequence[Mapping[str, Any]], of: str, path: str | Path) -> None:
    """Draw the rows of a kernel audit (`allocsim audit --json`) into a file, as `plot` does."""
    plot_figure(lambda: import_module("reports.figures.audit_figure").audit_matrix(rows, of), path)


def plot_record(name: str, rows: Sequence[Any], path: str | Path) -> None:
    """Draw a record's figure (`reports.figures.RECORD_FIGURES`) into a file, as `plot` does."""
    module, function = RECORD_FIGURES[name]
    plot_figure(lambda: getattr(import_module(f"reports.figures.{module}"), function)(rows), path)


def plot_figure(drawn: "Callable[[], Figure]", path: str | Path) -> None:
    """Write the figure that `drawn` returns into a file; file and errors are as of `plot`."""
    suffix = check_suffix(path)
    with replacing(Path(path)) as place:
        place.write_bytes(import_module("reports.figures.style").render(drawn(), suffix))


def check_suffix(path: str | Path) -> str:
    """Return the suffix of a picture; raises OutputError for one that names no format."""
    suffix = Path(path).suffix
    if suffix.lower() not in SUFFIXES:
        raise OutputError(f"{path}: the suffix {suffix!r} names no format of pictures; .png, .svg and .pdf do")
    return suffix.lower()
