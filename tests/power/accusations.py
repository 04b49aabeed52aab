"""What the verdict and the lists of S, L and H say against a document that is sound."""

from allocsim.model import Document
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


def accusations(document: Document) -> list[str]:
    """Return what the verdict and the lists of S, L and H say against a sound document."""
    verdict = judge(Evidence(document=document))
    said = [f"{finding.class_} {finding.party}: {finding.text}" for finding in verdict.joint]
    said += [f"{v.kind}: {v.message}" for v in verdict.report.violations]
    said += [f"{v.kind}: {v.message}" for v in verdict.report.warnings if v.kind == "LifetimeTooLong"]
    return said + [
        f"{name} {says['status']}" for name, says in verdict.detectors.items() if says["status"] == "violations"
    ]
