"""Run a scenario: train it in three modes, run every detector, find the cure, reach the verdict.

`run` executes the whole pipeline of `repro.pipeline`: scenario -> experiment -> three training
runs -> evidence (`repro.detectors`) -> verdict (`allocsim.verdict`). Kernels written by the user
first run in a child process (`engine.p_sanitizer.foreign`). If a kernel breaks its declaration,
crashes, hangs or raises there, the incidents of that run are the evidence, and nothing is trained.

With `options.online`, an allocator gives out memory while the steps run, and no plan is made before
the run. The three runs are then those of `repro.online_runs`.

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
    """The evidence, the verdict and the training runs of one scenario on the engine."""

    scenario: Scenario
    options: EngineOptions
    evidence: Evidence
    verdict: Verdict
    modes: Mapping[str, TrainingSummary]
    """Mode -> its training run, summed up; empty if nothing was trained."""
    differential: tuple[dict[str, Any], ...] = ()
    """One record for each mode in `options.modes` (`repro.mode_words.record`)."""
    memory: MemoryOfRun | None = None
    """The memory of the first step under the default plan; None unless `options.measure` is set."""

    @property
    def title(self) -> str:
        """The first line of the printed result."""
        return f"{self.scenario.name}: {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """The (class, fault) pairs that the verdict must name."""
        return self.scenario.expected

    @property
    def matches(self) -> bool:
        """Whether the verdict names exactly the expected causes of the scenario."""
        return agree(self.verdict, self.expected)

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`.

        The field `expected` has the first expected cause only, but `matches` compares all causes,
        as joined scenarios have several.
        """
        more: dict[str, Any] = {"differential": list(self.differential)} if self.differential else {}
        if self.memory is not None:
            more["memory"] = self.memory.as_json()
        more["modes"] = by_name(self.modes)
        name, verdict, evidence = self.scenario.name, self.verdict, self.evidence
        return run_entry(name, verdict, evidence, self.expected, matches=self.matches, **more)


def run(scenario: Scenario, options: EngineOptions, *, progress: Progress = silent) -> EngineResult:
    """Run a scenario and return its evidence and verdict; raises the errors of
    `repro.pipeline.prepare`, `repro.mode_words.side_of` and `repro.online_runs.train_online`.
    """
    if options.online is not None:
        evidence, modes = train_online(scenario, options, progress)
        return EngineResult(scenario=scenario, options=options, evidence=evidence, verdict=judge(evidence), modes=modes)
    experiment = prepare(scenario, options)
    workload = experiment.workload
    plan = experiment.plans["default"]
    hurt = foreign(workload.lowered, plan, workload.inputs, parameters=workload.parameters)
    if hurt:  # a kernel of the user's misbehaved: do not call it in this process
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
    """Return the summary of a training run; gradients of three steps are compared with `against`.

    The three steps are the first, the first in which the default run differs, and the last.
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
