"""docs/ops.md is the table, and says what every op computes."""

from pathlib import Path

import expected

from engine.ops import OPS
from engine.ops.op_reference import COMPUTES, markdown

PAGE = Path(__file__).parents[4] / "docs" / "ops.md"


def test_every_op_says_what_it_computes():
    """One line each; an op that is gone may keep none but that of another optimiser."""
    assert set(OPS) <= set(COMPUTES)
    assert all(line and "|" not in line for line in COMPUTES.values())


def test_the_page_is_made_from_the_table():
    """Whoever adds an op writes the page anew."""
    expected.agree(PAGE, markdown())
