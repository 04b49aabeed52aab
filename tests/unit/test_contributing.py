"""What CONTRIBUTING and README say of the tree is true: each question is answered by one search, each place named exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("allocsim", "engine", "repro", "reports")
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
SECTION = TEXT[TEXT.index("## Ten questions") : TEXT.index("## How code reads")]
QUESTIONS = re.findall(r"^\| ([^|]+\?) \| `([^`]+)` \| `([\w.]+)` \|$", SECTION, re.MULTILINE)
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text().splitlines()
FEW = 2
"""Rows that a search may show: the one that answers, and at most one beside it."""


def test_there_are_ten_questions():
    assert len(QUESTIONS) == 10


@pytest.mark.parametrize(("question", "words", "answer"), QUESTIONS, ids=[row[0] for row in QUESTIONS])
def test_a_question_is_answered_by_one_search_for_plain_words(question, words, answer):
    """What is searched for are words, no pattern and no name of the code; that a row leads to what exists, another test holds."""
    assert re.fullmatch(r"[A-Za-z0-9 -]+", words)
    assert words not in answer or words in question.lower(), "the search presupposes its answer"
    found = [row for row in GLOSSARY if words.lower() in row.lower()]
    assert 1 <= len(found) <= FEW, found
    assert any(row.endswith(f"| `{answer}` |") for row in found), f"{question} {found}"


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
