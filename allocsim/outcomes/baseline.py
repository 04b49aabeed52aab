"""The baseline: a file of known violations, which do not count.

    {"format": "allocsim-baseline", "version": 1, "known": [{"fingerprint": "...", "kind": ..., "class": ..., "fault": ..., "cause": ..., "message": ...}]}

Only `fingerprint` is read back; the other keys are for people who review the file. Entries are
sorted, so that the file changes only where faults change.

What this module does not see: how a fingerprint is computed (`allocsim.outcomes`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from allocsim.files.gate import CEILINGS, content, record_of
from allocsim.outcomes import Outcome


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One known fault."""

    fingerprint: str
    kind: str = ""
    class_: str | None = msgspec.field(name="class", default=None)
    fault: str | None = None
    cause: str | None = None
    """The mend, in words."""
    message: str = ""


class _Baseline(msgspec.Struct, frozen=True, kw_only=True):
    format: Literal["allocsim-baseline"]
    version: Literal[1]
    known: tuple[Known, ...]


def dumps(outcomes: Iterable[Outcome]) -> bytes:
    """Return the violations of outcomes as a file of known faults, each fault once."""
    known: dict[str, Known] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            v = finding.violation
            entry = Known(
                fingerprint=finding.fingerprint,
                kind=v.kind,
                class_=finding.cause.class_,
                fault=finding.cause.fault,
                cause=None if finding.cause.cause is None else finding.cause.cause.mend,
                message=v.message,
            )
            known.setdefault(finding.fingerprint, entry)
    ordered = tuple(sorted(known.values(), key=lambda entry: (entry.kind, entry.fingerprint)))
    return (
        msgspec.json.format(
            msgspec.json.encode(_Baseline(format="allocsim-baseline", version=1, known=ordered)), indent=1
        )
        + b"\n"
    )


def loads(data: bytes, source: str = "baseline") -> frozenset[str]:
    """Return the fingerprints in a file of known faults.

    Raise DocumentError with the place of the fault if `data` is no such file.
    """
    found: _Baseline = record_of(data, _Baseline, source, what="file of known faults")
    return frozenset(entry.fingerprint for entry in found.known)


def read(path: str | Path) -> frozenset[str]:
    """Return the fingerprints in a file.

    Raise DocumentError if it is no such file, or cannot be read.
    """
    return loads(content(path, CEILINGS["record"]), str(path))
