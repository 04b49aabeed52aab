"""Who allowed two buffers to lie over each other: what a belief covers, and who reaches whom only by its size."""

import numpy as np
import pytest

from allocsim.cure.changes import Change
from allocsim.model import Document, Event, Role
from allocsim.verdict import judge
from allocsim.verdict.blame import Pair, allowed_by, life_mend
from allocsim.verdict.causes import causes_of
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.evidence import Evidence
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g x; c = h b a; host.read c")
X, A, B, C = range(4)


def dossier_of(*plans):
    return Dossier(Evidence(document=Document.of(*plans)))


def charged(*plans):
    return {cause.change for cause in causes_of(Document.of(*plans))}


def test_of_two_wrong_lives_that_would_each_do_the_one_read_late_is_charged():
    """Each life, once right, meets the other as it is believed; x is read after a took its bytes."""
    made = program("x = host.write; a = f; b = g a; c = h x b; host.read c")
    late, other = causes_of(Document.of(plan(made, "x=0 a=0 b=64 c=128", belief(made, x=(0, 2), a=(2, 3)))))
    assert {v.kind for v in late.violations} == {"LifetimeTooShort", "Overlap", "StaleRead"}
    assert (late.change.buffer, other.change.buffer) == (0, 1)
    assert [v.kind for v in other.violations] == ["LifetimeTooShort"]


@pytest.mark.parametrize(
    ("start", "stop", "gaps", "kind"),
    [
        (1, 4, (), "pin"),
        (1, 4, ((3, 3),), "pin"),
        (1, 4, ((2, 3),), "lifetime"),
        (1, 4, ((1, 2), (1, 1)), "lifetime"),
        (0, 4, ((0, 1),), "pin"),
        (1, 3, ((4, 5),), "lifetime"),
        (1, 4, ((2, 3), (2, 4)), "lifetime"),
        (1, 4, ((4, 5),), "pin"),
    ],
)
def test_a_pin_is_what_is_missing_where_the_life_without_the_hosts_read_is_believed(start, stop, gaps, kind):
    """y is written at op 1, read at op 3 and by the host at op 4, which nobody believes; a gap of no step parts nothing."""
    made = program("x = host.write; y = f x; z = g x; w = h y; host.read y")
    dossier = dossier_of(plan(made, "", belief(made, pinned="", y=(start, stop), gaps={1: gaps})))
    assert life_mend(dossier, 0, 1) == Change(kind=kind, problem=0, buffer=1)


@pytest.mark.parametrize(
    ("partner", "kind"), [([(0, 1)], "pin"), ([(2, 3)], "lifetime"), ([(0, 1), (3, 4)], "lifetime"), ([], "lifetime")]
)
def test_a_pin_is_charged_as_well_where_the_life_without_the_hosts_read_keeps_the_partner_out(partner, kind):
    made = program("x = host.write; y = f x; z = g x; w = h y; host.read y")
    dossier = dossier_of(plan(made, "", belief(made, pinned="", y=(2, 3))))
    assert life_mend(dossier, 0, 1, partner) == Change(kind=kind, problem=0, buffer=1)


def test_of_two_lives_that_are_both_wrong_none_of_no_step_is_kept_out():
    made = program("x = host.write; y = f x; z = g x; w = h y; host.read y")
    dossier = dossier_of(plan(made, "", belief(made, pinned="", y=(1, 2), z=(2, 2))))
    pair = Pair(plan=0, program=0, buffer=1, other=2)
    assert [(mend.kind, mend.buffer) for mend in allowed_by(dossier, pair, late={1}, kinds={"StaleRead"})] == [
        ("lifetime", 1),
        ("lifetime", 2),
    ]


@pytest.mark.parametrize(
    ("nbytes", "kind"),
    [((64, 48, 64, 64), "lifetime"), ((64, 33, 64, 64), "lifetime"), ((64, 32, 64, 64), "size")],
    ids=["reaches it", "by one byte", "ends before it"],
)
def test_a_size_is_charged_only_where_as_many_bytes_as_believed_do_not_reach_the_other(nbytes, kind):
    """b lies 32 bytes above a, and a is needed after b is written, which was not believed."""
    planned = plan(MADE, "x=0 a=128 b=160 c=256", belief(MADE, a=(1, 2), nbytes=nbytes))
    pair = Pair(plan=0, program=0, buffer=A, other=B)
    assert allowed_by(dossier_of(planned), pair, late={A}, kinds={"StaleRead"}) == (
        Change(kind=kind, problem=0, buffer=A),
    )


GIVEN, BACK = Event.ALLOC, Event.FREE


def booked(*rows, told=None, slots="x=0 a=64 b=128 c=192", **columns):
    return plan(MADE, slots, told, events=np.array(rows), **columns)


def test_an_event_that_gives_back_what_is_rightly_believed_needed_is_the_books():
    assert charged(booked((1, GIVEN, A), (1, BACK, A), told=belief(MADE))) == {Change(kind="events", plan=0, buffer=A)}


def test_an_event_that_gives_back_where_a_wrong_life_ends_comes_of_that_life():
    """`c` is believed to end before the host reads it, though pinned: what is pinned lives on."""
    told = belief(MADE, pinned="a", a=(1, 2))
    assert charged(booked((1, GIVEN, A), (1, BACK, A), told=told)) == {Change(kind="lifetime", problem=0, buffer=A)}
    early = booked((0, GIVEN, A), (0, BACK, A), told=told)
    assert Change(kind="events", plan=0, buffer=A) in charged(early)


CHAIN = program("x = host.write; a = f x; b = g a; c = h b; host.read c")


def over_x(*rows, slots="x=0 a=64 b=0 c=128"):
    """b takes the bytes of x, which nobody needs by then, but x was never taken back."""
    return plan(CHAIN, slots, events=np.array([*rows, (0, GIVEN, X), (2, GIVEN, B)]))


def test_what_is_given_out_while_it_is_taken_comes_of_what_the_same_book_took_back_too_often():
    twice = (0, BACK, A), (0, BACK, A)
    alone, beside = Change(kind="events", plan=0, buffer=B), Change(kind="events", plan=0, buffer=A)
    assert charged(over_x()) == {alone}
    assert charged(over_x(*twice)) == {beside}
    wrong_slot = Change(kind="slot", plan=0, buffer=C)
    assert charged(over_x(slots="x=0 a=64 b=0 c=136")) == {alone, wrong_slot}


def test_another_plans_book_has_no_part_in_it():
    twice = plan(CHAIN, "", events=np.array([(0, GIVEN, A), (1, BACK, A), (2, BACK, A)]))
    assert charged(twice, over_x()) == {
        Change(kind="events", plan=0, buffer=A),
        Change(kind="events", plan=1, buffer=B),
    }


@pytest.mark.parametrize("roles", [{}, {"y": Role.TEMPORARY}])
def test_of_two_believed_pairs_of_the_same_buffers_the_one_in_time_is_the_way(roles):
    """y may lie on x, and x is said to lie on y as well, whichever has the lower number."""
    made = program("x = host.write; y = f! x; host.read y", roles=roles)
    x, y = made.buffers.names.index("x"), made.buffers.names.index("y")
    assert (x < y) == (not roles)
    planned = plan(made, "x=0 y=0", belief(made, share="x>y y>x"))
    assert {dossier_of(planned).way(planned, *pair) for pair in ((x, y), (y, x))} == {((x, y),)}


def test_of_two_reasons_a_late_read_stands_under_the_one_that_brings_it_about_alone():
    """a is laid over bytes of x's buffer that hold no value, against the belief; b takes the rest where x is believed dead."""
    made = program("x = host.write; a = f x; t = g a; b = k t; c = h b x; host.read c")
    verdict = judge(Evidence(document=Document.of(plan(made, "x=64 a=112 t=256 b=64 c=320", belief(made, x=(0, 3))))))
    under = {cause.change.kind for cause in verdict.causes if any(v.kind == "StaleRead" for v in cause.violations)}
    assert {cause.change.kind for cause in verdict.causes} == {"slot", "lifetime"}
    assert under == {"lifetime"}


def test_of_two_wrong_lives_that_harm_no_read_the_one_that_begins_first_let_the_two_meet():
    """Each truly lives where the other is believed to; g reads a before it lays b over it, which it does not declare."""
    made = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
    document = Document.of(plan(made, "x=64 a=0 b=0 c=128", belief(made, a=(3, 4), b=(1, 2))))
    (cause,) = (
        c for c in judge(Evidence(document=document)).causes if any(v.kind == "UnsafeInPlace" for v in c.violations)
    )
    assert (cause.change.kind, made.buffers.names[cause.change.buffer]) == ("lifetime", "a")
