"""Pictures by what is in them: boxes, labels and marks, each beside this file as text."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from expected import agree
from picture_contents import seen
from squared_line import squared_line

from allocsim.model import Document, Problem, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from reports import draw
from reports.figures import FIGURES, verdict_matrix
from reports.figures.story_figure import _height
from repro import scenarios
from repro.commands import showing

FOLDER = Path(__file__).parent / "pictures"
STORIES = ("match-cast", "double-buffer", "stale-plan", "rms-norm-back", "double-free")


def late_read() -> Document:
    """Five ops, in which `exp` takes the place of `y` before `add` reads it; x is believed to live
    too long.
    """
    b = ProgramBuilder("five ops")
    x = b.tensor("x", "f32", (16,), role=Role.INPUT)
    y, z, out = (b.tensor(name, "f32", (16,)) for name in ("y", "z", "out"))
    b.op("host.write", (), (x,))
    b.op("relu", (x,), (y,))
    b.op("exp", (y,), (z,), in_place=((0, 0),))
    b.op("add", (z, y), (out,))
    b.op("host.read", (out,), ())
    program = b.build()
    problem = Problem.of(program, start=[0, 1, 2, 3], stop=[4, 3, 4, 5], pinned=[3], may_share=[[1, 2]])
    return Document.of(plan_of(program, {0: 128, 1: 0, 2: 0, 3: 64}, source="one reader forgotten", problem=problem))


@pytest.mark.parametrize("kind", FIGURES)
def test_a_late_read_is_drawn_as_written_down(kind):
    agree(FOLDER / f"late-read-{kind}.txt", seen(draw(late_read(), kind)))


def test_the_chain_rule_is_drawn_as_written_down():
    text = seen(draw(squared_line(), "chain"))
    agree(FOLDER / "chain-rule.txt", text)
    assert all(words in text for words in ("= 49", "d W = 42", "d x = 28", "= 14"))


@pytest.mark.parametrize("name", STORIES)
def test_a_story_is_drawn_as_written_down(name):
    scenario = scenarios.find_small(name)
    agree(FOLDER / f"story-{name}.txt", seen(showing.picture(scenario, showing.sides(scenario))))


def test_the_matrix_is_drawn_as_written_down():
    said = {"S": "reports", "H": "not run", "K": "nothing"}
    causes = [{"class": "C01", "fault": "plan"}]
    rows = [
        {"scenario": "right", "runtime": "small", "causes": causes, "answers": said, "differs": []},
        {
            "scenario": "wrong", "runtime": "small", "causes": [], "answers": {**said, "S": "nothing"},
            "differs": ["faulty: S says nothing, expected StaleRead"],
        },
    ]  # fmt: skip
    text = seen(verdict_matrix(rows))
    agree(FOLDER / "matrix.txt", text)
    assert "S wrong (0, 1)" in text
    assert "1 row of 2 differ" in text


def test_a_story_shows_the_arena_of_the_fault_on_both_sides():
    scenario = scenarios.find_small("reduce-scatter-output")
    text = seen(showing.picture(scenario, showing.sides(scenario)))
    before, after = text.split("axes 2:")[1].split("axes 3:")
    for name in ("r0  64 B", "r1  64 B"):
        assert (name in before, name in after) == (True, True)


def test_of_a_large_story_the_bytes_near_the_parties_are_shown():
    corners = np.array([[0.0, 9.0, 64.0 * row, 64.0 * row + 64] for row in range(30)])
    boxes, parties = SimpleNamespace(corners=corners), np.arange(30) < 1
    assert _height(boxes, parties, large=True) == (0.0, 160 * 1.04)
    assert _height(boxes, parties, large=False) == (0.0, 1920 * 1.04)
    assert _height(boxes, np.zeros(30, bool), large=True) == (0.0, 1920 * 1.04)
