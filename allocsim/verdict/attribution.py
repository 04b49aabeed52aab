"""Each violation by itself with what it comes of: class and party of the most important cause that
explains it.

A verdict joins violations to causes; who compares documents, files reports or keeps a list of known
faults needs the charge of each record.

What this module does not see: kernels and differential runs; charges here are those of S, H and L
alone.
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
    """Why a violation came about; `class_` and `fault` as in a verdict, None if unexplained."""

    violation: Violation
    cause: Cause | None

    @property
    def class_(self) -> str | None:
        """Class of root cause."""
        return None if self.cause is None else self.cause.class_

    @property
    def fault(self) -> str | None:
        """The party at fault."""
        return None if self.cause is None else self.cause.party

    @property
    def evidence(self) -> str:
        """The row that names the cause, in words."""
        return "" if self.cause is None else self.cause.evidence

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        """Kind, class and party: alike in violations that are one fault in two places."""
        return self.violation.kind, self.class_, self.fault


def charges(document: Document, report: Report | None = None) -> tuple[Report, tuple[Charge, ...]]:
    """Judge a document, unless its `report` is given; return it and the charge of each violation.

    A report that does not list all is charged by one that does. As the checks, plus O(violations).
    """
    judged = told(listed(document), document) if report is None else report
    whole = judged if judged.count <= len(judged.violations) else told(listed(document), document)
    return judged, charged(causes_of(document, whole), judged.violations)


def charged(causes: Iterable[Cause], violations: Iterable[Violation]) -> tuple[Charge, ...]:
    """Return the charge of each violation, of causes that are known."""
    found = causes_by_violation(causes)
    return tuple(Charge(violation=v, cause=found.get(key_of(v))) for v in violations)


def leading(document: Document) -> Charge | None:
    """Return the violation at the first place of the cause that a verdict would name first.

    The answer is None for a clean document.
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
