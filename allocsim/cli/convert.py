"""`allocsim convert IN OUT`: convert between file formats; the suffix of OUT decides.

What this module does not see: formats (`allocsim.systems` tells them by their content, and
`allocsim.exports` has those for other programs).
"""

from typing import Annotated

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.files.gate import INPUT
from allocsim.systems import load, save


def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A file of any supported format, - for standard input.")],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="What to write, - for standard output: .json is the native document, .csv minimalloc, .trace.json "
            "Perfetto, .pickle PyTorch's memory viewer, .graphml or .dot the graph; .gz behind it compresses.",
        ),
    ],
    *,
    to: Annotated[str | None, typer.Option("--to", metavar="FORMAT", help="The format, whatever the suffix.")] = None,
) -> int:
    """Nothing is written where the file cannot be read.

    Example: allocsim convert plan.json plan.trace.json
    """
    document = load(source)
    save(document, target, to)
    if target != INPUT:
        print_line(f"wrote {show_path(target)}: {document!r}")
    return 0
