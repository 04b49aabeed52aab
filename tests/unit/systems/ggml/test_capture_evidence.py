"""From a captured graph to the right party: K on the pairs of its plan, D on the library, and a plain word where they cannot run."""

from dataclasses import replace

import numpy as np
import pytest
from ggml_live import BOTH, live

from allocsim import document as native
from allocsim.errors import EngineError
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture.graph_rebuilding import rebuild
from allocsim.systems.ggml.capture.graph_rows import walk
from allocsim.systems.ggml.capture_evidence import captured_plans, examine, is_capture
from allocsim.systems.ggml.k_audit.plan_pairs import measure_pairs, shared_pairs
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import TINY
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, plan_rows, step
from allocsim.verdict import judge

CHAIN = GraphRecipe(steps=(leaf("f32", 8), step("sqr", "%0"), step("neg", "%1")), expand=(2,), outputs=(2,))


def sinks_rows(library):
    """Task: a SOFT_MAX over its sinks, no mask: the scores lie in memory of their own."""
    with LibraryWorkspace(library) as ws:
        static, ctx = ws.context(), ws.context(graph_size=8)
        scores = static.tensor("f32", 1, 1, 1, name="scores")
        ws.apart(static)
        sinks = ctx.tensor("f32", 1, name="sinks", flag="input")
        out = ctx.op("soft_max_ext", scores, None, 1.0, 0.0, name="out")
        library.ggml_soft_max_add_sinks(out, sinks)
        graph = ctx.graph(size=8)
        library.ggml_build_forward_expand(graph, out)
        ws.pin([out])
        ws.allocate(ws.planner(), graph)
        return walk(library, graph)


def captured(which, task=plan_rows, *arguments, **keywords):
    return document(live(which).call(task, *arguments, **keywords))


def judged(which, captured_document):
    evidence, whys, by = examine(captured_document, child=live(which))
    return evidence, judge(evidence), whys, by


def test_the_faulty_training_graph_gets_kernel_op_and_source():
    evidence, verdict, whys, by = judged("before", captured("before", transformer_rows, TINY, kind="train+sgd"))

    assert verdict.classes == {("C04", "kernel")}
    (cause,) = verdict.causes
    assert "the kernel of rms_norm_back is not safe with its result over operand 0" in cause.text
    assert evidence.document.programs[0].ops[evidence.origins[0].op].kind == "rms_norm_back"
    assert {row.kind for row in evidence.audit if row.measured == "unsafe"} == {"rms_norm_back"}
    assert by == "the kernels of ggml 0.13.1"
    assert not whys
    assert evidence.sanitizer == ()


def test_the_same_graph_on_the_mended_library_is_sound_with_k_and_d_run():
    evidence, verdict, _, _ = judged("after", captured("after", transformer_rows, TINY, kind="train+sgd"))

    assert verdict.sound
    assert evidence.audit
    assert {row.measured for row in evidence.audit} == {"safe"}
    assert evidence.origins == ()


def test_partial_pins_move_the_fault_to_source_1_of_soft_max_back():
    _, verdict, _, _ = judged("before", captured("before", transformer_rows, TINY, kind="train+sgd", mode="backward"))

    assert verdict.classes == {("C04", "kernel")}
    assert {cause.change.op_kind for cause in verdict.causes} == {"soft_max_back"}
    assert {cause.change.operand for cause in verdict.causes} == {1}


@pytest.mark.parametrize("which", BOTH)
def test_an_optional_source_that_is_left_out_keeps_the_slot_of_the_guilty_one(which):
    """SOFT_MAX with sinks and no mask: the sinks are source 2, and the second operand."""
    evidence, verdict, _, _ = judged(which, captured(which, sinks_rows))

    assert [(row.operand, row.measured) for row in evidence.audit] == [(2, "unsafe")]
    assert verdict.classes == {("C04", "kernel")}
    assert "over operand 1 (source 2)" in verdict.causes[0].text
    assert [origin.what for origin in evidence.origins] == ["result"]


def test_a_plan_made_wrong_by_hand_is_found_by_d_where_its_bytes_are_taken():
    whole = captured(
        "after", plan_rows, GraphRecipe(steps=(*CHAIN.steps, step("mul_mat", "%0", "%2")), expand=(3,), outputs=(3,))
    )
    plan = whole.plans[0]
    offsets = plan.offset.copy()
    names = list(plan.program.buffers.names)
    offsets[names.index("t1")] = offsets[names.index("t0")]  # t0 is read by the product later
    offsets[names.index("t2")] = 4096
    wrong = replace(whole, plans=(replace(plan, offset=offsets),))

    evidence, verdict, _, _ = judged("after", wrong)

    assert [(origin.what, evidence.document.programs[0].ops[origin.op].kind) for origin in evidence.origins] == [
        ("operand", "mul_mat")
    ]
    assert verdict.causes[0].party == "plan"


def test_a_capture_that_was_written_and_read_is_examined_alike(tmp_path):
    native.write(captured("before", transformer_rows, TINY, kind="train+sgd"), tmp_path / "plan.json")

    _, verdict, _, _ = judged("before", native.read(tmp_path / "plan.json"))

    assert verdict.classes == {("C04", "kernel")}


def test_another_version_of_the_library_is_refused_and_nothing_counts_as_clean():
    evidence, whys, by = examine(captured("after", plan_rows, CHAIN), child=live("before"))

    assert (evidence.audit, evidence.origins, by) == (None, None, "")
    assert whys["K"] == whys["D"] == "the graph is of ggml 0.26.0, the library is ggml 0.13.1"


def test_a_graph_that_is_not_that_of_the_program_is_not_run():
    one = captured("after", plan_rows, CHAIN)
    other = captured("after", plan_rows, GraphRecipe(steps=CHAIN.steps[:2], expand=(1,), outputs=(1,)))

    with pytest.raises(EngineError, match="is not the graph of the document's program"):
        captured_plans(replace(one, meta=other.meta))


def test_a_document_of_somebody_else_is_no_capture():
    whole = captured("after", plan_rows, CHAIN)

    assert is_capture(whole)
    assert not is_capture(replace(whole, meta={}))
    assert not is_capture(replace(whole, meta={"ggml": 3}))


def rebuilt_task(library, rows):
    with LibraryWorkspace(library) as ws:
        rebuild(ws, rows, {})


@pytest.mark.parametrize(
    ("place", "column", "said", "words"),
    [
        (0, "op", "NO_SUCH_OP", "has no op 'NO_SUCH_OP'"),
        (0, "type", "f31", "has no type 'f31'"),
        (0, "nbytes", 64, "has 64 bytes in its row, but 32 by its type and layout"),
    ],
)
def test_rows_that_lie_are_refused_before_anything_runs(place, column, said, words):
    rows = live("after").call(plan_rows, CHAIN)
    rows["nodes"][place][column] = said

    with pytest.raises(EngineError, match=words):
        live("after").call(rebuilt_task, rows)


def test_an_op_that_calls_back_is_named_and_the_rest_goes_on():
    """A custom op beside ADD_ID over operand 1: ADD_ID is convicted, by K and D, the custom op not examined."""
    leafs = (replace(leaf("f32", 1, 2, 1), static=True), leaf("f32", 1, 2), leaf("i32", 2, 1), leaf("f32", 8))
    steps = (*leafs, step("add_id", "%0", "%1", "%2"), step("cont", "%3"))
    rows = live("after").call(plan_rows, GraphRecipe(steps=steps, expand=(4, 5), outputs=(4, 5)))
    (custom,) = [row for row in rows["nodes"] if row["op"] == "CONT"]
    custom |= {"op": "MAP_CUSTOM1", "op_params": [1, 2, 3], "name": "mine"}
    evidence, whys, _ = examine(document(rows), child=live("after"))

    assert [(cause.class_, cause.party) for cause in judge(evidence).causes] == [("C04", "kernel")]
    assert [(row.kind, row.operand, row.measured) for row in evidence.audit] == [("add_id", 1, "unsafe")]
    assert whys["K"] == whys["D"] == whys["P"] == "not examined: MAP_CUSTOM1 'mine' (a function of the program)"


def test_pairs_that_differ_in_anything_a_kernel_sees_are_measured_apart():
    steps = (
        leaf("f32", 8),
        step("sqr", "%0"),
        step("scale", "%1", 2.0),
        step("scale", "%2", 3.0),
        step("scale", "%3", 3.0),
    )
    (whole,) = captured_plans(captured("after", plan_rows, GraphRecipe(steps=steps, expand=(4,), outputs=(4,))))
    pairs = shared_pairs(whole.rows, whole.offsets)

    assert [(pair.op, pair.slot, pair.nodes) for pair in pairs] == [
        ("SQR", 0, (0,)),
        ("SCALE", 0, (1,)),
        ("SCALE", 0, (2, 3)),
    ]
    found = live("after").call(
        measure_pairs, [pair.rows for pair in pairs], [pair.slot for pair in pairs], seed=0, repeats=2
    )
    assert [one.unsafe for one in found] == [False] * 3
    assert all(one.runs == 2 * (1 + 2 + 2) for one in found)


def test_a_plan_that_shares_nothing_has_no_pairs():
    steps = (leaf("f32", 8, flag="input output"), *CHAIN.steps[1:])
    (whole,) = captured_plans(captured("after", plan_rows, replace(CHAIN, steps=steps), mode="pinned"))

    assert np.unique(list(whole.offsets.values())).size == len(whole.offsets)
    assert shared_pairs(whole.rows, whole.offsets) == []


SMALL_RACE = GraphRecipe(
    steps=(
        leaf("f32", 34, 3, 1, flag="", static=True),
        leaf("i32", 1, flag="", static=True, rows=8),
        leaf("f32", 34, 3, 1, fill="positive"),
        step("rope_ext", "%0", "%1", "%2", 16, 2, 0, 10000.0, 1.0, 0.0, 1.0, 32.0, 1.0),
    ),
    expand=(3,),
    outputs=(3,),
)


@pytest.mark.parametrize("which", BOTH)
def test_a_small_race_is_found_each_time_because_rows_depend_on_rows(which):
    """Three rows of 34 on two threads: some runs in a hundred are wrong, right with one thread; K repeats where rows can meet."""
    (whole,) = captured_plans(captured(which, plan_rows, SMALL_RACE))
    pair = next(pair for pair in shared_pairs(whole.rows, whole.offsets) if (pair.op, pair.slot) == ("ROPE", 2))

    def ask(seed, threads):
        return live(which).call(measure_pairs, [pair.rows], [pair.slot], seed=seed, threads=threads)[0].unsafe

    assert [ask(seed, (2, 4)) for seed in range(5)] == [True] * 5
    assert not ask(0, (1,))
