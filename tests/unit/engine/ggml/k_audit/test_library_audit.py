"""The kernel audit finds the contracts that real kernels break, and says whether the real allocator gets there."""

import pytest
from ggml_live import BOTH, live

from allocsim.errors import EngineError
from engine.ggml import child_tasks
from engine.ggml.k_audit.library_audit import audit
from engine.ggml.k_audit.library_cases import CASES

KEYS = {"op", "source", "declared", "measured", "max_error", "cases", "reachable"}


def verdicts(which, ops):
    return {(row["op"], row["source"]): row for row in audit(live(which), ops=ops, threads=(1,)).rows}


@pytest.mark.parametrize(
    ("which", "op", "source", "measured"),
    [
        ("before", "RMS_NORM_BACK", 0, "unsafe"),
        ("before", "RMS_NORM_BACK", 1, "safe"),
        ("before", "SOFT_MAX_BACK", 0, "safe"),
        ("before", "SOFT_MAX_BACK", 1, "unsafe"),
        ("after", "RMS_NORM_BACK", 0, "safe"),
        ("after", "SOFT_MAX_BACK", 1, "safe"),
        ("before", "ADD_ID", 1, "unsafe"),
        ("after", "ADD_ID", 1, "unsafe"),
        ("before", "SOFT_MAX", 2, "unsafe"),
        ("after", "SOFT_MAX", 2, "unsafe"),
        ("after", "ADD", 1, "safe"),
    ],
)
def test_a_kernel_over_one_source(which, op, source, measured):
    row = verdicts(which, [op])[op, source]

    assert row["measured"] == measured
    assert (row["max_error"] > 0) is (measured == "unsafe")
    assert row["cases"] > 0
    assert set(row) >= KEYS


def test_an_unsafe_alias_that_the_allocator_chooses_comes_with_its_smallest_graph():
    row = verdicts("before", ["SOFT_MAX_BACK"])["SOFT_MAX_BACK", 1]

    assert row["reachable"]
    assert row["graph"] == "1 node: SOFT_MAX_BACK(f32[7] memory of its own, f32[7] leaf)"


@pytest.mark.parametrize("which", BOTH)
def test_every_op_of_the_in_place_list_has_cases(which):
    assert set(live(which).call(child_tasks.versions)["in_place"]) <= set(CASES)


def test_types_a_kernel_refuses_are_listed_with_its_words():
    refused = audit(live("after"), ops=["ADD"], threads=(1,)).refused

    assert {entry["types"] for entry in refused} == {"f32,f16", "f32,bf16"}
    assert all("unsupported types" in entry["said"] for entry in refused)


def test_an_op_that_is_not_listed_is_refused():
    with pytest.raises(EngineError, match="'MUL_MAT' is not on the in-place list"):
        audit(live("after"), ops=["MUL_MAT"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "unsafe"),
    [
        ("before", {("ADD_ID", 1), ("RMS_NORM_BACK", 0), ("SOFT_MAX", 2), ("SOFT_MAX_BACK", 1)}),
        ("after", {("ADD_ID", 1), ("SOFT_MAX", 2)}),
    ],
)
def test_the_whole_list_with_one_and_two_threads(which, unsafe):
    found = audit(live(which))

    assert {(row["op"], row["source"]) for row in found.unsafe} == unsafe
    assert found.unaudited == []
