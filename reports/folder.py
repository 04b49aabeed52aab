"""The folder of a scenario's run: record, page and pictures, written whole or not at all.

    report.json           the run's record, as given (an entry of the command line's `--json` "runs")
    report.md             the verdict in words, losses, detectors, gradients, the cure, the pictures
    figures/NAME.png      each picture once for reading and
    figures/NAME.svg      once for printing; NAME is loss, gradients, memory, modes or a kind of `reports.figures.FIGURES`
    modes.csv             the comparison of modes by layer and step, if one was asked for

All of it is replaced together by `allocsim.files.folders`, `report.json` last: a failure leaves the
old report as it was. A folder that is there already is only written into if it is empty or holds a
report or saved evidence; what else lies in it (notes, pictures of other names) is never touched.
Numbers that are not finite become null, as JSON has no word for them.
"""

import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from allocsim.errors import OutputError
from allocsim.files.folders import SWAP, Content, replace_files
from allocsim.model import Document
from reports.figures import FIGURES, RECORD_FIGURES, drawing, judged
from reports.mode_rows import as_csv
from reports.page import page

SUFFIXES: Final = (".png", ".svg")

OURS: Final = (
    "report.json", "report.md", "modes.csv",
    *(f"figures/{name}{suffix}" for name in (*FIGURES, "loss", "gradients", "memory", "modes") for suffix in SUFFIXES),
)  # fmt: skip
"""The files that a report may consist of; anything else in the folder is left alone."""

_MARKS: Final = ("report.json", "evidence.json", SWAP)
"""A folder with one of these in it is one a report may be put into."""


def write_report(
    run: Mapping[str, Any], document: Document | None, folder: str | Path, beside: Mapping[str, Content] | None = None
) -> None:
    """Write the report of one run.

    `document` (what was planned and run) gives the pictures of memory, None leaves them out;
    `beside` are files that are replaced together with the report (`verdict.evidence.files_of`).

    Raises OutputError where the folder cannot be written or holds something else than a report.
    """
    target = _free(Path(folder))
    drawn = pictures(run, document)
    style = import_module("reports.figures.style")
    files: dict[str, Content] = dict(beside or {})
    try:
        for name, draw in drawn.items():
            figure = draw()
            files.update({f"figures/{name}{suffix}": style.render(figure, suffix) for suffix in SUFFIXES})
    except OSError as error:
        raise _unwritable(target, error) from None
    if run.get("differential"):
        files["modes.csv"] = as_csv(run["differential"]).encode()
    files["report.md"] = page(run, list(drawn)).encode()
    files["report.json"] = msgspec.json.format(encoded(run), indent=1) + b"\n"
    replace_files(target, files, stale=OURS)


def check_folder(folder: str | Path) -> None:
    """Raise OutputError where `write_report` could not write.

    Ask before long work, so that it does not end in vain.

    Nothing is left behind. That the disk fills up in between is not foreseen.
    """
    target = _free(Path(folder))
    there = next(parent for parent in target.parents if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there, prefix=".allocsim."):
            pass
    except OSError as error:
        raise _unwritable(Path(folder), error) from None


def encoded(run: Mapping[str, Any]) -> bytes:
    """Return the record as JSON; numpy's numbers as numbers, what is not finite as null."""
    return msgspec.json.encode(dict(run), enc_hook=_plain)


def pictures(run: Mapping[str, Any], document: Document | None) -> dict[str, Callable[[], Any]]:
    """Return what can be drawn of this run: name -> a function that draws it."""
    modes = run.get("modes") or {}
    losses = {mode: record["loss"] for mode, record in modes.items() if record.get("loss")}
    gradients = (modes.get("default") or {}).get("gradients") or []
    found: dict[str, Callable[[], Any]] = {}
    if losses:
        found["loss"] = partial(_function(RECORD_FIGURES["loss"]), losses)
    if gradients:
        found["gradients"] = partial(_function(RECORD_FIGURES["gradients"]), gradients)
    if run.get("memory"):
        found["memory"] = partial(_function(RECORD_FIGURES["memory"]), run["memory"])
    if run.get("differential"):
        found["modes"] = partial(_function(RECORD_FIGURES["modes"]), run["differential"])
    if document is None:
        return found
    said = judged(document, run.get("verdict"))
    several = any(len(program.streams) > 1 for program in document.programs)
    return found | {kind: drawing(kind, document, said) for kind in FIGURES if kind != "streams" or several}


def _function(row: tuple[str, str]) -> Callable[..., Any]:
    module, function = row
    found: Callable[..., Any] = getattr(import_module(f"reports.figures.{module}"), function)
    return found


def _free(folder: Path) -> Path:
    """Return the folder without links; OutputError unless new, empty, or one of a report."""
    try:
        target = folder.resolve()
        if not target.exists():
            return target
        if not target.is_dir():
            raise OutputError(f"{folder}: is a file; the report needs a folder")
        entries = {entry.name for entry in target.iterdir()}
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    if entries and not entries.intersection(_MARKS):
        raise OutputError(f"{folder}: holds other things than a report; name a new or an empty folder")
    return target


def _unwritable(folder: Path, error: Exception) -> OutputError:
    return OutputError(f"{folder}: the report cannot be written: {getattr(error, 'strerror', None) or error}")


def _plain(thing: Any) -> Any:
    """Turn what msgspec does not know into what it does."""
    if isinstance(thing, np.ndarray | np.generic):
        return thing.tolist()
    if isinstance(thing, Mapping):
        return dict(thing)
    raise NotImplementedError(f"{type(thing).__name__} has no form in JSON")
