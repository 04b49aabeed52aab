"""The search for costly files: what a file costs is measured."""

from pathlib import Path

import pytest
from growing import cost

from allocsim.errors import AllocsimError


def _raises(_: Path) -> None:
    raise ZeroDivisionError


def _refuses(_: Path) -> None:
    raise AllocsimError("no")


def _endless(_: Path) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("run", "answer"), [(_raises, "bad"), (_refuses, "refused"), (_endless, "stopped"), (lambda _: None, "read")]
)
def test_what_became_of_a_file_is_told(run, answer: str, tmp_path: Path) -> None:
    """A traceback is bad, one line of ours is not, and what does not end is stopped."""
    (tmp_path / "f").write_bytes(b"x")
    assert cost(run, tmp_path / "f", 1).answer == answer


def test_memory_that_was_given_back_is_counted(tmp_path: Path) -> None:
    """The peak counts, beyond what the process had."""
    (tmp_path / "f").write_bytes(b"x")
    found = cost(lambda _: b"x" * (200 << 20), tmp_path / "f")
    assert found.answer == "read"
    assert 190 << 20 < found.memory < 400 << 20
