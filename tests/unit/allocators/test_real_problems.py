"""Every planner of the shelf on programs that were not made for tests: its plans and beliefs go through the judge.

Graphs captured from a real ggml, a training graph of the engine, and, where they lie beside this checkout, instances of solvers.
"""

from functools import cache
from pathlib import Path

import pytest

from allocsim import check, systems
from allocsim.allocators import ALLOCATORS, Constraints, branch_and_bound, plan_program
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.model import Document
from engine.graph.lowering import lower
from repro import lora_setup
from repro.scenarios.ggml_1501 import SCENARIO

CAPTURED = Path(__file__).parents[2] / "data" / "ggml"
SHARED = Path(__file__).parents[4] / "shared" / "data"

LARGE = ("buddy", "tlsf", "caching", "slot_sharing", "reference", "linear_scan", "best")
"""Planners that are asked for the plan of tens of thousands of buffers: all kinds but not all orders."""


@cache
def captured(name):
    """A program of a real ggml, as it was captured, without the plan that came with it."""
    return systems.load(CAPTURED / f"{name}.json").programs[0]


@cache
def trained():
    """Forward, backward and SGD of two layers in one graph."""
    setup = lora_setup.set_up(SCENARIO.training, layers=2, seq=8)
    return lower(setup.graph, (setup.loss,), kernels=SCENARIO.kernels).program


def assert_sound(plan, problem=None):
    report = check(Document.of(plan), limit=1)

    assert report.clean, (plan.source, report.violations[0].message)
    assert plan.problem is not None
    if problem is not None:
        assert plan.peak_bytes >= lower_bound(problem)


@pytest.mark.parametrize("name", ["fwd_2L_none", "train_2L_bwd", "trainopt_2L_none"])
@pytest.mark.parametrize("allocator", list(ALLOCATORS))
def test_captured_graphs_are_planned_soundly(allocator, name):
    assert_sound(ALLOCATORS[allocator].plan(captured(name)))


@pytest.mark.parametrize("pins", ["reads", "nodes"])
@pytest.mark.parametrize("allocator", list(ALLOCATORS))
def test_a_training_graph_is_planned_soundly(allocator, pins):
    program = trained()

    assert_sound(ALLOCATORS[allocator].plan(program, Constraints.of(program, pins=pins)))


INSTANCES = sorted([*SHARED.glob("minimalloc/?.1048576.csv"), *SHARED.glob("idealloc/*.csv")])


@pytest.mark.slow
@pytest.mark.skipif(not INSTANCES, reason="the instances are not beside this checkout")
@pytest.mark.parametrize("path", INSTANCES, ids=lambda path: path.stem)
def test_instances_of_solvers_are_planned_soundly_and_never_below_the_bound(path):
    document = systems.load(path)
    (problem,) = document.problems
    many = len(problem.nbytes) > branch_and_bound.MOST_ITEMS
    for name in LARGE if many else ALLOCATORS:
        if name == "exact":
            plan = branch_and_bound.place(problem, nodes=20_000)
        else:
            plan = plan_program(ALLOCATORS[name], problem.program, believed=problem)
        assert_sound(plan, problem)
