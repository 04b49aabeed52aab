"""The notebook of docs/tour.md is the page run again, and prints the same; the page's commands are run by `test_documented_sessions.py`."""

import json
import os
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import allocsim
from documented import sessions

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "tour" / "tour.ipynb"
MADE = runpy.run_path(str(NOTEBOOK.parent / "notebook.py"))
COMMANDS = [shlex.split(command.typed) for command in sessions("docs/tour.md", whole=True)[0].commands]


def test_the_tour_names_the_options_of_real_commands_and_its_file_is_the_one_shipped():
    assert (ROOT / "examples" / "tour" / "step.json").stat().st_size < 200_000
    assert all(words[1] in {"check", "explain", "report", "bisect", "diff"} for words in COMMANDS)
    assert len(COMMANDS) >= 7


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
def test_the_notebook_is_the_tour_run_again(monkeypatch):
    """Its commands run in this process: each typed one is known to the shell as well, by the sessions of the pages."""
    here = SimpleNamespace(run=lambda command, **_: allocsim(*command[len(MADE["COMMAND"]) :], columns=80))
    monkeypatch.setitem(MADE["notebook"].__globals__, "subprocess", here)
    made = MADE["notebook"]()
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert made == kept
    assert [line for line in printed_by(kept) if line.startswith("!")] == [
        "!" + shlex.join(words) for words in COMMANDS
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
