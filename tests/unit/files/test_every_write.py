"""A cut of `benchmarks/kills.py every_write`: every call that a command writes with, before and behind it, under every fault."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import kills as every_write

from allocsim import cli, plugins

NAMES = {"--out", "--corpus", "--documents", "--evidence", "--plot", "--picture"}


def test_a_command_stopped_at_a_call_loses_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A row that is given goes on: the rest of the cut is tried, and no case twice."""
    monkeypatch.chdir(tmp_path)
    (part,) = every_write.tried("plan", 5)
    *_, row = every_write.tried("plan", 16, part)
    assert (part["tried"], row["tried"]) == (5, 16)
    assert {"open", "fsync", "write"} <= {*row["by_call"]}
    assert {*row["by_fault"]} == {*every_write.FAULTS}
    assert row["lost_ones"] == []


def test_a_file_of_the_user_that_is_gone_or_changed_is_seen(tmp_path: Path) -> None:
    """The harness itself: what is lost is said, by name; what is neither old nor new too."""
    before = every_write.laid(tmp_path / "w", "repro")
    every_write.laid(tmp_path / "whole", "repro")
    assert every_write.lost(tmp_path / "w", before, tmp_path / "whole") == ""
    (tmp_path / "w" / "out" / "report.md").write_bytes(b"half")
    assert every_write.lost(tmp_path / "w", before, tmp_path / "whole") == "neither old nor new: out/report.md"
    (tmp_path / "w" / "out" / "notes.txt").unlink()
    assert every_write.lost(tmp_path / "w", before, tmp_path / "whole") == "a file of the user is lost: out/notes.txt"


def test_each_option_that_names_what_is_written_is_tried_or_said_to_be_as_one_that_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the command line itself: the options with such a name, and those whose help begins with such a word."""
    monkeypatch.setattr(every_write, "_inputs", lambda: SimpleNamespace(name=str(tmp_path)))
    rows = [row.arguments(tmp_path) for row in every_write.ALL.values()]
    tried = [{*words, "--out" if "-o" in words else "", "target" if words[0] == "convert" else ""} for words in rows]
    named = {option for option in writing() if not any({*option.split()} <= words for words in tried)}
    assert len(set(writing())) > 30
    assert named == {*every_write.ELSEWHERE} - {"fuzz --online", "check --format github"}


def writing() -> Iterator[str]:
    """Yield each command with its option or argument that names what is written."""
    for name in (*cli.COMMANDS, *plugins.KNOWN_COMMANDS):
        whole = cli._command(cli.COMMANDS.get(name) or cli._brought(name))
        for words, command in getattr(whole, "commands", {"": whole}).items():
            for option in command.params:
                said, called = getattr(option, "help", None) or "", max(option.opts, key=len)
                if (called in NAMES or said.startswith(("Write", "Keep", "What to write"))) and name != "certify":
                    yield " ".join(f"{name} {words} {called}".split())
