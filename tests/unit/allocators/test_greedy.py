"""Greedy by size, by hand."""

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.errors import CapacityError
from allocsim.model import UNPLACED, Arena, Problem

GREEDY = ALLOCATORS["greedy_by_size"]


def problem(graph, *rows, **columns):
    """Rows of (units, start, stop)."""
    for units, _, _ in rows:
        graph.tensor(units)
    return Problem.of(graph.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows], **columns)


def units(plan):
    return [offset / 32 for offset in plan.offset.tolist()]


def test_the_largest_comes_first(graph):
    assert units(GREEDY.place(problem(graph, (1, 0, 2), (3, 0, 2), (2, 0, 2)))) == [5, 0, 3]


def test_buffers_that_never_meet_share(graph):
    assert units(GREEDY.place(problem(graph, (1, 0, 2), (1, 2, 3)))) == [0, 0]


def test_the_smallest_gap_that_fits_is_taken(graph):
    rows = ((8, 0, 1), (6, 0, 9), (5, 0, 1), (4, 0, 9), (2, 0, 1), (1.5, 0, 9), (1, 5, 9))

    assert (
        units(GREEDY.place(problem(graph, *rows)))[-1] == 23
    )  # behind 4 units there is a gap of 2, the others are larger


def test_a_pinned_buffer_lives_for_ever(graph):
    assert units(GREEDY.place(problem(graph, (1, 0, 2), (1, 2, 3), pinned=[0]))) == [0, 1]


def test_a_fixed_buffer_lies_where_it_is_told(graph):
    assert units(GREEDY.place(problem(graph, (2, 0, 2), (1, 0, 2), fixed={1: 32}))) == [2, 1]


def test_a_buffer_without_a_lifetime_is_not_placed(graph):
    assert GREEDY.place(problem(graph, (1, 3, 3), (1, 0, 2))).arena.tolist() == [UNPLACED, 0]


def test_what_does_not_fit_is_refused(graph_in):
    graph = graph_in(Arena(name="tiny", alignment=32, capacity=63))

    with pytest.raises(CapacityError, match="'greedy_by_size': buffer 1"):
        GREEDY.place(problem(graph, (1, 0, 2), (1, 0, 2)))
