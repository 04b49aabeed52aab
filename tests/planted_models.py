"""Faults planted into the models of `examples/`, each by one field of the scenario or one planner; and what they must be called."""

from dataclasses import replace
from functools import partial
from importlib import import_module

import numpy as np

from allocsim.checks import check
from allocsim.model import Document
from repro.overlooked_reads import without_read
from repro.pipeline import prepare

EXAMPLES = ("vit", "rnn", "unet", "mixture", "diffusion")


def case(name):
    return import_module(f"examples.{name}").CASE


def wrong_kernel(found):
    """The kernel of a normalisation (or of softmax, in the model without one) is not safe in place, and says it is."""
    kinds = {tensor.kind for tensor in found.workload.lowered.graph.nodes}
    return {"kernels": {"rms_norm_back" if "rms_norm_back" in kinds else "soft_max_back": "two_pass"}}


def forgetful(found):
    """The belief misses a reader, the first whose loss shows in the plan."""
    program, planner = found.workload.program, found.planner
    readers = np.bincount(program.ops.operands, minlength=len(program.values))
    for op in reversed(list(program.ops)):
        for position, value in enumerate(op.operands):
            if readers[value] > 1 and op.kind not in ("view", "host.read"):
                lost = partial(_without, op.step, position)
                plan = planner.place(lost(planner.believe)(program, _constraints(program)))
                if check(Document.of(plan)).violations:
                    return {"belief": lost}
    raise AssertionError("no reader whose loss shows")


def _constraints(program):
    from allocsim.allocators import Constraints

    return Constraints.of(program)


def _without(step, position, belief):
    return lambda program, constraints: replace(belief(without_read(program, step, position), constraints), program=program)


def seed_once(_found):
    return {"write_once": ("loss_grad",), "least_steps": 2}


def one_stream(_found):
    """The plan is made for one stream and run on three."""
    return {"streams": 3, "reuse_waits": False}


FAULTS = {
    "kernel": (wrong_kernel, ("C04", "kernel")),
    "belief": (forgetful, ("C01", "plan")),
    "seed": (seed_once, ("C06", "caller")),
    "wait": (one_stream, ("C09", "plan")),
}


def planted(name, fault, options):
    plant, expected = FAULTS[fault]
    sound = case(name)
    return replace(sound, name=f"{name}-{fault}", expected=(expected,), **plant(prepare(sound, options)))
