"""The picture of planners against the bound."""

from reports.figures import planner_ratios
from reports.figures.style import RED, render


def words(figure):
    axes = figure.axes[0]
    return [text.get_text() for text in (*axes.texts, axes.title, axes._left_title)]


def test_planners_stand_by_their_mean_the_best_on_top():
    figure = planner_ratios(
        [("p", "b", 2.0, True), ("p", "a", 1.0, True), ("q", "b", 2.0, True), ("q", "a", 1.21, True)]
    )

    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a", "b"]
    assert "a is within 1.100 of the lower bound" in words(figure)
    assert {"1.100", "2.000"} <= set(words(figure))


def test_what_is_unsound_is_a_red_cross_and_named():
    figure = planner_ratios([("p", "wrong", 0.9, False), ("p", "right", 1.5, True)])

    assert any(line.get_color() == RED and len(line.get_xdata()) for line in figure.axes[0].lines)
    assert any("unsound (red cross): wrong" in text for text in words(figure))


def test_what_is_below_the_bound_is_seen_and_is_not_called_the_best():
    figure = planner_ratios([("p", "wrong", 0.9, False), ("p", "right", 1.5, True)])

    assert figure.axes[0].get_xlim()[0] < 0.9
    assert "right is within 1.500 of the lower bound" in words(figure)


def test_a_planner_that_was_asked_about_fewer_problems_says_so_and_is_not_called_the_best():
    rows = [("p", "some", 1.0, True), ("p", "all", 1.5, True), ("q", "all", 1.5, True)]
    figure = planner_ratios(rows)

    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["some (1 of 2)", "all"]
    assert "all is within 1.500 of the lower bound" in words(figure)


def test_what_is_beyond_the_edge_is_an_arrow_there():
    figure = planner_ratios([("p", "a", 1.25, True), ("p", "far", 40.0, True), ("q", "far", 2.0, True)])

    assert sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_gid() == "beyond") == 1


def test_failures_are_counted_and_have_no_mean():
    figure = planner_ratios([("p", "a", None, False), ("q", "a", 1.5, True)])

    assert "1 of 2 failed" in words(figure)


def test_nothing_compared_is_said():
    assert "No planners" in words(planner_ratios([]))


def test_a_figure_renders_and_repeats():
    rows = [("p", "a", 1.25, True), ("p", "far", 40.0, True)]

    assert render(planner_ratios(rows), ".svg") == render(planner_ratios(rows), ".svg")
