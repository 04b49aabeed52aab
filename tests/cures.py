"""Cures applied as a stranger applies them and judged again: the causes they are for are gone, nothing new is there, none costs more than everything apart."""

import json
import runpy
from pathlib import Path
from typing import Any

from allocsim import document as native
from allocsim.cure import CURABLE
from allocsim.cure.defects import keys_of
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

applied = runpy.run_path(str(Path(__file__).parent.parent / "examples" / "apply_cure.py"))["applied"]
"""What changes a document as a patch says, and knows nothing of this project."""


def faults_of_cures(document: Document) -> tuple[list[str], int]:
    """Return what is wrong with the causes and cures of a document, and how many cures there are."""
    verdict = judge(Evidence(document=document))
    found, cures = wrong_cures(verdict)
    if keys_of(verdict.report.violations) - keys_of(v for cause in verdict.causes for v in cause.violations):
        found.append("a violation stands under no cause")
    return found, cures


def wrong_cures(verdict: Any) -> tuple[list[str], int]:
    """Return what is wrong with the cures of a verdict, each judged again as it would be read from a file, and how many there are."""
    before = keys_of(verdict.report.violations)
    found = []
    curable = [cause for cause in verdict.causes if cause.change.kind in CURABLE]
    asked = [
        (one, chosen, made is verdict.cure)
        for made, chosen in ((verdict.cure, curable), *((cause.cure, [cause]) for cause in curable))
        if made is not None
        for one in (made, made.alternative)
        if one is not None
    ]
    for made, chosen, of_all in asked:
        after = keys_of(check(patched(made), of_each_kind=True).violations)
        mended = [cause for cause in chosen if not of_all or cause.cure is not None or len(curable) == 1]
        kept = keys_of(
            v for cause in verdict.causes if all(cause is not one for one in mended) for v in cause.violations
        )
        if after & (keys_of(v for cause in mended for v in cause.violations) - kept):
            found.append("not gone")
        if after - before:
            found.append("new")
        if made.pin_all_bytes is not None and made.nbytes > max(made.pin_all_bytes, 0):
            found.append("dearer than pinning everything")
    return found, len(asked)


def patched(made: Any) -> Any:
    """Return the document of a cure with its patch applied, as it would be read from a file."""
    written = json.loads(native.dumps(made.before))
    return native.loads(json.dumps(applied(written, json.loads(json.dumps(made.patch)))))
