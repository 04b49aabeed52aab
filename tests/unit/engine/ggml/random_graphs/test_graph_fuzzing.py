"""Random graphs are reproducible, shrink to the ops that matter, and find on the real libraries what is known to be wrong."""

import pytest
from ggml_live import live

from allocsim.errors import EngineError
from allocsim.formats import ggml as dumps
from engine.ggml.random_graphs import graph_fuzzing
from engine.ggml.random_graphs.graph_generator import generate, reachable
from engine.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step
from engine.ggml.random_graphs.recipe_shrinking import shrink

OUTPUT_ON_A_VIEW = GraphRecipe(
    steps=(leaf("f32", 4), step("sqr", "%0"), step("reshape_2d", "%1", 2, 2), step("scale", "%2", 0.5)), expand=(3,), outputs=(2,)
)
TWO_PASS = GraphRecipe(steps=(leaf("f32", 8), leaf("f32", 8), step("rms_norm_back", "%0", "%1", 1e-4)), expand=(2,), outputs=(2,))


def test_a_seed_gives_one_recipe():
    assert generate(11) == generate(11)
    assert generate(11) != generate(12)


def test_outputs_are_part_of_the_graph():
    for seed in range(50):
        recipe = generate(seed)
        assert set(recipe.outputs) <= set(reachable(recipe))


def test_recipes_survive_encoding():
    for seed in range(20):
        assert GraphRecipe.decode(generate(seed).encode()) == generate(seed)


def test_what_is_no_recipe_is_refused():
    with pytest.raises(EngineError, match="not a recipe"):
        GraphRecipe.decode({"steps": [{"make": "sqr"}]})


def test_shrinking_keeps_only_what_fails():
    steps = (leaf("f32", 4), step("sqr", "%0"), step("neg", "%1"), step("silu", "%2"), step("neg", "%3"))

    small = shrink(GraphRecipe(steps=steps, expand=(4,)), lambda recipe: any(made.make == "silu" for made in recipe.steps))

    assert [made.make for made in small.steps] == ["tensor", "silu"]


def test_the_newer_library_passes_and_the_older_one_does_not():
    assert {found.kind for found in graph_fuzzing.fuzz(live("after"), range(25), nodes=12)} <= {graph_fuzzing.CRASH}
    assert {found.kind for found in graph_fuzzing.fuzz(live("before"), range(25), nodes=12)} >= {graph_fuzzing.UNSOUND}


def test_a_pin_on_a_view_is_found_by_its_plan():
    found = graph_fuzzing.judge(live("before"), OUTPUT_ON_A_VIEW)

    assert found.kind == graph_fuzzing.UNSOUND
    assert "MissingPin" in found.words


def test_a_wrong_kernel_is_found_by_its_numbers_under_a_clean_plan():
    found = graph_fuzzing.judge(live("before"), TWO_PASS)

    assert found.kind == graph_fuzzing.DIFFERS
    assert graph_fuzzing.judge(live("after"), TWO_PASS) is None


def test_a_finding_is_kept_as_a_file_that_can_be_checked_and_run_again(tmp_path):
    path = graph_fuzzing.keep(graph_fuzzing.judge(live("before"), TWO_PASS), tmp_path / "findings")

    assert graph_fuzzing.load(path) == TWO_PASS
    assert len(dumps.loads(path.read_bytes()).plans) == 1


def test_a_view_whose_unit_dimension_has_another_stride_is_still_the_same_bytes():
    steps = (
        leaf("f32", 33, 3),
        step("view_2d", "%0", 31, 1, 132, 268),
        step("reshape_2d", "%1", 31, 1),
        step("add_inplace", "%2", "%1"),
    )

    assert graph_fuzzing.judge(live("after"), GraphRecipe(steps=steps, expand=(3,), outputs=(3,))) is None
