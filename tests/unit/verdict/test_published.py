"""`docs/verdict.md` publishes the tables as they are in the code."""

import re
from pathlib import Path

import pytest
from expected import agree

from allocsim.verdict import BELIEF_ROWS, CLASSES, MEASURED_ROWS, ROWS

PAGE = Path(__file__).parents[3] / "docs" / "verdict.md"


def lines(rows):
    yield "| detector says | evidence | class | fault |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| {', '.join(row.kinds)} | {row.evidence} | {row.class_} | {row.fault} |"


TABLES = {
    "classes": ["| class | in words |", "|---|---|", *(f"| {class_} | {words} |" for class_, words in CLASSES.items())],
    "rows": list(lines(ROWS)),
    "belief rows": list(lines(BELIEF_ROWS)),
    "measured rows": list(lines(MEASURED_ROWS)),
}


def test_the_published_tables_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = "\n".join([f"<!-- {name} -->", *table, "<!-- end -->"])
        page, count = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, text=text: text, page, flags=re.DOTALL)
        assert count == 1, name
    agree(PAGE, page)


@pytest.mark.parametrize("row", [*ROWS, *BELIEF_ROWS, *MEASURED_ROWS], ids=lambda row: row.evidence[:40])
def test_each_row_names_a_class_and_a_party_that_exist(row):
    assert row.class_ in {*CLASSES, "unknown"}
    assert row.fault in {"plan", "kernel", "caller", "schedule", "unknown"}
