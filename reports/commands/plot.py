"""`allocsim plot FILE --kind K`: a picture of a document, of one run or of its program.

What this module does not see: how pictures are drawn (`reports`).
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import reports
from allocsim.cli.output import print_line, show_path
from allocsim.files.gate import INPUT
from allocsim.systems import load


class Kind(StrEnum):
    """What there is to see: the keys of `reports.figures.FIGURES`."""

    MAP = "map"
    LIFETIMES = "lifetimes"
    LIVE = "live"
    INTERFERENCE = "interference"
    CHAIN = "chain"
    CATEGORIES = "categories"
    STREAMS = "streams"


def plot(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document; without a plan, its program is drawn.")],
    *,
    kind: Annotated[
        Kind,
        typer.Option(
            help="Time and address, lifetimes, live bytes, who lives with whom, forward and backward, categories, or streams."
        ),
    ] = Kind.MAP,
    out: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--out",
            metavar="X.png",
            help="PNG, SVG or PDF, by its suffix.",
            show_default="FILE's name and KIND, in this folder",
        ),
    ] = None,
    run: Annotated[
        int | None,
        typer.Option(
            min=0, help="Which run of the session.", show_default="where the first fault is, else 0; live: all plans"
        ),
    ] = None,
) -> int:
    """The suffix of the file decides between PNG, SVG and PDF.

    Example: allocsim plot plan.json --kind lifetimes -o lives.png
    """
    stem = "stdin" if file == INPUT else Path(file).resolve().stem
    picture = out or f"{stem}-{kind.value}.png"
    reports.plot(load(file), kind.value, picture, run=run)
    print_line(f"wrote {show_path(picture)}")
    return 0
