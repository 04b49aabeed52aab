"""Putting programs on streams: the waits given suffice, none of them is idle, and the orders drawn are legal."""

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from orders import is_legal, waits_of

from allocsim.errors import ModelError
from allocsim.judge.fast import check
from allocsim.model import HOST_READ, HOST_WRITE, Document, Program
from allocsim.programs.builder import ProgramBuilder
from allocsim.programs.placed_plans import placed
from allocsim.programs.streams import (
    branches,
    on_streams,
    preferring,
    shuffled,
    with_waits,
    without_wait,
)

STREAMS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


def races(program: Program, made=None) -> int:
    """Count the races of a program, with every buffer apart or under a plan."""
    made = strategies.spread(program) if made is None else placed(program, made)
    return check(Document.of(made)).counts.get("Race", 0)


def dealt(program: Program, numbers) -> list[int]:
    """Deal the ops out to streams, over and over."""
    return [numbers[step % len(numbers)] for step in range(len(program.ops))]


@given(strategies.programs(defects=True), STREAMS)
def test_no_race_apart_whatever_the_streams(program, numbers):
    assert not races(on_streams(program, dealt(program, numbers)))


@given(strategies.programs(), STREAMS)
def test_no_race_under_the_plan_that_the_waits_are_for(program, numbers):
    made = strategies.planned_soundly(
        program, strategies.Recipes(actions=[], in_place=True, apart=False, kept=[]), reserved=0
    )
    assert not races(on_streams(program, dealt(program, numbers), plan=made), made)


@given(strategies.programs(), STREAMS, st.data())
def test_every_wait_is_needed_where_values_are_dense(program, numbers, data):
    """Waits are decided by hulls; where these are the bytes, a wait less is a race more."""
    spread = on_streams(program, dealt(program, numbers))
    waits = waits_of(spread)
    if not waits or not program.values.dense.all():
        return
    op, wait = data.draw(st.sampled_from(waits))
    broken = without_wait(spread, op, wait)
    assert races(broken)
    assert waits_of(with_waits(broken, [(op, wait)])) == waits


@settings(max_examples=25)
@given(strategies.programs(), STREAMS, st.integers(0, 9))
def test_orders_are_legal(program, numbers, seed):
    spread = on_streams(program, dealt(program, numbers))
    assert is_legal(spread, list(shuffled(spread, seed)))
    assert shuffled(spread, seed) == shuffled(spread, seed)
    for stream in range(len(spread.streams)):
        assert is_legal(spread, list(preferring(spread, stream)))


@given(strategies.programs(), st.integers(1, 4))
def test_branches_name_a_stream_for_each_op(program, count):
    placed = branches(program, count)
    assert len(placed) == len(program.ops)
    assert set(placed) <= set(range(count))
    assert not races(on_streams(program, placed))


def heads(count=3) -> Program:
    """x is projected `count` times, each is squared, all are added up."""
    b = ProgramBuilder("heads")
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    squares = []
    for n in range(count):
        q, s = b.tensor(f"q{n}", "f32", (4,)), b.tensor(f"s{n}", "f32", (4,))
        b.op("proj", (x,), (q,))
        b.op("sqr", (q,), (s,), in_place=((0, 0),))
        squares.append(s)
    y = b.tensor("y", "f32", (4,))
    b.op("sum", squares, (y,))
    b.op(HOST_READ, (y,), ())
    return b.build()


def test_independent_branches_run_side_by_side_and_meet_again():
    placed = branches(heads(), 3)
    assert [len({placed[1 + 2 * n], placed[2 + 2 * n]}) for n in range(3)] == [1, 1, 1]
    assert len({placed[1], placed[3], placed[5]}) == 3
    assert waits_of(on_streams(heads(), placed)) == ((3, 0), (5, 0), (7, 2), (7, 4))


def test_the_stream_preferred_runs_as_far_as_it_can():
    program = on_streams(heads(), branches(heads(), 3))
    assert preferring(program, 1)[:3] == (0, 3, 4)


@pytest.mark.parametrize(
    ("ask", "rule"),
    [
        (lambda p: branches(p, 0), "streams: 0; at least 1 is needed"),
        (lambda p: on_streams(p, [0]), "stream: has 1 entries; the program has 9 ops"),
        (lambda p: without_wait(p, 3, 0), r"ops\[3\]\.after: op 0 is not among them"),
        (lambda p: with_waits(p, [(3, 3)]), r"ops\[3\]\.after: op 3 is not earlier than op 3"),
        (
            lambda p: on_streams(p, [0] * 9, plan=strategies.spread(heads(1))),
            "plan: has 4 slots; the program has 8 buffers",
        ),
    ],
)
def test_misuse_is_named(ask, rule):
    with pytest.raises(ModelError, match=rule):
        ask(heads())
