"""Captured rows against the plans kept as data, and against what a graph is known to be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ggml_live import BOTH, live
from ggml_tasks import (
    observed_and_walked,
    walk_freed,
    walk_overwritten,
    walk_pointer,
    walk_tensor,
    walk_two_plans,
    walk_what_is_no_graph,
)

from allocsim.errors import EngineError
from allocsim.judge.fast import check
from allocsim.systems.ggml.access.child import ChildDiedError
from allocsim.systems.ggml.access.probe import checked
from allocsim.systems.ggml.access.workspace import LibraryWorkspace
from allocsim.systems.ggml.capture.graph_document import adopt, capture, document, ops_of_nodes
from allocsim.systems.ggml.faults import forward_then_backward
from allocsim.systems.ggml.ggml_dump import ROOTS_KEPT
from allocsim.systems.ggml.lora_training.plan_modes import transformer_rows
from allocsim.systems.ggml.lora_training.transformer import TINY, Shape
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, build, leaf, place, plan_rows, step

DATA = Path(__file__).parents[4] / "data" / "ggml"
KINDS = {"fwd": "forward", "train": "train", "trainopt": "train+sgd"}
MODES = {"none": "default", "all": "pinned", "bwd": "backward", "paramgrads": "gradients"}
NAMES = (
    "fwd_2L_all", "fwd_2L_none", "train_2L_all", "train_2L_bwd", "train_2L_none", "train_2L_paramgrads", "train_2L_swiglu_none",
    "train_6L_none", "trainopt_2L_all", "trainopt_2L_none",
)  # fmt: skip


def without_parameters(row):
    """Return a row as the kept dumps have it: they were written without the parameters of ops."""
    return {column: value for column, value in row.items() if column != "op_params"}


@pytest.mark.parametrize("which", BOTH)
@pytest.mark.parametrize("name", NAMES)
def test_a_kept_plan_comes_out_of_the_library_row_for_row(which, name):
    kept = json.loads((DATA / f"{name}.json").read_text())
    meta = kept["meta"]
    shape = Shape(layers=meta["layers"], fused_gate=meta["ffn"] == "swiglu")

    rows = live(which).call(transformer_rows, shape, kind=KINDS[meta["kind"]], mode=MODES[meta["pin"]])

    assert [without_parameters(row) for row in rows["leafs"]] == kept["leafs"]
    assert [without_parameters(row) for row in rows["nodes"]] == kept["nodes"]
    assert rows["meta"]["buffer_size"] == meta["buffer_size"]


@pytest.mark.parametrize("which", BOTH)
def test_a_thirty_layer_step_has_the_size_that_is_known(which):
    rows = live(which).call(transformer_rows, TINY.deep(30), kind="train+sgd")

    assert len(rows["nodes"]) == 3257
    assert round(rows["meta"]["buffer_size"] / 2**20, 3) == 0.691


def test_a_view_without_op_brings_its_root_along():
    steps = (
        leaf("f32", 8, static=True),
        step("view_tensor", "%0"),
        step("neg", "%1"),
        step("sqr", "%2"),
        step("neg", "%3"),
    )

    rows = live("after").call(plan_rows, GraphRecipe(steps=steps, expand=(4,), outputs=(4,)))

    assert [row["name"] for row in rows["leafs"]] == ["t1", "t0"]
    assert rows["leafs"][0]["view_src"] == "L1"
    assert rows["leafs"][1]["external"]


def test_a_capture_is_a_document_with_program_problem_and_plan():
    recipe = GraphRecipe(steps=(leaf("f32", 8), step("sqr", "%0"), step("neg", "%1")), expand=(2,), outputs=(2,))

    captured = document(live("after").call(plan_rows, recipe))

    assert [captured.programs[0].ops[i].kind for i in range(4)] == ["host.write", "sqr", "unary", "host.read"]
    assert captured.plans[0].source == "ggml 0.26.0"
    assert captured.plans[0].offset.tolist() == [0, 0, 0]


def test_a_pointer_that_is_no_graph_is_refused():
    with pytest.raises(EngineError, match="is no ggml_cgraph"):
        live("after").call(walk_what_is_no_graph)


def refusal(task, *arguments):
    """Return the line with which a walk is refused; a death of the process is no refusal."""
    with pytest.raises(EngineError) as refused:
        live("after").call(task, *arguments)
    assert not isinstance(refused.value, ChildDiedError), refused.value
    return str(refused.value)


@pytest.mark.parametrize("address", [1, 8, 0xDEADBEEF, 1 << 62, (1 << 64) - 8, 0x7FFF_FFFF_F000])
def test_a_pointer_to_nowhere_is_refused_and_not_followed(address):
    assert refusal(walk_pointer, address) == f"{address:#x} is no ggml_cgraph: this process cannot read 48 bytes there"


def test_a_tensor_is_told_to_be_one_and_is_no_empty_graph():
    assert refusal(walk_tensor).endswith("it looks like a ggml_tensor: give the graph that contains this tensor")


@pytest.mark.parametrize("how", ["context", "allocator"])
def test_a_freed_graph_is_refused_where_its_memory_tells(how):
    assert any(words in refusal(walk_freed, how) for words in ("is no ggml_cgraph", "freed?"))


@pytest.mark.parametrize(
    ("field", "value"),
    [("op", 9999), ("type", -1), ("ne", -3), ("flags", 1 << 20), ("view_src", 64), ("buffer", 4096), ("nb", 0)],
)
def test_a_node_that_is_no_tensor_is_refused(field, value):
    assert refusal(walk_overwritten, field, value).endswith("freed?")


@pytest.mark.parametrize("which", BOTH)
def test_a_graph_of_this_very_process_is_captured(which):
    live(which)
    library = checked(which)
    recipe = GraphRecipe(steps=(leaf("f32", 8), step("sqr", "%0"), step("neg", "%1")), expand=(2,), outputs=(2,))

    with LibraryWorkspace(library) as ws:
        built = build(ws, recipe)
        place(ws, built)
        captured = capture(built.graph, library)

    assert captured.plans[0].source == f"ggml {library.version}"
    assert check(captured).clean


def test_a_python_program_with_a_binding_loaded_adopts_its_library():
    live("after")
    script = "import xllamacpp; from allocsim.systems.ggml.capture.graph_document import adopt; print(adopt().version)"

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stdout == "0.26.0\n"


def test_a_process_with_two_libraries_is_asked_which():
    live("before")
    live("after")
    checked("before")
    checked("after")

    with pytest.raises(EngineError, match=r"several libggml are mapped .*give the path of one"):
        adopt()


def test_a_graph_in_two_compute_buffers_is_refused_unless_they_are_named():
    live("after")
    finding = live("after").call(forward_then_backward)

    assert (
        finding.rows["run"]["meta"]["buffer_size"]
        > live("after").call(transformer_rows, TINY, kind="forward")["meta"]["buffer_size"]
    )
    with pytest.raises(EngineError, match="2 compute buffers"):
        live("after").call(walk_two_plans)


@pytest.mark.parametrize("which", BOTH)
def test_the_nodes_a_scheduler_runs_are_those_of_its_graph(which):
    recipe = GraphRecipe(
        steps=(leaf("f32", 8), step("sqr", "%0"), step("reshape_2d", "%1", 4, 2), step("neg", "%2")),
        expand=(3,),
        outputs=(3,),
    )

    seen, walked = live(which).call(observed_and_walked, recipe)

    assert seen["nodes"] == walked["nodes"]
    assert seen["leafs"] == walked["leafs"]
    assert check(document(seen)).clean


def test_an_op_of_the_document_is_found_for_each_node():
    rows = live("after").call(transformer_rows, TINY, kind="train+sgd")
    program = document(rows).programs[0]
    steps = ops_of_nodes(rows)

    for node, step_ in zip(rows["nodes"], steps, strict=True):
        if step_ is None:
            assert node["op"] == "NONE"
        else:
            assert program.ops[step_].kind == ("view" if node["op"] in ROOTS_KEPT else node["op"].lower())
