"""Every detector asked about the default plan of a scenario, and the search for its cure.

    asked = ask(bench, bench.train("default", against=bench.train("reference")))
    asked.evidence, asked.cured

S and L from the session of the default plan; K on the kernels the program uses; D in lockstep with the reference; P in guarded memory; the cure from the
verdict, run against the reference. The detectors see the program, the plan, the session and the kernels, never the scenario.

What this module does not see: what the evidence means (`allocsim.verdict`).
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from allocsim.allocators.planner import Allocator
from allocsim.cure import CURABLE, Cure, cure_of
from allocsim.cure.elements import Upload
from allocsim.model import Plan
from allocsim.p_sanitizer import Incident
from allocsim.programs.streams import preferring
from allocsim.verdict import judge
from allocsim.verdict.causes import demand_of
from allocsim.verdict.evidence import CureRecord, Evidence
from engine.d_differential import origins
from engine.k_audit import Case, default_cases
from engine.k_audit.programs import measured
from engine.kernels import KERNELS
from engine.p_sanitizer import Sanitizer
from repro.bench import Bench, Trained

SANITIZED_RUNS: Final = 2
"""Runs P watches: the first, and one more that names the op where the first left several suspects."""
LEFT_OUT: Final = 4
"""Causes of which each is left out of the cure once, and the rest run."""
LOCKSTEP_RUNS: Final = 2
"""Runs D compares op by op at least: the first, and one that starts from what the first left behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the detectors said."""

    evidence: Evidence
    cured: Plan | None = None
    """The plan that the smallest cure of the belief gives; None where there is no such cure."""


def ask(bench: Bench, default: Trained) -> Asked:
    """Ask every detector about the default plan, which has been trained by."""
    bench.progress("kernels", 0, 1)
    audit = measured(bench.lowered, more=_standing_cases(bench))
    bench.progress("kernels", 1, 1)
    horizon = min(bench.steps, max(LOCKSTEP_RUNS, default.first_difference or 0))
    with bench.runtime(default.plan) as planned, bench.runtime(bench.plans["reference"]) as reference:
        found = origins(planned, reference, bench.host(horizon), order=bench.order)
    bench.progress("lockstep", 1, 1)
    evidence = Evidence(
        document=bench.session(default.plan, bench.steps),
        audit=audit,
        origins=found,
        sanitizer=_sanitized(bench, default.plan),
        diverges=default.first_difference is not None,
    )
    if judge(evidence, cures=False).sound:
        return Asked(evidence=evidence)
    record, cured = _cure(bench, evidence, horizon)
    return Asked(evidence=msgspec.structs.replace(evidence, cure=record), cured=cured)


def _sanitized(bench: Bench, plan: Plan) -> tuple[Incident, ...]:
    """Run the first steps in guarded memory, as the default run did them."""
    hosts = bench.host(min(bench.steps, SANITIZED_RUNS))
    with Sanitizer(bench.lowered, plan, parameters=bench.setup.parameters, threads=bench.options.threads) as sanitizer:
        for number, host in enumerate(hosts):
            sanitizer.run(host.inputs, skip=host.skip)
            bench.progress("sanitized", number + 1, len(hosts))
        sanitizer.finish()
        return sanitizer.incidents


def _standing_cases(bench: Bench) -> Iterator[Case]:
    """The audit's own sizes and dtypes for the kernels of the program: what is unsafe at one size may not show at another."""
    used = {kind: KERNELS[kind] for kind in bench.lowered.variants}
    return (replace(case, variant=bench.lowered.variants[case.kind]) for case in default_cases(used))


def _cure(bench: Bench, evidence: Evidence, horizon: int) -> tuple[CureRecord | None, Plan | None]:
    """Return the cure of all causes, if a run with it gives the reference's numbers: its record, and the plan where only the belief changes.

    The cure is the verdict's (`allocsim.cure`), verified there by the judge; here it is run. Of a few changes each is left out once in numbers too.
    """
    verdict = judge(evidence, cures=False)
    chosen = [cause for cause in verdict.causes if cause.charge.kind in CURABLE]
    planner = bench.planner if isinstance(bench.planner, Allocator) else None
    found = cure_of(evidence.document, [demand_of(cause) for cause in chosen], verdict.report, planner=planner)
    if found is None:
        return None, None
    target = bench.train_plan(bench.plans["reference"], horizon, "cure: reference")

    def right(made: Cure) -> bool:
        mended = _mended(bench, made)
        return mended.train_plan(made.document.runs[0].plan, horizon, "cure", against=target).first_difference is None

    if not right(found):
        return None, None
    trials = found.trials + 1
    minimal = len(chosen) <= LEFT_OUT
    for left_out in chosen if minimal and len(chosen) > 1 else ():
        fewer = [demand_of(cause) for cause in chosen if cause is not left_out]
        made = cure_of(evidence.document, fewer, verdict.report, others=[demand_of(left_out)], planner=planner)
        trials += 1
        minimal &= made is None or not right(made)
    record = CureRecord(
        elements=found.words,
        nbytes=found.nbytes,
        pin_all_bytes=bench.plans["pinned"].peak_bytes - bench.plans["default"].peak_bytes,
        minimal=minimal,
        trials=trials,
    )
    only_belief = not any(element.kind in {"wait", "upload"} for element in found.elements)
    return record, found.document.runs[0].plan if only_belief else None


def _mended(bench: Bench, made: Cure) -> Bench:
    """Return the bench with the waits and the uploads of a cure, run in an order that its waits allow."""
    mended = copy(bench)
    run = made.document.runs[0]
    if run.program is not bench.program:
        mended.lowered, mended.program = replace(bench.lowered, program=run.program), run.program
        mended.order = preferring(run.program, len(run.program.streams) - 1) if bench.order is not None else None
    uploaded = {element.op for element in made.elements if isinstance(element, Upload)}
    names = {bench.lowered.tensors[step].name for step in uploaded}
    if names:
        once = tuple(name for name in bench.scenario.write_once if name not in names)
        mended.scenario = replace(bench.scenario, write_once=once)
    return mended


__all__ = ["LOCKSTEP_RUNS", "Asked", "ask"]
