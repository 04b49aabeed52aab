"""`allocsim explain FILE BUFFER`: why a buffer lives when and where it does.

What this module does not see: how that is found out (`allocsim.explanation`).
"""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from allocsim.cli.output import print_json, print_line
from allocsim.errors import DocumentError
from allocsim.explanation import explain as explain_buffer
from allocsim.formats import load
from allocsim.model import Document


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document, with or without a plan.")],
    buffer: Annotated[str, typer.Argument(metavar="BUFFER", help="Name or index of a buffer.")],
    *,
    program: Annotated[int, typer.Option(min=0, help="Which program of the document.")] = 0,
    plan: Annotated[int | None, typer.Option(min=0, help="Which plan; default the first for that program.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """A buffer's name goes before its index where both would do."""
    document = load(file)
    chosen = _at(document, file, "programs", program)
    if plan is not None:
        made = _at(document, file, "plans", plan)
    else:
        made = next((one for one in document.plans if one.program is chosen), None)
    told = next((one for one in document.problems if one.program is chosen), None)
    problem = made.problem if made is not None and made.problem is not None else told
    found = explain_buffer(chosen, buffer, made, problem)
    if as_json:
        print_json(asdict(found))
    else:
        for line in found.text.splitlines():
            print_line(line)
    return 0


def _at(document: Document, file: str, table: str, index: int) -> Any:
    rows = getattr(document, table)
    if index >= len(rows):
        raise DocumentError(file, table, f"there is no {table[:-1]} {index}; there are {len(rows)}")
    return rows[index]
