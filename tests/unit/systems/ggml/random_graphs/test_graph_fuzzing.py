"""Random graphs are reproducible, shrink to the ops that matter, and find on the real libraries what is known to be wrong."""

from dataclasses import replace
from functools import partial

import pytest
from ggml_live import BOTH, live

from allocsim.errors import EngineError
from allocsim.systems.ggml import dump_document as dumps
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.k_audit.guarded_kernels import Guarded, Misdeed
from allocsim.systems.ggml.k_audit.library_cases import QUANTISED
from allocsim.systems.ggml.random_graphs import graph_fuzzing
from allocsim.systems.ggml.random_graphs.graph_generator import (
    generate,
    pair_cases,
    reachable,
    table_cases,
    turns,
)
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step
from allocsim.systems.ggml.random_graphs.recipe_shrinking import shrink

OUTPUT_ON_A_VIEW = GraphRecipe(
    steps=(leaf("f32", 4), step("sqr", "%0"), step("reshape_2d", "%1", 2, 2), step("scale", "%2", 0.5)),
    expand=(3,),
    outputs=(2,),
)
TWO_PASS = GraphRecipe(
    steps=(leaf("f32", 8), leaf("f32", 8), step("rms_norm_back", "%0", "%1", 1e-4)), expand=(2,), outputs=(2,)
)


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

    small = shrink(
        GraphRecipe(steps=steps, expand=(4,)), lambda recipe: any(made.make == "silu" for made in recipe.steps)
    )

    assert [made.make for made in small.steps] == ["tensor", "silu"]


KNOWN = {
    "after": {("ADD_ID", 1), ("SOFT_MAX", 2), ("ROPE", 2), ("ROPE_BACK", 2)},
    "before": {
        ("ADD_ID", 1),
        ("SOFT_MAX", 2),
        ("ROPE", 2),
        ("ROPE_BACK", 2),
        ("RMS_NORM_BACK", 0),
        ("SOFT_MAX_BACK", 1),
    },
}


@pytest.mark.parametrize("which", BOTH)
def test_no_kernel_is_accused_but_those_that_the_audit_convicts(which):
    """Seeds 0 to 59, 12 builder calls each: what is found is joined by cause, and each kernel's cause names op and source."""
    found = list(graph_fuzzing.fuzz(live(which), range(60), nodes=12))
    kernels = {f"C04 kernel: {op} over source {slot}" for op, slot in KNOWN[which]}

    assert {fault.cause for fault in found if fault.kind == graph_fuzzing.DIFFERS} <= kernels | MISDEEDS
    split = {graph_fuzzing.OLD_COPY} | {f"on two backends: {cause}" for cause in kernels | MISDEEDS}
    assert {fault.cause for fault in found if fault.kind == graph_fuzzing.SPLIT} <= split
    assert {fault.kind for fault in found} <= {graph_fuzzing.CRASH, graph_fuzzing.DIFFERS, graph_fuzzing.SPLIT} | (
        {graph_fuzzing.UNSOUND} if which == "before" else set()
    )


MISDEEDS = {
    "C12 kernel: RWKV_WKV7: a kernel wrote outside its results",
    "C12 kernel: RWKV_WKV7: a kernel read dead bytes that it does not declare",
    "C14 kernel: ADD1: a kernel left part of its result unwritten",
}
"""What kernels of both libraries do wherever their result lies, as `audit` says of them."""


@pytest.mark.slow
@pytest.mark.parametrize(("which", "first"), [("before", 0), ("after", 31_337_000)])
def test_the_fuzzer_finds_every_unsafe_kernel_by_itself_and_names_op_and_source(which, first):
    """Two runs of 640 seeds: all pairs that the audit convicts, and the kernel that writes too far; nothing without a cause."""
    found = {fault.cause for fault in graph_fuzzing.fuzz(live(which), range(first, first + 640))}

    assert found >= {f"C04 kernel: {op} over source {slot}" for op, slot in KNOWN[which]}
    assert found & MISDEEDS
    assert graph_fuzzing.UNNAMED not in found


def test_seeds_in_a_row_take_turns_with_every_pair_and_every_op():
    """Any run of as many seeds as there are turns has each pair of op and source, and each op, as one of its calls."""
    asked = set(turns())
    assert {op for op, slot in asked if slot is None} == {*table_cases()}
    assert {turn for turn in asked if turn[1] is not None} == {*pair_cases()}
    for seed in range(5000, 5060):
        op, slot = turns()[seed % len(turns())]
        cases = pair_cases()[op, slot] if slot is not None else [one for group in table_cases()[op] for one in group]
        made = [step.make for step in generate(seed).steps]
        assert any(call[0] in made for case in cases for call in case.build.calls)


FORMS = {
    "a fused norm": lambda made, of: made.make == "mul" and of and of[0].make == "rms_norm",
    "ALiBi": lambda made, _: made.make == "soft_max_ext" and made.arguments[3] > 0,
    "YaRN": lambda made, _: made.make.startswith("rope_ext") and made.arguments[8] > 0,
    "sections": lambda made, _: made.make.startswith("rope_multi"),
    "factors of a rope": lambda made, _: made.make.startswith("rope") and made.arguments[2] is not None,
    "sinks": lambda made, _: made.make == "soft_max_add_sinks",
    "a quantised sum": lambda made, of: made.make == "add" and of[0].arguments[0] in QUANTISED,
    "a quantised sum with one number": lambda made, of: made.make == "add1" and of[0].arguments[0] in QUANTISED,
    "a product of quantised weights": lambda made, of: made.make == "mul_mat" and of[0].arguments[0] in QUANTISED,
    "rows of quantised weights": lambda made, of: made.make == "get_rows" and of[0].arguments[0] in QUANTISED,
    "rows into a quantised cache": lambda made, of: made.make == "set_rows" and of[0].arguments[0] in QUANTISED,
    "a copy into a quantised cache": lambda made, of: made.make == "cpy" and of[1].arguments[0] in QUANTISED,
    "a computed operand of a case": lambda made, _: made.make == "dup",
}
"""What random graphs must have, as a test of a step and those it reads."""


def test_graphs_have_every_op_of_the_audits_table_in_each_form_and_two_threads():
    """Seeds 0 to 599; each form at least five times."""
    recipes = [generate(seed) for seed in range(600)]
    steps = [(made, [recipe.steps[one] for one in made.sources]) for recipe in recipes for made in recipe.steps]
    made = {made.make for made, _ in steps}
    types = {made.arguments[0] for made, _ in steps if made.make == "tensor"}

    assert {"add_id", "soft_max_ext", "rope_ext", "rope_ext_back", "div", "swiglu_split"} <= made
    assert types == {"f32", "f16", "bf16", "i32", "i64", *QUANTISED}
    assert {recipe.threads for recipe in recipes} == {1, 2}
    assert [form for form, is_one in FORMS.items() if sum(bool(is_one(*one)) for one in steps) < 5] == []


def test_a_known_cause_explains_a_graph_and_a_second_one_is_named_all_the_same():
    """Two graphs with one unsafe kernel each, one with both: the kernel that is known is not what the third is told for."""
    norm, shares = step("rms_norm_back", "%0", "%1", 1e-4), step("soft_max_ext_back", "%2", "%3", 0.5, 0.0)
    leafs = (*TWO_PASS.steps[:2], leaf("f32", 8, static=True, flag=""), leaf("f32", 8, fill="probabilities"))
    both = GraphRecipe(steps=(*leafs, norm, shares), expand=(4, 5), outputs=(4, 5))
    child, known = live("before"), set()
    found = list(graph_fuzzing.judge_all(child, [partial(replace, one) for one in (TWO_PASS, TWO_PASS, both)], known))

    assert [one.cause for one in found] == [
        "C04 kernel: RMS_NORM_BACK over source 0",
        "C04 kernel: RMS_NORM_BACK over source 0",
        "C04 kernel: SOFT_MAX_BACK over source 1",
    ]
    assert known == {one.cause for one in found}
    assert [one.rows is None for one in found] == [False, True, False]
    (again,) = graph_fuzzing.judge_all(child, [partial(replace, both)], known)
    assert again.rows is None  # both are known: explained without a judge


def test_a_cause_that_is_known_explains_nothing_else():
    """SOFT_MAX_BACK is at fault, and RMS_NORM_BACK, which is known, is not in the graph."""
    leafs = (leaf("f32", 8, static=True, flag=""), leaf("f32", 8, fill="probabilities"))
    recipe = GraphRecipe(steps=(*leafs, step("soft_max_ext_back", "%0", "%1", 0.5, 0.0)), expand=(2,), outputs=(2,))
    known = {"C04 kernel: RMS_NORM_BACK over source 0"}
    (found,) = graph_fuzzing.judge_all(live("before"), [partial(replace, recipe)], known)

    assert found.cause == "C04 kernel: SOFT_MAX_BACK over source 1"


def test_a_pin_that_was_not_told_explains_the_next_graph_that_misses_it():
    found = list(graph_fuzzing.judge_all(live("before"), [partial(replace, OUTPUT_ON_A_VIEW)] * 2, set()))

    assert [one.kind for one in found] == [graph_fuzzing.UNSOUND] * 2
    assert len({one.cause for one in found}) == 1
    assert found[1].rows is None


def test_what_shows_only_with_every_node_pinned_is_named_by_that_plan():
    """ADD_ID takes its first source, a node; pinned, that is not to be had, and the second, a leaf, is."""
    steps = (
        leaf("f32", 1, 2),
        step("dup", "%0"),
        leaf("f32", 1, 2),
        leaf("i32", 2, fill="reversed"),
        step("reshape_2d", "%3", 2, 1),
        step("reshape_3d", "%1", 1, 2, 1),
        step("add_id", "%1", "%2", "%4"),
    )
    steps = (*steps[:5], step("add_id", "%1", "%2", "%4"))
    recipe = GraphRecipe(steps=steps, expand=(5,), outputs=(5,))
    (found,) = graph_fuzzing.judge_all(live("after"), [partial(replace, recipe)], set())

    assert found.cause == "C04 kernel: ADD_ID over source 1"
    assert set(found.recipe.outputs) == {1, 4, 5}


def test_a_graph_that_ends_its_fork_takes_no_other_with_it():
    """The third of five graphs fails an assert of ggml: rows that cannot be multiplied."""
    bad = GraphRecipe(steps=(leaf("f32", 3), leaf("f32", 4), step("mul_mat", "%0", "%1")), expand=(2,), outputs=(2,))
    good = GraphRecipe(steps=(leaf("f32", 8), step("sqr", "%0")), expand=(1,), outputs=(1,))

    found = list(
        graph_fuzzing.judge_all(live("after"), [partial(replace, one) for one in (good, good, bad, good, good)])
    )

    assert [fault and fault.kind for fault in found] == [None, None, graph_fuzzing.CRASH, None, None]


def test_a_cause_names_the_guilty_source_by_its_slot():
    """SOFT_MAX over its sinks, without a mask: source 2, though it is the second operand."""
    steps = (leaf("f32", 1, static=True, flag=""), leaf("f32", 1), step("soft_max_ext", "%0", None, 1.0, 0.0))
    recipe = GraphRecipe(steps=(*steps, step("soft_max_add_sinks", "%2", "%1")), expand=(3,), outputs=(3,))

    assert graph_fuzzing.judge(live("after"), recipe).cause == "C04 kernel: SOFT_MAX over source 2"


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


def test_a_finding_becomes_one_op_over_leafs_and_shows_again():
    """RMS_NORM_BACK over source 0 amid other ops: what computed its sources is gone, and rows are one element long."""
    steps = (
        leaf("f32", 8, 3),
        step("sqr", "%0"),
        step("neg", "%1"),
        step("rms_norm_back", "%2", "%0", 1e-4),
        step("silu", "%3"),
    )
    recipe = GraphRecipe(steps=steps, expand=(4,), outputs=(3, 4))
    child = live("before")
    small = graph_fuzzing.minimise(child, graph_fuzzing.judge(child, recipe))

    assert small.cause == "C04 kernel: RMS_NORM_BACK over source 0"
    assert [made.make for made in small.recipe.steps] == ["tensor", "tensor", "rms_norm_back"]
    assert {made.arguments for made in small.recipe.steps[:2]} == {("f32", 1, 1)}
    assert graph_fuzzing.replayed(child, small) == "outputs differ again in run 1"
    assert graph_fuzzing.replayed(live("after"), small) == "outputs differ in none of 2000 more runs"


def test_a_reader_that_keeps_the_planner_from_a_source_becomes_memory_of_its_own():
    """SOFT_MAX takes the sinks because its scores are read again later: one op is left, its scores a weight."""
    scores = (leaf("f32", 1), step("sqr", "%0"), leaf("f32", 1), step("soft_max_ext", "%1", None, 1.0, 0.0))
    steps = (*scores, step("soft_max_add_sinks", "%3", "%2"), step("add", "%1", "%4"))
    recipe = GraphRecipe(steps=steps, expand=(5,), outputs=(4, 5))
    child = live("after")
    small = graph_fuzzing.minimise(child, graph_fuzzing.judge(child, recipe))

    assert small.cause == "C04 kernel: SOFT_MAX over source 2"
    assert [made.make for made in small.recipe.steps] == ["tensor", "tensor", "soft_max_ext", "soft_max_add_sinks"]


def test_a_copy_that_is_older_than_its_original_is_found_on_two_backends_alone_and_kept_as_it_ran():
    child = live("after")
    (found,) = graph_fuzzing.fuzz(child, [1027])

    assert (found.kind, found.cause) == (graph_fuzzing.SPLIT, graph_fuzzing.OLD_COPY)
    assert any(row["op"] == "SPLIT_COPY" for row in found.rows["nodes"])
    assert stale_copies(found.rows)
    assert graph_fuzzing.replayed(child, found) == "shows again"
    assert next(graph_fuzzing.fuzz(child, [1028]), None) is None


def test_a_sum_by_threads_has_the_same_numbers_on_two_backends():
    """CROSS_ENTROPY_LOSS on two threads: the second backend has two as well, and nothing differs but a race."""
    assert generate(7_000_955).threads == 2
    assert next(graph_fuzzing.fuzz(live("after"), [7_000_955]), None) is None


def test_a_graph_of_nothing_but_static_leafs_and_views_needs_no_memory_of_its_own():
    """ggml gives no buffer for nothing, and says no more than that it gave none."""
    recipe = GraphRecipe(steps=(leaf("f32", 8, static=True), step("view_1d", "%0", 4, 0)), expand=(1,), outputs=())

    assert graph_fuzzing.judge(live("before"), recipe) is None


def test_a_smaller_graph_that_the_library_refuses_does_not_fail_as_the_larger_did(monkeypatch):
    recipe = generate(3, nodes=4)
    finding = graph_fuzzing.FuzzedFault(
        seed=3, kind="crash", words="", recipe=recipe, rows=None, cause="ggml's message: no"
    )

    def judged(_, smaller):
        if smaller is not recipe:
            raise EngineError("gave no buffer")
        return finding

    monkeypatch.setattr(graph_fuzzing, "judge", judged)
    assert graph_fuzzing.minimise(live("before"), finding) == finding


ASSERTED = "ggml-alloc.c:624: GGML_ASSERT(buffer_id >= 0) failed"
OUTSIDE = "C12 kernel: RWKV_WKV7: a kernel wrote outside its results"


@pytest.mark.parametrize(
    ("known", "misdeed", "said", "cause"),
    [
        ((), "Overrun", "it said nothing", None),
        ((OUTSIDE,), "Overrun", "it said nothing", OUTSIDE),
        ((OUTSIDE,), "Overrun", ASSERTED, OUTSIDE),
        ((OUTSIDE,), "Overrun", "it said nothing, and by another cause", OUTSIDE),
        ((OUTSIDE,), "OldRead", "it said nothing", None),
        ((OUTSIDE, f"ggml's message: {ASSERTED}"), "OldRead", ASSERTED, f"ggml's message: {ASSERTED}"),
        (("ggml's message: it said nothing",), "OldRead", "it said nothing", None),
    ],
)
def test_an_end_by_a_known_cause_is_named_by_the_ops_of_that_cause_alone(known, misdeed, said, cause):
    """A kernel that writes outside its results again is the cause, else the same assertion; what said nothing is none."""

    class Ran:
        def call(self, _, __, names, *, threads):
            assert (names, [*threads]) == ({"RWKV_WKV7"}, [])
            return [("RWKV_WKV7", Guarded(misdeeds=(Misdeed(kind=misdeed),)))]

    assert graph_fuzzing._crashed_again(Ran(), replace(generate(3), threads=1), said, known) == cause
