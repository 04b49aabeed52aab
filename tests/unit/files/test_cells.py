"""Cells of CSV files: no formula, nothing that a terminal obeys, and every number as it was."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim import systems
from allocsim.errors import OutputError
from allocsim.files.cells import cell, is_plain
from allocsim.model import Arena, Document
from allocsim.programs.builder import ProgramBuilder, plan_of
from reports.mode_rows import as_csv


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("=1+1", "'=1+1"), ("+cmd", "'+cmd"), ("-x", "'-x"), ("@SUM(A1)", "'@SUM(A1)"), ("  =1", "'  =1"), ("\uff1d1", "'\uff1d1"),
        ("\x1b[2Jx", "\\x1b[2Jx"), ("a\x07", "a\\x07"), ("a\u202eb", "a\\u202eb"), ("\u200e=1", "\\u200e=1"), ("\t=1", "\\t=1"), ("\r=1", "\\r=1"),
        ("layer.0/w:=", "layer.0/w:="), ("é", "é"), ("", ""), ("-1", "-1"), ("+1e-5", "+1e-5"), ("-inf", "-inf"), ("nan", "nan"), ("-1+2", "'-1+2"),
    ],
)  # fmt: skip
def test_a_formula_and_what_does_not_print_are_made_harmless(text: str, shown: str) -> None:
    assert cell(text) == shown


@given(st.one_of(st.integers(), st.floats()))
def test_numbers_are_what_they_were(number: float) -> None:
    assert cell(number) is number
    assert cell(repr(number)) == repr(number)


@given(st.text())
def test_no_text_is_a_formula_or_holds_what_does_not_print(text: str) -> None:
    shown = str(cell(text))
    assert shown.isprintable()
    try:
        float(shown)
    except ValueError:
        assert not shown.startswith(("=", "+", "-", "@"))


def test_the_table_of_modes_is_made_of_such_cells() -> None:
    row = {
        "step": 1,
        "layer": 0,
        "stage": "\x1b[0m",
        "tensors": 2,
        "differing": 1,
        "ulp": 3,
        "relative": 0.1,
        "tensor": "=HYPERLINK(1)",
        "error": -0.5,
    }
    *_, last = csv.reader(io.StringIO(as_csv([{"mode": "@x", "rows": [row]}])))
    assert last[:4] == ["'@x", "1", "0", "\\x1b[0m"]
    assert last[7:10] == ["0.1", "'=HYPERLINK(1)", "-0.5"]


@pytest.mark.parametrize("name", ["=1+1", "a\x1bb", "a\u202eb", "@x", "-x"])
def test_an_instance_numbers_its_buffers_where_a_name_is_no_plain_cell(name: str) -> None:
    builder = ProgramBuilder("p", arenas=(Arena(name="memory", alignment=1),))
    for buffer, meta in ((name, {"hint": name, "windows": name}), ("b", None)):
        builder.buffer(buffer, 64, alignment=1, meta=meta)
    made = Document.of(plan_of(builder.build(), [0, 64]))
    with pytest.raises(OutputError, match="windows"):
        systems.FORMATS["minimalloc"].saves(made)
    assert is_plain("b")
