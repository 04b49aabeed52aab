"""Our `ggml` planner gives byte for byte the addresses of the real graph allocator, on real models and on random graphs.

Where the two differ, ours is wrong. A failing random graph is named by its seed and shrunk to the few ops that matter before it is shown.
"""

import random

import numpy as np
import pytest
from few import few_of
from ggml_live import BOTH, live

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.systems.ggml.access.child import ChildDiedError
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import KINDS, TINY, Shape
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, plan_rows, step
from allocsim.systems.ggml.random_graphs.recipe_shrinking import shrink

MODES = ("default", "pinned", "backward", "gradients")


def differences(rows):
    """Return (buffer, ggml's arena and offset, ours) wherever they differ, after planning the captured program anew."""
    captured = document(rows)
    plan = captured.plans[0]
    program = plan.program
    ours = find("ggml").place(captured.problems[0])
    differ = np.flatnonzero((plan.arena != ours.arena) | (plan.offset != ours.offset))
    return [
        (program.buffers.names[b], (int(plan.arena[b]), int(plan.offset[b])), (int(ours.arena[b]), int(ours.offset[b])))
        for b in differ
    ]


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [2, 9, pytest.param(30, marks=pytest.mark.campaign)])
def test_transformers_are_placed_alike_however_they_are_pinned(which, kind, layers):
    child = live(which)

    for mode in MODES:
        assert differences(child.call(transformer_rows, TINY.deep(layers), kind=kind, mode=mode)) == [], mode


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_transformers_with_some_nodes_pinned_are_placed_alike(which, seed):
    rng = random.Random(seed)
    some = tuple(sorted(rng.sample(range(400), 120)))

    rows = live(which).call(transformer_rows, Shape(layers=3, fused_gate=seed % 2 == 0), kind="train+sgd", some=some)

    assert differences(rows) == []


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize(
    ("options", "mode"),
    [({}, "default"), ({}, "pinned"), ({"sound": False}, "default"), ({"none_views": True}, "default")],
    ids=["default", "pinned", "unprotected uploads", "op-NONE views"],
)
def test_random_graphs_are_placed_alike(which, options, mode):
    _random_graphs(which, range(60), options, mode)


@pytest.mark.parametrize("count", few_of([200, 1000], 1))
@pytest.mark.parametrize("which", BOTH)
def test_many_random_graphs_are_placed_alike(which, count):
    _random_graphs(which, range(1000, 1000 + count), {"sound": False, "none_views": True}, "default")


def _random_graphs(which, seeds, options, mode):
    child = live(which)

    def differs(recipe):
        try:
            return bool(differences(child.call(plan_rows, recipe, mode=mode)))
        except EngineError:
            return False

    for seed in seeds:
        recipe = generate(seed, **options)
        if differences(child.call(plan_rows, recipe, mode=mode)):
            small = shrink(recipe, differs)
            pytest.fail(f"seed {seed}: {small}: {differences(child.call(plan_rows, small, mode=mode))}")


@pytest.mark.parametrize("which", BOTH)
def test_the_scheduler_with_one_backend_plans_like_the_allocator_alone(which):
    child = live(which)
    alike = 0

    for seed in range(20):
        recipe = generate(seed)
        try:
            scheduled = child.call(plan_rows, recipe, planner="sched")
        except ChildDiedError as died:
            if "buffer_id >= 0" not in died.said:  # the next test says what that is
                raise
            continue
        alone = child.call(plan_rows, recipe)
        assert [row["off"] for row in alone["nodes"]] == [row["off"] for row in scheduled["nodes"]], seed
        alike += 1

    assert alike >= 15


@pytest.mark.parametrize("which", BOTH)
def test_the_scheduler_aborts_on_a_leaf_that_only_an_unread_view_names(which):
    recipe = GraphRecipe(steps=(leaf("f32", 4, flag=""), step("transpose", "%0")), expand=(1,))

    assert live(which).call(plan_rows, recipe)["nodes"][0]["off"] == 0
    with pytest.raises(ChildDiedError, match=r"GGML_ASSERT\(buffer_id >= 0\) failed"):
        live(which).call(plan_rows, recipe, planner="sched")


HAND_MADE = {
    "accumulate": (leaf("f32", 8, 3), leaf("f32", 4), step("sqr", "%0"), step("acc_inplace", "%2", "%1", 32, 96, 96, 8), step("neg", "%3")),
    "copy into a view": (
        leaf("f32", 9), leaf("f32", 4), step("sqr", "%0"), step("view_1d", "%2", 4, 8), step("cpy", "%1", "%3"), step("neg", "%4"),
        step("neg", "%2"),
    ),
    "in-place view of a view": (
        leaf("f32", 6, 2), step("neg", "%0"), step("view_2d", "%1", 3, 2, 24, 4), step("cont", "%2"), step("scale_inplace", "%3", 2.0),
        step("reshape_1d", "%4", 6), step("sqr", "%5"),
    ),
    "several readers": (leaf("f32", 7), step("sqr", "%0"), step("add", "%1", "%1"), step("mul", "%1", "%2"), step("sub", "%3", "%2")),
    "result nobody reads": (leaf("f32", 33), step("sqr", "%0"), step("neg", "%0"), step("silu", "%2")),
    "parameter in the compute buffer": (leaf("f32", 5), step("sqr", "%0"), leaf("f32", 5, flag="param"), step("mul", "%1", "%2")),
}  # fmt: skip


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_graphs_are_placed_alike(which, name):
    steps = HAND_MADE[name]
    read = {source for made in steps for source in made.sources}
    tops = tuple(index for index in range(len(steps)) if index not in read)

    for outputs in ((), tops, (len(steps) - 2,)):
        assert differences(live(which).call(plan_rows, GraphRecipe(steps=steps, expand=tops, outputs=outputs))) == []
