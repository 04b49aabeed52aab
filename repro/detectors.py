"""Run every detector on the default plan of a scenario, and search for a cure of the faults found.

    asked = ask(experiment, train_three(experiment)["default"])
    asked.evidence, asked.cured

S and L judge the session of the default plan. K audits the kernels that the program uses. D runs
the default plan in lockstep with the reference. P runs the default plan in guarded memory. The
cure is searched by `allocsim.cure`; it is then run and compared with the reference. The detectors
receive the program, the plan, the session and the kernels, but never the scenario.

What this module does not see: what the evidence means (`allocsim.verdict`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from allocsim.allocators.planner import Allocator
from allocsim.cure import CURABLE, Cure, CureSearch
from allocsim.model import Plan
from allocsim.p_sanitizer import Incident
from allocsim.programs.streams import preferring
from allocsim.verdict import judge
from allocsim.verdict.causes import charges_in
from allocsim.verdict.evidence import CureRecord, Evidence
from engine.d_differential import origins
from engine.d_differential.side_comparison import Progress, silent
from engine.k_audit import AuditCase, default_cases
from engine.k_audit.program_audit import measured
from engine.kernels import KERNELS
from engine.p_sanitizer import Sanitizer
from repro.pipeline import Experiment
from repro.workload import Trained, Workload, bind, host_runs, session, train

SANITIZED_RUNS: Final = 2
"""The number of runs that P watches. If the first run leaves several suspects for one incident, the
second run names the op."""
LEFT_OUT: Final = 4
"""With more causes than this number, the cure is not tested for being minimal. In the test, each
cause is left out once, and the cure of the other causes is run."""
LOCKSTEP_RUNS: Final = 2
"""The smallest number of runs that D compares op by op. The second run starts from the memory that
the first run left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorAnswers:
    """The evidence of all detectors, and the cured plan."""

    evidence: Evidence
    cured: Plan | None = None
    """The plan of the cure, if the cure changes neither waits nor uploads; else None."""


def ask(experiment: Experiment, default: Trained, progress: Progress = silent) -> DetectorAnswers:
    """Run every detector on the default plan; `default` is the training run under that plan."""
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
    if judge(evidence, cures=False).sound:
        return DetectorAnswers(evidence=evidence)
    record, cured = _cure(experiment, evidence, horizon, progress)
    return DetectorAnswers(evidence=msgspec.structs.replace(evidence, cure=record), cured=cured)


def _sanitized(workload: Workload, plan: Plan, runs: int, progress: Progress) -> tuple[Incident, ...]:
    """Repeat the first `runs` steps of the default run in guarded memory; return the incidents."""
    with Sanitizer(workload.lowered, plan, parameters=workload.parameters, threads=workload.threads) as sanitizer:
        for number, host in enumerate(host_runs(workload, runs)):
            sanitizer.run(host.inputs, skip=host.skip)
            progress("sanitized", number + 1, runs)
        sanitizer.finish()
        return sanitizer.incidents


def _standing_cases(workload: Workload) -> Iterator[AuditCase]:
    """Yield cases of the kernels that the program uses, at the audit's own sizes and dtypes.

    A kernel that is unsafe at one size may give the right result at another size.
    """
    variants = workload.lowered.variants
    used = {kind: KERNELS[kind] for kind in variants}
    return (replace(case, variant=variants[case.kind]) for case in default_cases(used))


def _cure(
    experiment: Experiment, evidence: Evidence, horizon: int, progress: Progress
) -> tuple[CureRecord | None, Plan | None]:
    """Return the record of a cure of all curable causes, and the cured plan.

    `allocsim.cure` searches for the cure, and the judge confirms it there. Here the workload is
    trained with the cure. The record and the plan are None if there is no cure, or if the numbers
    of this run differ from the reference. If there are at most `LEFT_OUT` causes, each cause is
    left out once, and the cure of the others is run, to test whether the whole cure is minimal. The
    plan is None if the cure changes waits or uploads.
    """
    workload, plans = experiment.workload, experiment.plans
    verdict = judge(evidence, cures=False)
    chosen = [cause for cause in verdict.causes if cause.change.kind in CURABLE]
    planner = experiment.planner if isinstance(experiment.planner, Allocator) else None
    search = partial(CureSearch, document=evidence.document, report=verdict.report, planner=planner)
    found = search(asked=charges_in(chosen)).found()
    if found is None:
        return None, None
    target = train(workload, plans["reference"], horizon, name="cure: reference", progress=progress)

    def right(made: Cure) -> bool:
        mended, plan = _mended(workload, made), made.document.runs[0].plan
        return train(mended, plan, horizon, name="cure", against=target, progress=progress).first_difference is None

    if not right(found):
        return None, None
    trials = found.trials + 1
    minimal = len(chosen) <= LEFT_OUT
    for left_out in chosen if minimal and len(chosen) > 1 else ():
        fewer = charges_in(cause for cause in chosen if cause is not left_out)
        others = search(asked=fewer, others=charges_in([left_out]))
        made = others.found()
        trials += 1
        minimal &= not others.effort.cut and (made is None or not right(made))
    record = CureRecord(
        elements=found.words,
        nbytes=found.nbytes,
        pin_all_bytes=plans["pinned"].peak_bytes - plans["default"].peak_bytes,
        minimal=minimal,
        trials=trials,
    )
    only_belief = not any(change.kind in {"wait", "upload"} for change in found.changes)
    return record, found.document.runs[0].plan if only_belief else None


def _mended(workload: Workload, made: Cure) -> Workload:
    """Return the workload with a cure's waits and uploads, in an order that these waits allow."""
    lowered, order = workload.lowered, workload.order
    run = made.document.runs[0]
    if run.program is not workload.program:
        lowered = replace(lowered, program=run.program)
        order = preferring(run.program, len(run.program.streams) - 1) if order is not None else None
    uploaded = {workload.lowered.tensors[one.op or 0].name for one in made.changes if one.kind == "upload"}
    once = tuple(name for name in workload.write_once if name not in uploaded)
    return replace(workload, lowered=lowered, order=order, write_once=once)
