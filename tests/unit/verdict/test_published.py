"""`docs/verdict.md` publishes the tables as they are in the code."""

import re
from pathlib import Path

import pytest
from expected import agree

from allocsim.cure.changes import PROPOSED
from allocsim.verdict import CLASSES, MEASURED_NAMES, NAMES

PAGE = Path(__file__).parents[3] / "docs" / "verdict.md"


def lines(rows):
    yield "| mend | evidence | class | fault |"
    yield "|---|---|---|---|"
    for row in rows:
        yield f"| {', '.join(row.mends)} | {row.evidence} | {row.class_} | {row.party} |"


MEASURED = tuple({(row.mends, row.evidence): row for row in MEASURED_NAMES.values()}.values())

TABLES = {
    "classes": ["| class | in words |", "|---|---|", *(f"| {class_} | {words} |" for class_, words in CLASSES.items())],
    "mends": [
        "| mend | what is wrong |",
        "|---|---|",
        *(f"| {mend} | {wrong} |" for mend, (wrong, _) in PROPOSED.items()),
    ],
    "names": list(lines(NAMES)),
    "measured names": list(lines(MEASURED)),
}


def test_the_published_tables_are_those_of_the_code():
    page = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = "\n".join([f"<!-- {name} -->", *table, "<!-- end -->"])
        page, count = re.subn(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, text=text: text, page, flags=re.DOTALL)
        assert count == 1, name
    agree(PAGE, page)


@pytest.mark.parametrize("row", [*NAMES, *MEASURED], ids=lambda row: row.evidence[:40])
def test_each_row_names_a_class_and_a_party_that_exist(row):
    assert row.class_ in {*CLASSES, "unknown"}
    assert row.party in {"plan", "kernel", "caller", "schedule", "unknown"}
    assert set(row.mends) <= set(PROPOSED)


def test_every_class_and_every_mend_has_a_row():
    assert {row.class_ for row in (*NAMES, *MEASURED)} == {*CLASSES, "unknown"}
    assert {mend for row in (*NAMES, *MEASURED) for mend in row.mends} == set(PROPOSED)
