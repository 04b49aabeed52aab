"""What the parties that a verdict names did, op by op, in words.

Findings are those of a run's record (`verdict` and its `also`). Nothing here needs matplotlib.

What this module does not see: documents.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

WORDS: Final[Mapping[str, tuple[str, str, str]]] = {
    # what is at fault: what the victim's, the writer's and the reader's op did
    "": ("made what is lost", "took the bytes", "reads it late"),
    "C09": ("made what may be lost", "writes there, in no order", "reads it, in no order"),
    "C14": ("made what is lost", "took the bytes", "reads what this run has not written"),
    "kernel": ("made what is lost", "its kernel is at fault", "reads it"),
}


def deeds(verdict: Mapping[str, Any], run: int) -> dict[int, str]:
    """Return what ops of one run did: of an op that did several things, what it did in the first
    finding, as its reader before its writer before its victim.
    """
    found: dict[int, str] = {}
    for finding in reversed(findings_of(verdict)):
        kernel = finding.get("fault") == "kernel"
        words = WORDS.get("kernel" if kernel else str(finding.get("class")), WORDS[""])
        for party, deed in zip(("victim", "writer", "reader"), words, strict=True):
            witness = finding.get(party) or {}
            op = witness.get("op")
            if op is None or witness.get("run") not in (None, run):
                continue
            alone = party == "victim" and not finding.get("writer")  # of a kernel that no run was needed to see
            found[int(op)] = words[1] if kernel and (alone or (party == "reader" and op in found)) else deed
    return found


def run_of(verdict: Mapping[str, Any]) -> int:
    """Return the run in which the late read, else anything the first finding names, happens."""
    named = [(verdict.get(party) or {}).get("run") for party in ("reader", "writer", "victim")]
    return next((run for run in named if run is not None), 0)


def buffers_of(verdict: Mapping[str, Any], run: int) -> Iterator[int]:
    """Yield the buffers of the parties of the first finding in one run."""
    for party in ("victim", "writer", "reader"):
        witness = verdict.get(party) or {}
        if witness.get("buffer") is not None and witness.get("run") in (None, run):
            yield int(witness["buffer"])


def findings_of(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all findings of a verdict, the most important first."""
    return [verdict, *(verdict.get("also") or ())]
