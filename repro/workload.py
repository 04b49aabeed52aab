"""A workload: a lowered program with its data, and the functions that run it by a plan.

    workload = Workload(lowered=lowered, loss="loss", gradients=gradients, parameters=weights, inputs=batch)
    reference = train(workload, reference_plan, steps=20)
    default = train(workload, default_plan, steps=20, against=reference)

A workload is a record and the functions here take it with a plan, so another program, order or plan
is another value and never a change to one that is in use. Nothing in it is particular to a
scenario: a model of one's own makes one as well.

Steps of training count from 1, runs of a session from 0. Results are deterministic for a given seed
and number of threads.

What this module does not see: scenarios, planners, detectors and verdicts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from allocsim.array_difference import same_bits
from allocsim.model import Document, Plan, Program, Run
from engine.d_differential import HostRun, tap
from engine.d_differential.side_comparison import Progress, silent
from engine.graph import Tensor
from engine.graph.lowering import Lowered
from engine.kernels.binding import Array
from engine.runtime import Runtime
from engine.training.measured_memory import MemoryOfRun, MemoryProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A lowered program and all that its runs take but a plan."""

    lowered: Lowered
    loss: str
    """Name of the output that training lowers."""
    gradients: Mapping[Tensor, Tensor]
    """Parameter -> its gradient, before the optimiser takes it."""
    parameters: Mapping[str, Array]
    inputs: Mapping[str, Array]
    """What the host offers in each step."""
    write_once: tuple[str, ...] = ()
    """Inputs that the host writes before the first step only."""
    order: tuple[int, ...] | None = None
    """The order in which the steps of the program run; None is that of its list."""
    threads: int = 1
    planned_as: Plan | None = None
    """The plan of another program whose slots the default plan takes, if it does."""

    @property
    def program(self) -> Program:
        """The program that plans are made for."""
        return self.lowered.program

    @property
    def gradient_values(self) -> dict[int, tuple[Tensor, Tensor]]:
        """Value of a gradient -> (parameter, gradient)."""
        return {
            self.lowered.value_of[gradient]: (parameter, gradient) for parameter, gradient in self.gradients.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A training run before it is summed up: losses and, step by step, every parameter gradient."""

    plan: Plan
    loss: tuple[float, ...]
    gradients: tuple[Mapping[int, Array], ...]
    first_difference: int | None
    """The first step whose loss or any gradient is not to the bit that of the run it was compared
    with; None: there is none."""


def host_runs(workload: Workload, steps: int) -> list[HostRun]:
    """Return what the host does in each of the first `steps` steps."""
    return [HostRun(inputs=workload.inputs, skip=workload.write_once if number else ()) for number in range(steps)]


def bind(workload: Workload, plan: Plan) -> Runtime:
    """Take memory for the program by a plan, sound or not, in its order; errors as of `Runtime`."""
    of = workload
    return Runtime(of.lowered, plan, parameters=of.parameters, threads=of.threads, suspect=True, order=of.order)


def session(workload: Workload, plan: Plan, steps: int) -> Document:
    """Return the runs of a training by `plan`, as a document.

    Where its slots are those of a plan of another program, it is that plan that runs.
    """
    made = plan if workload.planned_as is None else workload.planned_as
    return Document.of(
        *(
            Run.of(made, program=workload.program, skip=workload.lowered.skip(*host.skip))
            for host in host_runs(workload, steps)
        )
    )


def train(
    workload: Workload,
    plan: Plan,
    steps: int,
    *,
    name: str = "",
    against: Trained | None = None,
    progress: Progress = silent,
) -> Trained:
    """Train by any plan; find the first step that differs from `against`. Progress by `name`."""
    losses: list[float] = []
    gradients: list[Mapping[int, Array]] = []
    differs: int | None = None
    with bind(workload, plan) as runtime:
        taps = tap(runtime, workload.gradient_values)
        for number, host in enumerate(host_runs(workload, steps)):
            outputs = runtime.run(host.inputs, skip=host.skip, observer=taps)
            losses.append(float(outputs[workload.loss][0]))
            gradients.append(taps.take())
            progress(name, number + 1, steps)
            if against is not None and differs is None and not _same_step(losses, gradients, against):
                differs = number + 1
    return Trained(plan=plan, loss=tuple(losses), gradients=tuple(gradients), first_difference=differs)


def measured(workload: Workload, plan: Plan) -> MemoryOfRun:
    """Return what the first step by a plan, sound or not, holds by category, and the prediction."""
    with bind(workload, plan) as runtime:
        probe = MemoryProbe(runtime)
        runtime.run(workload.inputs, observer=probe)
        return probe.measured()


def _same_step(losses: Sequence[float], gradients: Sequence[Mapping[int, Array]], against: Trained) -> bool:
    number = len(losses) - 1
    if not np.array_equal(np.float64(losses[number]), np.float64(against.loss[number]), equal_nan=True):
        return False
    right = against.gradients[number]
    return all(same_bits(gradient, right[value]) for value, gradient in gradients[number].items())
