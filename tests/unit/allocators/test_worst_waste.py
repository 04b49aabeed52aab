"""The instances on which a planner wastes most (tests/data/worst), and what may be promised when a problem grows."""

import random
import sys
from pathlib import Path

import pytest

from allocsim.allocators import ALLOCATORS
from allocsim.allocators.certificate import certificate
from allocsim.systems import load

ROOT = Path(__file__).parents[3]
sys.path.append(str(ROOT / "benchmarks"))

from shelf import STEPS, drawn, problem  # noqa: E402 - after the path above

WORST = {
    "best_fit": (1536, 832),
    "buddy": (8192, 1920),
    "ggml": (4928, 2176),
    "greedy_by_breadth": (3136, 1792),
    "greedy_by_size": (4032, 2688),
    "linear_scan": (2176, 1152),
    "skyline_by_area": (1536, 1152),
    "skyline_by_lifetime": (3520, 2560),
    "slot_sharing": (4928, 1216),
    "tlsf": (3136, 1664),
    "xla_best_fit": (2048, 1280),
}
"""Planner -> its peak, and the least one, in bytes."""


@pytest.mark.parametrize("name", WORST)
def test_the_worst_waste_of_a_planner_is_what_it_was(name):
    told = load(ROOT / "tests" / "data" / "worst" / f"{name}.csv").problems[0]
    best = ALLOCATORS["exact"].place(told)

    assert (ALLOCATORS[name].place(told).peak_bytes, best.peak_bytes) == WORST[name]
    assert certificate(best)["bound"] == best.peak_bytes


def grown(rows, rng):
    """An instance with one buffer that lives longer, and with one that is larger."""
    place = rng.randrange(len(rows))
    start, stop, size = rows[place]
    longer = (rng.randrange(start + 1), rng.randrange(stop, STEPS + 1), size)
    return [
        [*rows[:place], row, *rows[place + 1 :]] for row in (longer, (start, stop, size + rng.choice([1, 2, 4, 8])))
    ]


@pytest.mark.parametrize("name", ["reference", "exact"])
def test_the_least_peak_never_drops_where_a_life_or_a_size_grows(name):
    rng = random.Random(1)
    for _ in range(60):
        rows = [drawn(rng) for _ in range(10)]
        before = ALLOCATORS[name].place(problem(rows)).peak_bytes
        for more in grown(rows, rng):
            assert ALLOCATORS[name].place(problem(more)).peak_bytes >= before


@pytest.mark.parametrize(
    "name", ["ggml", "linear_scan", "best_fit", "greedy_by_breadth", "buddy", "tlsf", "slot_sharing"]
)
def test_no_other_planner_can_promise_that(name):
    """A heuristic may find a lower plan for more: among drawn instances there is one that shows it."""
    rng = random.Random(1)

    def drops():
        rows = [drawn(rng) for _ in range(10)]
        before = ALLOCATORS[name].place(problem(rows)).peak_bytes
        return any(ALLOCATORS[name].place(problem(more)).peak_bytes < before for more in grown(rows, rng))

    assert any(drops() for _ in range(400))
