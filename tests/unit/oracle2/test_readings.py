"""Where the text of version 2 leaves room: one document for each such place, and the reading that the oracle took.

None of these is right because it stands here. A judge that reads a sentence otherwise differs on the document below, and
the text decides which of the two is mended.
"""

import ast
from pathlib import Path

from oracle2 import judge
from oracle2.brief import document, kinds, only, several
from oracle2.brief import program as written

STATE = {"nbytes": 4, "role": "state"}


def warned(judgement):
    return sorted(w["kind"] for w in judgement.warnings)


def test_1_a_view_of_an_empty_value_keeps_no_writer_alive():
    """ "Its operand by name": the operand is the view, which no access wrote, so that `a` is live at 0 and at 4 alone."""
    values = {"e": ("a", {"shape": [0]}), "v": ("a", {"shape": [0]})}
    ops = [("f", "", "e"), ("view", "e", "v"), ("f", "", "b"), ("use", "b", ""), ("use", "v", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=values)).clean


def test_3_from_the_start_to_the_last_read_is_nothing_where_there_is_no_read():
    """A part of `s` is written and nobody reads before the full overwrite: live for that op, not from the run's start."""
    values = {"part": ("s", {"shape": [2]}), "new": ("s", {})}
    ops = [("f", "", "t"), ("use", "t", ""), ("f", "", "part"), ("f", "", "new")]

    assert judge(document({"s": STATE, "t": 4}, ops, [0, 0], values=values)).clean


def test_3_an_op_that_reads_and_overwrites_fully_reads_first():
    ops = [("f", "", "t"), ("use", "t", ""), ("step", "s", "new", {"in_place": [[0, 0]]})]
    found = judge(document({"s": STATE, "t": 4}, ops, [0, 0], values={"new": ("s", {})}))

    assert kinds(found) == ["Overlap", "StaleRead"]


def test_6_no_common_live_byte_is_no_sharing():
    """Sentence 6 to the letter would let this pass ("every" of none); sentence 4 says that buffers are compared whole."""
    halves = {"low": ("a", {"shape": [2]}), "high": ("b", {"shape": [2], "offset": 2})}
    ops = [("f", "", "low"), ("f", "", "high"), ("use", "low high", "")]

    assert kinds(judge(document({"a": 4, "b": 4}, ops, [0, 0], values=halves))) == ["Overlap"]


def test_6_two_that_nobody_wrote_hold_no_tag_and_so_none_alike():
    """Both are read unwritten, at one step: a byte that nobody wrote holds no tag, so none that another holds, as in version 1."""
    found = judge(document({"a": 4, "b": 4}, [("use", "a b", "")], [0, 0]))

    assert kinds(found) == ["Overlap", "UninitialisedRead", "UninitialisedRead"]


def test_7_the_bound_counts_with_plans_that_share_further_on():
    """`b`, of 5 bytes, takes bytes 4 to 8 of `a`, and `c` its first 4; at one address `b` would break `bytes`."""
    values = {"r": ("b", {"shape": [5]}), "x": ("a", {"shape": [2]}), "y": ("c", {"shape": [2]})}
    pairs = {"in_place": [[0, 0, "bytes"], [0, 1]]}
    ops = [("f", "", "x"), ("g", "x", "r y", pairs), ("use", "r y", "")]
    found = judge(document({"a": 8, "b": 5, "c": 4}, ops, [0, 4, 0], values=values))

    assert found.clean
    assert (found.stats["lower_bound_bytes"], found.stats["bound_as_planned"], found.stats["peak_bytes"]) == (9, 9, 9)


def test_7_a_buffer_of_no_bytes_makes_no_class_of_two_others():
    """Two results of one op can never share; both may lie on an operand without bytes, which says nothing of the two."""
    values = {"e": ("z", {"shape": [0]})}
    ops = [("g", "e", "x y", {"in_place": [[0, 0, "whole"], [0, 1, "whole"]]})]
    found = judge(document({"z": 0, "x": 4, "y": 4}, ops, [0, 0, 4], values=values))

    assert found.clean
    assert (found.stats["lower_bound_bytes"], found.stats["bound_as_planned"], found.stats["peak_bytes"]) == (8, 8, 8)


def test_a_buffer_that_only_an_upload_left_out_would_touch_needs_no_slot():
    ops = [("host.write", "", "x"), ("f", "", "y")]
    made = written({"x": 4, "y": 4}, ops)

    left_out = judge(several([made], [(0, [None, 0])], session=[{"plan": 0, "skip": [0]}]))
    done = judge(several([made], [(0, [None, 0])], session=[{"plan": 0, "skip": [0]}, {"plan": 0}]))

    assert (kinds(left_out), kinds(done)) == ([], ["Unplaced"])


def test_8_a_gap_over_a_segment_is_too_short_though_only_the_host_reads_later():
    ops = [("f", "", "a"), ("f", "", "b"), ("host.read", "a", "")]
    problem = {"program": 0, "start": [0, 1], "stop": [3, 2], "gaps": {"0": [[1, 2]]}}

    assert kinds(judge(document({"a": 4, "b": 4}, ops, [0, 4], problems=[problem]))) == ["LifetimeTooShort"]


def test_8_start_and_stop_are_held_against_accesses_and_too_long_against_segments():
    """A state read at step 0 alone is live to the run's end: neither [0, 1) is too short for it nor [0, 2) too long."""
    for stop in (1, 2):
        problem = {"program": 0, "start": [0, 1], "stop": [stop, 2]}
        found = judge(document({"s": STATE, "t": 4}, [("use", "s", ""), ("f", "", "t")], [0, 4], problems=[problem]))
        assert (kinds(found), warned(found)) == ([], [])


def test_8_a_missing_gap_is_a_lifetime_too_long():
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("f", "", "a2"), ("use", "a2", "")]
    problem = {"program": 0, "start": [0, 2], "stop": [5, 3]}
    found = judge(document({"a": 4, "b": 4}, ops, [0, 4], values={"a2": ("a", {})}, problems=[problem]))

    assert [(w["kind"], w["buffer"]) for w in found.warnings] == [("LifetimeTooLong", 0)]


def test_bad_share_lets_two_that_hold_the_same_share():
    """`b` is `a` for as long as both live: at one address nothing would overlap, pair or no pair."""
    ops = [("f", "", "a"), ("same", "a", "b"), ("use", "a", ""), ("use", "b", "")]
    problem = {"program": 0, "start": [0, 1], "stop": [3, 4], "may_share": [[0, 1]]}

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], problems=[problem])).clean


def test_9_a_tag_of_the_same_value_from_another_byte_is_another_tag():
    """`same` moves the low half of `a` over its high half; the reader of `a` no longer finds `a`."""
    values = {"low": ("a", {"shape": [2]}), "high": ("a", {"shape": [2], "offset": 2})}
    ops = [("f", "", "a"), ("same", "low", "high"), ("use", "a", "")]
    found = judge(document({"a": 4}, ops, [0], values=values))

    assert (kinds(found), only(found, "OverwrittenRead")["bytes"]) == (["OverwrittenRead"], [[2, 4]])


def test_9_a_copy_of_what_an_earlier_run_wrote_is_no_history():
    """The state holds what run 0 left, which is its purpose; `t` was written in this run, by the `same`."""
    make = written({"s": STATE}, [("step", "", "s2")], {"s2": ("s", {})})
    look = written({"s": STATE, "t": 4}, [("same", "s", "t"), ("use", "t", "")])
    found = judge(several([make, look], [(0, [0]), (1, [0, 4])], session=[{"plan": 0}, {"plan": 1}]))

    assert (kinds(found), warned(found)) == ([], [])


def test_10_what_a_same_declares_besides_whole_is_not_asked():
    """At one address with a `null` contract nothing is assumed: the kind itself says what it does."""
    ops = [("f", "", "a"), ("same", "a", "b", {"in_place": None}), ("use", "b", "")]
    found = judge(document({"a": 4, "b": 4}, ops, [0, 0]), strict=True)

    assert (kinds(found), warned(found)) == ([], [])


def test_10_carries_that_cross_lose_nothing_at_once_and_one_in_turn():
    ops = [("f", "", "a b"), ("same", "a b", "c d"), ("use", "c", ""), ("use", "d", "")]
    assert judge(document(dict.fromkeys("abcd", 4), ops, [0, 4, 4, 0])).clean

    ops[1:2] = [("same", "a", "c"), ("same", "b", "d")]
    assert "StaleRead" in kinds(judge(document(dict.fromkeys("abcd", 4), ops, [0, 4, 4, 0])))


def test_11_a_read_only_result_is_written_unless_it_is_the_operands_own_bytes():
    """That two buffers lie at one address is the plan's doing and does not change what the program asks for."""
    ops = [("f", "", "a"), ("same", "a", "b"), ("use", "b", "")]

    assert kinds(judge(document({"a": 4, "b": {"nbytes": 4, "read_only": True}}, ops, [0, 0]))) == ["WriteToReadOnly"]


def test_11_one_address_is_asked_of_every_byte():
    """A transposition in place starts at one address and lies on the same bytes, and still moves two of them."""
    values = {"x": ("a", {"shape": [2, 2]}), "t": ("a", {"shape": [2, 2], "strides": [1, 2]})}
    ops = [("f", "", "x"), ("same", "x", "t"), ("use", "t", ""), ("use", "x", "")]
    found = judge(document({"a": 4}, ops, [0], values=values))

    assert (kinds(found), only(found, "OverwrittenRead")["bytes"]) == (["OverwrittenRead"], [[1, 3]])


def test_12_bytes_counts_whole_bytes_and_asks_packed_rows_to_have_no_holes():
    """Five u2 fill 10 bits, three i4 fill 12: two bytes each. Rows of three i4 leave half a byte each."""

    def over(operand, result):
        ops = [("f", "", "o"), ("g", "o", "r", {"in_place": [[0, 0, "bytes"]]}), ("use", "r", "")]
        return kinds(judge(document({"a": 4, "b": 4}, ops, [0, 0], values={"o": ("a", operand), "r": ("b", result)})))

    assert over({"dtype": "u2", "shape": [5]}, {"dtype": "i4", "shape": [3]}) == []
    assert over({"dtype": "i4", "shape": [2, 3]}, {"dtype": "i4", "shape": [2, 2]}) == ["Overlap", "UnsafeInPlace"]


def test_15_own_memory_is_one_for_all_runs():
    """ "The same buffer in every run of its program": two runs at once on one `own` slot race there as they would in an arena."""
    ops = [("f", "", "a"), ("use", "a", "")]
    found = judge(document({"a": 4}, ops, ["own"], session=[{"plan": 0}, {"plan": 0, "after": []}]))

    assert set(kinds(found)) == {"Race"}


def test_16_a_late_read_is_not_before_later_ops_of_its_own_run():
    """Run 1 does not wait for run 0, and run 0's host reads after it: run 0's own rewrite may come first."""
    ops = [("f", "", "a"), ("host.read", "a", ""), ("f", "", "a2"), ("use", "a2", "")]
    other = written({"z": 4}, [("f", "", "z")])
    one = written({"a": 4}, ops, {"a2": ("a", {})})
    session = [{"plan": 0, "read_after": 1}, {"plan": 1, "after": []}]
    found = judge(several([one, other], [(0, [0]), (1, [8])], session=session))

    assert kinds(found) == ["Race", "StaleRead"]
    assert (only(found, "Race")["op"], only(found, "Race")["other_op"]) == (2, 1)


def test_17_default_rows_of_packed_values_count_their_own_bits_alone():
    """Rows of two i4 from bit 4 on: a byte apart by default, so that the first row ends where the second begins."""
    values = {"r": ("x", {"dtype": "i4", "shape": [2, 2], "bit_offset": 4})}
    found = judge(document({"x": 4}, [("f", "", "r"), ("use", "x", "")], [0], values=values))

    assert only(found, "UninitialisedRead")["bytes"] == [[0, 1], [2, 4]]


def test_18_at_the_low_end_a_value_may_reach_outside():
    buffers = {"a": {"nbytes": 4, "nbytes_range": [2, 4]}}
    found = judge(document(buffers, [("f", "", "a"), ("use", "a", "")], [0]))

    assert [(v["kind"], v["ends"]) for v in found.violations] == [("OutOfBounds", ("low",))]


def test_what_a_left_out_upload_leaves_in_a_state_is_content_and_no_mutation():
    ops = [("host.write", "", "s2"), ("use", "s2", "")]
    found = judge(document({"s": STATE}, ops, [0], values={"s2": ("s", {})}, session=[{"plan": 0, "skip": [0]}]))

    assert (kinds(found), warned(found)) == ([], [])


def test_an_alloc_over_a_donor_is_over_live_until_the_donor_is_freed():
    ops = [("f", "", "a"), ("g", "a", "b", {"in_place": [[0, 0]]}), ("use", "b", "")]
    made = document({"a": 4, "b": 4}, ops, [0, 0])
    made["plans"][0]["events"] = [[0, "alloc", 0], [1, "alloc", 1], [1, "free", 0]]

    assert kinds(judge(made)) == ["AllocOverLive"]

    made["plans"][0]["events"] = [[0, "alloc", 0], [1, "free", 0], [1, "alloc", 1]]
    assert judge(made).clean


def test_the_oracle_shares_no_code_with_what_it_judges():
    """It imports the standard library and itself."""
    allowed = {"copy", "dataclasses", "functools", "itertools", "math", "random"}
    for path in sorted((Path(__file__).parents[2] / "oracle2").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert {name.name for name in node.names} <= allowed, path
            if isinstance(node, ast.ImportFrom):
                assert node.level == 1 or node.module in allowed, path
