"""Every piece of code of docs/online.md runs, and what is printed under its
command is printed.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allocsim.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/online.md").read_text(encoding="utf-8")

NEEDS = {"python": sys.executable, "c": "cc", "rust": "rustc", "perl": "perl"}
"""By language, the program without which its piece of the page cannot run."""


def pieces() -> dict[str, tuple[str, str]]:
    """Return by language the first piece of code, and the session that stands behind it."""
    found: dict[str, tuple[str, str]] = {}
    for match in re.finditer(r"```(\w+)\n(.*?)```\n(.*?)(?=```|\Z)", PAGE, re.DOTALL):
        language, code, behind = match.groups()
        session = re.search(r"((?:^    .*\n)*^    \$ .*\n(?:^    .*\n)*)", behind, re.MULTILINE)
        if session is not None:
            found.setdefault(language, (code, session[1]))
    return found


def test_each_language_of_the_page_has_a_piece_and_a_session():
    assert list(pieces()) == list(NEEDS)


@pytest.mark.parametrize("language", NEEDS)
def test_a_piece_and_its_session_say_what_stands_there(language: str, tmp_path: Path, capsys, monkeypatch):
    if shutil.which(NEEDS[language]) is None:
        pytest.skip(f"no {NEEDS[language]}")
    code, session = pieces()[language]
    name = {"python": "my_pool.py", "c": "pool.c", "rust": "pool.rs", "perl": "pool.pl"}[language]
    assert f"`{name}`" in PAGE
    (tmp_path / name).write_text(code)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    commands = re.findall(r"^    \$ (?:PYTHONPATH=\. )?(.*)\n((?:    (?!\$).*\n)*)", session, re.MULTILINE)
    for command, printed in commands:
        words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
        if words[0] != "allocsim":
            subprocess.run(words, check=True)
            continue
        assert main(words[1:]) == 1
        said = capsys.readouterr().out.splitlines()
        lines = [line.removeprefix("    ") for line in printed.splitlines()]
        assert [line for line in lines if line != "..." and line not in said] == []
        assert lines


def test_the_state_machine_of_the_page_runs():
    code = next(code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "state_machine" in code)
    names: dict[str, object] = {}
    exec(compile(code, "docs/online.md", "exec"), names)
    machine = names["TestTlsf"]
    machine.settings = type(machine.settings)(max_examples=5, stateful_step_count=8, deadline=None, database=None)  # type: ignore[attr-defined]
    machine("runTest").runTest()  # type: ignore[operator]


def test_the_recording_of_the_page_is_judged_as_it_says(tmp_path: Path, capsys):
    lines = [line.strip() for line in PAGE.splitlines() if line.startswith('    {"event"')]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["trace", str(tmp_path / "events.jsonl")]) == 1
    cure = re.search(r"\*(free block '0'[^*]*)\*", PAGE)
    assert cure is not None
    said = " ".join(capsys.readouterr().out.split())
    assert " ".join(cure[1].split()) in said
    assert "C09" in said
    at = next(number for number, line in enumerate(lines) if json.loads(line)["event"] == "free")
    lines.insert(at, '{"event": "done", "mark": "step 158"}')
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["trace", str(tmp_path / "events.jsonl")]) == 0
