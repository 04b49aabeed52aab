"""Faults planted into the models of `examples/`, and what each must be called: six fields of a scenario, or a planner."""

from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np

from allocsim.allocators import Constraints, find
from allocsim.judge.fast import check
from allocsim.model import Document, Role, Run
from repro.overlooked_reads import without_read
from repro.pipeline import prepare

EXAMPLES = ("vit", "rnn", "unet", "mixture", "diffusion")


def case(name):
    return import_module(f"examples.{name}").CASE


def wrong_kernel(_found):
    """The kernel of the norm is not safe in place, and says it is."""
    return {"kernels": {"rms_norm_back": "two_pass"}}


def forgetful(found):
    """The belief misses the last reader of a temporary, the first such whose loss shows in the plan."""
    program, planner = found.workload.program, found.planner
    buffers, ops = program.values.buffer, program.ops
    last = {int(buffers[value]): op.step for op in ops for value in op.operands}
    alone = np.bincount(buffers, minlength=len(program.buffers)) == 1
    for op in reversed(list(ops)):
        for position, value in enumerate(op.operands):
            buffer = int(buffers[value])
            if (
                program.buffers.role[buffer] == Role.TEMPORARY
                and alone[buffer]
                and last[buffer] == op.step
                and op.kind != "host.read"
            ):
                lost = partial(_without, op.step, position)
                if check(
                    Document.of(planner.place(lost(planner.believe)(program, Constraints.of(program))))
                ).violations:
                    return {"belief": lost}
    raise AssertionError("no reader whose loss shows")


def _without(step, position, belief):
    return lambda program, constraints: replace(
        belief(without_read(program, step, position), constraints), program=program
    )


def crowded(problem):
    """Places as greedy_by_size does, but for one buffer that lies over another which lives as long."""
    plan = find("greedy_by_size").place(problem)
    offset, program = plan.offset.copy(), problem.program
    inside = np.flatnonzero((plan.arena >= 0) & (program.buffers.role == Role.TEMPORARY) & (problem.nbytes >= 64))
    for one in inside.tolist():
        for other in inside.tolist():
            meet = min(problem.stop[one], problem.stop[other]) - max(problem.start[one], problem.start[other])
            if (
                one != other
                and meet >= 3
                and offset[one] != offset[other]
                and problem.nbytes[one] <= problem.nbytes[other]
            ):
                offset[one] = offset[other]
                return [None if arena < 0 else int(at) for arena, at in zip(plan.arena, offset, strict=True)]
    raise AssertionError("no two buffers that meet")


def set_once(found):
    """The host writes an input before the first run only, one whose slot the plan gives to others: the seed if it does."""
    lowered, plan = found.workload.lowered, found.plans["default"]
    names = sorted(found.workload.inputs, key=lambda name: name != "loss_grad")
    for name in names:
        if check(Document.of(Run.of(plan), Run.of(plan, skip=lowered.skip(name)))).violations:
            return {"write_once": (name,), "least_steps": 2}
    raise AssertionError("no input whose slot is given to others")


def one_stream(_found):
    """The plan is made for one stream and run on three."""
    return {"streams": 3, "reuse_waits": False}


def stale(found):
    """The plan is made for a batch of two rows."""
    training = found.scenario.training
    return {"training": replace(training, planned_batch={name: rows[:2] for name, rows in training.batch.items()})}


FAULTS = {
    "kernel": (wrong_kernel, ("C04", "kernel")),
    "belief": (forgetful, ("C01", "plan")),
    "placement": (lambda _found: {}, ("C12", "plan")),
    "seed": (set_once, ("C06", "caller")),
    "stale": (stale, ("C08", "plan")),
    "wait": (one_stream, ("C09", "plan")),
}


def planted(name, fault, options):
    plant, expected = FAULTS[fault]
    sound = case(name)
    return replace(sound, name=f"{name}-{fault}", expected=(expected,), **plant(prepare(sound, options)))


def options_of(fault, options):
    """The options with the planner at fault, where a planner is."""
    return replace(options, allocator="planted_models:crowded") if fault == "placement" else options
