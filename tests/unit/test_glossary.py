"""The glossary: each term stands once, leads to what exists, and the words that it replaces are gone."""

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`]+)` \|$", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
PACKAGES = ("allocsim", "engine", "repro", "reports")
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")),
]

REPLACED = (
    "nobody believes anything",
    r"exists? apart too",
    r"pieces of equal writer",
    r"does not bear",
    "What is not told is asked",
)
"""Sentences without a subject or a reason, as they once stood."""


def exists(place):
    """Tell whether a dotted name, or a file of the project, is there."""
    if place.endswith(".md"):
        return (ROOT / place).exists()
    for cut in range(place.count(".") + 1):
        module, _, attributes = (
            (place, "", "")
            if not cut
            else (place.rsplit(".", cut)[0], "", place.split(".", place.count(".") + 1 - cut)[-1])
        )
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            continue
        return not attributes or hasattr(found, attributes)
    return False


def test_there_are_terms_and_each_stands_once():
    terms = [term for term, _, _ in ROWS]
    assert len(terms) > 40
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(("term", "meaning", "place"), ROWS, ids=[row[0] for row in ROWS])
def test_a_term_leads_to_what_exists(term, meaning, place):
    assert exists(place), place
    assert not meaning.startswith(term)


@pytest.mark.parametrize("words", REPLACED)
def test_what_the_glossary_replaced_is_gone(words):
    assert [path.name for path in TEXTS if re.search(words, " ".join(path.read_text().split()))] == []


@pytest.mark.parametrize("term", [word for term, _, _ in ROWS for word in term.split(", ")])
def test_a_term_is_used(term):
    """A word that only the glossary knows is no word of this project."""
    pattern = re.compile(rf"\b{re.escape(term)}", re.IGNORECASE)
    assert any(pattern.search(path.read_text()) for path in TEXTS if path.name != "glossary.md")
