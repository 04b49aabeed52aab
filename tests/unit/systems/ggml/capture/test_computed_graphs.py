"""Graphs seen as they are computed: those of llama.cpp, of ggml-opt, of a scheduler, and what is wrong with a planted one."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from ggml_live import BOTH, live
from ggml_tasks import (
    a_watch_in_a_watch,
    decode_rewired,
    decode_unwatched,
    departures_over_other_bytes,
    logger_after,
    slots_around_a_watch,
    watched_by_a_broken_walker,
    watched_plans,
    watched_training,
)
from gguf_models import write_model

from allocsim import document as native
from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.systems.ggml.capture.computed_graphs import ComputedGraphs, decoded, named_apart, session
from allocsim.systems.ggml.capture.graph_document import graphs_of
from allocsim.systems.ggml.capture.graph_rebuilding import skipped, sources_of
from allocsim.systems.ggml.capture_evidence import captured_plans, examine
from allocsim.systems.ggml.k_audit.plan_pairs import shared_pairs
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step
from allocsim.verdict import judge

ROOT = Path(__file__).parents[5]
MODELS = {"f32": ("F32", 0), "q8_0": ("Q8_0", 0), "experts": ("F32", 4), "experts, q8_0": ("Q8_0", 4)}
PROMPT, STEPS = 5, 3


@pytest.mark.parametrize("kind", MODELS)
def test_prefill_and_decode_steps_of_a_model_are_one_session_of_two_plans_without_an_accusation(kind, tmp_path):
    child = live("after")
    weights, experts = MODELS[kind]
    seen = child.call(
        decoded, str(write_model(tmp_path / "m.gguf", weights, experts=experts)), prompt=PROMPT, steps=STEPS
    )

    found = session(seen)
    evidence, whys, _ = examine(found, child=child)

    assert seen.runs == [0, 1, 1, 1]  # the plan of the first step is used again
    assert [rows["nodes"][0]["ne"][1] for rows in seen.graphs] == [PROMPT, 1]  # tokens, at the rows of the embedding
    assert len(found.programs) == len(found.plans) == 2
    assert [found.programs.index(run.program) for run in found.runs] == seen.runs
    assert {row["op"] for row in seen.graphs[1]["nodes"]} >= {"MUL_MAT_ID" if experts else "FLASH_ATTN_EXT", "SET_ROWS"}
    assert not whys
    assert not evidence.origins
    assert {row.measured for row in evidence.audit} == {"safe"}
    assert {row.program for row in evidence.audit} == {0, 1}
    assert not judge(evidence).causes


def test_a_session_that_was_written_is_examined_as_before(tmp_path):
    child = live("after")
    path = write_model(tmp_path / "m.gguf")
    found = session(child.call(decode_rewired, str(path), "l_out-0", 1, "embd"))
    evidence, _, _ = examine(found, child=child)

    native.write(found, tmp_path / "m.json")
    again, _, _ = examine(native.read(tmp_path / "m.json"), child=child)

    assert again.origins == evidence.origins
    assert again.audit == evidence.audit
    assert graphs_of(again.document) == graphs_of(found)


def test_a_stale_plan_planted_in_a_model_is_found_in_every_run_and_is_the_plans(tmp_path):
    child = live("after")
    path = write_model(tmp_path / "m.gguf")
    right = session(child.call(decoded, str(path), prompt=4, steps=2))
    stale = session(child.call(decode_rewired, str(path), "l_out-0", 1, "embd"))

    report = check(stale)
    evidence, _, _ = examine(stale, child=child)

    assert check(right).clean
    assert [plan.offset.tolist() for plan in stale.plans] == [plan.offset.tolist() for plan in right.plans]
    late = [violation for violation in report.violations if violation.kind == "StaleRead"]
    assert [one.run for one in late] == [0, 1, 2]
    for one in late:
        program = stale.runs[one.run].program
        assert program.ops[one.step].name == "l_out-0"
        assert program.buffers.names[one.buffer] == "embd"
    assert {(origin.run, origin.what) for origin in evidence.origins} == {(0, "operand"), (1, "operand")}
    assert {(cause.class_, cause.party) for cause in judge(evidence).causes} == {("C12", "plan")}


def test_nodes_that_ggml_leaves_out_are_compared_by_nobody(tmp_path):
    """llama.cpp leaves three nodes of this model unflagged: what lies where they would write is anybody's."""
    child = live("after")
    found = session(child.call(decoded, str(write_model(tmp_path / "m.gguf")), prompt=4, steps=1))

    for one in captured_plans(found):
        left_out, leafs = skipped(one.rows), len(one.rows["leafs"])
        assert sorted(one.rows["nodes"][node]["op"] for node in left_out) == ["DUP", "GET_ROWS", "SET_ROWS"]
        read = {place - leafs for node, sources in enumerate(sources_of(one.rows)[leafs:]) for place in sources
                if place is not None and node not in left_out}  # fmt: skip
        assert not read & left_out
        assert child.call(departures_over_other_bytes, one.rows, one.offsets) == (2, [])


def test_a_version_that_flags_no_node_runs_them_all():
    row = {"op": "SQR", "flags": 0}
    assert skipped({"nodes": [row, row]}) == set()
    assert skipped({"nodes": [row, {**row, "flags": 16}]}) == {0}


def test_an_in_place_node_that_does_not_run_is_no_pair_of_the_plan():
    steps = (leaf("f32", 8), step("sqr", "%0"), step("sqr", "%1"))
    seen = live("after").call(watched_plans, GraphRecipe(steps=steps, expand=(2,), outputs=(2,)))
    (one, *_) = captured_plans(session(seen))
    unflagged = {**one.rows, "nodes": [dict(row) for row in one.rows["nodes"]]}
    unflagged["nodes"][-1]["flags"] = 0

    def relied(rows):
        return {node for pair in shared_pairs(rows, one.offsets) for node in pair.nodes}

    assert relied(one.rows) == {0, 1}
    assert relied(unflagged) == {0}


def test_a_second_watch_and_a_walker_that_fails_are_one_line():
    steps = (leaf("f32", 8), step("sqr", "%0"))
    with pytest.raises(EngineError, match="watched already"):
        live("after").call(a_watch_in_a_watch)
    with pytest.raises(EngineError, match="could not be walked: ZeroDivisionError"):
        live("after").call(watched_by_a_broken_walker, GraphRecipe(steps=steps, expand=(1,), outputs=(1,)))


def test_a_model_that_is_closed_leaves_llama_without_its_logger(tmp_path):
    assert live("after").call(logger_after, str(write_model(tmp_path / "m.gguf"))) == [True, False]


def test_watching_changes_no_number_and_ends_without_a_trace(tmp_path):
    child = live("after")
    path = write_model(tmp_path / "m.gguf", "Q8_0", experts=4)
    alone, watched = child.call(decode_unwatched, str(path), [1, 2, 3], 4)
    before, inside, after = child.call(slots_around_a_watch)

    assert alone == watched
    assert before == after
    assert not {*before} & {*inside}


def test_the_program_of_the_page_sees_what_a_server_computes_in_threads_of_its_own(tmp_path):
    live("after")
    write_model(tmp_path / "model.gguf", words=True)
    page = (ROOT / "docs" / "ggml.md").read_text()
    (program,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import xllamacpp" in block)

    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "2 [0, 1, 1, 1] ()" in ran.stdout.splitlines()


@pytest.mark.parametrize("which", BOTH)
def test_a_graph_is_seen_at_each_computation_and_is_another_where_it_lies_elsewhere(which):
    steps = (leaf("f32", 8), *(step("sqr", f"%{number}") for number in range(4)))
    seen = live(which).call(watched_plans, GraphRecipe(steps=steps, expand=(4,), outputs=(4,)))

    assert seen.runs == [0, 0, 1, 1]
    at_once, pinned = (plan.offset.tolist() for plan in session(seen).plans)
    assert len(set(at_once)) == 1
    assert len(set(pinned)) > 1


@pytest.mark.parametrize("which", BOTH)
def test_the_steps_of_ggml_opt_are_seen_with_their_backward_graph_and_optimizer(which):
    child = live(which)
    seen = child.call(watched_training)
    found = session(seen)
    evidence, whys, _ = examine(found, child=child)

    assert len(set(seen.runs)) == 1
    ops = Counter(row["op"] for row in seen.graphs[0]["nodes"])
    assert ops["CROSS_ENTROPY_LOSS_BACK"] == 1
    assert ops["OPT_STEP_ADAMW"] == 1
    assert not whys
    assert check(found).clean
    assert not evidence.origins


@pytest.mark.parametrize(
    ("which", "path", "said"),
    [
        ("before", "m.gguf", "has no llama.cpp inside"),
        ("after", "none.gguf", "failed to load model"),
        ("after", "torn.gguf", "failed to load model"),
    ],
)
def test_what_is_no_model_is_one_line(which, path, said, tmp_path):
    whole = write_model(tmp_path / "m.gguf").read_bytes()
    (tmp_path / "torn.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EngineError, match=said) as error:
        live(which).call(decoded, str(tmp_path / path), prompt=1, steps=0)
    assert "\n" not in str(error.value)


def test_more_tokens_than_the_context_holds_are_refused(tmp_path):
    path = write_model(tmp_path / "m.gguf")
    with pytest.raises(EngineError, match="510 tokens and 3 more do not fit in a context of 512"):
        live("after").call(decoded, str(path), prompt=510, steps=3)


def test_nothing_computed_is_no_session():
    with pytest.raises(EngineError, match="no graph was computed"):
        session(ComputedGraphs())


def test_tensors_of_one_name_and_two_sizes_are_two_buffers():
    def leaf(nbytes, *, external, name="w"):
        return {"name": name, "nbytes": nbytes, "external": external}

    given = [
        {"leafs": [leaf(8, external=True)]},
        {"leafs": [leaf(16, external=True), leaf(16, external=False)]},
        {"leafs": [leaf(16, external=True), leaf(32, external=True), leaf(8, external=True)]},
        {"leafs": [leaf(32, external=True), leaf(16, external=True, name="w [2]")]},
    ]
    kept = msgspec.json.encode(given)
    names = [[row["name"] for row in rows["leafs"]] for rows in named_apart(given)]

    assert names == [["w"], ["w [1]", "w"], ["w [1]", "w [3]", "w"], ["w [3]", "w [2]"]]
    assert msgspec.json.encode(given) == kept
