"""`allocsim report FILE-or-DIR -o X.html`: one page with verdict, pictures and a memory map.

A folder is one with saved evidence, as `repro run --out` writes it: the verdict is recomputed from
the evidence, losses and gradients are those of its `report.json`, where there is one. A file, or a
folder that a real system dumped, is a document of any supported format, and the verdict is what S,
H, L and R say of it.

What this module does not see: how pages are made (`reports.interactive`).
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from allocsim.cli.output import print_line, show_path
from allocsim.errors import OutputError
from allocsim.files import replacing
from allocsim.outcomes import read_evidence
from allocsim.verdict import judge
from reports import run_record


def report(
    source: Annotated[
        str, typer.Argument(metavar="FILE-or-DIR", help="A document, a dump, or a folder of saved evidence.")
    ],
    *,
    out: Annotated[str, typer.Option("-o", "--out", metavar="X.html", help="The page; nothing else is written.")],
) -> int:
    """Write a page that needs no other file and no network.

    Example: allocsim report plan.json -o report.html
    """
    if Path(out).suffix.lower() not in {".html", ".htm"}:
        raise OutputError(f"{out}: the suffix {Path(out).suffix!r} names no page; .html does")
    folder = Path(source)
    record: dict[str, Any] = {"scenario": folder.resolve().name}
    evidence = read_evidence(folder)
    if folder.is_dir():
        record |= run_record.read(folder / run_record.RECORD)
    judged: dict[str, Any] = {}
    if evidence.document.runs:  # else there is no plan to say anything of
        found = judge(evidence)
        record |= {"verdict": found.as_json(), "detectors": dict(found.detectors)}
        judged = {"report": found.report, "causes": found.causes}
    with replacing(out) as place:
        from reports.interactive import html

        place.write_bytes(html(record, evidence.document, **judged))
    print_line(f"wrote {show_path(out)}")
    return 0
