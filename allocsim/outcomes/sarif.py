"""Outcomes as SARIF 2.1.0 (OASIS), the format in which code hosts show findings.

The log has one run with one rule for each kind of violation; warnings are left out. A violation is
a result with its file, its fingerprint, its program, op and buffer as logical locations, and the
other ops and buffers as related locations; a known violation is suppressed. A plan over its peak is
a result of the rule `max-peak`. A file that cannot be read is a notification of an unsuccessful
invocation. This module does not see lines and columns. A document is data; its places are rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

import msgspec

from allocsim import __version__
from allocsim.judge.violations import KINDS
from allocsim.outcomes import FiledViolation, Outcome

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
MAX_PEAK: Final = "max-peak"
MEASURED: Final = "measured"
OWN_RULES: Final = {
    MAX_PEAK: ("MaxPeak", "a plan needs more bytes than it may"),
    MEASURED: ("Measured", "running kernels shows a fault that no plan explains"),
}
"""Name -> meaning of the rules that are not kinds of violation."""

RULES: Final = (*(kind for kind, (severity, _) in KINDS.items() if severity == "violation"), *OWN_RULES)
"""Identifiers of the rules, in the order of their indices."""


def dumps(outcomes: Iterable[Outcome]) -> bytes:
    """Return the outcomes as UTF-8 JSON."""
    return msgspec.json.format(msgspec.json.encode(log(outcomes)), indent=1) + b"\n"


def log(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return the SARIF log as plain data."""
    judged = list(outcomes)
    notes = [
        {"level": "error", "message": {"text": outcome.error or ""}, "locations": [_file(outcome.file)]}
        for outcome in judged
        if outcome.error is not None
    ]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "allocsim", "version": __version__, "rules": list(map(_rule, RULES))}},
                "invocations": [
                    {"executionSuccessful": not notes, **({"toolExecutionNotifications": notes} if notes else {})}
                ],
                "artifacts": [{"location": {"uri": _uri(outcome.file)}} for outcome in judged],
                "columnKind": "unicodeCodePoints",
                "results": [result for outcome in judged for result in _results(outcome)],
            }
        ],
    }


def _rule(kind: str) -> dict[str, Any]:
    name, meaning = OWN_RULES[kind] if kind in OWN_RULES else (kind, KINDS[kind][1])
    return {
        "id": kind,
        "name": name,
        "shortDescription": {"text": meaning},
        "defaultConfiguration": {"level": "error"},
    }


def _results(outcome: Outcome) -> Iterator[dict[str, Any]]:
    for finding in outcome.findings:
        yield _result(outcome, finding)
    for cause in outcome.measured:
        yield {
            "ruleId": MEASURED,
            "ruleIndex": RULES.index(MEASURED),
            "level": "error",
            "message": {"text": f"{cause.class_}, fault of the {cause.party}: {cause.text}"},
            "locations": [_file(outcome.file)],
            "properties": {
                "number": cause.number,
                "class": cause.class_,
                "fault": cause.party,
                "party": cause.party,
                "cause": cause.mend,
            },
        }
    if outcome.beyond:
        yield {
            "ruleId": MAX_PEAK,
            "ruleIndex": RULES.index(MAX_PEAK),
            "level": "error",
            "message": {"text": outcome.beyond},
            "locations": [_file(outcome.file)],
        }


def _result(outcome: Outcome, finding: FiledViolation) -> dict[str, Any]:
    v, cause = finding.violation, finding.cause
    because = f" ({cause.class_}, fault of the {cause.fault}: {cause.evidence})" if cause.class_ is not None else ""
    related = [
        {
            "id": number,
            "message": {"text": words},
            "logicalLocations": [_logical(finding, "op", index, v.names.get(key))],
        }
        for number, (words, index, key) in enumerate(
            (
                ("who wrote what was found", v.other_op, "other_op_name"),
                ("who wrote what was wanted", v.want_op, "want_op_name"),
            )
        )
        if index is not None
    ]
    logical = [
        _logical(finding, what, index, v.names.get(f"{what}_name"))
        for what, index in (("op", v.op), ("value", v.value), ("buffer", v.buffer))
        if index is not None
    ]
    found: dict[str, Any] = {
        "ruleId": v.kind,
        "ruleIndex": RULES.index(v.kind),
        "level": "error",
        "message": {"text": f"{v.message}{because}"},
        "locations": [{**_file(outcome.file), **({"logicalLocations": logical} if logical else {})}],
        "partialFingerprints": {"allocsim/v1": finding.fingerprint},
        "properties": {
            "number": None if cause.cause is None else cause.cause.number,
            "class": cause.class_,
            "fault": cause.fault,
            "party": cause.fault,
            "cause": None if cause.cause is None else cause.cause.mend,
            "run": v.run,
            "step": v.step,
            "bytes": [list(pair) for pair in v.bytes],
        },
    }
    if related:
        found["relatedLocations"] = related
    if finding.known:
        found["suppressions"] = [{"kind": "external", "justification": "listed in the baseline"}]
    return found


def _logical(finding: FiledViolation, what: str, index: int, name: str | None) -> dict[str, Any]:
    table = {"op": "ops", "value": "values", "buffer": "buffers"}[what]
    return {
        "name": name or str(index),
        "fullyQualifiedName": f"{finding.program or ''}/{table}[{index}]",
        "kind": {"op": "function", "value": "variable", "buffer": "resource"}[what],
    }


def _file(file: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(file)}}}


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())
