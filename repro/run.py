"""Run a scenario: train three ways, ask every detector, find the cure, reach the verdict.

`run` is the pipeline of `repro.pipeline` from end to end: scenario -> experiment -> three training
runs -> evidence (`repro.detectors`) -> verdict (`allocsim.verdict`). Kernels of the user's are run
in a child first (`engine.p_sanitizer.foreign`); where they break what they declare, or their
process, that is the evidence, and nothing is trained.

With `options.online` memory is given out while the steps run (`repro.online_runs`), and there is no
plan before: the three runs differ in what is given back.

What this module does not see: the terminal, files, and figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence
from engine.d_differential import compare
from engine.d_differential.side_comparison import Progress, silent
from engine.p_sanitizer import foreign
from engine.training.measured_memory import MemoryOfRun
from repro import mode_words
from repro.detectors import LOCKSTEP_RUNS, ask
from repro.online_runs import train_online
from repro.options import EngineOptions
from repro.pipeline import MODES, prepare, train_three
from repro.run_records import GradientRatio, TrainingSummary, agree, by_name, run_entry
from repro.scenario import Scenario
from repro.workload import Trained, Workload, measured, session


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineResult:
    """Everything a scenario run on the engine produced."""

    scenario: Scenario
    options: EngineOptions
    evidence: Evidence
    verdict: Verdict
    modes: Mapping[str, TrainingSummary]
    """None where nothing was trained."""
    differential: tuple[dict[str, Any], ...] = ()
    """The further modes asked for, each with its rows (`repro.mode_words.record`)."""
    memory: MemoryOfRun | None = None
    """Of the first step under the default plan, where that was asked for."""

    @property
    def title(self) -> str:
        """The heading of what is printed."""
        return f"{self.scenario.name}: {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """(class, fault) of what the verdict must name."""
        return self.scenario.expected

    @property
    def matches(self) -> bool:
        """Whether the verdict names exactly the faults the scenario holds."""
        return agree(self.verdict, self.expected)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`.

        Of joined scenarios, `expected` is the first one's, `matches` about all.
        """
        more: dict[str, Any] = {"differential": list(self.differential)} if self.differential else {}
        if self.memory is not None:
            more["memory"] = self.memory.as_json()
        more["modes"] = by_name(self.modes)
        name, verdict, evidence = self.scenario.name, self.verdict, self.evidence
        return run_entry(name, verdict, evidence, self.expected, matches=self.matches, **more)


def run(scenario: Scenario, options: EngineOptions, *, progress: Progress = silent) -> EngineResult:
    """Run a scenario and return its evidence and verdict; errors as of `repro.pipeline.prepare`."""
    if options.online is not None:
        evidence, modes = train_online(scenario, options, progress)
        return EngineResult(scenario=scenario, options=options, evidence=evidence, verdict=judge(evidence), modes=modes)
    experiment = prepare(scenario, options)
    workload = experiment.workload
    plan = experiment.plans["default"]
    hurt = foreign(workload.lowered, plan, workload.inputs, parameters=workload.parameters)
    if hurt:  # kernels of the user's: not one more call in this process
        evidence = Evidence(document=session(workload, plan, 1), sanitizer=hurt)
        return EngineResult(
            scenario=experiment.scenario, options=options, evidence=evidence, verdict=judge(evidence), modes={}
        )
    sides = mode_words.sides_of(experiment, options.modes)
    trained = train_three(experiment, progress)
    evidence = ask(experiment, trained["default"], progress).evidence
    compared = mode_words.courses(experiment, sides, lockstep=LOCKSTEP_RUNS, progress=progress) if sides else ()
    return EngineResult(
        scenario=experiment.scenario,
        options=options,
        evidence=evidence,
        verdict=judge(evidence),
        modes={
            name: summary(workload, trained[name], against=trained["reference"], default=trained["default"])
            for name in MODES
        },
        differential=tuple(mode_words.record(course, workload.lowered, workload.loss) for course in compared),
        memory=measured(workload, experiment.plans["default"]) if options.measure else None,
    )


def summary(workload: Workload, trained: Trained, *, against: Trained, default: Trained) -> TrainingSummary:
    """Sum a training run up, with the gradients of three steps against the reference.

    These are the first, the first that differs, and the last.
    """
    shown = sorted({1, default.first_difference or 1, len(trained.loss)})
    rows = [
        GradientRatio(step=step, layer=parameter.layer, tensor=parameter.name, ratio=ratio, cosine=cosine)
        for step in shown
        for value, (parameter, _) in workload.gradient_values.items()
        for ratio, cosine in [compare(trained.gradients[step - 1][value], against.gradients[step - 1][value])]
    ]
    return TrainingSummary(
        plan=trained.plan,
        arena_bytes=trained.plan.peak_bytes,
        loss=trained.loss,
        gradients=tuple(rows),
        first_difference=trained.first_difference,
    )


__all__ = ["MODES", "EngineResult", "run", "summary"]
