"""The folder of a scenario's run: record, page and pictures, written whole or not at all.

    report.json           the run's record, as given (an entry of the command line's `--json` "runs")
    report.md             the verdict in words, losses, detectors, gradients, the cure, the pictures
    figures/NAME.png      each picture once for reading and
    figures/NAME.svg      once for printing; NAME is loss, gradients, memory, modes or a kind of `reports.figures.FIGURES`
    modes.csv             the comparison of modes by layer and step, if one was asked for

Everything is made in a temporary folder beside the one asked for, then swapped with it by renaming:
a reader sees the old report or the new one, and a failure leaves the old one as it was. A folder
that is there already is only replaced if it is empty or holds a report or saved evidence; what else
lies in it (evidence, notes) is carried over. Numbers that are not finite become null, as JSON has
no word for them.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from allocsim.errors import OutputError
from allocsim.model import Document
from reports.figures import FIGURES, RECORD_FIGURES, drawing, judged
from reports.mode_rows import as_csv
from reports.page import page

OURS: Final = frozenset({"report.json", "report.md", "figures", "modes.csv"})
"""What a report consists of; anything else in the folder is left alone."""

_MARKS: Final = ("report.json", "evidence.json")
"""A folder with one of these in it is one a report may be put into."""


def write_report(run: Mapping[str, Any], document: Document | None, folder: str | Path) -> None:
    """Write the report of one run.

    `document` (what was planned and run) gives the pictures of memory, None leaves them out.

    Raises OutputError where the folder cannot be written or holds something else than a report.
    """
    with _swapped(Path(folder)) as place:
        (place / "report.json").write_bytes(msgspec.json.format(encoded(run), indent=1) + b"\n")
        if run.get("differential"):
            (place / "modes.csv").write_text(as_csv(run["differential"]), encoding="utf-8")
        (place / "figures").mkdir()
        names = []
        style = import_module("reports.figures.style")
        for name, draw in pictures(run, document).items():
            figure = draw()
            for suffix in (".png", ".svg"):
                (place / "figures" / f"{name}{suffix}").write_bytes(style.render(figure, suffix))
            names.append(name)
        (place / "report.md").write_text(page(run, names), encoding="utf-8")


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
    said = judged(document)
    for kind in FIGURES:
        found[kind] = drawing(kind, document, said, **({"verdict": run.get("verdict")} if kind == "map" else {}))
    return found


def _function(row: tuple[str, str]) -> Callable[..., Any]:
    module, function = row
    found: Callable[..., Any] = getattr(import_module(f"reports.figures.{module}"), function)
    return found


@contextmanager
def _swapped(folder: Path) -> Iterator[Path]:
    """Give an empty folder, which becomes `folder` if the block succeeds and vanishes if not."""
    target = _free(folder)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name[:100]}."))
    except (OSError, ValueError) as error:
        raise _unwritable(folder, error) from None
    fresh, old = scratch / "new", scratch / "old"
    try:
        fresh.mkdir()
        yield fresh
        _put(fresh, target, old)
    except OSError as error:
        raise _unwritable(folder, error) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _put(fresh: Path, target: Path, old: Path) -> None:
    """Rename `fresh` to `target`, carrying over what is not ours.

    On failure everything is where it was.
    """
    if not target.exists():
        fresh.rename(target)
        return
    target.rename(old)
    carried: list[str] = []
    try:
        for entry in sorted(old.iterdir()):
            if entry.name not in OURS:
                entry.rename(fresh / entry.name)
                carried.append(entry.name)
        fresh.rename(target)
    except OSError:
        for name in carried:
            (fresh / name).rename(old / name)
        old.rename(target)
        raise


def _free(folder: Path) -> Path:
    """Return the folder without links.

    Raises OutputError unless it is nothing yet, empty, or one a report may be put into.
    """
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
