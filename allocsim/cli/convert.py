"""`allocsim convert IN OUT`: any file format that can be read, to the native document.

What this module does not see: formats (`allocsim.formats` tells them by their content).
"""

from typing import Annotated

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.document import write
from allocsim.formats import load


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file of any supported format.")],
    target: Annotated[str, typer.Argument(metavar="OUT", help="The native document to write.")],
) -> int:
    """Nothing is written where the file cannot be read."""
    document = load(source)
    write(document, target)
    print_line(f"wrote {show_path(target)}: {document!r}")
    return 0
