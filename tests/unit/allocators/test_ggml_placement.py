"""Where ggml puts things, counted by hand in units of the alignment; and that it works for problems it did not believe itself."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.allocators import ALLOCATORS, Constraints, ggml
from allocsim.errors import CapacityError, PlannerError
from allocsim.model import OWN, UNPLACED, Arena, Event, Problem

GGML = ALLOCATORS["ggml"]


def plan(program, **told):
    return GGML.plan(program, Constraints.of(program, **{"pins": "none", **told}))


def units(plan):
    return [offset / 32 for offset in plan.offset.tolist()]


def test_a_node_never_shares_bytes_with_its_sources_but_in_place(graph):
    x = graph.leaf(1)
    y = graph.op("mul_mat", x, units=1)
    z = graph.op("mul_mat", y, units=1)
    graph.op("mul_mat", z, units=1)

    assert units(plan(graph.build())) == [0, 1, 0, 1]


def test_a_listed_op_takes_its_sources_place(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    graph.op("silu", y, units=1)

    assert units(plan(graph.build())) == [0, 0, 0]


def test_the_first_eligible_slot_is_taken_and_a_pin_moves_it_to_the_next(graph):
    a, b = graph.leaf(1), graph.leaf(1)
    graph.op("rms_norm_back", a, b, units=1)
    program = graph.build()

    assert units(plan(program)) == [0, 1, 0]
    assert units(plan(program, pins=[0])) == [0, 1, 1]
    assert units(plan(program, pins=[0, 1])) == [0, 1, 2]


def test_what_was_taken_is_not_freed_with_its_old_owner(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    z = graph.op("mul_mat", y, units=1)
    graph.op("mul_mat", y, z, units=1)

    assert units(plan(graph.build())) == [0, 0, 1, 2]


def test_surplus_bytes_of_a_taken_place_are_free_once_the_op_is_over(graph):
    big = graph.tensor(1)
    graph.builder._buffers[0] = ("big", 128, 32, 0, 1, False)  # the buffer is larger than its root
    graph.builder.op("host.write", (), (big,))
    y = graph.op("scale", big, units=1)
    z = graph.op("mul_mat", y, units=2)
    graph.op("mul_mat", y, z, units=1)

    assert units(plan(graph.build())) == [0, 0, 1, 3]


def test_of_two_equal_holes_the_later_is_taken(graph):
    a = graph.leaf(1)
    b = graph.leaf(1)
    c = graph.leaf(1)
    d = graph.op("mul_mat", a, c, units=1)  # frees units 0 and 2; b keeps unit 1, d has unit 3
    graph.op("mul_mat", b, d, units=1)

    assert units(plan(graph.build())) == [0, 1, 2, 3, 2]


def test_the_buffer_grows_by_what_is_missing_at_its_end(graph):
    x = graph.leaf(3)
    y = graph.leaf(1)
    z = graph.op("mul_mat", y, units=1)
    graph.op("mul_mat", x, z, units=5)

    made = plan(graph.build())

    assert units(made) == [0, 3, 4, 5]
    assert made.meta["ggml"]["used"] == [10 * 32]


def test_sizes_are_padded_and_the_buffer_size_with_them(graph):
    graph.leaf(0.5)
    graph.leaf(1.25)

    made = plan(graph.build())

    assert made.offset.tolist() == [0, 32]
    assert made.nbytes.tolist() == [16, 40]
    assert made.peak_bytes == 72
    assert made.meta["ggml"]["used"] == [96]


def test_pinning_everything_is_no_reuse(graph):
    x = graph.leaf(1)
    for _ in range(5):
        x = graph.op("scale", x, units=1)
    program = graph.build()

    assert units(plan(program, pins="all")) == [0, 1, 2, 3, 4, 5]
    assert plan(program, pins="all").offset.tolist() == ALLOCATORS["reference"].plan(program).offset.tolist()


def test_own_buffers_and_untouched_ones_have_no_slot(graph):
    graph.leaf(1)
    graph.leaf(1)
    graph.tensor(1)

    made = plan(graph.build(), own=[0])

    assert made.arena.tolist() == [OWN, 0, UNPLACED]
    assert made.nbytes.tolist() == [0, 32, 0]


def test_fixed_buffers_lie_where_they_are_told_and_nobody_else_does(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    graph.op("mul_mat", y, units=3)

    assert units(plan(graph.build(), fixed={1: 64})) == [0, 2, 3]


def test_events_tell_allocations_and_frees_in_order(graph):
    x = graph.leaf(1)
    y = graph.op("scale", x, units=1)
    z = graph.op("mul_mat", y, units=1)
    graph.op("mul_mat", z, units=1)

    assert [(step, Event(event).name, buffer) for step, event, buffer in plan(graph.build()).events.tolist()] == [
        (0, "ALLOC", 0),
        (1, "FREE", 0),
        (1, "ALLOC", 1),
        (2, "ALLOC", 2),
        (2, "FREE", 1),
        (3, "ALLOC", 3),
    ]


def test_a_plan_beyond_the_capacity_is_refused(graph_in):
    graph = graph_in(Arena(name="tiny", alignment=32, capacity=64))
    graph.op("mul_mat", graph.leaf(1), units=2)

    with pytest.raises(CapacityError, match=r"no room for buffer 1 \('t1', 64 bytes\) at step 1 in 'tiny' of 64 bytes"):
        plan(graph.build())


def test_a_plan_that_just_fits_is_made(graph_in):
    graph = graph_in(Arena(name="tiny", alignment=32, capacity=40))
    graph.op("mul_mat", graph.leaf(1), units=0.25)

    assert plan(graph.build()).peak_bytes == 40


def test_each_arena_is_a_memory_of_its_own(graph_in):
    graph = graph_in(Arena(name="a", alignment=32), Arena(name="b", alignment=64))
    x = graph.leaf(1, arena=0)
    y = graph.leaf(1, arena=1)
    graph.op("add", y, x, units=1, arena=0)

    made = plan(graph.build())

    assert made.arena.tolist() == [0, 1, 0]
    assert made.offset.tolist() == [0, 0, 0], "the source in the other arena is no donor, the one in this arena is"


def test_arenas_may_be_the_chunks_of_one_memory(graph_in):
    graph = graph_in(*(Arena(name=f"chunk{n}", alignment=32, capacity=96) for n in range(2)))
    graph.leaf(2)
    graph.leaf(2)
    graph.leaf(1)
    problem = GGML.believe(graph.build())

    with pytest.raises(CapacityError):
        ggml.place(problem)
    made = ggml.place(problem, memories=[[0, 1]])

    assert made.arena.tolist() == [0, 1, 0]
    assert units(made) == [0, 0, 2]


@pytest.mark.parametrize("memories", [[[0], [0]], [[1]], [[]], [[-1]]])
def test_groups_of_arenas_that_are_none_are_refused(graph, memories):
    graph.leaf(1)

    with pytest.raises(PlannerError, match="no groups of 1 arenas"):
        ggml.place(GGML.believe(graph.build()), memories=memories)


# --- problems that were edited, or believed by somebody else ---------------------------------------------------------------


def test_a_pair_that_is_denied_is_placed_apart_and_the_next_pair_is_taken(graph):
    a, b = graph.leaf(1), graph.leaf(1)
    graph.op("add", a, b, units=1)
    problem = GGML.believe(graph.build())

    assert units(GGML.place(replace(problem, may_share=problem.may_share[1:]))) == [0, 1, 1]
    assert units(GGML.place(replace(problem, may_share=problem.may_share[:0]))) == [0, 1, 2]


def test_a_donor_whose_life_was_extended_or_that_was_pinned_is_not_taken(graph):
    graph.op("scale", graph.leaf(1), units=1)
    problem = GGML.believe(graph.build())

    assert units(GGML.place(replace(problem, stop=np.array([3, 3])))) == [0, 1]
    assert units(GGML.place(replace(problem, pinned=np.array([True, False])))) == [0, 1]


def test_a_donor_is_taken_once(graph):
    x = graph.leaf(1)
    y, z = graph.tensor(1), graph.tensor(1)
    graph.builder.op("split", (x,), (y, z), in_place=((0, 0), (0, 1)))
    problem = Problem.of(graph.build(), start=[0, 1, 1], stop=[2, 2, 2], may_share=[(0, 1), (0, 2)])

    assert units(GGML.place(problem)) == [0, 0, 1]


def test_a_donor_that_is_too_small_is_not_taken(graph):
    program = (graph.leaf(1), graph.leaf(1)) and graph.build()
    problem = Problem.of(program, start=[0, 1], stop=[2, 2], nbytes=[32, 64], may_share=[(0, 1)])

    assert units(GGML.place(problem)) == [0, 1]


def test_an_order_that_goes_back_in_time_stays_sound(graph):
    for _ in range(4):
        graph.leaf(1)
    problem = Problem.of(graph.build(), start=[0, 2, 0, 1], stop=[2, 4, 1, 3], order=[0, 1, 2, 3])

    offsets = units(GGML.place(problem))

    assert offsets == [0, 1, 2, 2], "nothing may be freed before buffer 2 is placed"


def test_the_believed_size_is_what_is_placed(graph):
    graph.leaf(2)
    graph.leaf(1)
    problem = Problem.of(graph.build(), nbytes=[32, 32])

    assert units(GGML.place(problem)) == [0, 1]


def test_a_program_without_ops_is_placed_by_its_problem(graph):
    for units_of in (2, 1, 2):
        graph.tensor(units_of)
    problem = Problem.of(graph.build(), start=[0, 0, 5], stop=[5, 9, 9])

    assert units(GGML.place(problem)) == [0, 2, 0]
