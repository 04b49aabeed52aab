"""`allocsim convert IN OUT`: convert between file formats; the suffix of OUT decides.

What this module does not see: formats (`allocsim.systems` tells them by their content).
"""

from typing import Annotated

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.systems import load, save


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file of any supported format.")],
    target: Annotated[
        str, typer.Argument(metavar="OUT", help="What to write: .csv is minimalloc, anything else the native document.")
    ],
) -> int:
    """Nothing is written where the file cannot be read."""
    document = load(source)
    save(document, target)
    print_line(f"wrote {show_path(target)}: {document!r}")
    return 0
