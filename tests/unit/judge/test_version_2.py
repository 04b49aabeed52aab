"""The judge on documents given with the project, in the encodings of version 2."""

import json

import pytest
from encodings_2 import CARRY, amended, carried, case, copies_as_same, nibbles_as_i4, permuted

from allocsim import check, loads
from allocsim.model import Document
from allocsim.verdict import causes_of
from repro.small.words import plan, program

UNSAFE = {"kinds": {"dot": [{"pair": [0, 0], "says": "unsafe", "source": "reads each row again"}]}}


def told(made):
    return loads(json.dumps(made).encode())


@pytest.mark.parametrize(
    "made",
    [
        amended("equal-bytes", 1, kind="same"),
        amended("in-place-other-shape", 1, in_place=[[0, 0, "bytes"]]),
        amended("in-place-smaller", 1, in_place=[[0, 0, "bytes"]]),
        nibbles_as_i4(),
        copies_as_same(),
        carried("loop-swap", 13, CARRY),
    ],
    ids=["same", "another shape", "smaller", "nibbles", "copies as same", "carries as same"],
)
def test_what_version_2_can_say_is_clean(made):
    assert check(told(made)).clean


@pytest.mark.parametrize("name", ["equal-bytes", "in-place-other-shape", "in-place-smaller", "nibbles"])
def test_without_it_the_same_bytes_are_refused(name):
    assert not check(told(case(name))).clean


def test_two_carries_in_each_others_slots_are_c15_of_the_plan():
    assert {(cause.class_, cause.party) for cause in causes_of(told(permuted()))} == {("C15", "plan")}


def test_a_promise_that_nobody_made_is_counted_refused_when_strict_and_by_a_table():
    document = told(case("matmul-over-operand"))
    strict = check(document, strict=True)

    assert check(document).clean
    assert [v.kind for v in strict.violations] == ["AssumedInPlace"]
    assert {(cause.class_, cause.party) for cause in causes_of(document, strict)} == {("C03", "plan")}
    assert "UnsafeInPlace" in {v.kind for v in check(document, kinds=UNSAFE).violations}


def test_of_two_entries_of_a_table_for_one_pair_unsafe_is_believed():
    both = {"kinds": {"k": [{"pair": [0, 0], "says": "safe"}, {"pair": [0, 0], "says": "unsafe"}]}}
    made = program("x = host.write; h = k? x; host.read h")
    document = Document.of(plan(made, "x=0 h=0"))
    assert check(document, kinds={"kinds": {"k": both["kinds"]["k"][:1]}}).clean
    assert "UnsafeInPlace" in {v.kind for v in check(document, kinds=both).violations}
