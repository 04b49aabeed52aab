"""What docs/embedding.md shows of a message is what is said, and every option and command that it names exists."""

import re
from pathlib import Path

import pytest

import allocsim
from allocsim.cli import COMMANDS

SOURCES = Path(allocsim.__file__).parent
TEXT = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


SAID = re.findall(r"^ {6,}>? +\d  .*$", TEXT, re.MULTILINE)
"""The lines of the message shown that hold an op."""


@pytest.mark.parametrize("line", SAID)
def test_the_message_shown_is_the_message_said(line):
    assert len(SAID) == 5
    space = {}
    exec(compile(BLOCKS[0], "embedding.md", "exec"), space)
    with pytest.raises(allocsim.UncleanError) as caught:
        allocsim.assert_clean(space["program"], {0: 0, 1: 256, 2: 0, 3: 512})
    assert line.strip() in {said.strip() for said in str(caught.value).splitlines()}


def test_every_option_and_command_it_names_exists():
    assert "bisect" in COMMANDS
    plugin = (SOURCES / "outcomes" / "pytest_plugin.py").read_text(encoding="utf-8")
    assert all(option in plugin for option in re.findall(r"--allocsim-[a-z-]+", TEXT))
    options = (SOURCES / "cli" / "check.py").read_text(encoding="utf-8")
    for option in re.findall(r"--(?!allocsim)([a-z-]+)", TEXT):
        assert f"--{option}" in options or option.replace("-", "_") in options, option
