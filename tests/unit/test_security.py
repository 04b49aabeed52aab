"""Data never name code: a module that leaves a mark when it is imported lies in the current folder, and files ask for it."""

import json
import sys
from dataclasses import replace

import pytest

from allocsim.allocators import find, find_installed, strangers
from allocsim.cli import main
from allocsim.document import write
from allocsim.errors import AllocsimError, EngineError, PlannerError
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems.ggml.random_graphs.graph_generator import generate
from allocsim.systems.ggml.random_graphs.graph_recipes import GraphRecipe

EVIL = """
from pathlib import Path

Path("mark").write_text("imported")

from allocsim.allocators import find
def plan(program):
    return find("reference").plan(program)
"""

TOML = """
[model]
kind = "mlp"
sizes = [2, 4, 2]
[data]
kind = "moons"
points = 20
[training]
batch = 5
planner = "{planner}"
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The folder with the module."""
    (tmp_path / "marks_its_import.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "marks_its_import", raising=False)
    return tmp_path


def planned():
    b = ProgramBuilder("p")
    x, y = (b.tensor(name, "f32", (16,)) for name in "xy")
    b.op("host.write", (), (x,))
    b.op("exp", (x,), (y,))
    b.op("host.read", (y,), ())
    return find("linear_scan").plan(b.build())


def test_a_training_file_cannot_name_code_and_the_command_line_can(here, capsys):
    (here / "t.toml").write_text(TOML.format(planner="marks_its_import:plan"))
    assert main(["train", "t.toml", "--out", "x"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "$.training.planner: allocator 'marks_its_import:plan' names code, which a file may not" in said
    assert not (here / "mark").exists()
    assert main(["train", "t.toml", "--out", "x", "--allocator", "ggml"]) == 2, "an option does not make the file right"
    assert not (here / "mark").exists()
    (here / "t.toml").write_text(TOML.format(planner="ggml"))
    assert main(["train", "t.toml", "--out", "x", "--allocator", "marks_its_import:plan"]) == 0
    assert (here / "mark").exists()


def test_a_plans_source_is_not_imported(here, capsys):
    write(Document.of(replace(planned(), source="marks_its_import:plan")), "p.json")
    for command in (
        ["replay", "p.json"],
        ["check", "p.json"],
        ["verdict", "p.json"],
        ["explain", "p.json"],
        ["bisect", "p.json"],
        ["diff", "p.json", "p.json"],
        ["plan", "p.json", "-o", "q.json"],
    ):
        assert main(command) in (0, 1, 2), command
        assert not (here / "mark").exists(), command
    capsys.readouterr()
    assert main(["replay", "p.json"]) == 0
    assert "pins are not tried: allocator 'marks_its_import:plan' names code" in capsys.readouterr().err
    assert main(["replay", "p.json", "--allocator", "marks_its_import:plan", "--limit", "1"]) == 0
    assert (here / "mark").exists()


def test_an_entry_point_is_imported_from_where_it_is_installed_not_from_the_current_folder(here, monkeypatch):
    monkeypatch.setattr(strangers, "entry_points", lambda: {"marker": ["marks_its_import:plan"]})
    monkeypatch.setattr("sys.path", [place for place in sys.path if place not in ("", str(here))])
    with pytest.raises(AllocsimError, match="marks_its_import"):
        find_installed("marker")
    assert not (here / "mark").exists()


@pytest.mark.parametrize("name", ["a:b", "a.b:c", ":", "os:system", "C:plan"])
def test_whatever_has_a_colon_names_code(name):
    with pytest.raises(PlannerError, match="names code"):
        find_installed(name)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ({"make": "free", "arguments": []}, "no builder"),
        ({"make": "set_name", "arguments": ["%0", "x"]}, "no builder"),
        ({"make": "get_data", "arguments": ["%0"]}, "no builder"),
        ({"make": "__class__", "arguments": []}, "no builder"),
        ({"make": "opt_alloc", "arguments": [0, True]}, "no builder"),
        ({"make": "sqr", "arguments": [140_000_000]}, "it takes"),
        ({"make": "sqr", "arguments": ["%1"]}, "it takes"),
        ({"make": "sqr", "arguments": ["%-1"]}, "it takes"),
        ({"make": "sqr", "arguments": []}, "it takes"),
        ({"make": "scale", "arguments": ["%0", "%0"]}, "it takes"),
        ({"make": "reshape_2d", "arguments": ["%0", 2.5, 2]}, "it takes"),
        ({"make": "tensor", "arguments": ["f32", 1 << 70]}, "makes a tensor"),
        ({"make": "tensor", "arguments": []}, "not a recipe"),
        ({"make": "tensor", "arguments": ["f32", 4], "fill": "__class__"}, "is filled by"),
        ({"make": "sqr", "arguments": [None]}, "it takes"),
        ({"make": "soft_max_ext", "arguments": [None, "%0", 1.0, 0.0]}, "it takes"),
        (
            {
                "make": "rope_multi",
                "arguments": ["%0", "%0", None, 4, 140_000_000, 8, 0, 1e4, 1.0, 0.0, 1.0, 0.0, 0.0],
            },
            "it takes",
        ),
        ({"make": "soft_max_add_sinks", "arguments": ["%0", 140_000_000]}, "it takes"),
    ],
)
def test_a_recipe_calls_builders_alone_and_no_number_is_an_address(step, says):
    row = {"flag": "", "static": False, "rows": 0}
    first = {"make": "tensor", "arguments": ["f32", 4], **row}
    with pytest.raises(EngineError, match=says):
        GraphRecipe.decode({"steps": [first, {**step, **row}], "expand": [1], "outputs": [], "seed": 0, "name": ""})


@pytest.mark.parametrize("threads", [0, -1, 1 << 20])
def test_a_recipe_has_a_number_of_threads_that_ggml_takes(threads):
    first = {"make": "tensor", "arguments": ["f32", 4]}
    with pytest.raises(EngineError, match="threads"):
        GraphRecipe.decode({"steps": [first], "expand": [], "outputs": [], "seed": 0, "name": "", "threads": threads})


def test_every_recipe_that_is_drawn_can_be_read_again():
    for seed in range(60):
        recipe = generate(seed)
        assert GraphRecipe.decode(json.loads(json.dumps(recipe.encode()))) == recipe
