"""Files that hold what is expected, beside the code that makes it: compared as text, rewritten when asked to; and the one line of a refusal.

    ALLOCSIM_UPDATE=1 pytest tests/golden tests/unit/verdict

writes what the code gives now; `git diff` then shows what a person sees change, and is read before it is committed.
"""

import os
from pathlib import Path

import pytest

from allocsim.cli import main

UPDATE = "ALLOCSIM_UPDATE"


def agree(path: Path, text: str) -> None:
    """Fail unless the file holds the text; with `ALLOCSIM_UPDATE` set, write it and pass."""
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
        return
    if not path.exists():
        pytest.fail(f"{path.name} is missing; {UPDATE}=1 writes it")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} differs; {UPDATE}=1 writes what there is now"


def refused(capsys, *arguments):
    """Return the one line with which a command line is refused."""
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert said.err.startswith("allocsim: ")
    assert said.err.count("\n") == 1
    return said.err
