"""Make the sentences for the judge's violations; no other package makes sentences from records.

    report = check(document)      # the judge's report, with a sentence and names in each record
    told(report, document)        # the same report, with sentences and names added

The judge returns records without sentences (`allocsim.judge.violations`). The module `sentences`
has a function for each kind of violation, which makes the sentence from the record and the facts of
its document. The module `asked_facts` lists the facts that these functions may use.

This package does not find violations, causes or cures.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from allocsim.diagnostics.asked_facts import AskedFacts
from allocsim.diagnostics.sentences import names_of, sentence
from allocsim.judge.violations import Defects, Report, Violation

if TYPE_CHECKING:
    from allocsim.model import Document

Found = TypeVar("Found", bound=Defects)


def check(document: "Document", **options: Any) -> Report:
    """Judge every run and every belief of a document. Arguments, errors and cost are the same as
    for `allocsim.judge.fast.check`.

    Each returned record has its sentence and the names of its ops, values and buffers.
    """
    from allocsim.judge.fast import check as judged  # noqa: PLC0415 - imports numpy, which only this function needs

    return told(judged(document, **options), document)


def told(report: Found, document: "Document") -> Found:
    """Return the report with a sentence and names added to each record. O(records)."""
    from allocsim.diagnostics.document_facts import DocumentFacts  # noqa: PLC0415 - imports numpy, which only this function needs

    return worded(report, DocumentFacts(document))


def worded(report: Found, facts: AskedFacts) -> Found:
    """Return the report with a sentence and names, made from `facts`, added to each record."""
    return replace(
        report,
        violations=tuple(in_words(facts, v) for v in report.violations),
        warnings=tuple(in_words(facts, v) for v in report.warnings),
    )


def in_words(facts: AskedFacts, v: Violation) -> Violation:
    """Return the record with its sentence and the names of its ops, values and buffers."""
    return replace(v, message=sentence(facts, v), names=names_of(facts, v))


__all__ = ["AskedFacts", "check", "in_words", "names_of", "sentence", "told", "worded"]
