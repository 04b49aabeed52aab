"""Sentences for the violations of the judge: the one place that makes them from records.

    report = check(document)      # the judge's report, with a sentence and names in each record
    told(report, document)        # the same report, with sentences and names added

The judge returns records without sentences (`allocsim.judge.violations`). `sentences` has a
function for each kind of violation; it makes the sentence from the record and the facts of its
document. `asked_facts` lists the facts that such a function may ask for.

What this package does not see: how violations are found, causes and cures.
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
    """Judge every run and every belief of a document; arguments, errors and cost are those of
    `allocsim.judge.fast.check`.

    Each record has its sentence and the names of the ops, values and buffers it names.
    """
    from allocsim.judge.fast import check as judged  # noqa: PLC0415 - numpy, and here alone

    return told(judged(document, **options), document)


def told(report: Found, document: "Document") -> Found:
    """Return a report with a sentence and names in each of its records. O(records)."""
    from allocsim.diagnostics.document_facts import DocumentFacts  # noqa: PLC0415 - numpy, and here alone

    return worded(report, DocumentFacts(document))


def worded(report: Found, facts: AskedFacts) -> Found:
    """Return a report with a sentence and names in each record, from `facts`."""
    return replace(
        report,
        violations=tuple(in_words(facts, v) for v in report.violations),
        warnings=tuple(in_words(facts, v) for v in report.warnings),
    )


def in_words(facts: AskedFacts, v: Violation) -> Violation:
    """Return a record with its sentence and the names of the ops, values and buffers it names."""
    return replace(v, message=sentence(facts, v), names=names_of(facts, v))


__all__ = ["AskedFacts", "check", "in_words", "names_of", "sentence", "told", "worded"]
