"""The judge's steps for what may be wrong: where they are spent, that is said, and nothing is called clean."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.errors import ModelError
from allocsim.judge import fast
from allocsim.judge.fast import check, s_overlap
from allocsim.judge.fast.intervals import conflicts
from allocsim.judge.fast.selector import PLAIN
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of


def _session(runs: int, *, late: bool, history: bool = False) -> Document:
    """Runs that write x and y and read both; where `late`, y lies on x; with `history`, all but the first leave out an
    upload and read what the first run has.
    """
    b = ProgramBuilder("p")
    x, y = (b.value(name, b.buffer(name, 8), "f32", (2,)) for name in "xy")
    b.op("f", (), (x,))
    b.op("g", (), (y,))
    b.op("h", (x, y), ())
    if history:
        u = b.value("u", b.buffer("u", 8), "f32", (2,))
        b.op("host.write", (), (u,))
        b.op("h", (u,), ())
    plan = plan_of(b.build(), {0: 0, 1: 0 if late else 64, 2: 128} if history else {0: 0, 1: 0 if late else 64})
    if history:
        runs_of = [Run(program=plan.program, plan=plan, skip=(3,) if number else ()) for number in range(runs)]
        return replace(Document.of(plan), session=tuple(runs_of))
    return replace(Document.of(plan), session=tuple([Run(program=plan.program, plan=plan)] * runs))


def test_a_right_session_takes_no_steps_for_its_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without machine code all is replayed, and that takes a step for ten accesses."""
    monkeypatch.setattr(fast, "WORK", 50)
    assert check(_session(100, late=False), plain=True).unexamined == ()


def test_what_is_not_examined_is_said_and_the_rest_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs that are looked at are judged as ever; those that are not are named."""
    document = _session(200, late=True)
    whole = check(document, unbounded=True)
    assert (whole.counts["StaleRead"], whole.unexamined, whole.truncated) == (200, (), False)
    monkeypatch.setattr(fast, "WORK", 500)
    cut = check(document)
    (said,) = cut.unexamined
    looked = cut.counts["StaleRead"]
    assert said == f"what reads find from run {looked} on, of 200 runs"
    assert 0 < looked < 200
    assert cut.truncated
    assert not cut.clean
    late = [v for v in whole.violations if v.kind == "StaleRead"]
    assert [v for v in cut.violations if v.kind == "StaleRead"] == late[:looked]
    assert check(document) == cut


def test_where_nothing_was_found_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not examined is never called clean."""
    document = _session(100, late=False, history=True)
    assert check(document).clean
    monkeypatch.setattr(fast, "WORK", 500)
    with pytest.raises(
        ModelError, match="no verdict: no violation was found, but these parts were not examined: what reads find"
    ):
        check(document)
    assert check(document, unbounded=True).clean


def test_a_session_with_more_overlapping_runs_than_are_supported_is_refused() -> None:
    """In one line, before any pair is looked at."""
    whole = _session(1, late=False)
    run = whole.runs[0]
    many = [run, *(Run(program=run.program, plan=run.plan, after=()) for _ in range(1 << 15))]
    with pytest.raises(ModelError, match="32769 runs are given; at most 32768 runs are supported if some overlap"):
        check(replace(whole, session=tuple(many)))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_first_pairs_are_listed_whatever_the_cap(data: st.DataObject) -> None:
    """Those that are listed of many are the first of all."""
    count = data.draw(st.integers(2, 40))
    number = st.lists(st.integers(0, 12), min_size=count, max_size=count)
    start, low = (np.array(data.draw(number), dtype=np.int64) for _ in range(2))
    stop, high = (column + 1 + np.array(data.draw(number), dtype=np.int64) for column in (start, low))
    cap = data.draw(st.integers(0, 60))
    every = conflicts(start, stop, low, high, cap=10_000, selector=PLAIN)
    some = conflicts(start, stop, low, high, cap=cap, selector=PLAIN)
    key = lambda pair: (start[pair[1]], pair[1], start[pair[0]], pair[0])  # noqa: E731
    pairs = sorted(zip(every.left.tolist(), every.right.tolist(), strict=True), key=key)
    assert sorted(zip(some.left.tolist(), some.right.tolist(), strict=True), key=key) == pairs[:cap]
    assert (some.total > cap) == (every.total > cap)


def test_overlaps_of_all_plans_together_are_counted_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first plans have leaves the later ones as much less to list; the report says that there may be more."""
    b = ProgramBuilder("p")
    values = [b.value(f"v{n}", b.buffer(f"v{n}", 8), "f32", (2,)) for n in range(6)]
    for value in values:
        b.op("f", (), (value,))
    b.op("g", tuple(values), ())
    plans = [plan_of(b.build(), dict.fromkeys(range(6), place)) for place in (0, 64)]
    runs = tuple(Run(program=plan.program, plan=plan) for plan in plans)
    document = replace(Document.of(*plans), session=runs)
    assert check(document, limit=1).counts["Overlap"] == 2 * 15
    monkeypatch.setattr(s_overlap, "COUNT_LIMIT", 20)
    cut = check(document, limit=1)
    assert 20 <= cut.counts["Overlap"] < 30
    assert cut.truncated


def test_pairs_that_may_meet_take_no_room_from_those_that_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain in place meets at each op, which is allowed; behind it two buffers overlap."""
    b = ProgramBuilder("p")
    values = [b.value(f"v{n}", b.buffer(f"v{n}", 8), "f32", (2,)) for n in range(8)]
    b.op("f", (), (values[0],))
    for before, after in pairwise(values[:6]):
        b.op("f", (before,), (after,), in_place=((0, 0),))
    b.op("g", (values[5],), tuple(values[6:]))
    b.op("h", tuple(values[6:]), ())
    plan = plan_of(b.build(), {**dict.fromkeys(range(6), 0), 6: 64, 7: 64})
    monkeypatch.setattr(s_overlap, "COUNT_LIMIT", 0)
    assert check(Document.of(plan), limit=1).counts["Overlap"] == 1
