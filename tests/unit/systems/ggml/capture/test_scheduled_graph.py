"""Graphs on two backends: splits and copies as they ran, each buffer an arena; right ones are not accused, planted faults are found."""

import copy
from itertools import count

import numpy as np
import pytest
from ggml_live import BOTH, live
from ggml_tasks import two_backends

from allocsim.allocators import ALLOCATORS
from allocsim.errors import DocumentError, EngineError
from allocsim.judge.fast import check
from allocsim.model import SAME
from allocsim.systems.ggml.capture.capture_hints import hints_of
from allocsim.systems.ggml.capture.graph_document import document
from allocsim.systems.ggml.capture.stale_copies import stale_copies
from allocsim.systems.ggml.capture_evidence import examine
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe, leaf, step
from allocsim.systems.ggml.random_graphs.split_graphs import run_split
from allocsim.verdict import judge

OLD_COPY = GraphRecipe(
    steps=(leaf("f32", 8), step("sqr", "%0"), step("neg", "%1"), step("scale_inplace", "%1", 0.5), step("exp", "%1")),
    expand=(2, 3, 4),
    outputs=(2, 4),
)
"""`exp` reads `sqr` behind an op that wrote over it."""


FAULTY = ("rwkv_wkv7", "add_id", "rope_ext", "rope_ext_back", "rope_multi", "rope_multi_back", "soft_max_add_sinks")
"""Builders of the kernels that the audit convicts: their numbers are wrong under right plans."""


def right_graph(seed):
    """The first random graph from a seed on, by thousands, whose kernels keep their contracts."""
    recipes = (generate(number, none_views=False) for number in count(seed, 1000))
    return next(one for one in recipes if not any(made.make in FAULTY for made in one.steps))


def split_rows(which, how="by hand"):
    return live(which).call(two_backends, how)


def planted(rows, move):
    """Rows with the tensor called `move[0]` at the place of the one called `move[1]`, views along."""
    rows = copy.deepcopy(rows)
    named = {row["name"]: row for row in (*rows["leafs"], *rows["nodes"])}
    named[move[0]] |= {key: value for key, value in named[move[1]].items() if key in {"off", "buffer"}}
    return rows


@pytest.mark.parametrize("which", BOTH)
def test_splits_and_copies_are_part_of_the_program_each_at_its_time(which):
    """x -> a, b on the second backend; c on the first, d on the second: a, b and c are copied where the split begins that reads them."""
    captured = document(split_rows(which))
    program = captured.programs[0]
    kinds = [(op.kind, op.name) for op in program.ops]

    assert kinds == [
        ("host.write", "write x"), ("same", "CPU#x#0"), ("sqr", "a"), ("unary", "b"), ("same", "CPU#b#0"),
        ("same", "CPU#a#0"), ("add", "c"), ("same", "CPU#c#0"), ("mul", "d"), ("host.read", "read d"),
    ]  # fmt: skip
    assert [arena.name for arena in program.arenas] == ["CPU 0", "CPU 1"]
    assert len({captured.plans[0].arena[b] for b, name in enumerate(program.buffers.names) if name in "abcdx"}) == 2
    assert check(captured).clean


def test_what_is_captured_can_be_run_and_examined():
    evidence, whys, _ = examine(document(split_rows("after")), child=live("after"))

    assert judge(evidence).sound
    assert evidence.origins == ()
    assert not whys


def test_right_graphs_of_a_pipelined_scheduler_are_not_accused_and_a_planted_fault_is_found():
    """It keeps four copies of each tensor: the one that a run makes is a copy, the others lie untouched."""
    child = live("after")
    runs = [child.call(run_split, right_graph(seed), seed, pipelined=True) for seed in range(20)]
    copies = [[row for row in ran.rows["nodes"] if row["op"] == "SPLIT_COPY"] for ran in runs]

    assert all(check(document(ran.rows)).clean for ran in runs)
    assert sum(map(len, copies)) > 100
    found = 0
    for ran, made in zip(runs, copies, strict=True):
        names = [row["name"] for row in (*ran.rows["leafs"], *ran.rows["nodes"])]
        for copied in made[:2]:
            others = [n for n in names if n.startswith(copied["name"][:-1]) and n != copied["name"]]
            assert len(others) >= 3
            wrong = planted(ran.rows, (others[0], copied["name"]))
            found += not check(document(wrong)).clean
    assert found == sum(len(made[:2]) for made in copies)


def test_a_parameter_that_a_pipelined_scheduler_lists_as_leaf_and_as_node_is_one_tensor():
    """0.13.1 names what the host fills once more among its leafs; a parameter is a node already."""
    steps = (leaf("f32", 7, 5, flag="input param"), step("mul_mat", "%0", "%0"))
    ran = live("before").call(run_split, GraphRecipe(steps=steps, expand=(1,), outputs=(0, 1)), 0, pipelined=True)
    names = [row["name"] for row in (*ran.rows["leafs"], *ran.rows["nodes"])]

    assert check(document(ran.rows)).clean
    assert names.count("t0") == 1
    assert "CPU#t0#1" in names


def test_without_the_scheduler_the_refusal_says_what_is_missing():
    with pytest.raises(EngineError, match="give its scheduler, or name the buffers"):
        split_rows("after", "no scheduler")
    with pytest.raises(EngineError, match="give the scheduler"):
        split_rows("after", "buffers alone")
    with pytest.raises(EngineError, match="holds no plan of this graph"):
        split_rows("after", "another scheduler")


@pytest.mark.parametrize("seed", range(20))
def test_right_graphs_on_two_backends_are_not_accused_and_planned_alike(seed):
    """Random graphs, random backends: every plan is clean, and the imitation gives the same offsets in every arena."""
    ran = live("after").call(run_split, right_graph(seed), seed)
    captured = document(ran.rows)
    plan = captured.plans[0]
    again = ALLOCATORS["ggml"].place(plan.problem)
    placed = plan.arena >= 0

    assert check(captured).violations == ()
    assert not ran.differing or stale_copies(ran.rows)
    assert np.array_equal(again.offset[placed], plan.offset[placed])
    assert sum(op.kind == SAME for op in captured.programs[0].ops) == sum(
        row["op"] == "SPLIT_COPY" for row in ran.rows["nodes"]
    )


@pytest.mark.parametrize(
    "move",
    [
        ("CPU#b#0", "CPU#a#0"),  # the second copy of a split lies over the first
        ("b", "a"),  # an original is gone before it is copied
        ("a", "CPU#x#0"),  # a copy is gone before its last reader
        ("c", "CPU#x#0"),  # a result in the memory of the other backend
    ],
)
def test_planted_split_faults_are_found(move):
    rows = split_rows("after")
    assert check(document(rows)).clean
    found = {violation.kind for violation in check(document(planted(rows, move))).violations}

    assert "StaleRead" in found


@pytest.mark.parametrize("which", BOTH)
def test_a_copy_that_is_read_after_its_original_changed_is_found_by_d_and_said(which):
    """ggml's scheduler copies once: the numbers differ though no byte is used too late."""
    ran = next(
        one for one in (live(which).call(run_split, OLD_COPY, seed) for seed in range(40)) if stale_copies(one.rows)
    )
    captured = document(ran.rows)
    evidence, _, _ = examine(captured, child=live(which))
    verdict = judge(evidence)

    assert ran.differing == (4,)
    assert check(captured).clean
    assert not verdict.sound
    assert captured.programs[0].ops[evidence.origins[0].op].name == "t4"
    assert any("'t4' reads a copy of 't1'" in hint and "'t3' wrote over" in hint for hint in hints_of(captured))


def test_a_dump_with_buffers_is_held_to_them():
    rows = split_rows("after")
    for change, said in (({"buffer": 2}, "does not exist"), ({"src": []}, "one source")):
        broken = copy.deepcopy(rows)
        broken["nodes"][0] |= change
        with pytest.raises(DocumentError, match=said):
            document(broken)
