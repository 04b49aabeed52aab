"""A scenario set up to be run: one lowered program, its plans, its weights and its host.

    bench = Bench(scenario, Options(layers=4))
    reference = bench.train("reference")
    default = bench.train("default", against=reference)

* `default`: the planner under test, told only what the host reads; reuse and in place on.
* `pinned`: the same planner, told that the host reads every node (`pin_leafs`: and every leaf).
* `reference`: memory of its own for every tensor.

A scenario on several streams runs all three in one legal order that is not the list's: its last stream ahead of the others.

Steps of training count from 1, runs of a session from 0. Results are deterministic for a given seed and number of threads.

What this module does not see: detectors and verdicts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.allocators import Constraints, Pins, Planner, find, pin_all, pin_nodes
from allocsim.allocators.planner import Allocator
from allocsim.errors import PlannerError
from allocsim.model import Document, Plan, Program, Run
from allocsim.programs.streams import preferring, said_of
from engine.d_differential import HostRun, same_bits, tap
from engine.d_differential.orders import run_in, spread
from engine.graph.lowering import Lowered, lower
from engine.graph.widening import in_float64
from engine.models.llama import SMOLLM2_135M, LlamaConfig
from engine.runtime import Runtime
from repro import training
from repro.scenario import Scenario

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with (what is being done, steps done, steps in all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(training.Sizes):
    """How a scenario is run."""

    pin_leafs: bool = False
    fixed: bool = False
    allocator: str = "ggml"
    modes: tuple[str, ...] = ()
    """Modes to compare beside the three (`repro.modes`); none: no comparison."""
    weights: str | None = None
    """A file with a llama (`engine.models.weights`) to train instead of random weights."""
    base: LlamaConfig = SMOLLM2_135M
    """The shape of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A training run before it is summed up: losses and, step by step, every parameter gradient."""

    plan: Plan
    loss: tuple[float, ...]
    gradients: tuple[Mapping[int, Array], ...]
    first_difference: int | None


class Bench:
    """A scenario set up: one lowered program, its plans, its weights and its host."""

    def __init__(self, scenario: Scenario, options: Options, progress: Progress) -> None:
        self.scenario, self.options, self.progress = scenario, options, progress
        setup = training.set_up(
            scenario.training,
            layers=options.layers,
            seq=options.seq,
            seed=options.seed,
            base=options.base,
            weights=options.weights,
        )
        self.setup = setup
        self.steps = options.steps_of(scenario)
        lowered = lower(setup.graph, (setup.loss,), kernels=scenario.kernels)
        self.planner: Planner = _planner(options.allocator, scenario)
        self.pin_policy: Pins = pin_all if options.pin_leafs else pin_nodes
        plans = {
            "default": self.planner.plan(lowered.program),
            "pinned": self.planner.plan(lowered.program, Constraints.of(lowered.program, pins=self.pin_policy)),
            "reference": find("reference").plan(lowered.program),
        }
        self.order: tuple[int, ...] | None = None
        """The order in which every mode runs; None is that of the list."""
        if scenario.streams > 1:
            lowered = spread(lowered, scenario.streams, None if not scenario.reuse_waits else plans["default"])
            plans = {name: said_of(lowered.program, plan) for name, plan in plans.items()}
            self.order = preferring(lowered.program, scenario.streams - 1)
        self.lowered: Lowered = lowered
        self.program: Program = lowered.program
        self.plans = plans
        self.gradient_values = {self.lowered.value_of[g]: (p, g) for p, g in setup.gradients.items()}

    @cached_property
    def wide(self) -> Lowered:
        """The program in float64."""
        return in_float64(self.lowered)

    def host(self, steps: int) -> list[HostRun]:
        """What the host does in each of the first `steps` steps."""
        once = self.scenario.write_once
        return [HostRun(inputs=self.setup.inputs, skip=once if number else ()) for number in range(steps)]

    def runtime(self, plan: Plan) -> Runtime:
        """Take memory for the program by a plan; errors as of `Runtime`."""
        return Runtime(self.lowered, plan, parameters=self.setup.parameters, threads=self.options.threads)

    def train(self, name: str, *, against: Trained | None = None) -> Trained:
        """Train by the plan of a mode."""
        return self.train_plan(self.plans[name], self.steps, name, against=against)

    def train_plan(self, plan: Plan, steps: int, name: str, *, against: Trained | None = None) -> Trained:
        """Train `steps` steps by any plan of the program, and say where it first differs from `against`; progress goes by `name`."""
        losses: list[float] = []
        gradients: list[Mapping[int, Array]] = []
        differs: int | None = None
        with self.runtime(plan) as runtime:
            taps = tap(runtime, self.gradient_values)
            for number, host in enumerate(self.host(steps)):
                outputs = (
                    runtime.run(host.inputs, skip=host.skip, observer=taps)
                    if self.order is None
                    else run_in(runtime, self.order, host.inputs, skip=host.skip, observer=taps)
                )
                losses.append(float(outputs[self.setup.loss.name][0]))
                gradients.append(taps.take())
                self.progress(name, number + 1, steps)
                if against is not None and differs is None and not _same_step(losses, gradients, against):
                    differs = number + 1
        return Trained(plan=plan, loss=tuple(losses), gradients=tuple(gradients), first_difference=differs)

    def session(self, plan: Plan, steps: int) -> Document:
        """The runs of a training by `plan`, as a document."""
        return Document.of(*(Run.of(plan, skip=self.lowered.skip(*host.skip)) for host in self.host(steps)))


def _same_step(losses: Sequence[float], gradients: Sequence[Mapping[int, Array]], against: Trained) -> bool:
    number = len(losses) - 1
    if not np.array_equal(np.float64(losses[number]), np.float64(against.loss[number]), equal_nan=True):
        return False
    right = against.gradients[number]
    return all(same_bits(gradient, right[value]) for value, gradient in gradients[number].items())


def _planner(name: str, scenario: Scenario) -> Planner:
    planner = find(name)
    if scenario.belief is None:
        return planner
    if not isinstance(planner, Allocator):
        raise PlannerError(f"allocator {name!r} has no belief of its own that {scenario.name} could make wrong")
    return Allocator(
        name=planner.name, belief=scenario.belief(planner.belief), placement=planner.placement, source=planner.source
    )


__all__ = ["Bench", "Options", "Progress", "Trained"]
