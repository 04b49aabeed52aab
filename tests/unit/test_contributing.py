"""What CONTRIBUTING and README say of the tree is true: each question is answered by one search, each place named exists."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("allocsim", "engine", "repro", "reports")
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = TEXT[TEXT.index("## Ten questions") : TEXT.index("## How code reads")]
QUESTIONS = re.findall(r"^\| ([^|]+\?) \| `(.+?)` \| `([^`]+)`: (.+) \|$", SECTION, re.MULTILINE)
FEW = 2
"""Files that a search may show: the one that is named, and at most one that leads to it."""


def test_there_are_ten_questions():
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "search", "path", "answer"), QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_a_question_is_answered_by_one_search(question, search, path, answer):
    asked = ["grep", "-rnE", "--include=*.py", "--include=*.toml", search, *PACKAGES, "pyproject.toml"]
    done = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), question
    found = {line.partition(":")[0] for line in done.stdout.splitlines()}
    assert path in found, f"{question} {found}"
    assert len(found) <= FEW, found
    for symbol in re.findall(r"`(\w+)`", answer):
        assert re.search(rf"^(def |class )?{symbol}\b", (ROOT / path).read_text(), re.MULTILINE), symbol


DETECTORS = re.findall(r"^\| ([A-Z]) \|", TEXT[TEXT.index("## Where each detector is") :], re.MULTILINE)


def test_every_letter_has_its_files():
    assert list("SLHKDPR") == DETECTORS


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
    assert {*PACKAGES, "proof", "tests", "benchmarks", "docs"} == listed
