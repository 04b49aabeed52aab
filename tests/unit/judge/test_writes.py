"""What an op writes: on its operands only by an exact, declared alias; never on its other results, never into read-only memory."""

import pytest
from steps import lines_run

from allocsim import check
from allocsim.judge.fast import s_writes
from allocsim.model import Document, Role, Run
from allocsim.programs.builder import plan_of


def unary(tiny, in_place, *, shape=(2,), **layout):
    """An op whose result, of the layout given, may lie over its operand, which has two elements."""
    b = tiny()
    x = b.uploaded("x")
    y = b.value("y", b.buffer("y", 16), "f32", shape, **layout)
    b.op("k", (x,), (y,), in_place=in_place)
    return b


def test_a_declared_exact_alias_is_safe(tiny):
    assert unary(tiny, ((0, 0),)).judge([0, 0]).clean


def test_an_undeclared_alias_is_unsafe(tiny, kinds):
    assert kinds(unary(tiny, ()).judge([0, 0])) == ["UnsafeInPlace", "Overlap"]


def test_a_foreign_kernels_exact_alias_is_let_pass_with_a_warning(tiny, seen):
    report = unary(tiny, None).judge([0, 0])
    assert report.clean
    assert seen(report) == [("AssumedInPlace", 0, 1, 0)]


@pytest.mark.parametrize(
    ("layout", "slots"),
    [
        ({}, [0, 4]),
        ({"offset": 4}, [0, 0]),
        ({"strides": (-4,), "offset": 4}, [0, 0]),
        ({"strides": (8,)}, [0, 0]),
        ({"shape": (1, 2)}, [0, 0]),
        ({"shape": (1,)}, [0, 0]),
    ],
    ids=["shifted", "offset", "flipped", "strided", "another rank", "shorter"],
)
@pytest.mark.parametrize("in_place", [((0, 0),), None], ids=["declared", "foreign"])
def test_an_alias_that_is_not_exact_is_unsafe_whatever_is_declared(tiny, layout, slots, in_place):
    (unsafe,) = unary(tiny, in_place, **layout).judge(slots).of_kind("UnsafeInPlace")
    assert (unsafe.run, unsafe.op, unsafe.value, unsafe.buffer, unsafe.other_buffer) == (0, 1, 0, 0, 1)


def test_strides_of_dimensions_of_one_do_not_matter(tiny):
    b = tiny()
    x = b.value("x", b.buffer("x", 8), "f32", (1, 2), strides=(999, 4))
    b.upload(x)
    y = b.value("y", b.buffer("y", 8), "f32", (1, 2), strides=(-3, 4))
    b.op("k", (x,), (y,), in_place=((0, 0),))
    assert b.judge([0, 0]).clean


def test_every_position_of_an_operand_listed_twice_must_be_declared(tiny, kinds):
    def square(in_place):
        b = tiny()
        x = b.uploaded("x")
        b.run((x, x), "y", in_place=in_place)
        return b.judge([0, 0])

    assert kinds(square(((0, 0),))) == ["UnsafeInPlace", "Overlap"]
    assert square(((0, 0), (1, 0))).clean


def test_a_view_of_the_donor_as_second_operand_breaks_the_rule(tiny, kinds):
    """`x + x[1:]` with the result over x."""
    b = tiny()
    x = b.uploaded("x", 4)
    tail = b.view(x, "tail", (3,), offset=4)
    b.run((x, tail), "y", 4, in_place=((0, 0), (1, 0)))
    assert kinds(b.judge([0, 0])) == ["UnsafeInPlace", "Overlap"]


def test_an_operand_elsewhere_in_the_donor_breaks_nothing_where_no_byte_meets(tiny):
    b = tiny()
    buffer = b.buffer("x", 16)
    low, high = b.value("low", buffer, "f32", (2,)), b.value("high", buffer, "f32", (2,), offset=8)
    b.upload(low, high)
    b.run((low, high), "y", 2, in_place=((0, 0),))
    assert b.judge([0, 0]).clean


def test_the_rule_holds_within_one_buffer(tiny, kinds):
    def mutation(in_place, **layout):
        b = tiny()
        x = b.uploaded("x", 4)
        b.op("add_", (x,), (b.value("new", 0, "f32", (4,), **layout),), in_place=in_place)
        return b.judge([0])

    assert mutation(((0, 0),)).clean
    assert kinds(mutation(())) == ["UnsafeInPlace"]
    assert kinds(mutation(((0, 0),), strides=(-4,), offset=12)) == ["UnsafeInPlace"]
    assert kinds(mutation(None)) == ["AssumedInPlace"]


def test_columns_of_one_buffer_do_not_touch(tiny):
    b = tiny()
    buffer = b.buffer("m", 16)
    left = b.value("left", buffer, "f32", (2,), strides=(8,))
    b.upload(left)
    b.op("k", (left,), (b.value("right", buffer, "f32", (2,), strides=(8,), offset=4),))
    assert b.judge([0]).clean


def test_an_empty_shape_touches_nothing(tiny):
    b = tiny()
    x = b.uploaded("x")
    b.op("k", (x,), (b.value("none", 0, "f32", (0,)),))
    assert b.judge([0]).clean


def test_results_of_one_op_are_disjoint(tiny):
    b = tiny()
    one, two = b.temp("one", 4), b.temp("two", 2)
    b.op("split", (), (one, two))
    (found,) = b.judge([0, 12]).of_kind("ResultsOverlap")
    assert (found.op, found.value, found.buffer, found.other_buffer, found.bytes) == (0, one, 0, 1, ((12, 16),))
    assert b.judge([0, 16]).clean


def test_a_value_listed_twice_as_result_overlaps_itself_if_it_has_bytes(tiny, kinds):
    def twice(shape):
        b = tiny()
        x = b.temp("x", shape)
        b.op("k", (), (x, x))
        return kinds(b.judge([0]))

    assert twice(2) == ["ResultsOverlap"]
    assert twice(0) == []


def test_interleaved_results_do_not_overlap(tiny):
    b = tiny()
    buffer = b.buffer("m", 16)
    columns = [b.value(f"c{i}", buffer, "f32", (2,), strides=(8,), offset=4 * i) for i in range(2)]
    b.op("split", (), columns)
    assert b.judge([0]).clean


def test_a_workspace_must_not_lie_on_the_result(tiny):
    b = tiny()
    x = b.uploaded("x")
    y, workspace = b.temp("y"), b.temp("workspace")
    b.op("k", (x,), (y, workspace))
    assert b.judge([0, 8, 8]).of_kind("ResultsOverlap", "Overlap")


def test_only_the_host_writes_read_only_memory(tiny, seen):
    b = tiny()
    w = b.temp("w", role=Role.PARAMETER, read_only=True)
    b.upload(w)
    new, empty = b.value("new", 0, "f32", (2,)), b.value("empty", 0, "f32", (0,))
    b.op("train", (w,), (new, empty), in_place=((0, 0),))
    b.view(new, "seen", (1,))
    report = b.judge([0])
    assert seen(report) == [("WriteToReadOnly", 0, 1, 0), ("WriteToReadOnly", 0, 1, 0)]
    assert [v.value for v in report.violations] == [new, empty]


def test_an_upload_left_out_writes_nothing(tiny):
    b = tiny()
    one = b.temp("one", role=Role.INPUT)
    b.upload(one, one)
    plan = plan_of(b.build(), [0])
    assert [v.run for v in check(Document.of(Run.of(plan), Run.of(plan, skip=(0,)))).violations] == [0]


def test_of_many_results_over_each_other_only_the_first_pair_is_looked_at(tiny):
    """A record says which result first shares a byte with a later one: steps do not grow with the pairs."""

    def lines(count):
        b = tiny()
        values = [b.value(f"v{i}", b.buffer(f"v{i}", 8), "f32", (2,)) for i in range(count)]
        b.op("k", (), values)
        taken = lines_run(s_writes, lambda: reports.append(b.judge([0] * count)))
        (found,) = reports.pop().of_kind("ResultsOverlap")
        assert (found.value, found.other_buffer) == (0, 1)
        return taken

    reports = []
    assert lines(200) == lines(50)
