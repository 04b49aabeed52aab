"""What judging a file came to, in a form that other tools take: JUnit XML, SARIF, and a list of known faults.

    outcome = judge_file("plan.json", known=baseline.read("known.json"), max_peak=1 << 30)
    junit.dumps([outcome]); sarif.dumps([outcome]); baseline.dumps([outcome])

An outcome *passes* if every violation is a known one, there is no more of them than is listed, and the peak is within its limit.

A *fingerprint* names a fault by its cause: kind, class and party, and the names and kinds of what takes part. It holds no index, no
address, no run, no size and no file, so it stays as it is when a program grows, is planned anew or is numbered otherwise, and
changes only with names. Two faults with the same names are one; without names, kinds of ops are all there is.

What this module does not see: the terminal and files.
"""

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from allocsim.checks import check
from allocsim.checks.violations import Report, Violation
from allocsim.errors import AllocsimError, os_error_line
from allocsim.formats import load
from allocsim.model import Document, Program
from allocsim.verdict.attribution import Cause, causes

FINGERPRINT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FiledViolation:
    """A violation with its cause, and whether it was known before."""

    cause: Cause
    fingerprint: str
    known: bool
    kind_of_op: str | None
    """Kind of the op the violation is filed under."""
    program: str | None
    """Name of its program."""

    @property
    def violation(self) -> Violation:
        """The violation itself."""
        return self.cause.violation


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One file: judged, or not readable."""

    file: str
    document: Document | None = None
    """What was judged; None where the file could not be read."""
    report: Report | None = None
    """None where the file could not be read."""
    findings: tuple[FiledViolation, ...] = ()
    """The violations listed, in the report's order."""
    error: str | None = None
    max_peak: int | None = None
    """Bytes the plan may need at most."""

    @property
    def over_peak(self) -> bool:
        """Whether the plan needs more bytes than it may."""
        return self.report is not None and self.max_peak is not None and self.report.stats.peak_bytes > self.max_peak

    @property
    def new(self) -> int:
        """Violations that are not known; those beyond the list count as unknown."""
        if self.report is None:
            return 0
        return self.report.count - sum(finding.known for finding in self.findings)

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong that was not known before."""
        return self.error is None and not self.new and not self.over_peak


def judge_file(
    path: str, *, limit: int | None = None, known: Collection[str] = (), max_peak: int | None = None, causes_too: bool = True
) -> Outcome:
    """Read a file in any supported format and judge it; a file that cannot be read is an outcome with an error.

    Args:
        path: the file, as it is named in what is printed.
        limit: violations listed at most; None is the judge's own limit.
        known: fingerprints of violations that do not count.
        max_peak: bytes the plan may need at most.
        causes_too: whether each violation is given its cause and fingerprint, which costs as much as judging. Without, `findings` is empty.
    """
    try:
        document = load(path)
        report = check(document) if limit is None else check(document, limit=limit)
    except AllocsimError as error:
        return Outcome(file=path, error=str(error))
    except OSError as error:
        return Outcome(file=path, error=os_error_line(error))
    if report.clean or not causes_too:
        return Outcome(file=path, document=document, report=report, max_peak=max_peak)
    return outcome_of(path, document, report=report, known=known, max_peak=max_peak)


def outcome_of(
    file: str,
    document: Document,
    *,
    report: Report | None = None,
    known: Collection[str] = (),
    max_peak: int | None = None,
) -> Outcome:
    """Judge a document, unless its `report` is given; violations whose fingerprint is in `known` are marked so."""
    report, found = causes(document, report)
    findings = tuple(_finding(document, cause, known) for cause in found)
    return Outcome(file=file, document=document, report=report, findings=findings, max_peak=max_peak)


def fingerprint(document: Document, cause: Cause) -> str:
    """Return the fingerprint of a violation of a document: 32 hexadecimal digits."""
    v = cause.violation
    names = {
        key: v.names.get(key)
        for key in ("op_name", "value_name", "buffer_name", "other_op_name", "other_buffer_name", "want_op_name")
    }
    program = _program(document, v)
    parts: list[Any] = [
        v.kind,
        cause.class_,
        cause.fault,
        program.name if program is not None else None,
        sorted(names.items()),
        _kind(program, v.op),
    ]
    data = json.dumps(parts, ensure_ascii=True).encode()
    return hashlib.sha256(data).hexdigest()[: 2 * FINGERPRINT_BYTES]


def _finding(document: Document, cause: Cause, known: Collection[str]) -> FiledViolation:
    program, mark = _program(document, cause.violation), fingerprint(document, cause)
    return FiledViolation(
        cause=cause,
        fingerprint=mark,
        known=mark in known,
        kind_of_op=_kind(program, cause.violation.op),
        program=program.name if program is not None else None,
    )


def _program(document: Document, v: Violation) -> Program | None:
    if v.program is not None:
        return document.programs[v.program]
    if v.problem is not None:
        return document.problems[v.problem].program
    return document.plans[v.plan].program if v.plan is not None else None


def _kind(program: Program | None, op: int | None) -> str | None:
    return None if program is None or op is None else program.ops.kinds[program.ops.kind[op]]


__all__ = ["FiledViolation", "Outcome", "fingerprint", "judge_file", "outcome_of"]
