"""docs/tour.md: each command is run as it stands, in one folder, and prints what the page shows."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from commands import allocsim

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
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
