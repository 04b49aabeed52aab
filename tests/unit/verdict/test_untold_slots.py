"""A slot laid wrong by a plan without a problem: one cause, named as with the default belief stated."""

import numpy as np
import pytest

from allocsim.model import Document, Event, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

CHAIN = ((("exp", "x", "h"), ("neg", "h", "y"), ("sin", "y", "z"), ("add", "z h", "o")), "o")
BOOK = [
    (0, Event.ALLOC, "x"), (1, Event.ALLOC, "h"), (1, Event.FREE, "x"), (2, Event.ALLOC, "y"), (3, Event.ALLOC, "z"),
    (3, Event.FREE, "y"), (4, Event.ALLOC, "o"), (4, Event.FREE, "z"), (4, Event.FREE, "h"), (5, Event.FREE, "o"),
]  # fmt: skip


def program(ops=CHAIN[0], out=CHAIN[1], in_place=None):
    b = ProgramBuilder("step")
    for name in dict.fromkeys(("x", *(name for _, _, made in ops for name in made.split()))):
        b.tensor(name, "f32", (64,))
    b.op("host.write", (), ("x",))
    for kind, read, made in ops:
        b.op(kind, read.split(), made.split(), in_place=in_place)
    b.op("host.read", (out,), ())
    return b.build()


def named(made, slots, *, problem=None, book=()):
    index = {name: number for number, name in enumerate(made.buffers.names)}
    events = np.array([(step, what, index[name]) for step, what, name in book], dtype=np.int64).reshape(-1, 3)
    plan = plan_of(made, slots, problem=problem, events=events)
    return [
        (cause.class_, cause.party, made.buffers.names[cause.change.buffer])
        for cause in judge(Evidence(document=Document.of(plan))).causes
    ]


SHIFTED = {"x": 0, "h": 256, "y": 512, "z": 384, "o": 768}
"""`z` shifted by half a slot onto `h`, which is read later, and onto its own operand."""


@pytest.mark.parametrize("told", ["nothing", "an empty problem", "a book"])
def test_one_shifted_slot_is_one_cause_whatever_was_told(told):
    made = program()
    problem = Problem.of(made) if told == "an empty problem" else None
    assert named(made, SHIFTED, problem=problem, book=BOOK if told == "a book" else ()) == [("C12", "plan", "z")]


def test_one_slot_over_two_buffers_that_are_read_later_is_the_slots():
    made = program((("exp", "x", "a"), ("exp", "x", "b"), ("sin", "x", "t"), ("add", "a b t", "o")))
    slots = {"x": 0, "a": 256, "b": 512, "t": 384, "o": 768}
    assert named(made, slots) == [("C12", "plan", "t")]


def test_one_slot_over_one_buffer_that_is_read_later_is_a_missed_reader():
    assert named(program(), SHIFTED | {"z": 256}) == [("C01", "plan", "h")]


def test_what_the_planners_own_book_keeps_was_not_let_go_too_early():
    made = program((("f", "x", "a"), ("h", "x", "b"), ("g", "a b", "o")))
    book = [(0, Event.ALLOC, "x"), (1, Event.ALLOC, "a"), (2, Event.ALLOC, "b"), (3, Event.ALLOC, "o")]
    assert named(made, {"x": 0, "a": 256, "b": 384, "o": 640}, book=book) == [("C12", "plan", "b")]


@pytest.mark.parametrize("pairs", [((0, 0),), ((0, 0, "bytes"),), None], ids=["exact", "bytes", "nobody knows"])
@pytest.mark.parametrize("at", [64, 128])
def test_an_op_in_place_at_another_address_used_no_pair(pairs, at):
    made = program((("f", "x", "a"),), "a", in_place=pairs)
    assert named(made, {"x": 0, "a": at}) == [("C12", "plan", "a")]


def test_a_cause_strikes_first_where_it_did_harm():
    """A believed pair is at no place; the op that it misled is."""
    made = program((("mul", "x x", "a"),), "a", in_place=((0, 0),))
    plan = plan_of(made, {"x": 0, "a": 0}, problem=Problem.of(made, may_share=[(0, 1)], start=[0, 1], stop=[2, 3]))
    (cause,) = judge(Evidence(document=Document.of(plan))).causes
    assert (cause.class_, cause.first.op) == ("C03", 1)


def test_an_op_in_place_at_one_address_used_a_pair():
    assert named(program((("f", "x", "a"),), "a", in_place=()), {"x": 0, "a": 0}) == [("C03", "plan", "x")]
