"""A cut of `benchmarks/every_write.py`: every call that a command writes with, before and behind it, under every fault."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

import every_write


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
