"""Every detector asked about the default plan of a scenario, and the search for its cure.

    asked = ask(experiment, train_three(experiment)["default"])
    asked.evidence, asked.cured

S and L from the session of the default plan; K on the kernels the program uses; D in lockstep with the reference; P in guarded memory; the cure by delta
debugging. The detectors see the program, the plan, the session and the kernels, never the scenario.

What this module does not see: what the evidence means (`allocsim.verdict`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from allocsim import cure
from allocsim.checks import check
from allocsim.model import Plan
from allocsim.p_sanitizer import Incident
from allocsim.programs.streams import preferring, said_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import CureRecord, Evidence
from engine.d_differential import origins
from engine.d_differential.side_comparison import Progress, silent
from engine.k_audit import AuditCase, default_cases
from engine.k_audit.program_audit import measured
from engine.kernels import KERNELS
from engine.p_sanitizer import Sanitizer
from repro.pipeline import Experiment
from repro.waits import AddedWaits, waits_that_cure
from repro.workload import Trained, Workload, bind, host_runs, session, train

SANITIZED_RUNS: Final = 2
"""Runs P watches: the first, and one more that names the op where the first left several suspects."""
LOCKSTEP_RUNS: Final = 2
"""Runs D compares op by op at least: the first, and one that starts from what the first left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorAnswers:
    """What the detectors said."""

    evidence: Evidence
    cured: Plan | None = None
    """The plan that the smallest cure of the belief gives; None where there is no such cure."""


def ask(experiment: Experiment, default: Trained, progress: Progress = silent) -> DetectorAnswers:
    """Ask every detector about the default plan, by which `default` was trained."""
    workload, steps, reference = experiment.workload, experiment.steps, experiment.plans["reference"]
    progress("kernels", 0, 1)
    audit = measured(workload.lowered, more=_standing_cases(workload))
    progress("kernels", 1, 1)
    horizon = min(steps, max(LOCKSTEP_RUNS, default.first_difference or 0))
    with bind(workload, default.plan) as planned, bind(workload, reference) as apart:
        found = origins(planned, apart, host_runs(workload, horizon), order=workload.order)
    progress("lockstep", 1, 1)
    evidence = Evidence(
        document=session(workload, default.plan, steps),
        audit=audit,
        origins=found,
        sanitizer=_sanitized(workload, default.plan, min(steps, SANITIZED_RUNS), progress),
        diverges=default.first_difference is not None,
    )
    if judge(evidence).sound:
        return DetectorAnswers(evidence=evidence)
    record, cured = _cure(experiment, evidence, horizon, progress)
    return DetectorAnswers(evidence=msgspec.structs.replace(evidence, cure=record), cured=cured)


def _sanitized(workload: Workload, plan: Plan, runs: int, progress: Progress) -> tuple[Incident, ...]:
    """Run the first steps in guarded memory, as the default run did them."""
    with Sanitizer(workload.lowered, plan, parameters=workload.parameters, threads=workload.threads) as sanitizer:
        for number, host in enumerate(host_runs(workload, runs)):
            sanitizer.run(host.inputs, skip=host.skip)
            progress("sanitized", number + 1, runs)
        sanitizer.finish()
        return sanitizer.incidents


def _standing_cases(workload: Workload) -> Iterator[AuditCase]:
    """Yield the audit's own sizes and dtypes for the kernels of the program.

    What is unsafe at one size may not show at another.
    """
    variants = workload.lowered.variants
    used = {kind: KERNELS[kind] for kind in variants}
    return (replace(case, variant=variants[case.kind]) for case in default_cases(used))


def _cure(experiment: Experiment, evidence: Evidence, horizon: int, progress: Progress) -> tuple[CureRecord | None, Plan | None]:
    """Search the smallest change that brings the reference back, statically and in numbers: its record, and the plan where only the belief changes.

    Each plan tried has the waits that its own reuse takes, none where it takes none. So a set is 1-minimal if its other changes are: without one of
    these a plan is wrong with all the waits it could have, and without a wait some race is back.
    """
    workload, plans = experiment.workload, experiment.plans
    default = plans["default"]
    if default.problem is None:
        return None, None
    target = train(workload, plans["reference"], horizon, name="cure: reference", progress=progress)

    def right(plan: Plan) -> bool:
        mended = _waiting(workload, waits_that_cure(plan))
        said = said_of(mended.program, plan)
        if not check(session(mended, said, horizon), limit=1).clean:
            return False
        return train(mended, said, horizon, name="cure", against=target, progress=progress).first_difference is None

    def record(plan: Plan, waits: AddedWaits | None, elements: tuple[str, ...], trials: int, *, minimal: bool) -> CureRecord:
        return CureRecord(
            elements=(*(() if waits is None else waits.elements), *elements),
            nbytes=plan.peak_bytes - default.peak_bytes,
            pin_all_bytes=plans["pinned"].peak_bytes - default.peak_bytes,
            minimal=minimal,
            trials=trials + (0 if waits is None else waits.trials),
        )

    if (waits := waits_that_cure(default)) and right(default):
        return record(default, waits, (), 0, minimal=True), None
    suspected, others = suspects(evidence)
    found = cure.find(default.problem, experiment.planner.place, suspects=suspected, others=others, right=right)
    if found is None:
        return None, None
    elements, waits = tuple(element.describe(workload.program) for element in found.elements), waits_that_cure(found.plan)
    return record(found.plan, waits, elements, found.trials, minimal=found.minimal), found.plan if waits is None else None


def _waiting(workload: Workload, waits: AddedWaits | None) -> Workload:
    """Return the workload with a program that has these waits, run in an order they allow."""
    if waits is None:
        return workload
    order = preferring(waits.program, len(waits.program.streams) - 1)
    return replace(workload, lowered=replace(workload.lowered, program=waits.program), order=order)


def suspects(evidence: Evidence) -> tuple[list[cure.Element], list[cure.Element]]:
    """Return the changes that the evidence suggests, and all others that could matter."""
    document = evidence.document
    plan = document.runs[0].plan
    program = plan.program
    used = {element: None for donor, recipient in cure.used_pairs(plan) for element in cure.pair_class(program, donor, recipient)}
    unsafe = {
        (row.kind, row.operand, row.result) for row in evidence.audit or () if row.measured == "unsafe" and row.layout == "over"
    }
    suspects: dict[cure.Element, None] = {
        element: None for element in used if (element.kind, element.operand, element.result) in unsafe
    }
    for v in check(document).of_kind("StaleRead"):
        if v.buffer is None or v.op is None:
            continue
        earlier = v.want_run is not None and v.run is not None and v.want_run < v.run
        suspects[cure.Pin(v.buffer) if earlier else cure.Extend(v.buffer, v.op + 1)] = None
    return list(suspects), [element for element in used if element not in suspects]


__all__ = ["LOCKSTEP_RUNS", "DetectorAnswers", "ask", "suspects"]
