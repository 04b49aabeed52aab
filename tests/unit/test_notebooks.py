"""What a notebook shows of a program, a plan, a document, a report and an outcome: a table, as text."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from strategies import plan

from allocsim import judge_file, verify
from allocsim.html_table import MOST_ROWS
from allocsim.model import Document
from allocsim.programs.builder import ProgramBuilder

HOSTILE = '<script>alert(1)</script>"\x1b[2J'
CASE = Path(__file__).parents[1] / "data" / "cases" / "both-plans-faulty.json"


class Cells(HTMLParser):
    """The texts of the cells by row, and which tags there are."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tags, self.caption = [], set(), ""
        self.feed(page)

    def handle_starttag(self, tag, _):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        self.now = tag

    def handle_data(self, data):
        if self.now in ("td", "th") and data.strip():
            self.rows[-1][-1] += data
        elif self.now == "caption":
            self.caption += data


def shown(thing):
    found = Cells(thing._repr_html_())
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    return found


def chain(length, name="t"):
    b = ProgramBuilder(name)
    for number in range(length):
        b.op("fill", (), (b.tensor(f"{name}{number}", "f32", (4,)),), name=name)
    program = b.build()
    return plan(program, [0] * length, [16 * number for number in range(length)])


def test_a_program_is_its_ops_and_a_plan_its_slots():
    made = chain(2)
    assert shown(made.program).rows[1:] == [["0", "fill", "t", "", "t0"], ["1", "fill", "t", "", "t1"]]
    assert shown(made).rows[1:] == [["0", "t0", "cpu", "0", "16"], ["1", "t1", "cpu", "16", "16"]]
    assert shown(Document.of(made)).rows[1:] == [["0", "t", "2", made.source, "32"]]


@pytest.mark.parametrize("length", [MOST_ROWS, MOST_ROWS + 1, 3000])
def test_what_is_long_is_cut_and_says_how_much_is_left_out(length):
    rows = shown(chain(length)).rows[1:]
    assert len(rows) == min(length, MOST_ROWS) + (length > MOST_ROWS)
    if length > MOST_ROWS:
        assert rows[-1] == [f"and {length - MOST_ROWS:,} more"]


def test_a_report_counts_kinds_and_an_outcome_lists_causes_by_their_number():
    outcome = judge_file(CASE, cures=True)
    assert [row[:3] for row in shown(outcome).rows[1:]] == [["1", "C01", "plan"], ["2", "C01", "plan"]]
    report = shown(outcome.report)
    assert {row[0]: int(row[3]) for row in report.rows[1:]} == dict(outcome.report.counts)
    assert shown(verify(chain(1))).caption.startswith("clean")


def test_names_are_text():
    made = chain(2, HOSTILE)
    for thing in (made, made.program, Document.of(made)):
        assert "<script>" not in thing._repr_html_()
        assert "\x1b" not in thing._repr_html_()
    assert HOSTILE.replace("\x1b", "\\x1b") in shown(made.program).rows[1][2]
