"""Lines of prose end at 100 characters: in documents, docstrings and comments. Tables, code and what has no space stay as long as they are."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIDTH = 100
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
SOURCES = sorted(
    path for package in ("allocsim", "engine", "repro", "reports") for path in (ROOT / package).rglob("*.py")
)

COLUMNS = re.compile(r"\S {2,}\S")
"""Two spaces within a line: columns, which are no prose."""


UNBROKEN = re.compile(r"\S+|`[^`]+`[.,;:]?")
"""What cannot be broken: one word, or one piece of code."""


def paragraphs(text):
    """Yield (number, line) of a document that are prose: outside of code and tables."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith(("    ", "|")):
            yield number, line


def docstrings(text):
    """Yield (number, line) of all docstrings that are prose, and of the docstrings of attributes."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                for number in range(statement.lineno, statement.end_lineno + 1):
                    line = lines[number - 1]
                    deeper = line.startswith(" " * (statement.col_offset + 4)) and number > statement.lineno
                    if not deeper and not line.lstrip().startswith("|") and not COLUMNS.search(line.strip()):
                        yield number, line


def comments(text):
    """Yield (number, line) of the comments that stand on lines of their own."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"^\s*# \w", line) and "noqa" not in line and not COLUMNS.search(line.strip()):
            yield number, line


def too_long(lines):
    return [f"{number}: {line}" for number, line in lines if len(line) > WIDTH and not UNBROKEN.fullmatch(line.strip())]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_lines_of_a_document_end_in_time(path):
    assert too_long(paragraphs(path.read_text())) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_the_prose_in_a_source_ends_in_time(path):
    text = path.read_text()
    assert too_long(docstrings(text)) + too_long(comments(text)) == []
