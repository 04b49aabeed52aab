"""No reuse: every buffer in bytes of its own."""

import pytest

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.errors import CapacityError
from allocsim.model import OWN, Arena

REFERENCE = ALLOCATORS["reference"]


def test_buffers_follow_one_another_aligned(graph):
    graph.leaf(0.25)
    graph.leaf(2)
    graph.leaf(1, alignment=128)

    plan = REFERENCE.plan(graph.build())

    assert plan.offset.tolist() == [0, 32, 128]
    assert plan.peak_bytes == 160


def test_each_arena_starts_at_zero_and_own_buffers_have_no_slot(graph_in):
    graph = graph_in(Arena(name="a", alignment=32), Arena(name="b", alignment=32))
    for arena in (0, 1, 1, 0):
        graph.leaf(1, arena=arena)
    program = graph.build()

    plan = REFERENCE.plan(program, Constraints.of(program, own=[0]))

    assert plan.arena.tolist() == [OWN, 1, 1, 0]
    assert plan.offset.tolist() == [0, 0, 32, 0]
    assert plan.nbytes.tolist() == [0, 32, 32, 32]


def test_fixed_buffers_are_stepped_over(graph):
    for _ in range(4):
        graph.leaf(1)
    program = graph.build()

    plan = REFERENCE.plan(program, Constraints.of(program, fixed={1: 32, 2: 48}))

    assert plan.offset.tolist() == [0, 32, 48, 96]


def test_a_fixed_buffer_inside_another_does_not_cut_it_short(graph):
    for units in (1, 4, 1, 1):
        graph.leaf(units)
    program = graph.build()

    plan = REFERENCE.plan(program, Constraints.of(program, fixed={1: 32, 2: 64}))

    assert plan.offset.tolist() == [0, 32, 64, 160]


@pytest.mark.parametrize("name", ["reference", "ggml"])
@pytest.mark.parametrize("fixed", [{0: 96}, {0: -32}])
def test_a_fixed_buffer_outside_its_arena_is_refused(graph_in, name, fixed):
    graph = graph_in(Arena(name="tiny", alignment=32, capacity=100))
    graph.leaf(1)
    program = graph.build()

    with pytest.raises(
        CapacityError, match=rf"allocator '{name}': buffer 0 \('t0', 32 bytes\) at offset {fixed[0]} does not fit"
    ):
        ALLOCATORS[name].plan(program, Constraints.of(program, fixed=fixed))


def test_capacity_is_respected_to_the_byte(graph_in):
    def plan(capacity):
        graph = graph_in(Arena(name="tiny", alignment=32, capacity=capacity))
        graph.leaf(1)
        graph.leaf(0.25)
        return REFERENCE.plan(graph.build())

    assert plan(40).peak_bytes == 40
    with pytest.raises(CapacityError, match="does not fit into arena 'tiny' of 39 bytes"):
        plan(39)
