"""Kernels run between red zones: what they do outside their contract is found, named and nothing else is said."""

from functools import cache

import ggml_tasks
import pytest
from ggml_live import BOTH, live

from allocsim.systems.ggml.access.structs import FLAGS
from allocsim.systems.ggml.k_audit import guarded_audit
from allocsim.systems.ggml.k_audit.guarded_audit import audit_guarded, make_forms
from allocsim.systems.ggml.k_audit.guarded_kernels import guard_each, single_ops
from allocsim.systems.ggml.k_audit.plan_pairs import single_op

FAULTY = {"RWKV_WKV7": {"Overrun", "UndeclaredRead"}, "ADD1": {"ResultUnwritten"}}
"""Kernels of both libraries that break their contract -> the kinds. ADD1: docs/upstream/add1.md."""


@cache
def one_form(which, op):
    child = live(which)
    number = child.call(guarded_audit.count_forms)
    made, _ = child.call(make_forms, number - 140, number - 20)
    return next(one for one in reversed(made) if one.op == op)


@pytest.mark.parametrize(
    ("misdeed", "kinds", "where"),
    [
        ("none", [], ""),
        ("behind", ["Overrun"], "result"),
        ("before", ["Overrun"], "result"),
        ("operand", ["OperandWritten"], "source 0"),
        ("behind operand", ["Overrun"], "source 0"),
        ("left", ["ResultUnwritten"], ""),
        ("read behind", ["UndeclaredRead"], ""),
        ("read old", ["OldRead"], "result or work buffer"),
        ("threads", ["Threads"], ""),
    ],
)
def test_what_a_planted_kernel_does_is_named_and_nothing_else(misdeed, kinds, where):
    """Nine kernels, each with one misdeed planted behind the real one."""
    (found,) = live("after").call(ggml_tasks.guarded_with, misdeed, [one_form("after", "NORM")], (2, 4))
    assert [one.kind for one in found.misdeeds] == kinds
    assert [one.where for one in found.misdeeds] == [where] * len(kinds)


def test_a_kernel_that_ends_its_process_is_convicted_and_the_others_still_run(monkeypatch):
    """Halving finds the one that dies among four."""
    child, ops = live("after"), [one_form("after", name) for name in ("SIN", "COS", "MEAN", "DIAG")]
    real = child.call

    def call(task, given, **options):
        if any(one.op == "MEAN" for one in given):
            return real(ggml_tasks.guarded_with, "ends", [ops[2]], (2,))
        return real(task, given, **options)

    monkeypatch.setattr(child, "call", call)
    found = guard_each(child, ops)
    assert [[one.kind for one in guarded.misdeeds] for guarded in found] == [[], [], ["Crash"], []]
    assert "SIGSEGV" in found[2].misdeeds[0].said


def test_a_kernel_that_does_not_end_is_convicted_where_patience_is_given(monkeypatch):
    child, op = live("after"), one_form("after", "SIN")
    real = child.call

    def call(task, given, **options):
        return real(ggml_tasks.guarded_with, "waits", given, (2,), options["patience"])

    monkeypatch.setattr(child, "call", call)
    (found,) = guard_each(child, [op], patience=0.05)
    assert [one.words for one in found.misdeeds] == ["the kernel does not end within 0.05 seconds"]


SOME = ("ADD1", "CPY", "FILL", "FLASH_ATTN_EXT", "OPT_STEP_ADAMW", "RWKV_WKV7", "SET_ROWS", "SOFT_MAX")


@pytest.mark.slow
@pytest.mark.parametrize("ops", [SOME, pytest.param(None, marks=pytest.mark.campaign)], ids=["some", "all"])
@pytest.mark.parametrize("which", BOTH)
def test_the_kernels_of_a_library_keep_their_contracts_but_for_those_known(which, ops):
    """Every form of these ops is run, or of every op that has a kernel; two break their contracts."""
    found = audit_guarded(live(which), ops=ops)
    assert {row.op: {*row.misdeeds} for row in found.rows if row.misdeeds} == FAULTY
    assert not [op for op, why in found.without.items() if "no form" in why]
    rows = {row.op: row.public() for row in found.rows}
    assert rows["OPT_STEP_ADAMW"]["writes"] == [0, 2, 3]
    assert rows["CPY"]["reads"] == [0]
    assert rows["SET_ROWS"]["writes"] == [2]
    assert rows["SOFT_MAX"]["reads"] == [0, 1, 2]
    assert rows["FLASH_ATTN_EXT"]["reads"] == [0, 1, 2, 3]
    assert rows["FILL"]["reads"] == []


def test_what_is_left_out_and_what_ggml_refuses_is_said():
    """An op of the library that is not asked for is not told of; one without kernel has its reason."""
    found = audit_guarded(live("after"), ops=["VIEW", "CUSTOM", "SIN"])
    assert [row.op for row in found.rows] == ["SIN"]
    assert found.without == {
        "VIEW": "it runs no kernel",
        "CUSTOM": "the program that builds the graph supplies its function",
    }
    assert not found.refused


def test_ops_of_a_graph_are_joined_and_results_in_a_source_stay_views():
    """Two equal ops are one; a copy's result lies in what it copies to; a view node is none."""
    leaf = {"op": "NONE", "name": "a", "type": "f32", "ne": [4, 1, 1, 1], "nb": [4, 16, 16, 16], "nbytes": 16, "flags": 0, "view_src": None, "view_offs": 0, "src": []}  # fmt: skip
    sin = {**leaf, "op": "SIN", "name": "s", "src": ["L0"]}
    copy = {**leaf, "op": "CPY", "name": "c", "src": [0, "L1"], "view_src": "L1"}
    view = {**leaf, "op": "VIEW", "name": "v", "src": [0], "view_src": 0}
    found = single_ops({"meta": {}, "leafs": [leaf, leaf], "nodes": [sin, {**sin, "src": ["L1"]}, copy, view]})
    assert [(one.op, one.nodes, one.words) for one in found] == [("SIN", (0, 1), "f32[4]"), ("CPY", (2,), "2 x f32[4]")]
    assert found[1].rows["nodes"][0]["view_src"] == "L1"


def test_an_op_alone_runs_whatever_its_graph_flagged():
    """A later version runs no node without the flag, and a kernel that does not run would be measured safe."""
    leaf = {"type": "f32", "ne": [4, 1, 1, 1], "nb": [4, 16, 16, 16], "nbytes": 16}
    alone = single_op({**leaf, "op": "SQR", "flags": 0}, [leaf], [0])
    assert alone["nodes"][0]["flags"] == FLAGS["compute"]


def test_bytes_between_the_elements_of_a_result_are_nobodys():
    """A copy into a view whose rows have gaps leaves the gaps alone, and is clean."""
    leaf = {"op": "NONE", "name": "a", "type": "f32", "ne": [7, 3, 1, 1], "nb": [4, 28, 84, 84], "nbytes": 84, "flags": 0, "view_src": None, "view_offs": 0, "src": []}  # fmt: skip
    wide = {**leaf, "nb": [4, 36, 108, 108], "nbytes": 100}
    copy = {**wide, "op": "CPY", "name": "c", "src": ["L0", "L1"], "view_src": "L1"}
    (one,) = single_ops({"meta": {}, "leafs": [leaf, wide], "nodes": [copy]})
    (found,) = guard_each(live("after"), [one])
    assert (found.misdeeds, found.reads, found.writes) == ((), (0,), (1,))


def test_an_abort_of_ggml_itself_is_a_refusal_and_no_misdeed():
    """ADD of f32 and f16 ends the process with a line of its source."""
    found = audit_guarded(live("before"), ops=["ADD"])
    assert {one["said"].partition(":")[0] for one in found.refused} == {"ggml-cpu/binary-ops.cpp"}
    assert not found.rows[0].misdeeds
