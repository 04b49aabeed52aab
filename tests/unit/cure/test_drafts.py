"""Parts of a cure by themselves: a draft built, kernels' pairs, plans made anew, slots given all their bytes, and who moves off whom."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.cure import drafting, few
from allocsim.cure.changes import Change
from allocsim.cure.defects import listed
from allocsim.cure.drafting import Draft, built, over_operands, replan
from allocsim.cure.mending import edges_of, with_beliefs
from allocsim.cure.room import Rigour, kin, rooms_of
from allocsim.cure.settling import settle
from allocsim.judge.fast import Violation
from allocsim.model import OWN, Document, Role, Run
from repro.small.words import belief, plan, program

MADE = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
X, A, B, C = range(4)
SHORT = replace(plan(MADE, "x=0 a=64 b=128 c=192"), nbytes=np.array([64, 32, 64, 64]))
"""Half of a has no bytes."""


def test_a_draft_in_which_nothing_moved_has_the_plans_that_were():
    document = Document.of(plan(MADE, ""))
    assert built(Draft.of(document)).plans[0].offset is document.plans[0].offset


def test_a_slot_that_only_grew_has_its_bytes_and_one_that_only_moved_its_place():
    document = Document.of(SHORT)
    grown = Draft.of(document)
    grown.resized[0].add(A)
    assert built(grown).plans[0].nbytes.tolist() == [64, 64, 64, 64]
    moved = Draft.of(document)
    moved.rooms[0].offset[B] = 256
    moved.moved[0].add(B)
    assert built(moved).plans[0].offset.tolist() == [0, 64, 256, 192]
    assert built(moved).plans[0].nbytes.tolist() == [64, 32, 64, 64]


@pytest.mark.parametrize("changed", ["moved", "resized"])
def test_a_slot_that_left_the_arenas_has_no_bytes_in_them(changed):
    draft = Draft.of(Document.of(SHORT))
    draft.rooms[0].arena[A] = OWN
    getattr(draft, changed)[0].add(A)
    assert built(draft).plans[0].nbytes.tolist() == [64, 0, 64, 64]


def kernel(operand=0, result=0, op_kind="g", kind="kernel"):
    return Change(kind=kind, op_kind=op_kind, operand=operand, result=result)


@pytest.mark.parametrize(
    ("text", "slots", "mend", "met"),
    [
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=64 b=64", kernel(), {2}),
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=64 b=96", kernel(), set()),
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=64 b=64", kernel(op_kind="k"), set()),
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=64 b=64", kernel(operand=1), set()),
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=64 b=64", kernel(result=1), set()),
        ("x = host.write; a = f x; v:a = g! a; host.read v", "x=0 a=64", kernel(), set()),
        ("x = host.write; a = f x; b = g x a; host.read b", "x=0 a=64 b=64", kernel(operand=1), {2}),
        ("x = host.write; a = f x; b = g a; host.read b", "x=0 a=own b=own", kernel(), set()),
        ("x = host.write; a = f x; b = e x; v:b[4@16] = g a; host.read v", "x=256 a=64 b=48", kernel(), {2}),
        ("x = host.write; a = f x; b = e x; v:b[4@16] = g a; host.read v", "x=256 a=64 b=80", kernel(), set()),
        ("x = host.write; a = f x; v:a[4@16] = view a; b = g v; host.read b", "x=256 a=64 b=80", kernel(), {2}),
    ],
)
def test_which_results_lie_over_an_operand_by_a_pair_of_positions(text, slots, mend, met):
    assert over_operands(plan(program(text), slots), mend) == met


def test_a_plan_made_anew_leaves_what_had_memory_of_its_own_there_and_places_the_rest(monkeypatch):
    """Which planner places the rest is no matter: one that needs no compiling is asked."""
    monkeypatch.setattr(drafting, "ALLOCATORS", dict.fromkeys(("greedy_by_size", "linear_scan"), ALLOCATORS["ggml"]))
    made = program("x = host.write; a = f x s t; b = g a; host.read b", roles={"s": Role.STATE, "t": Role.STATE})
    names = list(made.buffers.names)
    old = plan(made, "x=0 a=own b=none s=256 t=own")
    draft = Draft.of(Document.of(old))
    assert replan(draft, Change(kind="stale", plan=0, program=0))
    new = draft.replanned[0, 0]
    assert {name for name, arena in zip(names, new.arena.tolist(), strict=True) if arena == OWN} == {"a", "t"}
    assert new.offset[names.index("s")] == 256


def test_a_plan_that_no_planner_can_make_anew_changes_nothing(monkeypatch):
    monkeypatch.setattr(drafting, "ALLOCATORS", dict.fromkeys(("greedy_by_size", "linear_scan"), ALLOCATORS["ggml"]))
    small = replace(MADE, arenas=tuple(replace(arena, capacity=64) for arena in MADE.arenas))
    draft = Draft.of(Document.of(plan(small, "x=0 a=64 b=0 c=64")))
    assert not replan(draft, Change(kind="stale", plan=0, program=0))
    assert (draft.replanned, draft.changes) == ({}, {})


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("x = host.write; a = f x; b = g a; host.read b", {B}),
        ("x = host.write; a = f x; v:a = g! a; host.read v", set()),
    ],
    ids=["two buffers", "one buffer"],
)
def test_the_result_leaves_the_operand_that_a_kernel_may_not_write_over(text, moved):
    """Not where both are one buffer: that is the program's, and no slot would part them."""
    draft = Draft.of(Document.of(plan(program(text), "x=0 a=64" + " b=64" * bool(moved))))
    assert settle(draft, kernel(), (), Rigour.EVERYBODY, by_wait=False)
    assert draft.moved[0] == moved


def test_a_slot_gets_all_its_bytes_only_where_some_are_missing():
    document = Document.of(SHORT)
    draft = Draft.of(document)
    few.give_full_sizes(draft, [Change(kind="slot", plan=0, buffer=buffer) for buffer in (A, B)])
    assert draft.changes == {Change(kind="place", plan=0, buffer=A, offset=64, nbytes=64): None}
    assert draft.resized == {0: {A}}


KEPT = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
S = list(KEPT.buffers.names).index("s")


def test_only_what_lasts_over_runs_is_in_other_plans():
    one, other = plan(KEPT, "s=0 x=64 a=128"), plan(KEPT, "s=0 x=128 a=64")
    between = plan(program("q = host.write; host.read q"), "q=64")
    document = Document.of(Run.of(one), Run.of(other), Run.of(between))
    temporary = (S + 1) % 3
    assert kin(document, 0, S) == [(0, S), (1, S)]
    assert kin(document, 0, temporary) == [(0, temporary)]
    assert kin(Document.of(Run.of(one), Run.of(between)), 0, S) == [(0, S)]


def test_a_buffer_that_lasts_moves_alone_where_the_plans_are_of_no_session():
    """In a session what it meets gives way, else the other plan would have to follow."""
    one, other = plan(KEPT, "s=32 x=0 a=64"), plan(KEPT, "s=32 x=128 a=192")
    document = Document.of(Run.of(one), Run.of(other))
    for made, slots in ((document, ((0, S), (1, S))), (replace(document, session=None), ((0, S),))):
        assert few._body(made, 0, S) == slots
        draft, found = Draft.of(made), [v for v in listed(made).violations if v.plan == 0]
        assert settle(draft, Change(kind="slot", plan=0, buffer=S), found, Rigour.EVERYBODY, by_wait=False)
        assert (draft.moved[0] == {S}) == (len(slots) == 1)


@pytest.mark.parametrize(("capacity", "fits"), [(256, True), (255, False)])
def test_a_buffer_that_lasts_goes_to_the_lowest_bytes_that_are_free_in_all_its_plans(capacity, fits):
    """In neither plan anything below 192 is free."""
    made = replace(KEPT, arenas=(replace(KEPT.arenas[0], capacity=capacity), *KEPT.arenas[1:]))
    document = Document.of(Run.of(plan(made, "s=0 x=64 a=128")), Run.of(plan(made, "s=0 x=128 a=0")))
    rooms = rooms_of(document)
    found = few.moves_of(document, rooms, [((0, S), (1, S))], [Rigour.EVERYBODY])
    assert [int(move.rooms[index].offset[S]) for move in found for index in (0, 1)] == [192, 192] * fits


def test_a_buffer_that_lasts_does_not_move_where_any_plan_was_told_its_place():
    free, told = plan(KEPT, "s=0 x=64 a=128"), plan(KEPT, "s=0 x=64 a=128", belief(KEPT, fixed={S: 0}))
    asked = {Change(kind="slot", plan=0, buffer=S): ()}
    assert few.bodies_of(Document.of(Run.of(free), Run.of(told)), asked) == ()
    assert few.bodies_of(Document.of(Run.of(free), Run.of(free)), asked) == (((0, S),),)


def over(one, other, **told):
    return Violation(
        kind="Overlap", **{"plan": 0, "program": 0, "run": 0, "buffer": one, "other_buffer": other, **told}
    )


@pytest.mark.parametrize(
    ("fixed", "moved"),
    [({}, {X}), ({X: 0}, {A}), ({A: 32}, {X}), ({X: 0, A: 32}, None)],
    ids=["either", "the other where the first was told", "the first", "neither"],
)
def test_of_a_pair_that_came_to_light_the_first_moves_that_may(fixed, moved):
    draft = Draft.of(Document.of(plan(MADE, "x=0 a=32 b=128 c=192", belief(MADE, fixed=fixed))))
    assert few.moved_off(draft, [over(X, A)], Rigour.LIVING) is (moved is not None)
    assert draft.moved.get(0) == moved


def test_one_buffer_alone_or_of_two_runs_is_no_pair_to_move():
    document = Document.of(plan(MADE, "x=0 a=32 b=128 c=192"))
    for new in ([], [over(X, None)], [over(X, A, other_run=1)], [over(X, A, plan=1)]):
        assert not few.moved_off(Draft.of(document), new, Rigour.LIVING)


def test_a_buffer_that_lasts_moves_with_its_slots_in_the_plans_that_place_it():
    made = program("x = host.write; a = f x s; host.read a", roles={"s": Role.STATE})
    one, other = plan(made, "s=0 x=64 a=128"), plan(made, "s=own x=64 a=128")
    s = list(made.buffers.names).index("s")
    document = Document.of(Run.of(one), Run.of(other))
    assert few.bodies_of(document, {Change(kind="slot", plan=0, buffer=s): ()}) == (((0, s),),)
    assert few.bodies_of(document, {Change(kind="slot", plan=1, buffer=s): ()}) == (((0, s),),)


def test_what_is_between_runs_of_two_programs_is_no_pair_of_one_plan():
    other = program("q = host.write; r = h q; host.read r")
    document = Document.of(Run.of(plan(MADE, "")), Run.of(plan(other, "")), Run.of(plan(MADE, "")))
    pairs = [
        over(B, A),
        over(C, C),
        over(X, B, other_run=1),
        over(X, C, other_run=0),
        over(A, C, other_run=2, run=None),
    ]
    found = edges_of(document, pairs)
    assert found == {0: {(A, B), (X, C), (A, C)}}


def test_a_pair_of_the_first_buffers_is_forbidden_with_those_the_judge_listed():
    told = belief(MADE, share="x>a a>b b>c")
    listed = (
        Violation(kind="BadShare", problem=0, buffer=A, other_buffer=B),
        Violation(kind="BadShare", problem=1, buffer=B, other_buffer=C),
    )
    asked = {Change(kind="pair", problem=0, buffer=X, other=A): listed}
    mended, made = with_beliefs(Document.of(plan(MADE, "", told)), asked)
    assert [(one.buffer, one.other) for one in made] == [(X, A), (A, B)]
    assert np.array_equal(mended.problems[0].may_share, [[B, C]])


def test_what_has_no_room_is_not_settled_and_what_meets_nobody_is():
    small = replace(MADE, arenas=tuple(replace(arena, capacity=64) for arena in MADE.arenas))
    full = Draft.of(Document.of(plan(small, "x=0 a=0 b=0 c=0")))
    moving = Change(kind="slot", plan=0, buffer=A)
    assert not settle(full, moving, (over(X, A),), Rigour.EVERYBODY, by_wait=False)
    lasting = Draft.of(Document.of(*(Run.of(plan(KEPT, slots)) for slots in ("s=0 x=64 a=128", "s=0 x=128 a=64"))))
    assert settle(lasting, Change(kind="slot", plan=0, buffer=S), (), Rigour.EVERYBODY, by_wait=False)
