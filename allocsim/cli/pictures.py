"""Pictures beside what a command writes, or one line that says why there is none.

What this module does not see: how pictures are drawn (the service `plot`).
"""

from pathlib import Path

from allocsim.cli.output import print_error
from allocsim.errors import NotInstalledError
from allocsim.model import Document
from allocsim.plugins import service


def draw_beside(what: str, document: Document, path: Path, *, run: int = 0) -> None:
    """Draw the memory map of one run into a file, or say on standard error why `what` has no
    picture.
    """
    try:
        service("plot")(document, "map", path, run=run)
    except NotInstalledError as error:
        print_error(f"{what} has no picture: {error}")
