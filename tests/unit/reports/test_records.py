"""Figures from the record of a run: losses, gradients, and memory by category."""

import math
import random
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from steps import lines_run

from reports import gradient_rows
from reports.figures import by_category, gradient_ratio, loss_curves
from reports.figures.style import render
from reports.folder import pictures
from reports.gradient_rows import rows_at, telling_step
from reports.page import page

FALLING = [8.0, 4.0, 2.0, 1.0]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(mpl.text.Text))


def curve(figure: Figure, name: str) -> mpl.lines.Line2D:
    (line,) = [line for line in figure.axes[0].get_lines() if line.get_gid() == f"loss {name}"]
    return line


@pytest.mark.parametrize(
    "modes",
    [
        {},
        {"default": []},
        {"default": [3.0]},
        {"default": [math.nan, math.inf, None]},
        {"default": [0.0, 0.0], "reference": [-1.0, 2.0]},
        {"default": [1e-8, 1e8], "pinned": FALLING, "reference": FALLING, "float64": FALLING, "$x_{": FALLING},
        {"default": list(np.linspace(9, 1, 2000))},
    ],
)
def test_losses_of_any_kind_are_drawn(modes: dict) -> None:
    assert ET.fromstring(render(loss_curves(modes), ".svg")).tag.endswith("svg")


def test_first_and_last_losses_are_said_beside_each_curve() -> None:
    said = texts(loss_curves({"default": [7.5194, 7.5184], "reference": [7.5194, 0.2110]}))
    assert "default\n7.5194 → 7.5184" in said
    assert "reference\n7.5194 → 0.2110" in said
    assert "In 2 steps the loss falls by 0.01 % (default), by 97.2 % (reference)" in said.replace("\n", " ")


def test_curves_that_coincide_differ_in_width_dash_marker_and_where_markers_stand() -> None:
    figure = loss_curves({"default": FALLING, "pinned": FALLING, "reference": FALLING})
    lines = [curve(figure, name) for name in ("reference", "pinned", "default")]
    assert [line.get_zorder() for line in lines] == sorted(line.get_zorder() for line in lines)
    widths = [line.get_linewidth() for line in lines]
    assert widths == sorted(widths, reverse=True)
    assert len({line.get_marker() for line in lines}) == 3
    assert len({line.get_color() for line in lines}) == 3
    assert lines[2].is_dashed()
    assert "are equal at every step" in texts(figure)


def test_curves_that_nearly_coincide_are_said_to() -> None:
    assert "pinned and reference differ by at most 1e-06" in texts(
        loss_curves({"pinned": [8.0, 1.000001], "reference": [8.0, 1.0]})
    )


def test_a_loss_that_is_no_number_is_a_gap() -> None:
    figure = loss_curves({"default": [3.0, math.nan, None, 1.0]})
    assert np.isnan(curve(figure, "default").get_ydata()).tolist() == [False, True, True, False]
    assert "Not a finite number at some step (a gap): default." in texts(figure)


def test_steps_count_from_one() -> None:
    assert curve(loss_curves({"default": FALLING}), "default").get_xdata().tolist() == [1, 2, 3, 4]


def rows(step: int = 1, **change: object) -> list[dict]:
    return [
        {"step": step, "layer": layer, "tensor": f"L{layer}.{tensor}", "ratio": 1.0, "cosine": 1.0, **change}
        for layer in range(30)
        for tensor in ("q.a", "q.b", "v.a", "v.b")
    ]


def points(figure: Figure, what: str, tensor: str) -> np.ndarray:
    (line,) = [line for axes in figure.axes for line in axes.get_lines() if line.get_gid() == f"{what} {tensor}"]
    return np.asarray(line.get_ydata())


@pytest.mark.parametrize(
    "gradients",
    [
        [],
        rows(),
        rows(ratio=None, cosine=None),
        rows(ratio=0.0, cosine=-1.0),
        rows(ratio=math.inf, cosine=math.nan),
        rows(ratio=1e-30) + rows(ratio=1e30),
        [{"step": 1, "layer": None, "tensor": "embedding", "ratio": 2.0, "cosine": 0.5}],
        [{"step": 1, "layer": "odd", "tensor": "t", "ratio": 2.0, "cosine": 0.5}],
        [{"step": 1, "layer": k * 1000, "tensor": f"t{k}", "ratio": 2.0, "cosine": 0.5} for k in range(12)],
    ],
)
def test_gradients_of_any_kind_are_drawn(gradients: list[dict]) -> None:
    figure = gradient_ratio(gradients, 1)
    assert ET.fromstring(render(figure, ".svg")).tag.endswith("svg")
    if len(gradients) > 200:
        assert render(figure, ".svg") == render(gradient_ratio(gradients, 1), ".svg")


def test_a_tensor_is_one_series_over_all_layers() -> None:
    figure = gradient_ratio(rows(), 1)
    assert len(points(figure, "ratio", "q.a")) == 30
    assert "every gradient equals the reference's" in texts(figure)


def test_a_null_is_a_gap_and_is_counted() -> None:
    given = rows()
    given[8]["ratio"] = given[8]["cosine"] = None  # layer 2, q.a
    figure = gradient_ratio(given, 1)
    for what in ("ratio", "cosine"):
        assert np.flatnonzero(np.isnan(points(figure, what, "q.a"))).tolist() == [2]
    assert "1 gap where the reference is zero" in texts(figure)


def test_the_worst_ratio_is_named_with_tensor_and_layer() -> None:
    given = rows()
    given[41].update(ratio=9.6e4, cosine=-0.25)  # layer 10, q.b
    given[7].update(ratio=0.5)
    said = texts(gradient_ratio(given, 1)).replace("\n", " ")
    assert (
        "2 of 120 gradients are wrong: size off by up to a factor of 96,000 (q.b, layer 10), cosine down to -0.25"
        in said
    )


def test_only_the_step_asked_for_is_drawn() -> None:
    given = rows(1) + rows(2, ratio=3.0)
    assert np.allclose(points(gradient_ratio(given, 2), "ratio", "q.a"), 3.0)
    assert np.allclose(points(gradient_ratio(given, 1), "ratio", "q.a"), 1.0)
    assert "None was recorded at step 7." in texts(gradient_ratio(given, 7))


def test_without_a_step_the_first_with_a_wrong_gradient_is_drawn() -> None:
    assert np.allclose(points(gradient_ratio(rows(1) + rows(2, ratio=3.0)), "ratio", "q.a"), 3.0)
    assert np.allclose(points(gradient_ratio(rows(1) + rows(2)), "ratio", "q.a"), 1.0)


def test_the_ratio_is_on_a_logarithmic_axis() -> None:
    assert gradient_ratio(rows(), 1).axes[0].get_yscale() == "log"


def test_zero_and_infinity_stand_on_the_edges() -> None:
    given = rows()
    given[0]["ratio"], given[4]["ratio"] = 0.0, math.inf
    figure = gradient_ratio(given, 1)
    low, high = figure.axes[0].get_ylim()
    edges = {float(line.get_ydata()[0]) for line in figure.axes[0].get_lines() if line.get_markersize() == 8}
    assert edges == {low, high}
    assert "2 ratios of zero" in texts(figure)


MEMORY = {
    "program": "net",
    "taken": 4096,
    "predicted": {"weights": [1024, 1024, 1024], "activations": [0, 2048, 512]},
    "measured": {"weights": [1024, 1024, 1024], "activations": [0, 1024, 0]},
}


@pytest.mark.parametrize(
    "memory",
    [
        MEMORY,
        {"program": "", "taken": 0, "predicted": {}, "measured": {}},
        {"program": "$x_{", "taken": 1, "predicted": {"weights": [0, 0]}, "measured": {}},
        {"program": "ragged", "taken": 1, "predicted": {"weights": [3], "inputs": [1, 2]}, "measured": {"none": [9]}},
        {"program": "long", "taken": 1, "predicted": {"weights": [7] * 9000}, "measured": {"weights": [7] * 9000}},
    ],
    ids=lambda memory: memory["program"] or "empty",
)
def test_memory_of_any_kind_is_drawn_and_said(memory: dict) -> None:
    """Of a file that does not fit itself as well: a page is made of whatever a record holds."""
    assert ET.fromstring(render(by_category(memory), ".svg")).tag.endswith("svg")
    assert "Memory at the fullest step" in page({"memory": memory})


def test_memory_is_said_at_the_fullest_step_of_each_side() -> None:
    """Three KiB were predicted and two were there, in the heading, in the legend and in the page."""
    said = texts(by_category(MEMORY))
    assert "3 KiB predicted at the fullest step, 2 KiB measured" in said
    assert "activations  2 KiB, 1 KiB" in said
    rows = [[cell.strip() for cell in line.split("|")] for line in page({"memory": MEMORY}).splitlines()]
    assert ["", "activations", "2 KiB", "1 KiB", ""] in rows
    assert ["", "together", "3 KiB", "2 KiB", ""] in rows
    assert "memory" in pictures({"memory": MEMORY}, None)


def _slowly(gradients):
    """The first step with a wrong row, step by step over all rows."""
    steps = list(dict.fromkeys(row.get("step") for row in gradients))
    return next((at for at in steps if any(row.wrong for row in rows_at(gradients, at))), steps[0] if steps else None)


def test_the_telling_step_is_the_first_that_is_wrong_and_takes_steps_for_each_row_alone():
    """The same as by going over all rows for each step; twice as many steps take twice the lines."""
    generator = random.Random(0)
    for _ in range(500):
        rows = [
            {"step": generator.choice((0, 1, 2, 3, None)), "ratio": generator.choice((1, 1, 1, 2, None)), "cosine": 1}
            for _ in range(generator.randint(0, 8))
        ]
        rows = [row if row["step"] is not None or generator.random() < 0.2 else {**row, "step": 4} for row in rows]
        assert telling_step(rows) == _slowly(rows)

    def lines(count):
        return lines_run(
            gradient_rows, lambda: telling_step([{"step": n, "ratio": 1, "cosine": 1} for n in range(count)])
        )

    assert lines(400) <= 2 * lines(200)
