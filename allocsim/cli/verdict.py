"""`allocsim verdict DIR`: recompute a verdict from saved evidence alone.

Exit status: 0 if nothing is wrong, 1 if a fault was found, 2 for evidence that cannot be read.
"""

from pathlib import Path
from typing import Annotated

import typer

from allocsim.cli.output import print_json, print_line
from allocsim.verdict import judge
from allocsim.verdict.evidence import load


def verdict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with session.json and evidence.json.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 nothing is wrong, 1 a fault was found, 2 the evidence cannot be read."""
    found = judge(load(folder))
    if as_json:
        print_json({"verdict": found.as_json(), "detectors": dict(found.detectors)})
    else:
        for clause in found.clauses:
            print_line(clause)
    return int(not found.sound)
