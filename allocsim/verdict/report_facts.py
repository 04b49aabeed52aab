"""Count facts of a report and its runs, before charging: the violations that each detector found,
the violations that only later runs show, and the runs that may overlap in time.

This module does not examine causes.
"""

from collections.abc import Sequence
from typing import Final

from allocsim.judge.violations import KINDS, Report, Violation
from allocsim.model import Document, Run, waited_for
from allocsim.verdict.evidence import Evidence

BELIEF_KINDS: Final = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong"})
"""Kinds of violation that detector L finds; H finds `Race`, and S finds all other kinds."""


def counts_of(evidence: Evidence, report: Report) -> dict[str, int | None]:
    """Return the number of defects per detector letter; None for a detector that did not run."""
    document, audit, races = evidence.document, evidence.audit, report.counts.get("Race", 0)
    beliefs = sum(report.counts.get(kind, 0) for kind in BELIEF_KINDS if KINDS[kind][0] == "violation")
    compared = evidence.origins is not None or evidence.diverges is not None
    return {
        "S": report.count - beliefs - races,
        "L": beliefs if document.problems else None,
        "H": races if streams(document) > 1 or at_once(document.runs) else None,
        "P": None if evidence.sanitizer is None else len(evidence.sanitizer),
        "D": (len(evidence.origins or ()) or int(bool(evidence.diverges))) if compared else None,
        "K": None if audit is None else sum(row.measured == "unsafe" and row.declared for row in audit),
        "R": only_later(report) if document.session is not None and len(document.session) > 1 else None,
    }


def streams(document: Document) -> int:
    """Return the largest number of streams that a program of a run has."""
    return max((len(run.program.streams) for run in document.runs), default=1)


def only_later(report: Report) -> int:
    """Count the violations of S and H that one run alone would not have. These are violations of a
    later run that run 0 does not have at the same place, and violations that a later run causes in
    an earlier run.
    """

    def place(v: Violation) -> tuple[object, ...]:
        return v.kind, v.program, v.op, v.value, v.buffer, v.other_buffer if v.kind == "Overlap" else None

    static = [v for v in report.violations if v.kind not in BELIEF_KINDS]
    first = {place(v) for v in static if v.run == 0}
    of_later = (v.other_run is not None and v.run is not None and v.other_run > v.run for v in static)
    return sum(later or (bool(v.run) and place(v) not in first) for v, later in zip(static, of_later, strict=True))


def at_once(runs: Sequence[Run]) -> int:
    """Count the runs that may overlap another run in time, because neither waits for the other.

    Complexity: O(runs^2 / 64), or O(runs) if each run waits for all runs before it.
    """
    if all(run.after is None for run in runs):
        return 0
    overlapping = 0
    for number, waits in enumerate(waited_for(runs)):
        apart = (1 << number) - 1 & ~waits
        overlapping |= apart | (1 << number if apart else 0)
    return overlapping.bit_count()
