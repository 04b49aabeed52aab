"""Find the charge of each violation: class and party of the most important cause that explains it.

A verdict groups violations by cause. A comparison of two documents, a report in a file and a
baseline of known violations need the class and the party of each single violation.

This module does not examine kernels and differential runs. Only violations that the detectors S, H
and L find are charged here.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from allocsim.cure.defects import key_of, listed
from allocsim.diagnostics import told
from allocsim.judge.violations import Report, Violation
from allocsim.model import Document
from allocsim.verdict.causes import causes_by_violation, causes_of
from allocsim.verdict.records import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One violation and the most important cause that explains it; None if no cause does."""

    violation: Violation
    cause: Cause | None

    @property
    def class_(self) -> str | None:
        """The class of the cause, such as `C01`; None without a cause."""
        return None if self.cause is None else self.cause.class_

    @property
    def fault(self) -> str | None:
        """The party at fault, such as `plan`; None without a cause."""
        return None if self.cause is None else self.cause.party

    @property
    def evidence(self) -> str:
        """The evidence column of the row of `NAMES` that named the cause; "" without a cause."""
        return "" if self.cause is None else self.cause.evidence

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        """Kind, class and party; two violations with equal keys are one fault in two places."""
        return self.violation.kind, self.class_, self.fault


def charges(document: Document, report: Report | None = None) -> tuple[Report, tuple[Charge, ...]]:
    """Return the report of a document and the charge of each violation that this report lists.

    The document is judged unless `report` is given. If the report does not list all violations, the
    causes are found in a second report. The second report limits the list for each kind of
    violation separately.
    """
    judged = told(listed(document), document) if report is None else report
    whole = judged if judged.count <= len(judged.violations) else told(listed(document), document)
    return judged, charged(causes_of(document, whole), judged.violations)


def charged(causes: Iterable[Cause], violations: Iterable[Violation]) -> tuple[Charge, ...]:
    """Return the charge of each violation, given the causes."""
    found = causes_by_violation(causes)
    return tuple(Charge(violation=v, cause=found.get(key_of(v))) for v in violations)


def leading(document: Document) -> Charge | None:
    """Return a listed violation of the most important cause, preferably at the cause's first place.

    Return None without a cause, or if the report lists no violation of that cause.
    """
    report = told(listed(document), document)
    found = causes_of(document, report)
    if not found:
        return None
    first = found[0]
    known = {id(v) for v in report.violations}
    at = (v for v in first.violations if id(v) in known)
    place = first.first.run, first.first.op, first.first.value, first.first.buffer
    chosen = min(at, key=lambda v: (v.run, v.op, v.value, v.buffer) != place, default=None)
    return None if chosen is None else Charge(violation=chosen, cause=first)
