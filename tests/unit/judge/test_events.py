"""Events: what a planner says it did, against itself and its slots."""

import numpy as np
import pytest

from allocsim.judge.fast import check, s_events
from allocsim.model import Arena, Document, Event, Plan
from allocsim.programs.builder import ProgramBuilder, plan_of

A, F = Event.ALLOC, Event.FREE


@pytest.fixture
def program(tiny):
    """x -> y in place, then z beside it."""
    b = tiny()
    x = b.uploaded("x")
    y = b.run((x,), "y", in_place=((0, 0),))
    b.run((y,), "z")
    return b.build()


def judged(program, events, slots=(0, 8, 16)):
    """Return (kind, step, buffer, other buffer) of what is wrong with events; their steps are their places in the list."""
    rows = np.array([(step, event, buffer) for step, (event, buffer) in enumerate(events)], dtype=np.int64).reshape(
        -1, 3
    )
    report = check(Document.of(plan_of(program, slots, events=rows)))
    found = report.of_kind("DoubleFree", "FreeOfUnallocated", "AllocOverLive")
    assert all(v.plan == 0 and v.op is None and v.run is None for v in found)
    return [(v.kind, v.step, v.buffer, v.other_buffer) for v in found]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([(A, 0), (F, 0), (A, 0), (F, 0)], []),
        ([(A, 0), (F, 0), (F, 0)], [("DoubleFree", 2, 0, None)]),
        ([(F, 0)], [("FreeOfUnallocated", 0, 0, None)]),
        ([(F, 0), (F, 0)], [("FreeOfUnallocated", 0, 0, None), ("FreeOfUnallocated", 1, 0, None)]),
        ([(A, 0), (A, 0)], [("AllocOverLive", 1, 0, 0)]),
        ([(A, 0), (A, 1), (A, 2)], []),
    ],
    ids=str,
)
def test_events_are_held_against_themselves(program, events, expected):
    assert judged(program, events) == expected


def test_an_allocation_over_live_bytes_names_what_is_there(program):
    assert judged(program, [(A, 0), (A, 2)], [0, 8, 4]) == [("AllocOverLive", 1, 2, 0)]
    assert judged(program, [(A, 0), (F, 0), (A, 2)], [0, 8, 4]) == []
    assert judged(program, [(A, 0), (A, 1), (A, 2)], [0, 8, 4]) == [
        ("AllocOverLive", 2, 2, 0),
        ("AllocOverLive", 2, 2, 1),
    ]


def test_a_buffer_that_outlives_one_laid_over_it_is_still_there(program):
    events = [(A, 0), (A, 2), (F, 2), (A, 2)]
    assert judged(program, events, [0, 8, 0]) == [("AllocOverLive", 1, 2, 0), ("AllocOverLive", 3, 2, 0)]


@pytest.mark.parametrize("rest", [[], [(F, 0)], [(F, 0), (F, 1)], [(F, 1), (A, 2)]], ids=str)
def test_a_donor_hands_its_bytes_over(program, rest):
    assert judged(program, [(A, 0), (A, 1), *rest], [0, 0, 0]) == []


def test_a_donor_that_handed_its_bytes_over_is_freed_once(program):
    assert judged(program, [(A, 0), (A, 1), (F, 0), (F, 0)], [0, 0, 8]) == [("DoubleFree", 3, 0, None)]


def test_bytes_handed_over_are_the_recipients(program):
    assert judged(program, [(A, 0), (A, 1), (F, 0), (A, 2)], [0, 0, 0]) == [("AllocOverLive", 3, 2, 1)]


@pytest.mark.parametrize(("offset", "second", "kinds"), [([0, 24, 8], 2, ["AllocOverLive"]), ([0, 8, 24], 1, [])])
def test_slots_count_with_their_own_sizes(program, offset, second, kinds):
    """A slot of 9 bytes reaches into the next one; that is x's recipient in place, which may take its bytes, or it is not."""
    plan = Plan(
        program=program,
        arena=np.zeros(3, dtype=np.int32),
        offset=np.array(offset),
        nbytes=np.array([9, 8, 8]),
        events=np.array([(0, A, 0), (1, A, second)]),
    )
    assert [v.kind for v in check(Document.of(plan)).violations] == kinds


def test_without_ops_and_without_a_belief_no_two_buffers_that_are_held_may_share_bytes():
    b = ProgramBuilder("no ops", arenas=(Arena(name="a", alignment=1),))
    for name in "ab":
        b.buffer(name, 64)
    rows = [(0, Event.ALLOC, 0), (1, Event.ALLOC, 1), (2, Event.FREE, 0), (3, Event.FREE, 1)]
    made = plan_of(b.build(), {0: 0, 1: 32}, events=np.array(rows, dtype=np.int64))

    (found,) = check(Document.of(made)).of_kind("AllocOverLive")
    assert {found.buffer, found.other_buffer} == {0, 1}


def test_allocations_over_live_ones_that_are_not_listed_are_counted(tiny, monkeypatch):
    """Three buffers at one address meet in three pairs; with two listed the count is a lower bound, and no lower."""
    monkeypatch.setattr(s_events, "COUNT_LIMIT", 1)
    rows = np.array([(step, A, step) for step in range(3)], dtype=np.int64)
    b = tiny()
    b.run((b.run((b.uploaded("x"),), "y"),), "z")
    report = check(Document.of(plan_of(b.build(), (0, 0, 0), events=rows)))
    assert (report.counts["AllocOverLive"], report.truncated) == (3, True)


def test_a_single_byte_is_bytes_too_and_no_bytes_are_not(tiny):
    for nbytes, expected in ((1, [("AllocOverLive", 1, 1, 0)]), (0, [])):
        b = tiny()
        for name in "xy":
            b.buffer(name, nbytes)
        assert judged(b.build(), [(A, 0), (A, 1)], [0, 0]) == expected
