"""Each violation by itself with its root cause: the row of the verdict's table that applies to it.

A verdict joins findings; who compares documents, files reports or keeps a list of known faults needs the cause of each record.

What this module does not see: kernels and differential runs; causes here are those of S, H and L alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from allocsim.checks.violations import Report, Violation
from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.case import Case
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.rows import BELIEF_ROWS, ROWS, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a violation came about; `class_` and `fault` as in a verdict, None where no row of the table applies."""

    violation: Violation
    class_: str | None
    fault: str | None
    evidence: str

    @property
    def key(self) -> tuple[str, str | None, str | None]:
        """Kind, class and party: what two violations share that are the same fault in two places."""
        return self.violation.kind, self.class_, self.fault


def causes(document: Document, report: Report | None = None) -> tuple[Report, tuple[Cause, ...]]:
    """Judge a document, unless its `report` is given; return it and the cause of each violation, in the report's order.

    As the checks, plus O(violations * rows of the table).
    """
    case = Case(Evidence(document=document))
    judged = case.report if report is None else report
    return judged, tuple(_causes(case, judged))


def leading(document: Document) -> Cause | None:
    """Return the violation a verdict would name first, with its cause; None for a clean document."""
    _, found = causes(document)
    if not found:
        return None
    for finding in judge(Evidence(document=document)).findings:
        for cause in found:
            v = cause.violation
            place = (-1 if v.run is None else v.run, -1 if v.step is None else v.step)
            if (cause.class_, cause.fault) == (finding.class_, finding.fault) and place == (finding.run, finding.step):
                return cause
    return found[0]


def _causes(case: Case, report: Report) -> Iterator[Cause]:
    table: tuple[Row, ...] = (*ROWS, *BELIEF_ROWS)
    for v in report.violations:
        row = next((row for row in table if v.kind in row.kinds and row.applies(case, v)), None)
        yield Cause(
            violation=v,
            class_=row.class_ if row is not None else None,
            fault=row.fault if row is not None else None,
            evidence=row.evidence if row is not None else "",
        )
