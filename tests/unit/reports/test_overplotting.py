"""Rectangles in crowds: what is drawn one by one is on top, what is not is covered; and how high they reach."""

import numpy as np
import pytest
from hurtful import one_address
from hypothesis import given
from matplotlib.image import AxesImage
from strategies import documents

from allocsim.judge.fast import check
from reports.figures import memory_map
from reports.figures.overplotting import DEPTH, GRID, covered, topmost
from reports.figures.scene import scene


@pytest.mark.parametrize("seed", range(5))
def test_a_cell_is_covered_if_a_rectangle_touches_it(seed):
    rng = np.random.default_rng(seed)
    window = (0.0, 50.0, -20.0, 80.0)
    x, y = np.sort(rng.uniform(0, 50, (6, 2)), axis=1), np.sort(rng.uniform(-20, 80, (6, 2)), axis=1)
    x[0], y[1] = x[0, 0], y[1, 0]  # without an area, and still to be seen
    mask = covered(np.column_stack([x, y]), window)

    columns, rows = GRID
    left, low = np.arange(columns) * 50 / columns, -20 + np.arange(rows) * 100 / rows
    wanted = np.zeros((rows, columns), dtype=bool)
    for (a, b), (c, d) in zip(x, y, strict=True):
        across = (left < max(b, a + 1e-9)) & (left + 50 / columns > a)
        wanted |= across & ((low < max(d, c + 1e-9)) & (low + 100 / rows > c))[:, None]
    assert np.array_equal(mask, wanted)


def test_all_of_a_tiling_is_drawn_and_of_a_pile_the_top():
    window = (0.0, 10.0, 0.0, 10.0)
    tiles = np.array([(i, i + 1, j, j + 1) for i in range(10) for j in range(10)], dtype=float)
    pile = np.tile([0.0, 10.0, 0.0, 10.0], (500, 1))

    assert topmost(tiles, window).all()
    assert topmost(pile, window).tolist() == [False] * (500 - int(DEPTH)) + [True] * int(DEPTH)


def test_in_an_enlarged_part_long_lives_count_as_far_as_they_are_seen():
    window = (500.0, 510.0, 0.0, 10.0)
    rows = np.array([(0, 100_000, j, j + 1) for j in range(10)], dtype=float)

    assert topmost(rows, window).all()


def test_a_map_of_a_pile_draws_few_rectangles_and_says_what_lies_below():
    document = one_address(1200)
    figure = memory_map(document, report=check(document))

    drawn = {
        c.get_gid(): len(c.get_paths())
        for c in figure.axes[0].collections  # an enlarged part draws some again
        if c.get_gid() in {"buffers", "conflicts"}
    }
    hidden = 1200 - drawn["buffers"]
    assert all(0 < number < 500 for number in drawn.values())
    assert {image.get_gid() for image in figure.findobj(AxesImage)} == {"hidden", "more conflicts"}
    assert any(
        f"{hidden:,} buffers under 64 others and more: grey" in text.get_text()
        for text in figure.texts + figure.axes[0].texts
    )


@given(documents())
def test_the_reach_at_a_step_is_the_highest_end_of_what_lives_there(document):
    for run in range(len(document.runs)):
        shown = scene(document, run)
        curve, plan = shown.reach(), shown.plan
        for first, height in zip(curve.edges[:-1].tolist(), curve.height.tolist(), strict=True):
            live = (shown.start <= first) & (first < shown.stop) & plan.placed
            ends = plan.offset + shown.nbytes
            assert height == sum(
                int(ends[live & (plan.arena == arena)].max()) for arena in set(plan.arena[live].tolist())
            )
