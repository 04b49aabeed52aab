"""Every mode that docs/differential.md names exists, and its factor is the one in the code."""

import re
from pathlib import Path

from allocsim.allocators import ALLOCATORS
from engine.d_differential.rounding import FACTOR
from repro.mode_words import WORDS

TEXT = (Path(__file__).parents[2] / "docs" / "differential.md").read_text(encoding="utf-8")


def test_every_mode_named_is_one():
    (shown,) = re.findall(r"--modes (\S+)", TEXT)
    for word in shown.split(","):
        assert word.partition(":")[0] in {*WORDS, *ALLOCATORS}, word


def test_the_factor_is_the_one_in_the_code():
    assert f"<=  {FACTOR:g} * max" in TEXT
