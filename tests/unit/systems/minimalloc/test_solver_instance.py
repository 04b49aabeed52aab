"""minimalloc's CSV, in and out: one convention of time at the door, and nothing lost on the way."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim import systems
from allocsim.allocators import ALLOCATORS, find, plan_program
from allocsim.errors import DocumentError, OutputError, UnknownNameError
from allocsim.judge.fast import check
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.systems.minimalloc import solver_instance
from allocsim.systems.minimalloc.solver_instance import dumps, loads, looks_like

HALF_OPEN = b"id,lower,upper,size\na,0,3,4\nb,2,9,8\n"
INCLUSIVE = b"buffer_id,start,end,size\r\na,0,2,4\r\nb,2,8,8\r\n"
FULL = b"id,lower,upper,size,alignment,hint,gaps,offset\na,0,9,4,4,,3-5 7-8,8\nb,2,9,8,1,16,,\n"


def columns(document):
    problem = document.problems[0]
    return problem.start.tolist(), problem.stop.tolist(), problem.nbytes.tolist(), list(problem.program.buffers.names)


@pytest.mark.parametrize("data", [HALF_OPEN, INCLUSIVE, b"\xef\xbb\xbf" + HALF_OPEN, HALF_OPEN + b"\n\n"])
def test_both_spellings_of_the_end_say_the_same(data):
    assert columns(loads(data)) == ([0, 2], [3, 9], [4, 8], ["a", "b"])


def test_inclusive_ends_are_written_as_they_are_read():
    assert dumps(loads(HALF_OPEN), inclusive=True) == b"id,start,end,size\na,0,2,4\nb,2,8,8\n"


def test_inclusive_gaps_end_a_step_later():
    data = b"id,start,end,size,gaps\na,0,8,4,3-5\n"

    assert loads(data).problems[0].gaps == {0: ((3, 6),)}
    assert dumps(loads(data), inclusive=True) == data


def test_the_optional_columns_are_read_and_written_again():
    document = loads(FULL)
    problem = document.problems[0]

    assert problem.program.buffers.alignment.tolist() == [4, 1]
    assert problem.gaps == {0: ((3, 5), (7, 8))}
    assert problem.fixed == {0: 8}
    assert problem.program.buffers.meta[1] == {"hint": 16}
    assert document.plans == ()
    assert dumps(document) == FULL


def test_offsets_in_every_row_are_a_plan_that_is_judged():
    document = loads(b"id,lower,upper,size,offset\na,0,3,4,0\nb,2,9,8,2\n")
    report = check(document)

    assert document.problems[0].fixed == {}
    assert [violation.kind for violation in report.violations] == ["Overlap"]
    assert check(loads(b"id,lower,upper,size,offset\na,0,3,4,0\nb,2,9,8,4\n")).clean


def test_a_negative_offset_is_a_defect_of_the_plan_not_of_the_file():
    report = check(loads(b"id,lower,upper,size,offset\na,0,3,4,-4\n"))

    assert [violation.kind for violation in report.violations] == ["OutOfBounds"]


def test_a_gap_with_a_window_is_kept_and_not_believed():
    data = b"id,lower,upper,size,gaps\na,0,9,64,3-5@0:32\n"

    assert loads(data).problems[0].gaps == {}
    assert dumps(loads(data)) == data


def test_a_plan_is_written_as_offsets():
    document = loads(HALF_OPEN)
    plan = find("greedy_by_size").place(document.problems[0])

    assert dumps(Document.of(plan)) == b"id,lower,upper,size,offset\na,0,3,4,8\nb,2,9,8,0\n"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,lower,upper\na,0,1\n", "line 1: there is no column 'size'"),
        (b"id,lower,upper,size,colour\n", "line 1: column 'colour' is unknown"),
        (b"id,lower,upper,end,size\n", "line 1: column 'end' means the same"),
        (b"id,lower,upper,size\na,0,1\n", "line 2: has 3 cells; 4 are needed"),
        (b"id,lower,upper,size\na,0,1,x\n", "line 2, size: 'x' is no whole number"),
        (b"id,lower,upper,size\na,-1,1,2\n", "line 2, lower: -1 is negative"),
        (b"id,lower,upper,size\na,0,1,2\nb,5,3,1\n", r"line 3, upper: the lifetime \[5, 3\) ends before it starts"),
        (b"id,lower,upper,size\na,0,9999999999999999999999,2\n", "line 2, upper: 9999999999999999999999 exceeds"),
        (b"id,lower,upper,size,gaps\na,0,9,2,3\n", "line 2, gaps: '3' is no range of steps"),
        (b"id,lower,upper,size,gaps\na,0,9,2,5-3\n", r"line 2, gaps: \[5, 3\) ends before"),
        (b"id,lower,upper,size,alignment\na,0,9,2,0\n", "line 2, alignment: an alignment of 0 is not allowed"),
        (b"id,lower,upper,size\n\xff,0,9,2\n", "is no UTF-8 text"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(data, message):
    with pytest.raises(DocumentError, match=f"^x.csv: {message}"):
        loads(data, "x.csv")


@given(data=st.binary(max_size=60) | st.text("id,lowerupsz019-@\n").map(str.encode))
def test_no_file_ends_in_anything_but_a_document_or_its_error(data):
    with suppress(DocumentError):
        loads(b"id,lower,upper,size\n" + data)


@given(
    rows=st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 9), st.integers(0, 99), st.integers(1, 9), st.booleans())
    ),
    inclusive=st.booleans(),
)
def test_what_is_written_is_read_again(rows, inclusive):
    builder = ProgramBuilder("p", arenas=(Arena(name="memory", alignment=1),))
    for number, (_, _, nbytes, alignment, _) in enumerate(rows):
        builder.buffer(f"b{number}", nbytes, alignment=alignment)
    start, stop = [row[0] for row in rows], [row[0] + row[1] for row in rows]
    gaps = {b: ((row[0], row[0] + 1),) for b, row in enumerate(rows) if row[4]}
    problem = Problem.of(builder.build(), start=start, stop=stop, gaps=gaps)
    again = loads(dumps(Document.of(problem), inclusive=inclusive)).problems[0]

    assert again.start.tolist() == start
    assert again.stop.tolist() == stop
    assert again.gaps == gaps
    assert again.nbytes.tolist() == problem.nbytes.tolist()
    assert again.program.buffers.alignment.tolist() == problem.program.buffers.alignment.tolist()


def in_pair():
    builder = ProgramBuilder("p")
    builder.buffer("x", 4)
    builder.buffer("y", 4)
    problem = Problem.of(builder.build(), start=[0, 2], stop=[3, 5], may_share=[(0, 1)])
    return Document.of(plan_of(problem.program, [0, 0], problem=problem))


def in_two_arenas():
    builder = ProgramBuilder("p", arenas=(Arena(name="a"), Arena(name="b")))
    builder.buffer("x", 4, arena=0)
    builder.buffer("y", 4, arena=1)
    return Document(programs=(builder.build(),))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document(programs=()), "holds one program; the document has 0"),
        (in_pair(), "cannot express that 'y' is in place over 'x'"),
        (in_two_arenas(), "holds one arena; the document uses 2"),
    ],
)
def test_what_the_format_cannot_say_is_refused(document, message):
    with pytest.raises(OutputError, match=message):
        dumps(document)


def test_names_that_would_break_a_row_become_numbers():
    builder = ProgramBuilder("p")
    builder.buffer("a,b", 4)
    builder.buffer("c", 4)
    problem = Problem.of(builder.build(), start=[0, 0], stop=[1, 1])

    assert dumps(Document.of(problem)).splitlines()[1:] == [b"0,0,1,4,32", b"1,0,1,4,32"]


def test_the_format_is_told_by_its_columns():
    assert looks_like(HALF_OPEN)
    assert looks_like(INCLUSIVE)
    assert not looks_like(b"id,size,first,last,storage,offset\n")
    assert systems.detect(HALF_OPEN) == "minimalloc"


def test_a_suffix_decides_what_is_written(tmp_path):
    document = loads(HALF_OPEN)
    systems.save(document, tmp_path / "x.csv")
    systems.save(document, tmp_path / "x.json")
    systems.save(document, tmp_path / "x.out", "minimalloc")

    assert (tmp_path / "x.csv").read_bytes() == (tmp_path / "x.out").read_bytes() == HALF_OPEN
    assert columns(systems.load(tmp_path / "x.json")) == columns(document)
    with pytest.raises(OutputError, match="the format 'ggml' can be read, not written"):
        systems.save(document, tmp_path / "y", "ggml")
    with pytest.raises(UnknownNameError, match="'minimaloc' does not exist"):
        systems.save(document, tmp_path / "y", "minimaloc")
    with pytest.raises(OutputError, match=r"z.csv: a minimalloc file holds one program"):
        systems.save(Document(programs=()), tmp_path / "z.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.json", "x.out"]


@pytest.mark.parametrize("name", list(ALLOCATORS))
def test_every_planner_places_an_instance_by_its_problem(name):
    problem = loads(FULL).problems[0]
    plan = plan_program(ALLOCATORS[name], problem.program, believed=problem)

    assert plan.offset[0] == 8
    assert check(Document.of(plan)).clean


def test_plain_decimal_numbers_are_read_without_a_regular_expression(monkeypatch):
    """Signs and what is no number are looked at more closely; other scripts' digits are none."""
    asked = []

    class Watched:
        @staticmethod
        def fullmatch(rule, text):
            asked.append(text)
            return re.fullmatch(rule, text)

    monkeypatch.setattr(solver_instance, "re", Watched)
    text = "id,lower,upper,size,offset\na,0,9,64,0\nb,2,5,64,-64\n"
    solver_instance.loads(text.encode(), "x.csv")
    assert asked == ["-64"]
    for wrong in ("\u0664", "1_0", "+1", "9" * 31, "\u00b2"):
        with pytest.raises(DocumentError, match="is no whole number"):
            solver_instance.loads(text.replace("a,0", f"a,{wrong}").encode(), "x.csv")
