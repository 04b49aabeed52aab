"""Pictures by what is in them: boxes, labels and marks, each beside this file as text."""

from pathlib import Path

import pytest
from expected import agree
from picture_contents import seen
from squared_line import squared_line

from allocsim.model import Document, Problem, Role
from allocsim.programs.builder import ProgramBuilder, plan_of
from reports import draw
from reports.figures import FIGURES, verdict_matrix
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
