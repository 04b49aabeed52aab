"""Cures judged again: the causes they are for are gone, nothing new is there, and none costs more than everything apart."""

from typing import Any

from allocsim import document as native
from allocsim.cure import CURABLE
from allocsim.cure.defects import keys_of
from allocsim.judge.fast import check
from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


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
    asked = [(verdict.cure, curable), *((cause.cure, [cause]) for cause in curable)]
    for made, chosen in asked:
        if made is None:
            continue
        after = keys_of(check(native.loads(native.dumps(made.document)), of_each_kind=True).violations)
        mended = [cause for cause in chosen if made is not verdict.cure or cause.cure is not None or len(curable) == 1]
        kept = keys_of(
            v for cause in verdict.causes if all(cause is not one for one in mended) for v in cause.violations
        )
        if after & (keys_of(v for cause in mended for v in cause.violations) - kept):
            found.append("not gone")
        if after - before:
            found.append("new")
        if made.pin_all_bytes is not None and made.nbytes > max(made.pin_all_bytes, 0):
            found.append("dearer than pinning everything")
    return found, sum(made is not None for made, _ in asked)
