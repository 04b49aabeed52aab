"""The steps from a scenario to its training runs; each step takes frozen records and returns one.

    scenario, options -> Setup -> Workload -> plans -> Experiment -> three training runs -> Evidence
    -> Verdict

`prepare` returns the experiment, and `train_three` makes the training runs. `repro.detectors.ask`
makes the evidence. `repro.run.run` executes all steps. The three modes differ in the plan alone:

* `default`: the plan of the planner under test, with reuse and in-place pairs; the buffers that
  the host reads are pinned.
* `pinned`: the plan of the same planner with every node pinned; with `pin_leafs`, every leaf too.
* `reference`: a plan in which every tensor has memory of its own.

A scenario on several streams runs all three modes in the same legal order. In that order the last
stream runs as far ahead of the others as it can.

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
    """The scenario that runs: with `options.fixed`, the repaired twin."""
    options: EngineOptions
    steps: int
    setup: Setup | UnplannedBuild
    workload: Workload
    planner: Planner
    """The planner under test; if the scenario has a `belief`, with that wrong belief."""
    pins: Pins
    """The policy that says which buffers the mode `pinned` pins."""
    plans: Mapping[str, Plan]
    """Mode -> its plan, for each mode in `MODES`."""


def prepare(scenario: Scenario, options: EngineOptions) -> Experiment:
    """Return a scenario set up, lowered and planned.

    Raises:
        ModelError: There are fewer steps than the fault needs to show, or a size is out of range.
        UnknownNameError: No allocator has the name `options.allocator`.
        PlannerError: The allocator cannot plan the program, or has no belief to make wrong.
        EngineError: A file has no llama, or a user's own model does not fit its batch.
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
    """Return the training as a workload: lowered with the scenario's kernels, in list order."""
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

    An op waits for each earlier op that accesses the same bytes of a buffer, if one of the two
    writes them. With `plan`, an op also waits for the ops whose slots it takes in that plan.
    """
    lowered = spread(workload.lowered, streams, plan)
    return replace(workload, lowered=lowered, order=preferring(lowered.program, streams - 1))


def planner_of(scenario: Scenario, name: str) -> Planner:
    """Return the planner called `name`; if the scenario has a `belief`, with that wrong belief.

    Raises PlannerError if the scenario has a `belief` and the planner has no belief to replace.
    """
    planner = find(name)
    if scenario.belief is None:
        return planner
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {name!r} has no belief that {scenario.name} could make wrong")
    return Allocator(
        name=planner.name, belief=scenario.belief(planner.belief), placement=planner.placement, source=planner.source
    )


def train_three(experiment: Experiment, progress: Progress = silent) -> dict[str, Trained]:
    """Train under the plan of each mode and compare the other two runs with the reference run.

    Returns mode -> its run.
    """
    workload, plans, steps = experiment.workload, experiment.plans, experiment.steps
    reference = train(workload, plans["reference"], steps, name="reference", progress=progress)
    compared = {
        name: train(workload, plans[name], steps, name=name, against=reference, progress=progress)
        for name in ("pinned", "default")
    }
    return {"reference": reference, **compared}
