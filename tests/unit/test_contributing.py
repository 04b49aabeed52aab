"""What CONTRIBUTING and README say of the tree is true: each question is answered by one search, each place named exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("allocsim", "engine", "repro", "reports")
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = TEXT[TEXT.index("## Ten questions") : TEXT.index("## How code reads")]
QUESTIONS = re.findall(r"^\| ([^|]+\?) \| `(.+?)` \| `([^`]+)`: (.+) \|$", SECTION, re.MULTILINE)
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [*(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")), ROOT / "pyproject.toml"]
}

FEW = 5
"""Files that a search may show: they are looked through at a glance."""


def test_there_are_ten_questions():
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "search", "path", "answer"), QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_a_question_is_answered_by_one_search(question, search, path, answer):
    found = [name for name, text in SOURCES.items() if re.search(search, text, re.MULTILINE)]
    assert path in found, f"{question} {found}"
    assert len(found) <= FEW, found
    for symbol in re.findall(r"`(\w+)`", answer):
        assert re.search(rf"^(def |class )?{symbol}\b", SOURCES[path], re.MULTILINE), symbol


PLACES = {
    place
    for text in (TEXT, (ROOT / "README.md").read_text())
    for place in re.findall(r"`((?:allocsim|engine|repro|reports|tests|benchmarks|docs)/[\w/.-]*)`", text)
}


@pytest.mark.parametrize("place", sorted(PLACES))
def test_a_place_that_is_named_exists(place):
    assert (ROOT / place).exists()


def test_the_readme_lists_every_folder_of_the_layout():
    readme = (ROOT / "README.md").read_text()
    listed = set(re.findall(r"^    (\w+)/ ", readme, re.MULTILINE))
    assert {*PACKAGES, "tests", "benchmarks", "docs"} == listed
