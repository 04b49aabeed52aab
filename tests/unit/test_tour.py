"""docs/tour.md: each command is run as it stands, in one folder, and prints what the page shows, and so does its notebook."""

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from commands import allocsim

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "examples" / "tour" / "tour.ipynb"
MADE = runpy.run_path(str(NOTEBOOK.parent / "notebook.py"))
BLOCKS = [
    [line.removeprefix("    ") for line in block.splitlines()]
    for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", TEXT, re.MULTILINE)
    if block.strip().startswith("$ ")
]


def commands():
    """The command and the lines shown below it, one after the other."""
    for line in (line for block in BLOCKS for line in block):
        if line.startswith("$ allocsim "):
            shown = []
            yield shlex.split(line.removeprefix("$ allocsim ")), shown
        elif line.strip():
            shown.append(line)


@pytest.mark.slow
def test_every_command_of_the_tour_prints_what_the_page_shows(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "examples" / "tour" / "step.json", tmp_path)
    said = list(commands())
    assert len(said) >= 7
    for words, shown in said:
        printed = allocsim(*words).stdout.splitlines()
        assert shown, words
        at = 0
        for line in shown:
            if line == "...":
                continue
            assert line in printed[at:], (words, line, printed)
            at = printed.index(line, at) + 1
    assert (tmp_path / "small" / "test_smallest.py").exists()


def test_the_tour_names_the_options_of_real_commands_and_its_file_is_the_one_shipped():
    assert (ROOT / "examples" / "tour" / "step.json").stat().st_size < 200_000
    assert all(words[0] in {"check", "explain", "report", "bisect", "diff"} for words, _ in commands())


def printed_by(notebook):
    """The cells that are code, each with the words that it prints or shows, but for times and colours."""
    shown = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            texts = [out.get("text") or out.get("data", {}).get("text/html", "") for out in cell["outputs"]]
            printed = re.sub(r"\x1b\[[\d;]*m", "", "".join(map("".join, texts)))  # Jupyter asks for colours
            shown["".join(cell["source"])] = MADE["TIME"].sub("\u2026", printed).split()
    return shown


@pytest.mark.slow
def test_the_notebook_is_the_tour_run_again():
    made = MADE["notebook"]()
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert made == kept
    assert [line for line in printed_by(kept) if line.startswith("!")] == [
        "!" + shlex.join(["allocsim", *words]) for words, _ in commands()
    ]


@pytest.mark.slow
def test_jupyter_runs_the_notebook_and_prints_the_same(monkeypatch, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    shutil.copy(ROOT / "examples" / "tour" / "step.json", tmp_path)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    before = printed_by(notebook)
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert printed_by(notebook) == before
