"""What a person reads: the verdict of each scenario at small size, as text and as JSON, beside this file.

Errors the audit measures and the cases it tries are the audit's own business; they are written `#` here.
"""

import json
import re
from pathlib import Path

import pytest
from expected import agree
from scenario_runs import ALL, small

from engine.models.llama import SMOLLM2_135M

FOLDER = Path(__file__).parent / "verdicts"


def readable(text):
    """Return a text with what the audit measured left open."""
    return re.sub(r"\(error (?:up to \S+|beyond all bounds) in \d+ cases?\)", "(error # in # cases)", text)


@pytest.mark.parametrize("name", ALL)
def test_the_verdict_reads_as_written_down(name):
    result = small(name, base=SMOLLM2_135M)
    agree(FOLDER / f"{name}.txt", readable(result.verdict.text).replace("; ", ";\n") + "\n")


@pytest.mark.parametrize("name", ALL)
def test_the_verdict_has_the_json_written_down(name):
    verdict = json.dumps(small(name, base=SMOLLM2_135M).verdict.as_json(), indent=1)
    agree(FOLDER / f"{name}.json", readable(verdict) + "\n")


def test_the_repaired_twin_reads_as_written_down():
    agree(FOLDER / "fixed.txt", small("ggml-1501", fixed=True, base=SMOLLM2_135M).verdict.text + "\n")
