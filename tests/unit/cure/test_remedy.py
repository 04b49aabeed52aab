"""Cures of documents without an engine: each kind of element, by the planner that made the plan and without any planner."""

import pytest
from allocsim.cure.remedy import AMENDED, amended, remedy, suspects_of
from allocsim.verdict.case import BELIEF_KINDS
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import documents
from tiny import belief, plan, program

from allocsim import cure
from allocsim.allocators import find
from allocsim.checks import check
from allocsim.cure import Begin, Deny, Extend, Pin, Wait
from allocsim.errors import ModelError, UnknownNameError
from allocsim.model import Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

TEXT = "x = host.write; a = f x; b = g x; c = h a b; host.read c"
MADE = program(TEXT)


def planned(problem, name="greedy_by_size"):
    return Document.of(find(name).place(problem))


def sound(document):
    return not [v for v in check(document).violations if v.kind not in BELIEF_KINDS]


def test_a_lifetime_too_short_is_extended_by_the_planner_that_made_the_plan():
    document = planned(belief(MADE, a=(1, 2)))
    assert not sound(document)
    found = remedy(document)
    assert found.placement == "greedy_by_size"
    assert found.cure.elements == (Extend(1, 4),)
    assert found.cure.minimal
    assert found.elements == ("keep a until op 3 has run",)
    assert sound(found.document)
    assert found.nbytes == found.document.plans[0].peak_bytes - document.plans[0].peak_bytes
    assert found.pin_all_bytes >= found.nbytes


def test_a_birth_too_late_is_moved_forward():
    made = program("x = host.write; a = f x; t = g x; u = k t; c = h x a u; host.read c")
    document = planned(belief(made, a=(4, 5)))
    assert not sound(document)
    found = remedy(document)
    assert found.cure.elements == (Begin(1, 1),)
    assert found.elements == ("give a its bytes from op 1 on",)
    assert sound(found.document)


def test_a_pair_that_may_not_share_is_denied():
    made = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
    document = planned(belief(made, share="a>b"), "ggml")
    assert next(v.kind for v in check(document).violations if v.kind not in BELIEF_KINDS) == "UnsafeInPlace"
    for placement in ("ggml", AMENDED):
        found = remedy(document, placement)
        assert (found.placement, found.cure.elements) == (placement, (Deny("g", 0, 0),))
        assert sound(found.document)


def test_a_plan_of_an_unknown_maker_is_amended_and_the_rest_of_it_stays():
    document = Document.of(plan(MADE, "x=0 a=64 b=64 c=128"))
    found = remedy(document)
    assert found.placement == AMENDED
    assert found.cure.elements == (Extend(1, 4),)
    moved = found.document.plans[0].offset.tolist()
    assert moved == [0, 128, 64, 128] or moved[0::2] == [0, 64]
    assert sound(found.document)


def test_amending_takes_bytes_that_are_free_while_the_buffer_lives():
    made = program("x = host.write; a = f x; b = g a; c = h x b; d = k c; host.read d")
    placed = plan(made, "x=0 a=64 b=0 c=128 d=192")
    found = remedy(Document.of(placed))
    assert sound(found.document)
    assert found.nbytes == 0


def test_an_input_that_later_runs_rely_on_is_pinned():
    made = program("x = host.write; a = f x; b = g a; host.read b")
    placed = plan(made, "x=0 a=64 b=0")
    found = remedy(Document.of(Run.of(placed), Run.of(placed, skip=(0,))))
    assert found.cure.elements == (Pin(0),)
    assert sound(found.document)
    assert len(found.document.runs) == 2


def test_a_planner_that_plans_it_rightly_cures_by_planning_anew():
    document = Document.of(plan(MADE, "x=0 a=64 b=64 c=128"))
    found = remedy(document, "greedy_by_size")
    assert (found.cure.elements, found.elements) == ((), ("plan it anew with 'greedy_by_size'",))
    assert sound(found.document)


def test_what_no_change_of_belief_mends_has_no_cure():
    assert remedy(Document.of(plan(program("x = host.write; host.read x"), "x=0"))) is None
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (8,))
    b.op("k", (x,), ())
    assert remedy(Document.of(plan_of(b.build(), [0]))) is None
    with pytest.raises(UnknownNameError):
        remedy(Document.of(plan(MADE, "x=0 a=64 b=64 c=128")), "nobody")


@given(documents())
@settings(max_examples=50)
def test_a_cure_is_sound_by_the_checks_and_leaves_other_plans_alone(document):
    found = remedy(document)
    if found is None:
        return
    assert not [v for v in check(found.document).violations if v.plan == found.plan and v.kind not in BELIEF_KINDS]
    for index, (before, after) in enumerate(zip(document.plans, found.document.plans, strict=True)):
        if index != found.plan:
            assert after.offset.tolist() == before.offset.tolist()


def test_suspects_come_from_the_records_and_nowhere_else():
    document = Document.of(plan(MADE, "x=0 a=64 b=64 c=128"))
    suspects, others = suspects_of(document, 0)
    assert set(suspects) == {Extend(1, 4), Extend(2, 4), Begin(1, 1), Begin(2, 2)}
    assert set(others) == {Pin(1), Pin(2)}


def test_amended_without_an_edit_is_the_plan():
    placed = plan(MADE, "x=0 a=64 b=128 c=192")
    problem = belief(MADE)
    assert amended(placed, problem)(problem).offset.tolist() == placed.offset.tolist()


def streamed():
    b = ProgramBuilder("p", streams=("s", "t"))
    x, y = b.tensor("x", "f32", (8,)), b.tensor("y", "f32", (8,))
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,), stream=1)
    b.op("k", (), (), stream=1)
    return b.build()


def test_a_wait_is_added_to_the_program_and_said_in_words():
    made = streamed()
    wait = Wait(1, 0)
    edited = cure.apply(belief(made), [wait, wait])
    assert edited.program is not made
    assert [op.after for op in edited.program.ops] == [(), (0,), ()]
    assert [op.after for op in cure.with_waits(edited.program, [Wait(2, 0)]).ops] == [(), (0,), (0,)]
    assert wait.describe(made) == "let op 1 (f) wait for op 0 (host.write)"
    with pytest.raises(ModelError, match="not earlier"):
        cure.with_waits(made, [Wait(0, 1)])


@given(st.lists(st.sampled_from([Pin(1), Extend(1, 4), Begin(1, 1), Deny("f", 0, 0)]), max_size=4))
def test_the_order_of_elements_does_not_matter(elements):
    problem = belief(MADE, a=(2, 3), share="x>a")
    forth, back = cure.apply(problem, elements), cure.apply(problem, reversed(elements))
    assert (forth.start.tolist(), forth.stop.tolist()) == (back.start.tolist(), back.stop.tolist())
    assert (forth.pinned.tolist(), forth.may_share.tolist()) == (back.pinned.tolist(), back.may_share.tolist())
