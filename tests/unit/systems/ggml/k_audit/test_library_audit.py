"""The kernel audit finds the contracts that real kernels break, and says whether the real allocator gets there."""

import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ggml_live import BOTH, here, live

from allocsim.errors import EngineError
from allocsim.systems.ggml.access.library import versions
from allocsim.systems.ggml.k_audit.library_audit import (
    THREADS,
    UNWRITTEN,
    audit,
    fused_rows,
    measure_cases,
    measure_groups,
    run_fused,
)
from allocsim.systems.ggml.k_audit.library_cases import (
    CASES,
    QUANTISED,
    UNMEASURED,
    Calls,
    LibraryCase,
    Operand,
    cases,
    draw,
    fused_cases,
)
from engine.commands.audit_versions import column_of, markdown, side_by_side

ROOT = Path(__file__).parents[5]
KEYS = {"op", "source", "declared", "measured", "max_error", "cases", "reachable"}


ONE_THREAD = (1,)


@cache
def whole_audit(which, threads):
    """Audit a library once for all tests of one process."""
    return audit(live(which), threads=threads)


def verdicts(which):
    return {(row["op"], row["source"]): row for row in whole_audit(which, ONE_THREAD).rows}


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
        ("before", "ROPE", 2, "unsafe"),
        ("after", "ROPE", 2, "unsafe"),
        ("before", "ROPE_BACK", 2, "unsafe"),
        ("after", "ROPE_BACK", 2, "unsafe"),
    ],
)
def test_a_kernel_over_one_source(which, op, source, measured):
    row = verdicts(which)[op, source]

    assert row["measured"] == measured
    assert (row["max_error"] > 0) is (measured == "unsafe")
    assert row["cases"] > 0
    assert set(row) >= KEYS


def test_an_unsafe_alias_that_the_allocator_chooses_comes_with_its_smallest_graph():
    row = verdicts("before")["SOFT_MAX_BACK", 1]

    assert row["reachable"]
    assert row["graph"] == "1 node: SOFT_MAX_BACK(f32[7] memory of its own, f32[7] leaf)"


@pytest.mark.parametrize("which", BOTH)
def test_every_op_of_the_in_place_list_has_cases(which):
    assert set(live(which).call(versions)["in_place"]) <= set(CASES)


def test_types_a_kernel_refuses_are_listed_with_its_words():
    refused = audit(live("after"), ops=["ADD"], threads=(1,)).refused

    assert {entry["types"] for entry in refused} == {"f32,f16", "f32,bf16"}  # and no quantised type among them
    assert all("unsupported types" in entry["said"] for entry in refused)


def test_one_variant_that_aborts_takes_no_other_with_it():
    """0.13.1 takes some unary functions of bf16 and not SILU: those it takes are measured."""
    types = {"bf16": ("neg", "silu", "sqr")}
    rows, refused = measure_groups(live("before"), "UNARY", types, (1,), 0, layout="over")

    assert [entry["types"] for entry in refused] == ["bf16 (silu)"]
    assert [(row.unsafe, row.cases) for row in rows] == [(0, 12)]


@pytest.mark.parametrize("which", BOTH)
def test_a_kernel_that_leaves_bytes_unwritten_is_listed_and_accused_of_no_alias(which):
    """ADD1 of a quantised tensor puts the rows of the fourth dimension where those of the first are."""
    found = audit(live(which), ops=["ADD1"], threads=(1,))

    assert {row["measured"] for row in found.rows} == {"safe"}
    assert {entry["types"] for entry in found.refused} == {f"{kind},f32" for kind in QUANTISED}
    assert all("[256, 3, 2, 2]" in entry["said"] for entry in found.refused)
    assert all(entry["said"].endswith(UNWRITTEN) for entry in found.refused)


@pytest.mark.parametrize("which", BOTH)
def test_the_fused_norm_is_measured_over_what_it_norms_and_over_the_weights(which):
    rows = live(which).call(fused_rows, (1, 2), 0)

    assert [(row.source, row.unsafe, row.cases > 0) for row in rows] == [(0, 0, True), (1, 0, True)]
    assert rows[0].reach.ways
    assert not rows[1].reach.ways


def wrong_norm(library):
    """Task: the same where the result lies beside the weights by one element, which no kernel is made for."""
    case = next(case for case in fused_cases() if case.operands[0].ne == (33, 5) == case.operands[1].ne)
    arrays = [draw(operand, np.random.default_rng(0)) for operand in case.operands]
    return [run_fused(library, case, arrays, victim, 1, shift=shift)[0] for victim, shift in ((None, 0), (1, 4))]


def test_the_measurement_of_the_fused_norm_can_fail():
    apart, shifted = live("after").call(wrong_norm)

    assert apart.tobytes() != shifted.tobytes()


def test_what_is_no_op_is_refused_and_one_that_is_not_listed_has_no_rows():
    with pytest.raises(EngineError, match="'MULMAT' is no op of ggml"):
        audit(live("after"), ops=["MULMAT"])
    assert audit(live("after"), ops=["MUL_MAT"]).rows == []


BY_ANY_NUMBER_OF_THREADS = pytest.mark.parametrize(
    "threads", [ONE_THREAD, pytest.param(THREADS, marks=pytest.mark.campaign)], ids=str
)


@pytest.mark.slow
@BY_ANY_NUMBER_OF_THREADS
@pytest.mark.parametrize(
    ("which", "unsafe"),
    [
        (
            "before",
            {("ADD_ID", 1), ("RMS_NORM_BACK", 0), ("ROPE", 2), ("ROPE_BACK", 2), ("SOFT_MAX", 2), ("SOFT_MAX_BACK", 1)},
        ),
        ("after", {("ADD_ID", 1), ("ROPE", 2), ("ROPE_BACK", 2), ("SOFT_MAX", 2)}),
    ],
)
def test_the_whole_list_has_these_unsafe_pairs_and_no_other(which, unsafe, threads):
    """Two and four threads find no pair that one does not, and take four times as long; races have a test of their own."""
    found = whole_audit(which, threads)

    assert {(row["op"], row["source"]) for row in found.unsafe} == unsafe
    assert found.unaudited == []


@BY_ANY_NUMBER_OF_THREADS
def test_the_table_of_the_page_is_what_the_audit_prints(threads):
    found = side_by_side([column_of(which, whole_audit(which, threads)) for which in BOTH], {})
    page = ROOT / "docs" / "ggml.md"
    before, table, after = re.split(r"(?<=<!-- pairs -->\n)|(?=<!-- end of pairs -->)", page.read_text())

    made = "\n".join(["", *markdown(found), "", ""])
    if os.environ.get("ALLOCSIM_UPDATE"):
        page.write_text(before + made + after)

    assert table == made


MANY = 60
"""Rounds of two dozen runs each in which a race shows in one at least; it takes a second thread that begins late."""


def one_token(library, *, threads):
    """Task: ROPE over factors laid out as its result, one token of several heads: only other threads read what one has written."""
    x, at = Operand(dtype="f32", ne=(64, 64, 1)), Operand(dtype="i32", ne=(1,), fill="positions")
    tail = (64, 0, 0, 10_000.0, 1.0, 0.0, 1.0, 0.0, 0.0)
    call = Calls(3, (("rope_ext", "%0", "%1", "%2", *tail),))
    case = LibraryCase(op="ROPE", variant="factors", operands=(x, at, replace(x, fill="positive")), build=call)
    return measure_cases(library, "ROPE", [case], threads=threads, seed=1)


@pytest.mark.parametrize("which", BOTH)
def test_a_race_is_unsafe_with_several_threads_and_safe_with_one(which):
    alone = {row.source: row for row in live(which).call(one_token, threads=(1,))}
    tries = ({row.source: row for row in live(which).call(one_token, threads=(1, 2, 4))} for _ in range(MANY))
    raced = next((rows for rows in tries if rows[2].unsafe), None)

    assert alone[2].unsafe == 0
    assert raced is not None
    assert raced[0].unsafe == 0
    assert raced[2].races_at == raced[2].threads > 1


@pytest.mark.parametrize("which", BOTH)
def test_a_quantised_sum_is_measured(which):
    row = verdicts(which)["ADD", 0]
    added = {case.types for case in cases(here(which), "ADD")}

    assert {f"{kind},f32" for kind in QUANTISED} <= added
    assert row["measured"] == "safe"


def test_what_is_not_measured_has_a_reason():
    assert all(len(why) > 20 for why in UNMEASURED.values())
