"""Planners side by side: what each row says."""

import math
from pathlib import Path

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.comparison import compare, fragmentation
from allocsim.errors import UnknownNameError
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.systems import load


def program(capacity=None):
    """x is read twice, y once; all three live at the add."""
    builder = ProgramBuilder("step", arenas=(Arena(name="cpu", alignment=32, capacity=capacity),))
    x, y, z = (builder.tensor(name, "f32", (64,)) for name in "xyz")
    builder.op(HOST_WRITE, (), (x,))
    builder.op("exp", (x,), (y,))
    builder.op("add", (x, y), (z,))
    builder.op(HOST_READ, (z,), ())
    return builder.build()


def test_each_planner_has_a_row_for_each_program():
    rows = compare(Document(programs=(program(), program())), ["reference", "exact"])

    assert [(row.planner, row.bound_bytes, row.peak_bytes, row.sound) for row in rows] == [
        ("reference", 768, 768, True),
        ("exact", 768, 768, True),
    ] * 2
    assert [row.proved for row in rows] == [False, True] * 2
    assert all(row.good and row.ratio == 1.0 and row.seconds >= 0.0 and not row.finding for row in rows)


def test_the_whole_shelf_is_the_default():
    assert [row.planner for row in compare(Document(programs=(program(),)))] == list(ALLOCATORS)


def test_plans_of_the_document_come_first_and_are_judged():
    made = program()
    rows = compare(Document.of(plan_of(made, [0, 256, 0], source="theirs")), ["linear_scan"])

    assert [(row.planner, row.seconds is None, row.good) for row in rows] == [
        ("theirs", True, False),
        ("linear_scan", False, True),
    ]
    assert "unsafely" in rows[0].finding


def test_a_peak_below_the_bound_is_never_sound():
    """A plan that was told nothing and keeps all memory outside the arenas has no violation, and no peak to speak of."""
    made = program()
    untold = plan_of(made, ["own", "own", "own"], source="nowhere")
    told = plan_of(
        made,
        ["own", 0, 256],
        problem=Problem.of(made, own=[0], start=[0, 1, 2], stop=[3, 3, 4], pinned=[2]),
        source="told",
    )
    rows = compare(Document.of(untold, told), ["reference"])

    assert [(row.planner, row.peak_bytes, row.bound_bytes, row.sound) for row in rows] == [
        ("nowhere", 0, 512, False),
        ("told", 512, 512, True),
        ("reference", 512, 512, True),
    ]
    assert (
        rows[0].finding
        == "512 bytes below the bound: 2 buffers of 512 bytes lie in no arena, untold, buffer 1 'y' first"
    )


def test_a_plan_that_shares_bytes_between_segments_is_not_below_the_bound():
    """A buffer dead between two writes: whoever plans by whole lifetimes needs twice as much, and has proved nothing."""
    document = load(str(Path(__file__).parents[2] / "data" / "cases" / "loop-hull.json"))
    rows = compare(document, ["exact"])

    assert [(row.peak_bytes, row.ratio, row.sound, row.proved) for row in rows] == [
        (64, 1.0, True, False),
        (128, 2.0, True, False),
    ]


def test_a_planner_that_fails_has_a_row_that_says_why():
    (row,) = compare(Document(programs=(program(capacity=512),)), ["best_fit"])

    assert (row.peak_bytes, row.ratio, row.good) == (None, None, False)
    assert row.finding.startswith("allocator 'best_fit': buffer 2")


def test_an_unknown_planner_is_refused_before_anything_is_planned():
    with pytest.raises(UnknownNameError):
        compare(Document(programs=()), ["exakt"])


def test_a_program_without_bytes_has_ratio_one():
    (row,) = compare(Document(programs=(ProgramBuilder("empty").build(),)), ["exact"])

    assert (row.peak_bytes, row.ratio, row.fragmentation) == (0, 1.0, 0.0)


def test_what_the_problem_pins_and_fixes_is_told():
    made = program()
    problem = Problem.of(made, fixed={0: 1024}, stop=[4, 4, 4])
    (row,) = compare(Document.of(problem), ["linear_scan"])

    assert row.peak_bytes == 1280
    assert row.bound_bytes == 1280


def test_fragmentation_is_the_idle_share_below_the_highest_live_byte():
    builder = ProgramBuilder("f", arenas=(Arena(name="a", alignment=1),))
    for nbytes in (4, 4):
        builder.buffer("b", nbytes)
    problem = Problem.of(builder.build(), start=[0, 1], stop=[2, 4])
    above, below = plan_of(problem.program, [0, 4]), plan_of(problem.program, [4, 0])

    # steps 0 to 3 reach 4, 8, 8, 8 bytes, of which 4, 8, 4, 4 live; the other way round 8, 8, 4, 4
    assert math.isclose(fragmentation(problem, above), 8 / 28)
    assert math.isclose(fragmentation(problem, below), 4 / 24)
