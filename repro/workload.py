"""A workload: a lowered program with its data, and the functions that run it under a plan.

    workload = Workload(lowered=lowered, loss="loss", gradients=gradients, parameters=weights, inputs=batch)
    reference = train(workload, reference_plan, steps=20)
    default = train(workload, default_plan, steps=20, against=reference)

A workload is an immutable record. The functions here take a workload and a plan, so a caller who
wants another program, order or plan passes another record. A workload can also be made without a
scenario, from a user's own model.

Training steps count from 1, and runs of a session count from 0. Results are deterministic for a
given seed and number of threads.

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
    """A lowered program and everything that its runs need, except for a plan."""

    lowered: Lowered
    loss: str
    """The name of the output that training minimises."""
    gradients: Mapping[Tensor, Tensor]
    """Parameter -> its gradient, before the optimiser uses the gradient."""
    parameters: Mapping[str, Array]
    inputs: Mapping[str, Array]
    """Input -> the array that the host uploads in each step (but see `write_once`)."""
    write_once: tuple[str, ...] = ()
    """The inputs that the host uploads before the first step only."""
    order: tuple[int, ...] | None = None
    """The order in which the ops of the program run; None for the order of its list of ops."""
    threads: int = 1
    planned_as: Plan | None = None
    """A plan made for another program, whose slots the default plan uses; None if there is none."""

    @property
    def program(self) -> Program:
        """The program that plans are made for."""
        return self.lowered.program

    @property
    def gradient_values(self) -> dict[int, tuple[Tensor, Tensor]]:
        """The value index of a gradient -> the pair (parameter, gradient)."""
        return {
            self.lowered.value_of[gradient]: (parameter, gradient) for parameter, gradient in self.gradients.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """A finished training run: the loss and all parameter gradients of each step."""

    plan: Plan
    loss: tuple[float, ...]
    gradients: tuple[Mapping[int, Array], ...]
    first_difference: int | None
    """The first step whose loss or any gradient differs in a bit from the run it was compared with;
    None if no step differs."""


def host_runs(workload: Workload, steps: int) -> list[HostRun]:
    """Return the host's uploads in each of the first `steps` steps."""
    return [HostRun(inputs=workload.inputs, skip=workload.write_once if number else ()) for number in range(steps)]


def bind(workload: Workload, plan: Plan) -> Runtime:
    """Return a runtime with memory placed by `plan`, sound or not, that runs ops in the workload's
    order; raises what `Runtime` raises.
    """
    of = workload
    return Runtime(of.lowered, plan, parameters=of.parameters, threads=of.threads, suspect=True, order=of.order)


def session(workload: Workload, plan: Plan, steps: int) -> Document:
    """Return the session of a training under `plan`: a document with one run for each step.

    If `workload.planned_as` is set, the document has that plan instead of `plan`, so that the judge
    sees a plan that was made for another program.
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
    """Train under any plan and compare each step with `against`; report progress under `name`."""
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
    """Return the memory of the first step under a plan, sound or not: by category, as measured and
    as predicted.
    """
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
