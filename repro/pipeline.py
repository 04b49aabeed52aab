"""From a scenario to what detectors look at, in steps that each take frozen records and return one.

    scenario, options -> Setup -> Workload -> plans -> Experiment -> three training runs -> Evidence
    -> Verdict

`prepare` goes as far as the experiment and `train_three` makes the runs; `repro.detectors.ask`
makes the evidence, and `repro.run.run` is the whole way. The three modes differ in the plan alone:

* `default`: the planner under test, which knows what the host reads; reuse and in place on.
* `pinned`: the same planner, given that the host reads every node (with `pin_leafs`: and every
  leaf).
* `reference`: memory of its own for every tensor.

A scenario on several streams runs all three in one legal order that is not the list's: its last
stream ahead of the others.

What this module does not see: detectors and verdicts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from allocsim.allocators import Constraints, Pins, Planner, find, pin_all, pin_nodes
from allocsim.allocators.planner import Allocator
from allocsim.errors import PlannerError
from allocsim.model import Plan
from allocsim.programs.placed_plans import placed
from allocsim.programs.streams import preferring
from allocsim.r_replay import slots_for
from engine.d_differential.orders import spread
from engine.d_differential.side_comparison import Progress, silent
from engine.graph.lowering import lower
from engine.training.trainer import UnplannedBuild
from repro.lora_setup import Setup, set_up
from repro.options import EngineOptions
from repro.own_models import set_up_own
from repro.scenario import OwnTraining, Scenario, Training, repaired
from repro.workload import Trained, Workload, train

MODES: Final = ("default", "pinned", "reference")


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A scenario ready to be run: its workload, and the plan of each mode."""

    scenario: Scenario
    """The repaired twin, if the options ask for it."""
    options: EngineOptions
    steps: int
    setup: Setup | UnplannedBuild
    workload: Workload
    planner: Planner
    """The planner under test, with the defect that the scenario puts into its belief."""
    pins: Pins
    """What the mode `pinned` pins."""
    plans: Mapping[str, Plan]
    """One for each of `MODES`."""


def prepare(scenario: Scenario, options: EngineOptions) -> Experiment:
    """Return a scenario set up, lowered and planned.

    Raises:
        ModelError: fewer steps than the fault takes to show, or sizes that make no model.
        UnknownNameError: no such allocator.
        PlannerError: the allocator cannot plan the program.
    """
    scenario = repaired(scenario) if options.fixed else scenario
    setup = _setup_of(scenario.training, options)
    steps = options.steps_of(scenario)
    workload = workload_of(setup, scenario, options)
    planner = planner_of(scenario, options.allocator)
    pins: Pins = pin_all if options.pin_leafs else pin_nodes
    plans = {
        "default": planner.plan(workload.program),
        "pinned": planner.plan(workload.program, Constraints.of(workload.program, pins=pins)),
        "reference": find("reference").plan(workload.program),
    }
    if isinstance(scenario.training, OwnTraining) and scenario.training.planned_batch is not None:
        other = set_up_own(replace(scenario.training, batch=scenario.training.planned_batch))
        stale = planner.plan(workload_of(other, scenario, options).program)
        workload = replace(workload, planned_as=stale)
        plans["default"] = slots_for(stale, workload.program)
    if scenario.streams > 1:
        workload = on_streams(workload, scenario.streams, plans["default"] if scenario.reuse_waits else None)
        plans = {name: placed(workload.program, plan) for name, plan in plans.items()}
    return Experiment(
        scenario=scenario,
        options=options,
        steps=steps,
        setup=setup,
        workload=workload,
        planner=planner,
        pins=pins,
        plans=plans,
    )


def _setup_of(training: Training | OwnTraining, options: EngineOptions) -> Setup | UnplannedBuild:
    if isinstance(training, OwnTraining):
        options.check_own()
        return set_up_own(training)
    return set_up(
        training, layers=options.layers, seq=options.seq, seed=options.seed, base=options.base, weights=options.weights
    )


def workload_of(setup: Setup | UnplannedBuild, scenario: Scenario, options: EngineOptions) -> Workload:
    """Return a training of the scenario, lowered with its kernels, in list order."""
    return Workload(
        lowered=lower(setup.graph, (setup.loss,), kernels=scenario.kernels),
        loss=setup.loss.name,
        gradients=setup.gradients,
        parameters=setup.parameters,
        inputs=setup.inputs,
        write_once=scenario.write_once,
        threads=options.threads,
    )


def on_streams(workload: Workload, streams: int, plan: Plan | None) -> Workload:
    """Return the workload with its branches on several streams; the last stream runs ahead.

    Ops wait for what they read; with `plan`, also for those whose slots they take.
    """
    lowered = spread(workload.lowered, streams, plan)
    return replace(workload, lowered=lowered, order=preferring(lowered.program, streams - 1))


def planner_of(scenario: Scenario, name: str) -> Planner:
    """Return the planner of that name, with the scenario's belief.

    Raises PlannerError where it has none that could be replaced.
    """
    planner = find(name)
    if scenario.belief is None:
        return planner
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {name!r} has no belief of its own that {scenario.name} could make wrong")
    return Allocator(
        name=planner.name, belief=scenario.belief(planner.belief), placement=planner.placement, source=planner.source
    )


def train_three(experiment: Experiment, progress: Progress = silent) -> dict[str, Trained]:
    """Train the experiment by the plan of each mode, every run compared with the reference's."""
    workload, plans, steps = experiment.workload, experiment.plans, experiment.steps
    reference = train(workload, plans["reference"], steps, name="reference", progress=progress)
    compared = {
        name: train(workload, plans[name], steps, name=name, against=reference, progress=progress)
        for name in ("pinned", "default")
    }
    return {"reference": reference, **compared}
