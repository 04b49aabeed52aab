"""Slots: each fits its arena and its buffer, and every buffer in use has one."""

import numpy as np
import pytest

from allocsim import check
from allocsim.model import Arena, Document, Plan, Problem, Run
from allocsim.programs.builder import ProgramBuilder, plan_of


def slots(report):
    return [(v.kind, v.plan, v.buffer) for v in report.violations]


def one(*, capacity=None, nbytes=8, alignment=4, arenas=2, **value):
    """One uploaded buffer in the first of some arenas."""
    b = ProgramBuilder("p", arenas=[Arena(name=f"m{i}", alignment=alignment, capacity=capacity) for i in range(arenas)])
    x = b.value("x", b.buffer("x", nbytes), "u8", (nbytes,), **value)
    b.op("host.write", (), (x,))
    return b.build()


def slotted(program, *, arena=0, offset=0, nbytes=8):
    return Plan(program=program, arena=np.array([arena]), offset=np.array([offset]), nbytes=np.array([nbytes]))


@pytest.mark.parametrize(
    ("capacity", "slot", "expected"),
    [
        (64, {"offset": 56}, []),
        (64, {"offset": 60}, ["OutOfBounds"]),
        (64, {"offset": 56, "nbytes": 9}, ["OutOfBounds"]),
        (64, {"offset": 2}, ["Misaligned"]),
        (64, {"offset": -4}, ["OutOfBounds"]),
        (64, {"nbytes": 7}, ["Undersized"]),
        (64, {"nbytes": 12}, []),
        (64, {"arena": 1}, ["WrongArena"]),
        (64, {"arena": 1, "offset": 62, "nbytes": 3}, ["OutOfBounds", "Undersized", "Misaligned", "WrongArena"]),
        (None, {"offset": 1 << 60}, []),
        (0, {}, ["OutOfBounds"]),
    ],
    ids=str,
)
def test_a_slot_is_judged_by_its_own_numbers(capacity, slot, expected):
    report = check(Document.of(slotted(one(capacity=capacity), **slot)))
    assert slots(report) == [(kind, 0, 0) for kind in expected]
    assert all(v.run is v.step is v.op is None for v in report.violations)


def test_memory_of_its_own_has_no_numbers_to_judge():
    assert check(Document.of(plan_of(one(capacity=0), ["own"]))).clean


@pytest.mark.parametrize(
    "value",
    [{"offset": 1}, {"offset": -1}, {"strides": (-1,)}, {"strides": (2,)}],
    ids=["high", "low", "flip", "stride"],
)
@pytest.mark.parametrize("slot", [0, "own"])
def test_a_value_may_not_reach_outside_its_buffer(value, slot):
    (found,) = check(Document.of(plan_of(one(**value), [slot]))).violations
    assert (found.kind, found.buffer, found.value, found.plan) == ("OutOfBounds", 0, 0, 0)
    assert "value 0 'x' reaches outside its 8 bytes" in found.message


def test_an_unplaced_buffer_matters_only_if_an_op_touches_it(tiny):
    b = tiny()
    b.uploaded("x")
    b.temp("idle")
    assert slots(b.judge([None, None])) == [("Unplaced", 0, 0)]


def test_an_upload_left_out_in_every_run_touches_nothing():
    plan = plan_of(one(), [None])
    assert check(Document.of(Run.of(plan, skip=(0,)))).clean
    assert slots(check(Document.of(Run.of(plan, skip=(0,)), Run.of(plan)))) == [("Unplaced", 0, 0)]


def test_a_plan_used_often_is_judged_once_and_one_not_used_not_at_all():
    program = one()
    used, unused = plan_of(program, [2]), plan_of(program, [3])
    report = check(Document.of(unused, Run.of(used), Run.of(used)))
    assert slots(report) == [("Misaligned", 1, 0)]


def test_slots_of_a_stale_plan_are_judged_against_the_program_run():
    small, large = one(nbytes=8), one(nbytes=12)
    plan = plan_of(small, [0])
    (found,) = check(Document.of(plan, Run.of(plan, program=large))).violations
    assert (found.kind, found.program, found.plan, found.buffer) == ("Undersized", 1, 0, 0)


def test_one_defect_of_a_plan_is_told_once_whatever_programs_run_with_it():
    first, second = one(), one()
    plan = plan_of(first, [2])
    assert slots(check(Document.of(Run.of(plan), Run.of(plan, program=second)))) == [("Misaligned", 0, 0)]


def test_without_ops_a_buffer_believed_to_live_needs_a_slot(tiny):
    b = tiny()
    b.temp("lives")
    b.temp("never")
    program = b.build()
    problem = Problem.of(program, start=[0, 0], stop=[1, 0])
    assert slots(check(Document.of(plan_of(program, [None, None], problem=problem)))) == [("Unplaced", 0, 0)]
