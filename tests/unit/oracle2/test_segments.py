"""Sentences 1 to 8: live segments, what may share, the bound, and what beliefs are held against."""

from oracle2 import judge
from oracle2.brief import document, kinds, only, several
from oracle2.brief import program as written


def test_1_a_buffer_is_dead_between_a_last_read_and_the_next_write():
    """`a` is written and read twice; `b` lies there between, and one step too early convicts."""
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("use", "b", ""), ("f", "", "a2"), ("use", "a2", "")]
    again = {"a2": ("a", {})}

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=again)).clean

    ops[1], ops[2] = ops[2], ops[1]
    late = judge(document({"a": 4, "b": 4}, ops, [0, 0], values=again))

    assert kinds(late) == ["Overlap", "StaleRead"]
    assert only(late, "Overlap")["steps"] == [1, 2]


def test_1_a_partial_write_keeps_the_rest_alive():
    ops = [("f", "", "a"), ("f", "", "b"), ("use", "b", ""), ("f", "", "half"), ("use", "a", "")]
    views = {"half": ("a", {"shape": [2]})}
    found = judge(document({"a": 4, "b": 4}, ops, [0, 0], values=views))

    assert [(v["kind"], v.get("bytes")) for v in found.violations] == [
        ("Overlap", None),
        ("OverwrittenRead", [[0, 2]]),
        ("StaleRead", [[2, 4]]),
    ]
    ops[-1] = ("use", "half", "")
    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=views)).clean


def test_1_reading_a_view_reads_its_bytes_and_the_view_itself_none():
    views = {"v": ("a", {"shape": [2], "offset": 2})}
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("view", "a", "v"), ("use", "b", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=views)).clean

    found = judge(document({"a": 4, "b": 4}, [*ops, ("use", "v", "")], [0, 0], values=views))

    assert kinds(found) == ["Overlap", "StaleRead"]
    assert only(found, "StaleRead")["bytes"] == [[2, 4]]


def test_1_an_empty_value_is_kept_alive_by_name():
    """Nothing is read of `e`, but its buffer is live until its reader."""
    empty = {"e": ("a", {"shape": [0]})}
    ops = [("f", "", "e"), ("f", "", "b"), ("use", "b", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=empty)).clean
    assert kinds(judge(document({"a": 4, "b": 4}, [*ops, ("use", "e", "")], [0, 0], values=empty))) == ["Overlap"]


def test_1_a_value_that_nobody_reads_lives_for_its_own_op():
    ops = [("f", "", "a"), ("g", "", "w"), ("use", "a", "")]

    assert kinds(judge(document({"a": 4, "w": 4}, ops, [0, 0]))) == ["Overlap", "StaleRead"]
    assert judge(document({"a": 4, "w": 4}, [("g", "", "w"), *ops[::2]], [0, 0])).clean


def test_1_bytes_read_before_any_write_live_from_that_read():
    """Run 1 leaves out the upload: `a` is not live before it is read, but what lies there then is not what it wants."""
    ops = [("host.write", "", "a"), ("f", "", "b"), ("use", "b", ""), ("use", "a", "")]
    found = judge(document({"a": 4, "b": 4}, ops, [0, 0], session=[{"plan": 0, "skip": [0]}]))
    again = judge(document({"a": 4, "b": 4}, ops, [0, 4], session=[{"plan": 0}, {"plan": 0, "skip": [0]}]))

    assert kinds(found) == ["UninitialisedRead"]
    assert (kinds(again), [w["kind"] for w in again.warnings]) == ([], ["HistoryRead"])


def test_2_a_late_read_extends_no_segment_but_finds_what_is_there_late():
    ops = [("f", "", "a"), ("host.read", "a", ""), ("f", "", "b"), ("use", "b", "")]
    soon = document({"a": 4, "b": 4}, ops, [0, 0], session=[{"plan": 0}, {"plan": 0}])
    late = document({"a": 4, "b": 4}, ops, [0, 0], session=[{"plan": 0, "read_after": 1}, {"plan": 0}])

    assert judge(soon).clean
    (found,) = judge(late).violations
    assert (found["kind"], found["run"], found["step"], found["other_run"], found["other_op"]) == (
        "StaleRead",
        0,
        1,
        1,
        2,
    )
    assert (found["want_run"], found["want_op"]) == (0, 0)


STATE = {"s": {"nbytes": 4, "role": "state"}, "t": 4}
NEW = {"s2": ("s", {})}


def test_3_a_state_is_dead_between_its_last_read_and_a_full_overwrite():
    ops = [("use", "s", ""), ("f", "", "t"), ("use", "t", ""), ("step", "", "s2")]

    assert judge(document(STATE, ops, [0, 0], values=NEW, session=[{"plan": 0}] * 2)).clean


def test_3_a_state_is_live_to_the_runs_end_and_from_its_start():
    before = [("f", "", "t"), ("use", "t", ""), ("use", "s", ""), ("step", "", "s2")]
    after = [("use", "s", ""), ("step", "", "s2"), ("f", "", "t"), ("use", "t", "")]

    assert "Overlap" in kinds(judge(document(STATE, before, [0, 0], values=NEW)))
    assert kinds(judge(document(STATE, after, [0, 0], values=NEW))) == ["Overlap"]
    assert kinds(judge(document(STATE, [("f", "", "t")], [0, 0]))) == ["Overlap"]


def test_3_a_state_first_overwritten_fully_is_not_live_before():
    ops = [("f", "", "t"), ("use", "t", ""), ("step", "", "s2")]

    assert judge(document(STATE, ops, [0, 0], values=NEW)).clean

    part = {"s2": ("s", {"shape": [3]})}
    assert kinds(judge(document(STATE, ops, [0, 0], values=part))) == ["Overlap"]


def test_3_results_of_one_op_overwrite_together():
    ops = [("f", "", "t"), ("use", "t", ""), ("step", "", "low high")]
    halves = {"low": ("s", {"shape": [2]}), "high": ("s", {"shape": [2], "offset": 2})}

    assert judge(document(STATE, ops, [0, 0], values=halves)).clean

    ops[2:] = [("step", "", "low"), ("step", "", "high")]
    assert kinds(judge(document(STATE, ops, [0, 0], values=halves))) == ["Overlap"]


def test_3_a_state_is_donor_where_it_ends_and_recipient_where_it_begins():
    pair = {"in_place": [[0, 0]]}
    ops = [("f", "s", "t", pair), ("step", "t", "s2", pair)]

    assert judge(document(STATE, ops, [0, 0], values=NEW, session=[{"plan": 0}] * 2)).clean

    found = judge(document(STATE, [("f", "s", "t"), ("step", "t", "s2")], [0, 0], values=NEW))
    assert kinds(found) == ["Overlap", "UnsafeInPlace", "UnsafeInPlace"]


def test_3_a_state_is_no_recipient_of_a_part():
    """Between a last read and a full overwrite `s` takes over two bytes of `t`: nothing is lost, and still no hand-over."""

    def taken(result):
        views = {"s1": ("s", {}), "part": ("s", {"shape": [2]}), "s2": ("s", {}), "s3": ("s", {})}
        ops = [
            ("step", "", "s1"),
            ("use", "s1", ""),
            ("f", "", "t"),
            ("g", "t", result, {"in_place": [[0, 0, "whole"]]}),
        ]
        return kinds(judge(document(STATE, [*ops, ("step", "", "s3")], [0, 0], values=views)))

    assert taken("s2") == []
    assert taken("part") == ["Overlap"]


def test_4_buffers_are_compared_whole():
    """Only the low half of `a` and the high half of `b` are ever used, and still they overlap; nothing read is wrong."""
    halves = {"low": ("a", {"shape": [2]}), "high": ("b", {"shape": [2], "offset": 2})}
    ops = [("f", "", "low"), ("f", "", "high"), ("use", "low high", "")]

    assert kinds(judge(document({"a": 4, "b": 4}, ops, [0, 0], values=halves))) == ["Overlap"]
    assert judge(document({"a": 4, "b": 4}, ops, [0, 4], values=halves)).clean


def test_4_between_runs_there_is_no_overlap():
    one = written({"a": 4}, [("f", "", "a"), ("use", "a", "")])
    state = written({"s": {"nbytes": 4, "role": "state"}}, [("use", "s", "")])
    runs = [{"plan": 0}, {"plan": 1}]

    assert judge(several([one, one], [(0, [0]), (1, [0])], session=runs)).clean
    assert kinds(judge(several([one, state], [(0, [0]), (1, [0])], session=runs))) == ["StaleRead"]


def test_5_a_donor_hands_over_only_where_its_segment_ends():
    pair = {"in_place": [[0, 0]]}
    ops = [("f", "", "a"), ("g", "a", "b", pair), ("use", "b", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0])).clean

    late = judge(document({"a": 4, "b": 4}, [*ops, ("use", "a", "")], [0, 0]))
    assert kinds(late) == ["Overlap", "StaleRead"]
    assert only(late, "Overlap")["steps"] == [1, 2]


def test_5_the_op_only_reads_the_donor_and_only_writes_the_recipient():
    halves = {"low": ("a", {"shape": [4]}), "high": ("a", {"shape": [4], "offset": 4}), "b2": ("b", {})}
    both = [("f", "", "low"), ("g", "low", "b high", {"in_place": [[0, 0]]}), ("use", "b", "")]
    unread = [("f", "", "low"), ("g", "low b", "b2", {"in_place": [[0, 0], [1, 0]]}), ("use", "b2", "")]

    assert kinds(judge(document({"a": 8, "b": 4}, both, [0, 0], values=halves))) == ["Overlap"]
    assert kinds(judge(document({"a": 8, "b": 4}, unread, [0, 0], values=halves))) == ["Overlap", "UninitialisedRead"]


def test_5_a_null_contract_joins_nothing_that_does_not_alias():
    """The result lies on bytes of the donor that the operand does not cover."""
    half = {"low": ("a", {"shape": [4]})}
    ops = [("f", "", "low"), ("g", "low", "b", {"in_place": None}), ("use", "b", "")]

    assert kinds(judge(document({"a": 8, "b": 4}, ops, [0, 4], values=half))) == ["Overlap"]

    ops[1] = ("g", "low", "b", {"in_place": [[0, 0]]})
    assert judge(document({"a": 8, "b": 4}, ops, [0, 4], values=half)).clean


def test_5_a_null_contract_joins_only_an_exact_alias():
    unknown = {"in_place": None}
    half = {"half": ("a", {"shape": [2]})}
    exact = judge(document({"a": 4, "b": 4}, [("f", "", "a"), ("g", "a", "b", unknown), ("use", "b", "")], [0, 0]))
    part = judge(document({"a": 4, "b": 4}, [("f", "", "half"), ("g", "half", "b", unknown)], [0, 0], values=half))

    assert (kinds(exact), [w["kind"] for w in exact.warnings]) == ([], ["AssumedInPlace"])
    assert kinds(part) == ["Overlap", "UnsafeInPlace"]


def test_6_two_that_hold_the_same_share_until_one_is_rewritten():
    ops = [("f", "", "a"), ("same", "a", "b"), ("use", "a", ""), ("use", "b", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0])).clean

    ops = [("f", "", "a"), ("same", "a", "b"), ("f", "", "b2"), ("use", "a", ""), ("use", "b2", "")]
    found = judge(document({"a": 4, "b": 4}, ops, [0, 0], values={"b2": ("b", {})}))
    assert kinds(found) == ["Overlap", "StaleRead"]
    assert only(found, "Overlap")["steps"] == [2, 3]


def test_6_a_last_read_and_a_rewrite_at_one_step_need_a_pair():
    ops = [
        ("f", "", "a"),
        ("same", "a", "b"),
        ("use", "b", ""),
        ("g", "a", "b2", {"in_place": [[0, 0]]}),
        ("use", "b2", ""),
    ]
    again = {"b2": ("b", {})}

    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], values=again)).clean

    ops[3] = ("g", "a", "b2")
    assert kinds(judge(document({"a": 4, "b": 4}, ops, [0, 0], values=again))) == ["Overlap", "UnsafeInPlace"]


def test_6_what_an_earlier_run_made_the_same_is_the_same():
    """Both states hold what run 0 gave them; in a session that begins with run 1, their contents differ."""
    two = {name: {"nbytes": 4, "role": "state"} for name in "sr"}
    make = written(two, [("f", "", "s2"), ("same", "s2", "r2")], {"s2": ("s", {}), "r2": ("r", {})})
    look = written(two, [("use", "s", ""), ("use", "r", "")])

    assert judge(several([make, look], [(0, [0, 0]), (1, [0, 0])], session=[{"plan": 0}, {"plan": 1}])).clean
    assert kinds(judge(several([look], [(0, [0, 0])]))) == ["Overlap", "StaleRead"]


def test_7_a_class_counts_once_as_the_largest():
    ops = [("f", "", "a"), ("same", "a", "b"), ("same", "b", "c"), ("use", "a b c", "")]
    found = judge(document({"a": 4, "b": 6, "c": 4}, ops, [0, 0, 0], values={"b": ("b", {"shape": [4]})}))

    assert found.clean
    assert (found.stats["lower_bound_bytes"], found.stats["bound_as_planned"], found.stats["peak_bytes"]) == (6, 6, 6)


def test_7_a_pair_counts_once_and_apart_it_does_not_lower_the_bound_as_planned():
    ops = [("f", "", "a"), ("g", "a", "b", {"in_place": [[0, 0]]}), ("use", "b", "")]
    apart = judge(document({"a": 4, "b": 4}, ops, [0, 4])).stats

    assert (apart["lower_bound_bytes"], apart["bound_as_planned"], apart["peak_bytes"]) == (4, 8, 8)


def test_7_what_is_dead_is_not_counted():
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("use", "b", ""), ("f", "", "a2"), ("use", "a2", "")]

    assert judge(document({"a": 4, "b": 4}, ops, [0, 4], values={"a2": ("a", {})})).stats["lower_bound_bytes"] == 4


def believing(ops, problem, values=None):
    problem = {"program": 0, "start": [0, 0], **problem}
    return judge(document({"a": 4, "b": 4}, ops, [0, 4], values=values, problems=[problem]))


def test_8_a_gap_may_cover_only_steps_outside_segments():
    ops = [("f", "", "a"), ("use", "a", ""), ("f", "", "b"), ("use", "b", ""), ("f", "", "a2"), ("use", "a2", "")]
    again = {"a2": ("a", {})}
    right = believing(ops, {"start": [0, 2], "stop": [6, 4], "gaps": {"0": [[2, 4]]}}, again)
    wrong = believing(ops, {"start": [0, 2], "stop": [6, 4], "gaps": {"0": [[1, 4]]}}, again)
    none = believing(ops, {"start": [0, 2], "stop": [6, 4]}, again)

    assert right.clean
    assert right.warnings == ()
    assert [(v["kind"], v["buffer"]) for v in wrong.violations] == [("LifetimeTooShort", 0)]
    assert [(w["kind"], w["buffer"]) for w in none.warnings] == [("LifetimeTooLong", 0)]


def test_8_a_missed_read_of_the_host_is_a_missing_pin():
    ops = [("f", "", "a"), ("f", "", "b"), ("use", "b", ""), ("host.read", "a", "")]

    assert kinds(believing(ops, {"stop": [4, 3]})) == []
    assert kinds(believing(ops, {"stop": [3, 3]})) == ["MissingPin"]
    assert kinds(believing([*ops[:3], ("use", "a", "")], {"stop": [3, 3]})) == ["LifetimeTooShort"]


def test_beliefs_sizes_and_pairs():
    ops = [("f", "", "a"), ("g", "a", "b", {"in_place": [[0, 0]]}), ("use", "b", "")]
    late = [*ops, ("use", "a", "")]

    assert believing(ops, {"stop": [2, 3], "may_share": [[0, 1]]}).clean
    assert kinds(believing(late, {"stop": [4, 3], "may_share": [[0, 1]]})) == ["BadShare"]
    assert kinds(believing(ops, {"stop": [2, 3], "may_share": [[1, 0]]})) == ["BadShare"]
    assert kinds(believing(ops, {"stop": [2, 3], "nbytes": [4, 3]})) == ["BadSize"]


def test_a_program_without_ops_is_judged_by_its_problem():
    problem = {"program": 0, "start": [0, 3], "stop": [4, 5]}
    two = {"a": 4, "b": 4}

    assert kinds(judge(document(two, [], [0, 2], problems=[problem]))) == ["Overlap"]
    assert judge(document(two, [], [0, 4], problems=[problem])).clean
    assert judge(document(two, [], [0, 0], problems=[{**problem, "may_share": [[0, 1]]}])).clean
    assert judge(document(two, [], [0, 0], problems=[{**problem, "gaps": {"0": [[3, 4]]}}])).clean
