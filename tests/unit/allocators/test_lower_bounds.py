"""Lower bounds by hand, in bytes."""

import pytest

from allocsim.allocators.footprints import footprints
from allocsim.allocators.greedy_by_breadth import broadest
from allocsim.allocators.lower_bounds import arena_bounds, granule, lower_bound, without
from allocsim.model import Arena, Problem
from allocsim.programs.builder import ProgramBuilder

ONE = (Arena(name="a", alignment=1),)


def problem(*rows, arenas=ONE, **columns):
    """Rows of (nbytes, start, stop[, alignment[, arena]])."""
    builder = ProgramBuilder("rows", arenas=arenas)
    for nbytes, _, _, *rest in rows:
        alignment, arena = [*rest, None, 0][:2] if len(rest) < 2 else rest
        builder.buffer("b", nbytes, alignment=alignment, arena=arena or 0)
    return Problem.of(builder.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows], **columns)


def test_what_lives_together_adds_up():
    assert lower_bound(problem((5, 0, 2), (7, 1, 3), (4, 2, 5))) == 12


def test_nothing_needs_nothing():
    assert lower_bound(problem()) == 0
    assert lower_bound(problem((5, 2, 2), (0, 0, 4))) == 0


def test_all_but_the_topmost_are_padded():
    assert lower_bound(problem((5, 0, 2, 4), (6, 0, 2, 4), (1, 0, 2, 4))) == 4 + 8 + 8 - 3 + 0


def test_mixed_alignments_share_their_divisor():
    assert lower_bound(problem((5, 0, 2, 4), (5, 0, 2, 6))) == 5 + 6
    assert lower_bound(problem((5, 0, 2, 4), (5, 0, 2, 1))) == 10


def test_a_step_where_all_are_aligned_counts_by_itself():
    assert lower_bound(problem((5, 0, 2, 8), (5, 0, 2, 8), (1, 1, 2, 1))) == 13


def test_a_pinned_buffer_meets_all_that_follows():
    assert lower_bound(problem((5, 0, 1), (7, 3, 4))) == 7
    assert lower_bound(problem((5, 0, 1), (7, 3, 4), pinned=[0])) == 12


def test_a_fixed_buffer_ends_where_it_ends():
    assert lower_bound(problem((5, 0, 1), (7, 3, 4), fixed={0: 40})) == 45


def test_gaps_are_granted_where_there_are_no_ops():
    assert lower_bound(problem((5, 0, 9), (7, 3, 4), gaps={0: ((3, 4),)})) == 7


def test_a_pair_counts_once_at_its_step_and_twice_elsewhere():
    assert lower_bound(problem((5, 0, 3), (4, 2, 5), may_share=[(0, 1)])) == 5
    assert lower_bound(problem((5, 0, 3), (4, 1, 5), may_share=[(0, 1)])) == 9


def test_two_donors_of_one_recipient_save_once():
    assert lower_bound(problem((5, 0, 3), (4, 0, 3), (3, 2, 5), may_share=[(0, 2), (1, 2)])) == 9


def test_two_pairs_save_no_more_than_half_of_what_their_buffers_could():
    assert lower_bound(problem((5, 0, 3), (5, 0, 3), (5, 2, 5), (5, 2, 5), may_share=[(0, 2), (1, 3), (0, 3)])) == 10


def test_each_arena_has_its_own_bound():
    arenas = (Arena(name="a", alignment=1), Arena(name="b", alignment=1))
    made = problem((5, 0, 2, 1, 0), (7, 5, 6, 1, 1), arenas=arenas)

    assert arena_bounds(made) == [5, 7]
    assert lower_bound(made) == 12


def test_own_buffers_do_not_count():
    assert lower_bound(problem((5, 0, 2), (7, 0, 2), own=[1])) == 5


def test_sums_beyond_64_bits_are_exact():
    assert lower_bound(problem(*[(1 << 62, 0, 2)] * 6)) == 6 << 62


def test_the_granule_divides_all_that_adds_up():
    placed = footprints(problem((12, 0, 2, 4), (8, 0, 2, 6), fixed={0: 16}))

    assert granule(placed, placed.of_buffer.astype("int64")) == 2


@pytest.mark.parametrize(
    ("gaps", "left"),
    [
        ((), [(2, 8)]),
        (((0, 3), (7, 9)), [(3, 7)]),
        (((4, 5), (5, 6), (4, 6)), [(2, 4), (6, 8)]),
        (((0, 9),), []),
        (((4, 4),), [(2, 8)]),
        (((0, 1), (9, 10)), [(2, 8)]),
    ],
)
def test_a_life_less_its_gaps(gaps, left):
    assert without(2, 8, gaps) == left


def test_the_broadest_step_of_a_life_is_the_first_of_equal_ones():
    made = problem((5, 0, 9), (2, 1, 3), (2, 4, 6), (3, 4, 5))
    breadth, step = broadest(made.start, made.stop, made.nbytes)

    assert breadth.tolist() == [10, 7, 10, 10]
    assert step.tolist() == [4, 1, 4, 4]
