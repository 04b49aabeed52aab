"""The shelf by hand, in units of 32 bytes: what tells one planner from another."""

import numba
import pytest

from allocsim.allocators import ALLOCATORS, Constraints
from allocsim.allocators.compiling import compiled
from allocsim.allocators.footprints import footprints
from allocsim.errors import CapacityError
from allocsim.judge.fast import check
from allocsim.model import UNPLACED, Arena, Document, Problem


def problem(graph, *rows, **columns):
    """Rows of (units, start, stop)."""
    for units, _, _ in rows:
        graph.tensor(units)
    return Problem.of(graph.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows], **columns)


def placed(name, made):
    """Offsets in units."""
    return [offset / 32 for offset in ALLOCATORS[name].place(made).offset.tolist()]


@pytest.fixture
def gaps(graph):
    """When the last is born, 3 units are free at the bottom and 2 above; it needs 2."""
    return problem(graph, (3, 0, 1), (1, 0, 9), (2, 0, 1), (1, 0, 9), (2, 5, 6))


def test_linear_scan_takes_the_lowest_gap_and_best_fit_the_smallest(gaps):
    assert placed("linear_scan", gaps)[-1] == 0
    assert placed("best_fit", gaps)[-1] == 4


def test_breadth_places_the_broadest_step_first(graph):
    """The largest buffer lives where little else does, and yields to those of the broadest step."""
    made = problem(graph, (4, 0, 2), (3, 1, 4), (3, 3, 4), (3, 3, 4))

    assert placed("greedy_by_breadth", made)[1:] == [0, 3, 6]
    assert placed("greedy_by_size", made)[0] == 0


def test_skylines_differ_in_what_goes_down_first(graph):
    """Longest is the last, largest the first."""
    made = problem(graph, (9, 0, 2), (1, 0, 5), (1, 0, 6))

    assert placed("skyline_by_lifetime", made) == [2, 1, 0]
    assert placed("skyline_by_area", made) == [0, 10, 9]


def test_a_lifted_skyline_wastes_what_fits_nowhere(graph):
    made = problem(graph, (2, 0, 4), (1, 4, 6), (1, 3, 6))

    assert placed("skyline_by_lifetime", made) == [0, 0, 2]


def test_xla_keeps_the_better_of_two_orders(graph):
    """By size the long small one ends on top of both others; by life it lies below."""
    made = problem(graph, (3, 0, 2), (2, 1, 4), (3, 3, 5), (1, 0, 9))

    assert ALLOCATORS["xla_best_fit"].place(made).peak_bytes == 6 * 32


def test_slots_are_shared_whole_and_grow(graph):
    made = problem(graph, (2, 0, 1), (3, 1, 2), (1, 1, 2), (1, 2, 3))

    assert placed("slot_sharing", made) == [0, 0, 3, 3]


def test_slots_of_another_size_class_are_left_alone(graph):
    assert placed("slot_sharing", problem(graph, (1, 0, 1), (17, 1, 2))) == [0, 1]


CHAIN = ("linear_scan", "greedy_by_size", "skyline_by_area", "xla_best_fit", "slot_sharing", "tlsf", "best", "exact")


@pytest.mark.parametrize("name", CHAIN)
def test_a_chain_in_place_takes_one_address(name, graph):
    value = graph.leaf(2)
    for _ in range(3):
        value = graph.op("relu", value, units=2)
    graph.read(value)
    plan = ALLOCATORS[name].plan(graph.build())

    assert plan.offset.tolist() == [0] * 4
    assert plan.peak_bytes == 64
    assert check(Document.of(plan)).clean


def test_a_donor_gives_its_place_once(graph):
    made = problem(graph, (2, 0, 3), (2, 2, 5), (2, 2, 5), may_share=[(0, 1), (0, 2)])

    assert footprints(made).buffers == ((0, 1), (2,))


def test_a_chain_never_joins_what_lives_together(graph):
    """The middle one is born and dies in one step: its donor and its recipient meet there."""
    made = problem(graph, (2, 0, 3), (2, 2, 3), (2, 2, 5), may_share=[(0, 1), (1, 2)])

    assert footprints(made).buffers == ((0, 1), (2,))


@pytest.mark.parametrize(
    "columns",
    [
        {"pinned": [0]},
        {"own": [0]},
        {"own": [1]},
        {"fixed": {0: 0}},
        {"fixed": {1: 64}},
        {"gaps": {0: ((1, 2),)}},
        {"nbytes": [64, 96]},
    ],
    ids=str,
)
def test_pairs_that_are_no_chain(graph, columns):
    made = problem(graph, (2, 0, 3), (2, 2, 5), may_share=[(0, 1)], **columns)

    assert all(len(group) == 1 for group in footprints(made).buffers)


def test_a_recipient_in_another_arena_is_no_link(graph_in):
    graph = graph_in(Arena(name="a"), Arena(name="b"))
    graph.tensor(1)
    graph.tensor(1, arena=1)
    made = Problem.of(graph.build(), start=[0, 2], stop=[3, 5], may_share=[(0, 1)])

    assert len(footprints(made)) == 2


NAMES = [name for name in ALLOCATORS if name != "reference"]


@pytest.mark.parametrize("name", NAMES)
def test_alignment_arenas_pins_and_fixed_offsets_are_heeded_together(name, graph_in):
    graph = graph_in(Arena(name="a", alignment=32, capacity=8192), Arena(name="b", alignment=64))
    first = graph.leaf(3, alignment=96)
    second = graph.leaf(2, arena=1)
    middle = graph.op("add", first, second, units=5)
    graph.read(graph.op("mul", middle, second, units=1, arena=1, alignment=128))
    program = graph.build()
    told = Constraints.of(program, pins=[0, 3], fixed={2: 1024})
    plan = ALLOCATORS[name].plan(program, told)

    assert plan.offset[2] == 1024
    assert plan.offset[0] % 96 == 0
    assert plan.offset[3] % 128 == 0
    assert plan.arena.tolist() == [0, 1, 0, 1]
    assert check(Document.of(plan)).clean


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_what_does_not_fit_is_refused_in_one_line(name, graph_in):
    graph = graph_in(Arena(name="tiny", alignment=32, capacity=95))
    graph.read(graph.op("concat", graph.leaf(1), graph.leaf(1), units=2))

    with pytest.raises(CapacityError, match=f"^allocator '{name}': .*'tiny'"):
        ALLOCATORS[name].plan(graph.build())


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_a_buffer_nobody_needs_has_no_slot(name, graph):
    graph.tensor(1)
    graph.read(graph.leaf(1))
    if name == "reference":
        return
    assert ALLOCATORS[name].plan(graph.build()).arena.tolist() == [UNPLACED, 0]


@compiled(allocates=False)
def _twice(number):
    return 2 * number


def test_a_piece_is_compiled_once_whatever_constants_it_is_called_with():
    assert numba.njit(lambda number: (_twice(1), _twice(2), _twice(number)))(3) == (2, 4, 6)
    assert len(_twice.signatures) == 1
