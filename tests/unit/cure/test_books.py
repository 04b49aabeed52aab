"""A planner's book under a mended belief, who lies over whom, what peaks grow by, and which order an allocator went by."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.cure.drafting import apart_already, partners_at
from allocsim.cure.mending import with_book
from allocsim.cure.pricing import grown
from allocsim.cure.room import rooms_of
from allocsim.model import Document, Event, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict.stream_order import StreamBook
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
X, A, B, C = range(4)
GIVEN, BACK = int(Event.ALLOC), int(Event.FREE)
BOOK = [
    (0, GIVEN, X),
    (1, GIVEN, A),
    (1, BACK, X),
    (2, GIVEN, B),
    (2, BACK, A),
    (3, GIVEN, C),
    (3, BACK, B),
    (4, BACK, C),
]


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({}, {}),
        ({"a": (1, 4)}, {(2, BACK, A): (3, BACK, A)}),
        ({"a": (1, 2)}, {}),
        ({"b": (0, 4)}, {(2, GIVEN, B): (0, GIVEN, B)}),
        ({"b": (3, 4)}, {}),
        ({"pinned": "a c"}, {(2, BACK, A): (4, BACK, A)}),
    ],
    ids=["the same", "later", "earlier", "from the start on", "from later on", "pinned"],
)
def test_a_book_gives_a_buffer_its_bytes_for_all_its_believed_life(change, changed):
    """Of one step, what grew is given out before all else and taken back after it; nothing else moves."""
    told = belief(MADE)
    planned = plan(MADE, "", told, events=np.array(BOOK))
    found = [tuple(row) for row in with_book(planned, belief(MADE, **change)).events.tolist()]
    moved = {*changed.values()}
    rank = {row: (row[1] == BACK) - (row[1] == GIVEN) for row in moved}
    expected = sorted((changed.get(row, row) for row in BOOK), key=lambda row: (row[0], rank.get(row, 0)))
    assert sorted(found) == sorted(expected)
    for row in moved:
        beside = [other for other in found if other[0] == row[0]]
        assert beside[0 if row[1] == GIVEN else -1] == row
    kept = [row for row in found if row not in moved]
    assert kept == [row for row in BOOK if row in kept]


def test_without_a_belief_or_a_book_there_is_nothing_to_mend():
    bare = plan(MADE, "", events=np.array(BOOK))
    assert with_book(bare, belief(MADE)) is bare
    bookless = plan(MADE, "", belief(MADE))
    assert with_book(bookless, belief(MADE, a=(1, 4))) is bookless


ROWS = st.lists(
    st.tuples(st.sampled_from(("own", 0, 4, 6, 9)), st.integers(0, 6), st.integers(0, 4), st.integers(0, 4)),
    min_size=2,
    max_size=5,
)


@settings(max_examples=60)
@given(ROWS)
def test_who_lies_over_whom_and_who_lies_apart(rows):
    b = ProgramBuilder("rows")
    for number, (_, nbytes, *_) in enumerate(rows):
        b.buffer(f"b{number}", nbytes, alignment=1)
    planned = plan_of(b.build(), [row[0] for row in rows])
    room = replace(
        rooms_of(Document.of(planned))[0],
        start=np.array([row[2] for row in rows]),
        stop=np.array([row[2] + row[3] for row in rows]),
    )
    held = [set() if place == "own" else set(range(place, place + nbytes)) for place, nbytes, *_ in rows]
    life = [set(range(start, start + length)) for *_, start, length in rows]
    for one in range(len(rows)):
        over = {n for n in range(len(rows)) if n != one and held[n] & held[one] and life[n] & life[one]}
        if rows[one][0] != "own" and life[one] and held[one]:
            assert {n for n in partners_at(room, one) if life[n]} == over
        for other in range(len(rows)):
            if one != other and rows[one][1] and rows[other][1]:
                assert apart_already(room, (one, other)) is not bool(held[one] & held[other])


def test_peaks_grow_by_the_sum_over_plans_and_a_plan_made_anew_is_compared_with_what_it_replaces():
    small, large, huge = (plan(MADE, f"x=0 a=64 b=128 c={at}") for at in (192, 256, 448))
    assert grown(Document.of(small), Document.of(large)) == 64
    assert grown(Document.of(large), Document.of(small)) == -64
    two = Document.of(Run.of(small), Run.of(large))
    assert grown(two, Document.of(Run.of(large), Run.of(huge))) == 64 + 192
    one = Document.of(Run.of(small), Run.of(small))
    anew = replace(one, plans=(small, huge), session=(Run.of(small), Run.of(huge)))
    assert grown(one, anew) == 256


STREAMS = "x = host.write; a = f x ~1; b = g a ~1; c = h x; d = g c; host.read d ^2"


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        ([(0, GIVEN, 1), (1, BACK, 1), (2, GIVEN, 3)], False),
        ([(0, GIVEN, 1), (1, GIVEN, 3), (2, BACK, 1)], False),
        ([(0, GIVEN, 1), (2, GIVEN, 3)], False),
        ([(0, GIVEN, 1), (2, BACK, 1)], False),
    ],
    ids=["no order of streams", "given out before", "never back", "never given out"],
)
def test_an_allocator_kept_its_rule_only_where_bytes_came_back_before_they_were_given_out(events, kept):
    made = program(STREAMS)
    book = StreamBook.of(plan(made, "", events=np.array(events)), made)
    assert book.kept_rule(1, 3) is kept


def test_in_the_order_of_one_stream_the_rule_is_kept():
    book = StreamBook.of(plan(MADE, "", events=np.array(BOOK)), MADE)
    assert book.kept_rule(X, B)
    assert book.kept_rule(A, C)
    assert not book.kept_rule(B, A)
    assert not book.kept_rule(A, B)  # b is made by the op that reads a
    assert book.uses == {X: [0, 1], A: [1, 2], B: [2, 3], C: [3, 4]}
    assert StreamBook.of(plan(MADE, "", belief(MADE), events=np.array(BOOK)), MADE) is None
    assert StreamBook.of(plan(MADE, ""), MADE) is None
