"""Sentences 12 to 14: strengths of the alias contract, pairs of their own, `null`, and tables of kinds."""

import pytest
from oracle2 import judge
from oracle2.brief import document, kinds

TWO = {"a": 8, "b": 8}
LAYOUTS = {
    "same": {"shape": [8]},
    "other shape": {"shape": [2, 4]},
    "smaller": {"shape": [4]},
    "shifted": {"shape": [4], "offset": 4},
    "flipped": {"offset": 7, "strides": [-1]},
    "gapped": {"shape": [4], "strides": [2]},
    "larger": {"shape": [8]},
}


def over(strength, layout, operand=None):
    """Judge a result of some layout laid over an operand of eight bytes, or of another layout."""
    pair = [0, 0] if strength is None else [0, 0, strength]
    values = {"r": ("b", LAYOUTS[layout]), "o": ("a", operand or {"shape": [8]})}
    ops = [("f", "", "o"), ("g", "o", "r", {"in_place": [pair]}), ("use", "r", "")]
    return kinds(judge(document(TWO, ops, [0, 0], values=values)))


UNSAFE = ["Overlap", "UnsafeInPlace"]


@pytest.mark.parametrize(
    ("strength", "clean"),
    [
        (None, {"same"}),
        ("exact", {"same"}),
        ("bytes", {"same", "other shape", "smaller"}),
        ("whole", {"same", "other shape", "smaller", "shifted", "flipped", "gapped"}),
    ],
)
def test_12_each_strength_allows_what_it_says(strength, clean):
    found = {layout: over(strength, layout) for layout in LAYOUTS if layout != "larger"}

    assert {layout for layout, said in found.items() if said == []} == clean
    assert all(said == UNSAFE for layout, said in found.items() if layout not in clean)


def test_12_bytes_asks_for_a_result_no_larger():
    assert over("bytes", "larger", {"shape": [4]}) == UNSAFE
    assert over("whole", "larger", {"shape": [4]}) == []


def test_12_a_layout_is_also_the_size_of_its_items():
    """Two bytes apart, once as u8 and once as f16."""
    values = {"o": ("a", {"shape": [4], "strides": [2]}), "r": ("b", {"dtype": "f16", "shape": [4]})}
    ops = [("f", "", "o"), ("g", "o", "r", {"in_place": [[0, 0]]}), ("use", "r", "")]

    assert kinds(judge(document(TWO, ops, [0, 0], values=values))) == UNSAFE


def test_13_every_other_operand_that_a_result_touches_needs_a_pair_of_its_own():
    def twice(pairs):
        ops = [("f", "", "a"), ("g", "a a", "b", {"in_place": pairs}), ("use", "b", "")]
        return kinds(judge(document(TWO, ops, [0, 0])))

    assert twice([[0, 0]]) == UNSAFE
    assert twice([[0, 0], [1, 0]]) == []


def test_13_whole_vouches_for_its_pair_only():
    """The result lies over a view of the donor too, which nobody vouched for."""
    view = {"v": ("a", {"shape": [4], "offset": 4})}

    def viewed(pairs):
        ops = [("f", "", "a"), ("g", "a v", "b", {"in_place": pairs}), ("use", "b", "")]
        return kinds(judge(document(TWO, ops, [0, 0], values=view)))

    assert viewed([[0, 0, "whole"]]) == UNSAFE
    assert viewed([[0, 0, "whole"], [1, 0, "bytes"]]) == UNSAFE
    assert viewed([[0, 0], [1, 0, "whole"]]) == []


UNKNOWN = [("f", "", "a"), ("g", "a", "b", {"in_place": None}), ("use", "b", "")]


def test_13_null_is_a_warning_and_strict_a_violation():
    lax, strict = judge(document(TWO, UNKNOWN, [0, 0])), judge(document(TWO, UNKNOWN, [0, 0]), strict=True)

    assert (kinds(lax), [w["kind"] for w in lax.warnings]) == ([], ["AssumedInPlace"])
    assert (kinds(strict), strict.warnings) == (["AssumedInPlace"], ())
    assert judge(document(TWO, UNKNOWN, [0, 8]), strict=True).clean


def table(says, strength=None, kind="g"):
    row = {"pair": [0, 0], "says": says, "source": "a test"}
    return {"kinds": {kind: [row if strength is None else {**row, "strength": strength}]}}


def test_14_a_table_speaks_where_the_document_says_null():
    said = {says: judge(document(TWO, UNKNOWN, [0, 0]), kinds=table(says)) for says in ("safe", "unsafe", "unknown")}

    assert {says: kinds(j) for says, j in said.items()} == {"safe": [], "unsafe": UNSAFE, "unknown": []}
    assert {says: len(j.warnings) for says, j in said.items()} == {"safe": 0, "unsafe": 0, "unknown": 1}
    assert len(judge(document(TWO, UNKNOWN, [0, 0]), kinds=table("unsafe", kind="h")).warnings) == 1


def test_14_a_table_is_silent_where_the_document_speaks():
    declared = [UNKNOWN[0], ("g", "a", "b", {"in_place": [[0, 0]]}), UNKNOWN[2]]
    nothing = [UNKNOWN[0], ("g", "a", "b"), UNKNOWN[2]]

    assert judge(document(TWO, declared, [0, 0]), kinds=table("unsafe")).clean
    assert kinds(judge(document(TWO, nothing, [0, 0]), kinds=table("safe"))) == UNSAFE


def test_14_a_safe_row_has_a_strength():
    ops = [("f", "", "a"), ("g", "a", "r", {"in_place": None}), ("use", "r", "")]
    smaller = document(TWO, ops, [0, 0], values={"r": ("b", {"shape": [4]})})

    assert kinds(judge(smaller, kinds=table("safe"))) == UNSAFE
    assert judge(smaller, kinds=table("safe", "bytes")).clean
