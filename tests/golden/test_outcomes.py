"""What `allocsim check` prints of each case with a known answer, as people read it at 80 columns."""

from pathlib import Path

import pytest
from expected import agree

from allocsim.outcomes import judge_file
from allocsim.outcomes.telling import WIDTH, lines_of

CASES = Path(__file__).parents[1] / "data" / "cases"
SHOWN = Path(__file__).parent / "outcomes"


@pytest.mark.parametrize(
    "path", sorted(path for path in CASES.iterdir() if path.suffix != ".md"), ids=lambda path: path.stem
)
def test_a_case_is_told_so(path, monkeypatch):
    monkeypatch.chdir(CASES)
    lines = list(lines_of(judge_file(path.name, cures=True)))

    assert max(map(len, lines)) <= WIDTH
    agree(SHOWN / f"{path.stem}.txt", "\n".join(lines) + "\n")
