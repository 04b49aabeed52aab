"""Every command, option and mode that docs/differential.md names exists."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from allocsim import plugins
from allocsim.allocators import ALLOCATORS
from allocsim.cli import COMMANDS
from engine.d_differential.rounding import FACTOR
from repro.mode_words import WORDS

TEXT = (Path(__file__).parents[2] / "docs" / "differential.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", re.findall(r"^    allocsim (.*)$", TEXT, re.MULTILINE))
def test_every_command_shown_exists_with_its_options(line):
    name, *_ = line.split()
    module = COMMANDS[name].module if name in COMMANDS else plugins.commands()[0][name].target.partition(":")[0]
    source = Path(find_spec(module).origin).read_text(encoding="utf-8")
    for option in re.findall(r"--([a-z-]+)", line):
        assert f'"--{option}"' in source or f" {option.replace('-', '_')}: " in source, option


def test_every_mode_named_is_one():
    (shown,) = re.findall(r"--modes (\S+)", TEXT)
    for word in shown.split(","):
        assert word.partition(":")[0] in {*WORDS, *ALLOCATORS}, word


def test_the_factor_is_the_one_in_the_code():
    assert f"<=  {FACTOR:g} * max" in TEXT
