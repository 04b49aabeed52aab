"""Beliefs: what a planner thinks of a program, against what the program does."""

import pytest

from allocsim import check, document
from allocsim.model import Document, Problem, Role


@pytest.fixture
def program(tiny):
    """x is written at 0 and read at 1 and by the host at 2; y is written at 1; w is a parameter nobody reads; idle is idle."""
    b = tiny()
    x = b.uploaded("x")
    b.run((x,), "y", in_place=((0, 0),))
    b.download(x)
    b.temp("w", role=Role.PARAMETER)
    b.temp("idle")
    return b.build()


TRUE = {"start": [0, 1, 0, 0], "stop": [3, 2, 3, 0]}


def judged(program, **columns):
    return check(Document.of(Problem.of(program, **{**TRUE, **columns})))


def test_a_true_belief_is_clean(program):
    report = judged(program)
    assert report.clean
    assert not report.warnings


@pytest.mark.parametrize(
    ("lifetime", "kind", "op"),
    [
        ((0, 2), "MissingPin", 2),
        ((0, 1), "LifetimeTooShort", 1),
        ((0, 0), "LifetimeTooShort", 1),
        ((1, 3), "LifetimeTooShort", 0),
        ((1, 2), "MissingPin", 2),
        ((2, 3), "LifetimeTooShort", 1),
    ],
    ids=str,
)
def test_a_lifetime_that_leaves_out_an_access_names_the_first_reader_missed(program, lifetime, kind, op):
    start, stop = lifetime
    (found,) = judged(program, start=[start, 1, 0, 0], stop=[stop, 2, 3, 0]).violations
    assert (found.kind, found.problem, found.program, found.buffer, found.op, found.step) == (kind, 0, 0, 0, op, op)
    assert found.plan is None
    assert found.run is None


def test_a_pin_does_not_excuse_a_lifetime_that_is_too_short(program):
    assert [v.kind for v in judged(program, stop=[2, 2, 3, 0], pinned=[0]).violations] == ["MissingPin"]


def test_a_gap_names_the_first_op_that_touches_the_buffer_from_there_on(program):
    """x is read at 1, where the gap begins, and at 2."""
    (found,) = judged(program, gaps={0: ((1, 2),)}).violations
    assert (found.buffer, found.step, found.op) == (0, 1, 1)


def test_a_lifetime_longer_than_needed_is_a_warning_unless_pinned_or_persistent(program):
    long = {"start": [0, 0, 0, 0], "stop": [3, 3, 9, 0]}
    report = judged(program, **long)
    assert report.clean
    assert [(v.kind, v.buffer, v.op) for v in report.warnings] == [("LifetimeTooLong", 1, None)]
    assert not judged(program, **long, pinned=[1]).warnings


def test_a_lifetime_may_be_too_long_at_one_end_and_too_short_at_the_other(program):
    report = judged(program, start=[0, 0, 0, 0], stop=[3, 1, 3, 0])
    assert [v.kind for v in (*report.violations, *report.warnings)] == ["LifetimeTooShort", "LifetimeTooLong"]


def test_a_size_below_the_buffers_is_wrong_and_one_above_is_not(program):
    report = judged(program, nbytes=[7, 9, 8, 8])
    assert [(v.kind, v.buffer) for v in report.violations] == [("BadSize", 0)]


def test_a_view_reads_the_bytes_of_its_buffer(tiny):
    b = tiny()
    x = b.uploaded("x")
    seen = b.view(x, "seen", (1,))
    b.run((seen,), "y")
    report = check(Document.of(Problem.of(b.build(), start=[0, 2], stop=[2, 3])))
    assert [(v.kind, v.op) for v in report.violations] == [("LifetimeTooShort", 2)]


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (
            (0, 1),
            "no op ends a segment of the donor, [0, 3), with a read and begins a segment of the recipient, [1, 2), with a write",
        ),
        (
            (1, 0),
            "no op ends a segment of the donor, [1, 2), with a read and begins a segment of the recipient, [0, 3), with a write",
        ),
        ((2, 1), "no op ends a segment of the donor, [0, 3), with a read and"),
        ((3, 1), "never accessed"),
    ],
    ids=str,
)
def test_a_pair_that_must_not_lie_at_one_address_says_why(program, pair, reason):
    report = judged(program, may_share=[pair, pair])
    (found,) = report.violations
    assert (found.kind, found.problem, found.buffer, found.other_buffer) == ("BadShare", 0, *pair)
    assert reason in found.message


@pytest.mark.parametrize(
    ("writes", "reason"),
    [((), "op 3 'f' does not declare this pair"), (("x.over",), "op 3 'f' does not only read the donor")],
)
def test_a_reason_is_true_of_the_op_that_it_names(tiny, writes, reason):
    """Op 1 only reads the donor; that is no reason for or against op 3, which is the only one that could hand over."""
    b = tiny()
    x = b.uploaded("x", 4)
    y = b.buffer("y", 16)
    old, new, last = (b.value(name, y, "f32", (4,)) for name in ("y.old", "y.new", "y.last"))
    b.op("k", (x, old), (new,), in_place=())
    again = b.value("x.again", 0, "f32", (4,))
    b.op("host.write", (), (again,))
    b.op("f", (again,), (last, *(b.value(name, 0, "f32", (4,)) for name in writes)), in_place=())
    problem = Problem.of(b.build(), start=[0, 0], stop=[9, 9], pinned=[0, 1], may_share=[(0, 1)])

    (found,) = [v for v in check(Document.of(problem)).violations if v.kind == "BadShare"]

    assert reason in found.message


def test_a_pair_that_one_op_permits_and_another_step_does_not_names_the_step(tiny):
    """Op 1 may hand x over to y; from op 2 on both live, with contents of their own."""
    b = tiny()
    x = b.uploaded("x", 4)
    y = b.value("y", b.buffer("y", 16), "f32", (4,))
    b.op("f", (x,), (y,), in_place=((0, 0),))
    again = b.value("x.again", 0, "f32", (4,))
    b.op("host.write", (), (again,))
    b.op("host.read", (again, y), ())
    problem = Problem.of(b.build(), start=[0, 1], stop=[4, 4], may_share=[(0, 1)])

    (found,) = check(Document.of(problem)).violations

    assert (found.kind, found.buffer, found.other_buffer) == ("BadShare", 0, 1)
    assert "both are also live at op 2 'host.write', which does not permit the pair" in found.message


def shared(tiny, *, operands=1, layout=None, in_place=((0, 0),), mutate=False):
    """Judge the belief that y may take the place of x."""
    b = tiny()
    x = b.uploaded("x", 4)
    inputs = [x, b.value("tail", 0, "f32", (3,), offset=4)][:operands]
    y = b.value("y", b.buffer("y", 16), "f32", (4,), **(layout or {}))
    results = [y]
    if mutate:
        other = b.uploaded("other")
        inputs.append(other)
        results.append(b.value("other.new", 2, "f32", (2,)))
    b.op("k", inputs, results, in_place=in_place)
    program = b.build()
    count = len(program.buffers)
    problem = Problem.of(program, start=[0] * count, stop=[9] * count, pinned=list(range(count)), may_share=[(0, 1)])
    return [v.kind for v in check(Document.of(problem)).violations]


def test_a_declared_exact_pair_may_share(tiny):
    assert shared(tiny) == []
    assert shared(tiny, in_place=None) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"in_place": ()},
        {"operands": 2},
        {"layout": {"strides": (-4,), "offset": 12}},
        {"layout": {"strides": (-4,), "offset": 12}, "in_place": None},
        {"mutate": True},
    ],
    ids=["undeclared", "a view of the donor", "flipped", "flipped, foreign", "broken elsewhere in the op"],
)
def test_a_pair_whose_op_would_break_the_rule_may_not(tiny, wrong):
    assert shared(tiny, **wrong) == ["BadShare"]


def test_problems_are_judged_with_and_without_a_plan_and_numbered(program):
    wrong = Problem.of(program, **TRUE, nbytes=[0, 8, 8, 8])
    report = check(Document.of(Problem.of(program, **TRUE), wrong))
    assert [(v.kind, v.problem) for v in report.violations] == [("BadSize", 1)]


def test_without_ops_lifetimes_and_pairs_stand_for_facts(tiny):
    b = tiny()
    b.temp("a")
    b.temp("b")
    problem = Problem.of(b.build(), start=[0, 5], stop=[2, 9], nbytes=[8, 4], may_share=[(0, 1)])
    report = check(Document.of(problem))
    assert [(v.kind, v.buffer) for v in report.violations] == [("BadSize", 1)]
    assert not report.warnings


@pytest.mark.parametrize("stated", [True, False], ids=["stated", "left out"])
def test_sizes_that_are_stated_stay_where_a_range_grows_and_those_left_out_follow(tiny, stated):
    """Even where what is stated is what is left out at the size written down."""
    b = tiny()
    b.buffer("open", 8, nbytes_range=(4, 12))
    program = b.build()
    columns = {"nbytes": [8]} if stated else {}
    written = document.dumps(Document.of(Problem.of(program, **columns)))

    found = [(v.kind, v.ends) for v in check(document.loads(written)).violations]

    assert found == ([("BadSize", ("high",))] if stated else [])
