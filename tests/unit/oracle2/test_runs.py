"""Sentences 15 and 16: runs that wait for few, reads that come late; and races within a run."""

from oracle2 import judge
from oracle2.brief import document, kinds, only, several
from oracle2.brief import program as written

BODY = [("host.write", "", "x"), ("f", "x", "y"), ("host.read", "y", "")]
TWO = {"x": 4, "y": 4}


def test_15_runs_that_do_not_wait_race_over_what_they_share():
    waits = judge(document(TWO, BODY, [0, 4], session=[{"plan": 0}, {"plan": 0}]))
    loose = judge(document(TWO, BODY, [0, 4], session=[{"plan": 0}, {"plan": 0, "after": []}]))

    assert waits.clean
    assert set(kinds(loose)) == {"Race"}
    assert {(v["run"], v["other_run"], v["in_apart"]) for v in loose.violations} == {(1, 0, False)}
    assert {(v["op"], v["other_op"], v["buffer"], v["other_buffer"]) for v in loose.violations} == {
        *((0, 0, 0, 0), (0, 1, 0, 0), (1, 0, 0, 0)),
        *((1, 1, 1, 1), (1, 2, 1, 1), (2, 1, 1, 1)),
    }


def test_15_runs_of_two_plans_in_memory_of_their_own_do_not():
    made = written(TWO, BODY)

    assert judge(several([made], [(0, [0, 4]), (0, [8, 12])], session=[{"plan": 0}, {"plan": 1, "after": []}])).clean


def test_15_waiting_is_transitive():
    session = [{"plan": 0}, {"plan": 0, "after": [0]}, {"plan": 0, "after": [1]}]
    forked = [{"plan": 0}, {"plan": 0, "after": [0]}, {"plan": 0, "after": [0]}]

    assert judge(document(TWO, BODY, [0, 4], session=session)).clean
    assert {(v["run"], v["other_run"]) for v in judge(document(TWO, BODY, [0, 4], session=forked)).violations} == {
        (2, 1)
    }


def test_15_buffers_apart_are_those_of_the_last_run_waited_for_or_fresh():
    """Run 2 leaves out the upload: it relies on run 0, for which it waits, and not on run 1 in between."""
    first, second = {"plan": 0}, {"plan": 0, "after": [], "skip": [0]}
    fresh = judge(document(TWO, BODY, [0, 4], session=[first, second]))

    assert ("UninitialisedRead", 1) in {(v["kind"], v["run"]) for v in fresh.violations}

    session = [{"plan": 0}, {"plan": 0, "after": []}, {"plan": 0, "after": [0], "skip": [0]}]
    found = judge(document(TWO, BODY, [0, 4], session=session))
    (stale,) = [v for v in found.violations if v["kind"] == "StaleRead"]
    assert (stale["run"], stale["other_run"], stale["want_run"]) == (2, 1, 0)
    assert [(w["kind"], w["run"]) for w in found.warnings] == [("HistoryRead", 2)]


def test_15_a_run_waited_for_through_another_is_the_one_whose_memory_is_found():
    """Run 2 names run 1 alone, which is of another program; its input is that of run 0."""
    other = written({"z": 4}, [("f", "", "z")])
    session = [{"plan": 0}, {"plan": 1, "after": [0]}, {"plan": 0, "after": [1], "skip": [0]}]

    assert judge(several([written(TWO, BODY), other], [(0, [0, 4]), (1, [8])], session=session)).clean


def test_15_a_state_is_shared_apart_too():
    made = written({"s": {"nbytes": 4, "role": "state"}}, [("step", "", "s2"), ("use", "s2", "")], {"s2": ("s", {})})
    found = judge(several([made], [(0, [0])], session=[{"plan": 0}, {"plan": 0, "after": []}]))

    assert {v["kind"] for v in found.violations} == {"Race"}
    assert {v["in_apart"] for v in found.violations} == {True}


def test_16_a_late_read_wants_its_own_and_finds_what_is_there_late():
    def read_late(slots):
        session = [{"plan": 0, "read_after": 1}, {"plan": 1}]
        return judge(several([written(TWO, BODY)], [(0, slots), (0, [16, 20])], session=session))

    assert read_late([0, 4]).clean
    found = only(read_late([0, 20]), "StaleRead")
    assert (found["run"], found["op"], found["other_run"], found["want_run"]) == (0, 2, 1, 0)


def test_16_a_late_read_comes_before_the_runs_that_wait_for_that_run():
    """Run 2 rewrites what run 0's host reads after run 1: in order if it waits for run 1, a race if only for run 0."""
    session = [{"plan": 0, "read_after": 1}, {"plan": 1}, {"plan": 0}]
    plans = [(0, [0, 4]), (0, [16, 20])]

    assert judge(several([written(TWO, BODY)], plans, session=session)).clean

    session[2] = {"plan": 0, "after": [0]}
    session[1] = {"plan": 1, "after": [0]}
    found = judge(several([written(TWO, BODY)], plans, session=session))
    assert kinds(found) == ["Race"]
    race = found.violations[0]
    assert (race["run"], race["op"], race["other_run"], race["other_op"], race["in_apart"]) == (2, 1, 0, 2, True)


def test_16_a_late_read_is_ordered_by_the_run_it_waits_for_alone():
    """Run 3 runs beside all others in memory of its own, so that the order of runs is no longer one line."""
    session = [{"plan": 0, "read_after": 1}, {"plan": 1}, {"plan": 0}, {"plan": 2, "after": []}]
    plans = [(0, [0, 4]), (0, [16, 20]), (0, [32, 36])]

    assert judge(several([written(TWO, BODY)], plans, session=session)).clean


def test_16_a_late_read_comes_after_a_run_that_does_not_wait_for_its_own():
    """Run 1 rewrites `a` at any time as far as run 0's writer goes, but before run 0's host reads."""
    one = written({"a": 4}, [("f", "", "a"), ("host.read", "a", "")])
    other = written({"z": 4}, [("f", "", "z")])
    session = [{"plan": 0, "read_after": 1}, {"plan": 1, "after": []}]
    found = judge(several([one, other], [(0, [0]), (1, [0])], session=session))

    assert kinds(found) == ["Race", "StaleRead"]
    assert (only(found, "Race")["other_run"], only(found, "Race")["other_op"]) == (0, 0)


STREAMS = {"streams": ["x", "y"]}


def test_streams_race_over_reused_bytes_and_a_wait_orders_them():
    ops = [
        ("f", "", "a"),
        ("use", "a", "", {"stream": 1, "after": [0]}),
        ("f", "", "b"),
        ("use", "b", ""),
    ]
    found = judge(document({"a": 4, "b": 4}, ops, [0, 0], more=STREAMS))

    assert kinds(found) == ["Race"]
    assert (found.violations[0]["op"], found.violations[0]["other_op"], found.violations[0]["in_apart"]) == (
        2,
        1,
        False,
    )

    ops[2] = ("f", "", "b", {"after": [1]})
    assert judge(document({"a": 4, "b": 4}, ops, [0, 0], more=STREAMS)).clean


def test_a_race_that_needs_no_plan_exists_apart():
    ops = [("f", "", "a"), ("use", "a", "", {"stream": 1})]

    assert only(judge(document({"a": 4}, ops, [0], more=STREAMS)), "Race")["in_apart"] is True
