"""One record for a run of the suite: what went wrong, whose fault it is, who took whose bytes, and the cure.

A verdict is a pure function of `Evidence`. S and L are run anew on its document; K, D and P come as measured rows. Attribution
compares *belief* with *fact*: the table `ROWS` maps each kind of evidence to a root-cause class (C01 to C15) and the
party at fault (plan, kernel, caller, schedule). For one violation the first row that applies decides. Findings of one class
and party are one finding with a count; the earliest in (run, step) is the verdict, the others its `also`.

Invariants: no row looks at a name, at which scenario ran, or at how buffers are numbered; renaming everything and permuting
indices leaves class, fault, `also` and cure unchanged. A difference that D sees and no row explains is reported as
unexplained, never guessed. The order of rows matters and is part of the table.

Complexity: that of the checks, plus O(violations + ops).

What this module does not see: how K, D, P and the cure were measured.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from allocsim.checks import Violation
from allocsim.verdict.case import Case
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.findings import belief_findings, kernel_findings, origin_text, plan_findings, twice_findings, unexplained
from allocsim.verdict.kernels import sanitizer_findings
from allocsim.verdict.records import CLASSES, Finding, Verdict, Witness
from allocsim.verdict.rows import BELIEF_ROWS, MEASURED_ROWS, ROWS, Row


def judge(evidence: Evidence) -> Verdict:
    """Return the verdict for this evidence."""
    case = Case(evidence)
    found = [
        *plan_findings(case),
        *kernel_findings(case),
        *twice_findings(case),
        *sanitizer_findings(case),
        *belief_findings(case),
    ]
    findings = _join((*found, *unexplained(case, found)))
    cure = evidence.cure
    return Verdict(
        findings=findings,
        detectors=_detectors(case),
        clauses=_clauses(case, findings),
        cure="; ".join(cure.elements) if cure else None,
        cure_bytes=cure.nbytes if cure else None,
        pin_all_bytes=cure.pin_all_bytes if cure else None,
        report=case.report,
    )


def _join(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Join findings of one class and party, keep the earliest of each, and order them by when they strike."""
    joined: dict[tuple[str, str], Finding] = {}
    counts: dict[tuple[str, str], int] = {}
    for finding in sorted(findings, key=lambda f: (f.run, f.step, f.class_, f.fault)):
        key = (finding.class_, finding.fault)
        joined.setdefault(key, finding)
        counts[key] = counts.get(key, 0) + 1
    return tuple(replace(finding, count=counts[key]) for key, finding in joined.items())


def _detectors(case: Case) -> dict[str, dict[str, Any]]:
    evidence = case.evidence
    audit, origins = evidence.audit, evidence.origins
    beliefs, races = case.beliefs_count, case.report.counts.get("Race", 0)
    too_long = case.report.counts.get("LifetimeTooLong", 0)
    streams = max((len(run.program.streams) for run in case.runs), default=1)
    not_run = {"status": "not run", "count": None}
    return {
        "S": _status(case.report.count - beliefs - races, ops=case.report.stats.ops, truncated=case.report.truncated),
        "H": _status(races, streams=streams, in_apart=sum(bool(v.in_apart) for v in case.races))
        if streams > 1
        else not_run | {"why": "one stream"},
        "P": not_run | {"why": "no kernels to execute"}
        if evidence.sanitizer is None
        else _status(len(evidence.sanitizer), first=evidence.sanitizer[0].message if evidence.sanitizer else None),
        "D": _without_lockstep(evidence.diverges)
        if origins is None
        else _status(len(origins), diverges=evidence.diverges, first=origin_text(case, origins[0]) if origins else None),
        "K": not_run | {"why": "no kernels to execute"}
        if audit is None
        else _status(
            sum(row.measured == "unsafe" and row.declared for row in audit),
            rows=len(audit),
            unsafe=[
                f"{row.kind}: result {row.result} over operand {row.operand}"
                if row.layout == "over"
                else f"{row.kind}: operand {row.operand} given twice"
                for row in audit
                if row.measured == "unsafe" and row.declared
            ],
        ),
        "R": _status(_only_later(case), runs=len(case.runs)) if len(case.runs) > 1 else not_run | {"why": "one run"},
        "L": _status(beliefs, too_long=too_long)
        if evidence.document.problems
        else not_run | {"why": "no belief to compare with"},
    }


def _only_later(case: Case) -> int:
    """Count the violations of later runs that the first run, of the same program, does not show."""

    def place(v: Violation) -> tuple[object, ...]:
        return v.kind, v.program, v.op, v.value, v.buffer, v.other_buffer if v.kind == "Overlap" else None

    first = {place(v) for v in case.static if v.run == 0}
    return sum(bool(v.run) and place(v) not in first for v in case.static)


def _without_lockstep(diverges: bool | None) -> dict[str, Any]:  # noqa: FBT001 - a fact of the evidence
    if diverges is None:
        return {"status": "not run", "count": None, "why": "no run to compare with"}
    return _status(int(diverges), diverges=diverges, why="what the host read was compared, not each op")


def _status(count: int, **more: Any) -> dict[str, Any]:
    return {"status": "violations" if count else "clean", "count": count, **more}


def _clauses(case: Case, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    legal = _legality(case)
    if not findings:
        agreed = ("default and reference agree to the bit",) if case.evidence.origins is not None else ()
        return (legal, "nothing wrong was found", *agreed)
    parts = [legal, *(f"{_party(f)}: {f.text}" + (f" [{f.count} times]" if f.count > 1 else "") for f in findings)]
    origins = case.evidence.origins
    if origins:
        parts.append(f"first wrong tensor: {origin_text(case, origins[0])}")
    cure = case.evidence.cure
    if cure is not None:
        against = f", against {_mib(cure.pin_all_bytes)} for pinning everything" if cure.pin_all_bytes is not None else ""
        parts.append(f"cure: {'; '.join(cure.elements)}, {_mib(cure.nbytes)}{against}")
    return tuple(parts)


def _legality(case: Case) -> str:
    """Say whether the plan is legal: in one run, over the session, and in the orders that streams allow."""
    ops = max((len(run.program.ops) for run in case.runs), default=0)
    races = case.report.counts.get("Race", 0)
    conflicts = case.report.count - case.beliefs_count - races - case.promises_count
    found = f"{conflicts} conflict{'s'[: conflicts != 1]}"
    if any(v.run in {0, None} for v in case.static if v.kind != "Race"):
        return f"the plan is not legal ({found} in {len(case.runs)} run{'s'[: len(case.runs) != 1]} of {ops} ops)"
    if conflicts:
        return f"the plan is legal within one run (0 conflicts in {ops} ops) but not over {len(case.runs)} runs ({found})"
    if any(not v.in_apart for v in case.races):
        return f"the plan is legal in list order (0 conflicts in {ops} ops) but not in every order its streams allow"
    return f"the plan is legal (0 conflicts in {ops} ops)"


def _party(finding: Finding) -> str:
    return f"{finding.class_}, fault of the {finding.fault}" if finding.fault != "unknown" else "cause unknown"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:+.2f} MiB"


__all__ = ["BELIEF_ROWS", "CLASSES", "MEASURED_ROWS", "ROWS", "Finding", "Row", "Verdict", "Witness", "judge"]
