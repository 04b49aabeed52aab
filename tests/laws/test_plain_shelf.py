"""The planners of the shelf that keep their free blocks sorted give the plans of those that look at all of them."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_shelf import PlainCaching, PlainTlsf, plain_events, plain_fit, plain_ggml, plain_share
from strategies import arenas, recipes

from allocsim.allocators import ALLOCATORS, Constraints, caching, driven_online, ggml, portfolio, slot_sharing, tlsf
from allocsim.allocators.fitting import fit_rows
from allocsim.allocators.footprints import FREE, FootprintColumns, footprints
from allocsim.allocators.placement_kernels import ROOM, sweep
from allocsim.allocators.placement_kernels import fit as fit_among
from allocsim.allocators.xla import spatial, temporal
from allocsim.errors import CapacityError
from allocsim.fuzzing.fuzz_case import same_plan
from allocsim.fuzzing.program_recipes import assemble
from allocsim.model import Arena, Problem
from allocsim.model.layout import LIMIT
from allocsim.programs.builder import ProgramBuilder

PLAIN = {
    "tlsf": (tlsf, "Tlsf", PlainTlsf),
    "caching": (caching, "Caching", PlainCaching),
    "slot_sharing": (slot_sharing, "_share", plain_share),
}
"""Planner -> what of which module is said plainly."""


XLA = tuple(
    lambda placed, arena, rows, limit, order=order: fit_rows(
        "x", placed, arena, rows, order(placed, rows), best=True, limit=limit
    )
    for order in (spatial, temporal)
)


def drawn(seed):
    """Some hundred lives of a few sizes, so that many free blocks are equal, in an arena that may end."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(20, 300))
    unit = int(rng.choice([1, 4, 64, 512]))
    sizes = rng.choice([1, 2, 3, 5, 8, 40, 1 << 12, 1 << 15], count) * unit
    capacity = int(sizes.sum() // rng.integers(1, 6)) if rng.random() < 0.5 else None
    builder = ProgramBuilder("drawn", arenas=(Arena(name="a", alignment=unit, capacity=capacity),))
    for size in sizes.tolist():
        builder.buffer("b", size, alignment=unit * int(rng.choice([1, 1, 1, 2, 3])))
    start = rng.integers(0, count, count)
    stop = start + 1 + np.exp(rng.random(count) * np.log(count)).astype(np.int64)
    fixed = {int(buffer): int(buffer) * 6 * unit for buffer in rng.integers(0, count, rng.integers(0, 3))}
    return Problem.of(builder.build(), start=start, stop=stop, fixed=fixed if capacity is None else {})


def planned(name, problem):
    """The plan, or the words of a refusal."""
    try:
        return ALLOCATORS[name].place(problem)
    except CapacityError as error:
        return str(error)


def same(name, problem):
    """Whether a planner answers as its plain twin."""
    module, what, plain = PLAIN[name]
    found = planned(name, problem)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, what, plain)
        patched.setattr(driven_online, "_events", plain_events)
        other = planned(name, problem)
    return found == other if isinstance(found, str) or isinstance(other, str) else same_plan(found, other)


def as_plain(problem, memories=()):
    """Whether ggml's compiled walk answers as the plain one does."""
    said = plain_ggml(problem, memories)
    try:
        plan = ggml.place(problem, memories=memories)
    except CapacityError as error:
        return isinstance(said, int) and f"no room for buffer {said} " in str(error)
    places = {b: (int(plan.arena[b]), int(plan.offset[b])) for b in np.flatnonzero(plan.arena >= 0).tolist()}
    told = plan.meta["ggml"]
    return said == (places, [tuple(row) for row in plan.events.tolist()], told["used"], told["most_blocks"])


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_kept_sorted_changes_no_plan(name):
    wrong = [seed for seed in range(120) if not same(name, drawn(seed))]

    assert not wrong


@settings(max_examples=30)
@given(recipes(max_size=20), arenas(), st.sampled_from(sorted(PLAIN)))
def test_what_is_kept_sorted_changes_no_plan_of_a_program(drawn_ops, spaces, name):
    """Pairs in place, pins, several arenas with capacities."""
    program = assemble(drawn_ops, arenas=spaces)
    problem = ALLOCATORS[name].believe(program, Constraints.of(program))

    assert same(name, problem)


def test_the_compiled_walk_of_ggml_is_the_plain_one():
    wrong = [seed for seed in range(120) if not as_plain(drawn(seed))]

    assert not wrong


@settings(max_examples=75)
@given(recipes(max_size=20), arenas(), st.booleans())
def test_the_compiled_walk_of_ggml_is_the_plain_one_of_a_program(drawn_ops, spaces, joined):
    """Pairs in place, pins, arenas with capacities, each a memory of its own or all of them the chunks of one."""
    program = assemble(drawn_ops, arenas=spaces)
    problem = ALLOCATORS["ggml"].believe(program, Constraints.of(program))

    assert as_plain(problem, [list(range(len(program.arenas)))] if joined else [])


def boxes(seed, count=None):
    """Some hundred rows, or `count`, some of them fixed, some without an end, and an order of them."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 600)) if count is None else count
    start = rng.integers(0, max(count // int(rng.integers(1, 4)), 1), count)
    stop = start + 1 + np.exp(rng.random(count) * np.log(count + 1)).astype(np.int64)
    stop[rng.random(count) < 0.02 * (seed % 3)] = LIMIT
    nbytes = rng.choice([1, 2, 3, 5, 8, 64, 1000], count) * int(rng.choice([1, 64]))
    alignment = rng.choice([1, 1, 4, 48, 64], count)
    fixed = np.full(count, FREE)
    chosen = rng.integers(0, count, 3 * (seed % 2))
    fixed[chosen] = alignment[chosen] * rng.integers(0, 500, len(chosen))
    return rng.permutation(count), FootprintColumns(start, stop, nbytes, alignment, fixed)


def fit(order, placed, limit, best):
    """The kernel, with room in which anything stands."""
    return fit_among(order, placed, limit, best, np.full((ROOM * len(order), 3), -7))


@pytest.mark.parametrize("best", [False, True])
def test_keeping_what_lives_alone_changes_no_plan(best):
    """By birth, windows of time and what lives give one answer, and refuse the same row where the arena ends."""
    for seed in range(0, 60, 2):  # of even seeds no row is fixed
        _, placed = boxes(seed)
        order = np.argsort(placed.start, kind="stable")
        offsets, row = fit(order, placed, LIMIT, best)
        top = int((offsets + placed.nbytes).max())
        assert row < 0
        for limit in (LIMIT, top, top - 1, top // 2):
            (one, stopped), (other, refused) = (kernel(order, placed, limit, best) for kernel in (fit, sweep))
            assert stopped == refused
            assert stopped >= 0 or np.array_equal(one, other)


@pytest.mark.parametrize("best", [False, True])
def test_windows_of_time_change_no_plan(best):
    """More rows in a window than are kept apart until they are put in order, and arenas that end."""
    wrong = []
    for seed in range(20):
        order, placed = boxes(seed)
        for limit in (LIMIT, int(placed.nbytes.sum()) // 3):
            found, row = fit(order, placed, limit, best)
            expected, refused = plain_fit(order, placed, limit, best)
            wrong += [] if row == refused and (found == expected).all() else [(seed, limit)]

    assert not wrong


@pytest.mark.parametrize("best", [False, True])
def test_windows_that_no_row_asks_any_more_change_no_plan(best):
    """There are so many that some are asked no more, or never, while others still are."""
    order, placed = boxes(1, 2500)
    found, row = fit(order, placed, LIMIT, best)
    expected, _ = plain_fit(order, placed, LIMIT, best)
    assert row < 0
    assert (found == expected).all()


def lowest(placed, arena, rows, ways):
    """The offsets of the first of several ways that has the lowest peak, each to its end; None where none fits."""
    found = []
    for way in ways:
        with contextlib.suppress(CapacityError):
            found.append(way(placed, arena, rows, placed.limit(arena)).tolist())
    nbytes = placed.nbytes[rows]
    return min(found, key=lambda offsets: int((offsets + nbytes).max()), default=None)


def test_an_order_that_is_given_up_would_have_been_no_better():
    """XLA's two orders and the portfolio's seven."""
    wrong = []
    for seed in range(60):
        placed = footprints(drawn(seed))
        ((arena, rows),) = placed.by_arena()
        plan = planned("xla_best_fit", placed.problem)
        xla = None if isinstance(plan, str) else plan.offset[[placed.buffers[row][0] for row in rows]].tolist()
        best = portfolio.first_plans(placed, arena, rows, 0)
        wrong += [] if xla == lowest(placed, arena, rows, XLA) else [("xla", seed)]
        expected = lowest(placed, arena, rows, portfolio.HEURISTICS)
        wrong += [] if expected == (None if best is None else best.tolist()) else [("portfolio", seed)]

    assert not wrong
