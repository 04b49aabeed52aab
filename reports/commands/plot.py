"""`allocsim plot FILE --kind map|lifetimes|live -o X.png`: a picture of one run of a document.

What this module does not see: how pictures are drawn (`reports`).
"""

from enum import StrEnum
from typing import Annotated

import typer

import reports
from allocsim.cli.output import print_line, show_path
from allocsim.formats import load


class Kind(StrEnum):
    """What there is to see."""

    MAP = "map"
    LIFETIMES = "lifetimes"
    LIVE = "live"


def plot(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document with a plan.")],
    *,
    kind: Annotated[Kind, typer.Option(help="Time and address, lifetimes, or live bytes.")] = Kind.MAP,
    out: Annotated[str, typer.Option("-o", "--out", metavar="X.png", help="PNG, SVG or PDF, by its suffix.")],
    run: Annotated[int, typer.Option(min=0, help="Which run of the session.")] = 0,
) -> int:
    """The suffix of the file decides between PNG, SVG and PDF."""
    reports.plot(load(file), kind.value, out, run=run)
    print_line(f"wrote {show_path(out)}")
    return 0
