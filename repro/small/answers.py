"""The answer of each detector about a document, as kinds of records.

The kinds of D are the kinds of the origins that D found. K has one kind, `unsafe`: the kernel
computes another result if it runs in place with a pair that it declares. A detector that could not
run has the answer None. R cannot run on a single run, H on a single stream, L without a belief, and
P, D and K on a document that the engine cannot bind.

What this module does not see: the answers that a scenario expects.
"""

from collections.abc import Mapping
from typing import Final

from allocsim.judge.fast import KINDS
from allocsim.p_sanitizer.incidents import KINDS as INCIDENTS
from allocsim.verdict import Verdict
from allocsim.verdict.evidence import Evidence

DETECTORS: Final = ("S", "L", "H", "R", "P", "D", "K")
BELIEFS: Final = ("LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong")
"""The kinds that L can report."""

STATIC: Final = tuple(kind for kind in KINDS if kind not in BELIEFS and kind != "Race")

REPORTABLE: Final[Mapping[str, tuple[str, ...]]] = {
    "S": STATIC,
    "L": BELIEFS,
    "H": ("Race",),
    "R": tuple(kind for kind in STATIC if KINDS[kind][0] == "violation"),
    "P": tuple(INCIDENTS),
    "D": ("operand", "result"),
    "K": ("unsafe",),
}
"""Detector -> the kinds that it can report."""

Said = Mapping[str, frozenset[str] | None]


def said(evidence: Evidence, verdict: Verdict) -> Said:
    """Return detector -> the kinds it reported, warnings included; None if it did not run."""
    records = (*verdict.report.violations, *verdict.report.warnings)
    static = [v for v in records if v.kind not in BELIEFS and v.kind != "Race"]
    first = {(v.kind, v.program, v.op, v.value) for v in static if v.run == 0}
    later = [
        v for v in static if v.run and v.severity == "violation" and (v.kind, v.program, v.op, v.value) not in first
    ]
    found: dict[str, set[str]] = {
        "S": {v.kind for v in static},
        "L": {v.kind for v in records if v.kind in BELIEFS},
        "H": {v.kind for v in records if v.kind == "Race"},
        "R": {v.kind for v in later},
        "P": {incident.kind for incident in evidence.sanitizer or ()},
        "D": {origin.what for origin in evidence.origins or ()},
        "K": {"unsafe" for row in evidence.audit or () if row.measured == "unsafe" and row.declared},
    }
    status = {detector: says["status"] for detector, says in verdict.detectors.items()}
    return {detector: None if status[detector] == "not run" else frozenset(kinds) for detector, kinds in found.items()}
