"""Documents with the answer that each must get: `tests/data/cases`, as they are and in the encodings of version 2."""

import pytest
from encodings_2 import CARRY, amended, carried, case, copies_as_same, nibbles_as_i4, permuted
from oracle2 import judge
from oracle2.brief import kinds, only


@pytest.mark.parametrize(
    "name", ["gap-used", "loop-hull", "state-gap", "loop-swap", "kv-pages", "reinplaced-view-as-mutation"]
)
def test_is_clean(name):
    assert judge(case(name)).violations == ()


def test_equal_bytes_is_clean_as_same_and_refused_as_a_copy():
    assert kinds(judge(case("equal-bytes"))) == ["Overlap", "StaleRead"]
    assert judge(amended("equal-bytes", 1, kind="same")).violations == ()


def test_matmul_over_its_operand_is_convicted_by_a_table_and_when_strict():
    unsafe = {"kinds": {"dot": [{"pair": [0, 0], "says": "unsafe", "source": "reads each row again"}]}}
    made = case("matmul-over-operand")

    assert ([w["kind"] for w in judge(made).warnings], judge(made).clean) == (["AssumedInPlace"], True)
    assert "UnsafeInPlace" in kinds(judge(made, kinds=unsafe))
    assert kinds(judge(made, strict=True)) == ["AssumedInPlace"]


@pytest.mark.parametrize("name", ["in-place-other-shape", "in-place-smaller"])
def test_another_shape_and_a_smaller_result_are_clean_with_bytes(name):
    assert "UnsafeInPlace" in kinds(judge(case(name)))
    assert judge(amended(name, 1, in_place=[[0, 0, "bytes"]])).violations == ()


def test_nibbles_are_clean_as_i4():
    assert kinds(judge(case("nibbles"))) == ["OverwrittenRead"]
    assert judge(nibbles_as_i4()).violations == ()


def test_loop_swap_is_clean_with_its_copies_and_its_carries_as_same():
    assert judge(copies_as_same()).violations == ()
    assert judge(carried("loop-swap", 13, CARRY)).violations == ()


def test_loop_swap_with_two_carries_permuted_at_once_has_nothing_but_their_arenas_wrong():
    assert set(kinds(judge(permuted()))) == {"WrongArena"}


def test_a_view_of_what_a_compiler_overwrote_is_read_late():
    found = judge(case("reinplaced-view-as-intent"))
    stale = only(found, "StaleRead")

    assert kinds(found) == ["Overlap", "StaleRead"]
    assert (stale["op"], stale["other_op"], stale["want_op"]) == (7, 6, 2)


def test_a_page_given_away_is_read_in_a_later_run():
    found = judge(case("kv-page-reused"))

    assert kinds(found) == ["StaleRead"]
    assert (found.violations[0]["run"], found.violations[0]["other_run"], found.violations[0]["want_run"]) == (2, 1, 0)
