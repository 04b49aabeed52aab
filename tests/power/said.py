"""What each detector said of a document: the kinds it reports, None where it did not run; and what is said against one that is sound."""

from collections.abc import Mapping

from allocsim.model import Document
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence

BELIEFS = ("LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong")


def said(evidence: Evidence, verdict: Verdict) -> Mapping[str, frozenset[str] | None]:
    """Return the kinds, warnings included, by detector."""
    records = (*verdict.report.violations, *verdict.report.warnings)
    static = [v for v in records if v.kind not in BELIEFS and v.kind != "Race"]
    first = {(v.kind, v.program, v.op, v.value) for v in static if v.run == 0}
    later = [
        v for v in static if v.run and v.severity == "violation" and (v.kind, v.program, v.op, v.value) not in first
    ]
    found = {
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


def accusations(document: Document) -> list[str]:
    """Return what the verdict and the lists of S, L and H say against a sound document."""
    verdict = judge(Evidence(document=document))
    said = [f"{finding.class_} {finding.fault}: {finding.text}" for finding in verdict.findings]
    said += [f"{v.kind}: {v.message}" for v in verdict.report.violations]
    said += [f"{v.kind}: {v.message}" for v in verdict.report.warnings if v.kind == "LifetimeTooLong"]
    return said + [
        f"{name} {says['status']}" for name, says in verdict.detectors.items() if says["status"] == "violations"
    ]
