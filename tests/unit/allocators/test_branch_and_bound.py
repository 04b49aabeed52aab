"""The exact planner: what it finds, what it proves, when it stops."""

from pathlib import Path

import pytest

from allocsim import systems
from allocsim.allocators import ALLOCATORS, portfolio
from allocsim.allocators.branch_and_bound import place
from allocsim.errors import CapacityError
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder


def tetris(capacity=None):
    """Nine rectangles that fill 7 bytes by 6 steps without a hole; largest first needs more."""
    rows = ((3, 0, 2), (4, 0, 1), (2, 1, 4), (2, 1, 3), (5, 4, 6), (3, 2, 4), (2, 3, 5), (2, 5, 6))
    builder = ProgramBuilder("tetris", arenas=(Arena(name="a", alignment=1, capacity=capacity),))
    for nbytes, _, _ in rows:
        builder.buffer("b", nbytes)
    return Problem.of(builder.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows])


def out_of_reach(capacity=None):
    """Eight bytes live at once, nine are needed, since alignments differ; the heuristics need ten."""
    rows = ((4, 3, 4, 4), (5, 4, 7, 1), (3, 2, 3, 2), (4, 1, 3, 4), (3, 6, 8, 1), (1, 2, 5, 3))
    builder = ProgramBuilder("hard", arenas=(Arena(name="a", alignment=1, capacity=capacity),))
    for nbytes, _, _, alignment in rows:
        builder.buffer("b", nbytes, alignment=alignment)
    return Problem.of(builder.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows])


def test_a_puzzle_is_solved_and_proved():
    plan = place(tetris())

    assert plan.peak_bytes == 7
    assert plan.meta["exact"]["proved"]
    assert check(Document.of(plan)).clean


def test_one_byte_less_is_proved_impossible():
    with pytest.raises(CapacityError, match=r"arena 'a' has 6 bytes; at least 7 are needed, proved"):
        place(tetris(capacity=6))


def test_enough_is_enough():
    assert place(tetris(), enough=100).meta["exact"]["nodes"] == 0


def test_without_nodes_the_best_heuristic_is_returned():
    plan = place(tetris(), nodes=0)

    assert plan.meta["exact"]["nodes"] == 0
    assert plan.peak_bytes <= ALLOCATORS["skyline_by_area"].place(tetris()).peak_bytes


def test_a_search_that_was_stopped_does_not_claim_a_proof():
    plan = place(out_of_reach(), nodes=1)

    assert plan.meta["exact"] == {"proved": False, "lower_bound": 8, "nodes": 1}
    assert plan.peak_bytes == 10


def test_a_capacity_nobody_reached_in_time_is_no_proof():
    with pytest.raises(CapacityError, match="arena 'a' has 9 bytes; none found within 1 nodes"):
        place(out_of_reach(capacity=9), nodes=1)
    assert place(out_of_reach(capacity=9)).peak_bytes == 9


def test_a_bound_that_cannot_be_reached_is_raised_by_proof():
    plan = place(out_of_reach())

    assert plan.meta["exact"]["proved"]
    assert plan.peak_bytes == plan.meta["exact"]["lower_bound"] == 9


def test_a_capacity_between_bound_and_least_peak_is_proved_too_small():
    with pytest.raises(CapacityError, match="arena 'a' has 8 bytes; no plan fits, proved"):
        place(out_of_reach(capacity=8))


@pytest.mark.parametrize("name", ["exact", "best", "greedy_by_size"])
def test_an_arena_without_capacity_ends_where_addresses_do(name):
    builder = ProgramBuilder("p", arenas=(Arena(name="a", alignment=1),))
    for buffer in "ab":
        builder.buffer(buffer, 1 << 62)
    problem = Problem.of(builder.build(), start=[0, 0], stop=[1, 1])

    with pytest.raises(CapacityError, match=r"arena 'a' (has|of) 4611686018427387904 bytes"):
        ALLOCATORS[name].place(problem)


def test_no_time_is_no_search():
    assert place(out_of_reach(), seconds=0.0).meta["exact"]["nodes"] == 0


def test_time_enough_is_a_proof():
    assert place(out_of_reach(), seconds=60.0).meta["exact"]["proved"]


def test_best_searches_too():
    assert ALLOCATORS["best"].place(out_of_reach()).peak_bytes == 9


DATA = Path(__file__).parents[4] / "shared" / "data" / "minimalloc"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the instances are not beside this checkout")
@pytest.mark.parametrize("name", "ABCDE")
def test_minimallocs_challenging_instances_fit_into_a_mebibyte(name):
    problem = systems.load(DATA / f"{name}.1048576.csv").problems[0]
    plan = place(problem, enough=1 << 20, nodes=4_000_000)

    assert plan.peak_bytes <= 1 << 20
    assert check(Document.of(plan)).clean


@pytest.mark.parametrize("name", ["best", "exact"])
def test_at_scale_it_is_the_better_of_two_heuristics(name, monkeypatch):
    """With more footprints than there is time for, nothing else is tried."""
    monkeypatch.setattr(portfolio, "TOO_MANY", 5)
    monkeypatch.setattr("allocsim.allocators.branch_and_bound.MOST_ITEMS", 5)
    tried = []
    heuristics = [lambda *told, at=at: tried.append(at) or portfolio.HEURISTICS[at](*told) for at in (0, 2)]
    monkeypatch.setattr(portfolio, "AT_SCALE", heuristics)
    plan = ALLOCATORS[name].place(out_of_reach())

    assert tried == [0, 2]
    assert plan.peak_bytes <= ALLOCATORS["skyline_by_area"].place(out_of_reach()).peak_bytes
    assert check(Document.of(plan)).clean


@pytest.mark.parametrize("name", ["best", "exact"])
def test_at_scale_the_others_are_asked_where_neither_of_the_two_fits(name, monkeypatch):
    """Of these nine the heuristics need 21 bytes, but by birth 19."""
    monkeypatch.setattr(portfolio, "TOO_MANY", 5)
    monkeypatch.setattr("allocsim.allocators.branch_and_bound.MOST_ITEMS", 5)
    rows = ((4, 0, 6), (7, 1, 4), (3, 0, 7), (3, 0, 1), (2, 1, 2), (6, 5, 7), (1, 5, 6), (5, 4, 6), (3, 2, 5))
    builder = ProgramBuilder("tight", arenas=(Arena(name="a", alignment=1, capacity=19),))
    for nbytes, _, _ in rows:
        builder.buffer("b", nbytes, alignment=1)
    problem = Problem.of(builder.build(), start=[row[1] for row in rows], stop=[row[2] for row in rows])

    assert ALLOCATORS[name].place(problem).peak_bytes == 19
