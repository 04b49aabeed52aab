"""Every row of docs/found.md has a command that finds the class and party that it states, and a program."""

import json
import re
from pathlib import Path

import pytest

from allocsim.outcomes import JudgeRules, judge_file
from allocsim.recordings import judge

ROOT = Path(__file__).parents[3]
LINES = (ROOT / "docs" / "found.md").read_text(encoding="utf-8").partition("\n## ")[0].splitlines()
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in LINES if line.startswith("| ")][1:]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}, {row[3].split('/')[-1].strip('`')}" for row in ROWS])
def test_the_command_of_a_row_finds_what_it_says(row):
    command, (class_, party) = row[3].strip("`").split(), row[4].split(", ")
    if command[:2] == ["allocsim", "trace"]:
        found = judge(map(json.loads, (ROOT / command[-1]).read_text().splitlines())).findings
        assert (class_, party) in {(finding.class_, finding.party) for finding in found}
        return
    assert command[:2] == ["allocsim", "check"]
    outcome = judge_file(ROOT / command[-1], rules=JudgeRules(strict="--strict" in command), cures=False)

    assert (class_, party) in {(cause.class_, cause.party) for cause in outcome.causes}


@pytest.mark.parametrize("row", ROWS, ids=[row[3].split("/")[-1].strip("`") for row in ROWS])
def test_a_row_has_a_program(row):
    """In the row itself, or under the name of its file."""
    name = re.sub(r"\.\w+$", "", row[3].split("/")[-1].strip("`"))
    programs = (ROOT / "docs" / "found.md").read_text(encoding="utf-8").partition("\n## The programs\n")[2]
    assert re.search(rf"\b{re.escape(name)}\b", programs) or re.search(r"`[^`]*[=(][^`]*`", row[2])
