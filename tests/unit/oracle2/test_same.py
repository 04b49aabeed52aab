"""Sentences 9 to 11: the kind `same`."""

from oracle2 import judge
from oracle2.brief import document, kinds, only

TWO = {"a": 4, "b": 4}


def test_9_readers_of_a_result_want_the_writer_of_the_operand():
    """`b` is a copy of `a` made elsewhere; what spoils it is told against the op that wrote `a`."""
    ops = [("f", "", "a"), ("same", "a", "b"), ("f", "", "c"), ("use", "b", "")]

    assert judge(document({**TWO, "c": 4}, ops, [0, 4, 8])).clean

    found = only(judge(document({**TWO, "c": 4}, ops, [0, 4, 4])), "StaleRead")
    assert (found["step"], found["other_op"], found["want_op"]) == (3, 2, 0)


def test_9_it_is_judged_as_a_reader():
    ops = [("f", "", "a"), ("f", "", "c"), ("same", "a", "b"), ("use", "b", "")]
    found = judge(document({**TWO, "c": 4}, ops, [0, 4, 0]))

    assert [(v["kind"], v["step"]) for v in found.violations] == [("Overlap", 1), ("StaleRead", 2), ("StaleRead", 3)]


def test_9_in_version_1_it_is_a_kind_like_any_other():
    ops = [("f", "", "a"), ("same", "a", "b", {"in_place": [[0, 0]]}), ("use", "a", ""), ("use", "b", "")]

    assert judge(document(TWO, ops, [0, 0])).clean
    assert kinds(judge(document(TWO, ops, [0, 0], version=1))) == ["Overlap", "StaleRead"]


def test_9_bytes_correspond_in_row_major_order():
    """A flip hands byte 0 to byte 3: laid over its source, nothing but the middle of a palindrome would be the same."""
    flip = {"r": ("b", {"offset": 3, "strides": [-1]})}
    ops = [("f", "", "a"), ("same", "a", "r"), ("use", "a", ""), ("use", "r", "")]

    assert judge(document(TWO, ops, [0, 4], values=flip)).clean
    assert kinds(judge(document(TWO, ops, [0, 0], values=flip))) == ["Overlap", "StaleRead"]


def test_9_a_result_that_holds_another_tag_is_overwritten():
    """`b` is rewritten by a second `same`, of other bytes: the reader of the first result reads an old value's place."""
    ops = [("f", "", "a"), ("f", "", "c"), ("same", "a", "b"), ("same", "c", "b2"), ("use", "b", "")]
    buffers = {**TWO, "c": 4}
    again = {"b2": ("b", {})}

    assert kinds(judge(document(buffers, ops, [0, 4, 8], values=again))) == ["OverwrittenRead"]

    ops[3] = ("same", "a", "b2")
    assert judge(document(buffers, ops, [0, 4, 8], values=again)).clean


def test_9_an_unwritten_operand_makes_no_result():
    found = judge(document(TWO, [("same", "a", "b"), ("use", "b", "")], [0, 4]))

    assert [(v["kind"], v["step"]) for v in found.violations] == [("UninitialisedRead", 0), ("UninitialisedRead", 1)]


def test_10_operands_and_results_are_disjoint_or_equal():
    pairs = {"in_place": [[0, 0, "whole"]]}
    ops = [("f", "", "a"), ("same", "a", "b"), ("use", "b", "")]

    assert kinds(judge(document(TWO, ops, [0, 2]))) == ["Overlap", "UnsafeInPlace"]

    ops[1] = ("same", "a", "b", pairs)
    assert judge(document(TWO, ops, [0, 2])).clean


def test_10_only_whole_excuses_a_partial_overlap():
    for strength in ("exact", "bytes"):
        ops = [("f", "", "a"), ("same", "a", "b", {"in_place": [[0, 0, strength]]}), ("use", "b", "")]
        assert kinds(judge(document(TWO, ops, [0, 2]))) == ["Overlap", "UnsafeInPlace"]


SWAP = [("f", "", "a b"), ("same", "a b", "c d"), ("use", "c", ""), ("use", "d", "")]
FOUR = {"a": 4, "b": 4, "c": 4, "d": 4}


def test_10_a_swap_at_equal_places_needs_no_pair():
    """It reads all before it writes any: wherever its results lie on its operands, whole on whole, every byte arrives."""
    assert judge(document(FOUR, SWAP, [0, 4, 0, 4])).clean
    assert judge(document(FOUR, SWAP, [0, 4, 4, 0])).clean
    assert kinds(judge(document(FOUR, SWAP, [0, 4, 2, 8]))) == ["Overlap", "Overlap", "UnsafeInPlace"]


def test_10_two_results_on_one_byte_are_results_overlap_though_they_hold_the_same():
    ops = [("f", "", "a"), ("same", "a a", "c d"), ("use", "c", ""), ("use", "d", "")]

    assert kinds(judge(document(FOUR, ops, [0, 4, 8, 8]))) == ["ResultsOverlap"]
    assert judge(document(FOUR, ops, [0, 4, 0, 8])).clean


def test_11_at_one_address_it_reads_and_does_not_write_for_races():
    streams = {"streams": ["x", "y"]}
    ops = [
        ("f", "", "a"),
        ("same", "a", "b", {"stream": 0}),
        ("use", "a", "", {"stream": 1, "after": [0]}),
        ("use", "b", ""),
    ]

    assert judge(document(TWO, ops, [0, 0], more=streams)).clean
    assert judge(document(TWO, ops, [0, 4], more=streams)).clean

    ops[1] = ("g", "a", "b", {"in_place": [[0, 0]]})
    assert kinds(judge(document(TWO, ops, [0, 0], more=streams))) == ["Overlap", "Race", "StaleRead"]


def test_11_within_one_buffer_it_writes_nothing():
    """`c` is `a` by another name: the reader of `a` finds its own value, and a read-only buffer is left alone."""
    ops = [("host.write", "", "a"), ("same", "a", "c"), ("use", "a", ""), ("use", "c", "")]
    name = {"c": ("a", {})}

    assert judge(document({"a": {"nbytes": 4, "read_only": True}}, ops, [0], values=name)).clean

    ops[1] = ("copy", "a", "c", {"in_place": [[0, 0]]})
    found = judge(document({"a": {"nbytes": 4, "read_only": True}}, ops, [0], values=name))
    assert kinds(found) == ["OverwrittenRead", "WriteToReadOnly"]


def test_11_moving_one_after_the_other_is_one_same_for_each():
    """A swap moved one by one destroys a source; written so, the second move reads what the first one left."""
    ops = [SWAP[0], ("same", "a", "c"), ("same", "b", "d"), *SWAP[2:]]

    assert judge(document(FOUR, ops, [0, 4, 0, 4])).clean
    assert "StaleRead" in kinds(judge(document(FOUR, ops, [0, 4, 4, 0])))
