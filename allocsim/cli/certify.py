"""`allocsim certify FILE`: ask the proved checker whether every read finds what it must.

The checker is made from the proof in `proof/` (`make proof`). What it accepts holds: every operand
of every op of every run finds, as planned and in every order that keeps the waits, what it finds
with each buffer in memory of its own (docs/theory.md says what is proved, and what is assumed).
`--certificate` takes the claims from a file that `allocsim check --certificate` wrote; without it
they are made here. Nothing depends on who made them: a claim that is false is refused.

What this module does not see: how terms and claims are made (`allocsim.certificates`).
"""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from allocsim.certificates import (
    ProvedAnswer,
    Terms,
    certificate_of,
    certificate_text,
    certified,
    checker,
    joined,
    terms_of,
    terms_text,
)
from allocsim.cli.output import print_json, print_line
from allocsim.errors import DocumentError
from allocsim.files.gate import CEILINGS, content
from allocsim.model import Document
from allocsim.systems import load

REFUSED: Final = {
    "terms": "the document refers to what is not there, or to what comes later",
    "reads": "what it reads is not shown to be what it must find",
    "promises": "it writes where it reads, and no promise covers it, or where it writes already",
    "order": "what it touches is not shown to be ordered",
}
"""What each part of the checker says where it refuses."""


def certify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document with plans.")],
    *,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Claims written by check --certificate.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Exit status: 0 accepted, 1 refused, 2 bad input, or the checker is not built.

    Example: allocsim certify plan.json --certificate claims.json
    """
    checker()  # before any work
    document = load(file)
    if not document.runs:
        raise DocumentError(file, "plans", "no plan here")
    terms = terms_of(document)
    claims = certificate_text(certificate_of(terms)) if certificate is None else _claims(certificate)
    answer = certified(terms_text(terms), claims)
    if as_json:
        print_json(_entry(file, document, terms, answer))
    else:
        print_line(_line(file, document, terms, answer))
    return 0 if answer.holds else 1


def _claims(path: Path) -> str:
    return content(path, CEILINGS["document"]).decode("ascii", errors="replace")


def _entry(file: str, document: Document, terms: Terms, answer: ProvedAnswer) -> dict[str, Any]:
    nodes = joined(terms).nodes
    node = None if answer.node is None or answer.part == "terms" else nodes[answer.node - 1]
    return {
        "file": file,
        "accepted": answer.holds,
        "runs": len(document.runs),
        "ops": sum(node.kind != "hold" for node in nodes),
        "reads": sum(len(node.operands) for node in nodes if node.kind != "hold"),
        "part": answer.part,
        "run": node and node.run,
        "op": node and node.op,
    }


def _line(file: str, document: Document, terms: Terms, answer: ProvedAnswer) -> str:
    entry = _entry(file, document, terms, answer)
    if answer.holds:
        counts = f"{entry['reads']} reads of {entry['ops']} ops in {entry['runs']} run{'s'[: entry['runs'] != 1]}"
        return f"{file}: accepted: {counts} find what they must, in every order that keeps the waits"
    if entry["op"] is None:
        return f"{file}: refused: {REFUSED['terms']}"
    name = document.runs[entry["run"]].program.ops.names[entry["op"]]
    return f"{file}: refused at op {entry['op']} {name!r} of run {entry['run']}: {REFUSED[answer.part or 'reads']}"
