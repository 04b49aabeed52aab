"""Documents made to hurt get a right verdict or one clear line, near-linearly; `benchmarks/checks.py checks` has them a million rows large."""

import json

import numpy as np
import pytest
from few import few_of
from hurtful import (
    CASES,
    FAR,
    all_at_once,
    chain,
    document,
    huge_and_far,
    lost_fragments,
    one_address,
    program,
    wrong_beliefs,
)

from allocsim import check, liveness
from allocsim.cli import main
from allocsim.document import write
from allocsim.errors import ModelError
from allocsim.judge import fast
from allocsim.judge.fast import h_clocks as clocks
from allocsim.judge.fast import s_dataflow as dataflow
from allocsim.judge.fast import s_in_place as in_place
from allocsim.judge.fast import s_script as script
from allocsim.judge.fast import s_writes as writes
from allocsim.judge.fast.trial import COUNT_LIMIT
from allocsim.model import HOST_READ, HOST_WRITE, Document, Plan, Problem, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.attribution import charges
from allocsim.verdict.evidence import Evidence
from allocsim.verdict.evidence import save as save_evidence

SMALL, LARGE, CAMPAIGN = 400, 4_000, 100_000


def assert_right(name, n, report):
    """Exactly the kinds expected are found, each as often as it must be, up to what is counted."""
    expected = CASES[name].kinds
    assert set(report.counts) == set(expected)
    for kind, number in expected.items():
        if number is not None:
            found, wanted = report.counts[kind], number(n)
            assert found == wanted or (report.truncated and min(wanted, COUNT_LIMIT) <= found <= wanted)
    assert report.clean == (not expected)
    assert len(report.violations) == min(report.count, 100)


@pytest.mark.parametrize("name", CASES)
def test_a_hurtful_document_gets_the_right_verdict(name):
    assert_right(name, SMALL, check(CASES[name].build(SMALL), limit=100))


@pytest.mark.slow
@pytest.mark.parametrize("size", [LARGE, pytest.param(CAMPAIGN, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("name", CASES)
def test_a_large_hurtful_document_gets_the_right_verdict(name, size):
    assert_right(name, size, check(CASES[name].build(size), limit=100))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "least"),
    [
        *(("one address", 100, 200), ("huge and far", 80, 100), ("one op", 40, 200), ("wrong beliefs", 20, 50)),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (
                *(("huge and far", 600, 1_000), ("wrong beliefs", 400, 1_000), ("one address", 3_000, 10_000)),
                *(("huge and far", 6_000, 10_000), ("one op", 1_000, 10_000), ("wrong beliefs", 4_000, 10_000)),
            )
        ),
    ],
)
def test_many_violations_have_a_verdict_and_each_a_cause(name, size, least):
    """What is asked of one violation is looked up: asked of the program anew, each of these would take hours where there are ten thousand."""
    made = CASES[name].build(size)
    report, found = charges(made)

    assert len(found) == len(report.violations) >= least
    assert {cause.fault for cause in found} == {"plan"}
    assert {cause.party for cause in judge(Evidence(document=made)).causes} == {"plan"}


@pytest.mark.parametrize(("many", "listed"), few_of([(50, 125), (200, 500), (550, 1_375), (4_000, 10_000)], 1))
def test_wrong_beliefs_without_end_hide_nothing_that_is_wrong_with_the_plan(many, listed, monkeypatch):
    """More of them than are listed, and all of them before what a run does: the verdict names the plan's fault all the same."""
    monkeypatch.setitem(fast.check.__kwdefaults__, "limit", listed)
    made = wrong_beliefs(many).plans[0].problem
    over = Evidence(document=document(made.program, 0, problem=made))
    apart = Evidence(document=document(made.program, 64 * (np.arange(many) % 3), problem=made))

    counts = check(over.document).counts
    told, also = judge(over), judge(apart)
    assert counts["LifetimeTooShort"] + counts["BadSize"] == 2 * many - 1
    assert told.clauses[0].startswith(f"the plan is not legal ({2 * many - 2} conflicts in 1 run")
    assert told.detectors["S"]["count"] == 2 * many - 2
    assert also.clauses[0] == f"the plan is legal (0 conflicts in {many} ops)"
    assert also.detectors["S"]["status"] == "clean"
    assert also.detectors["L"]["count"] == many - 1 + many + many - 2


@pytest.mark.parametrize("name", CASES)
def test_the_command_has_a_verdict_for_each(name, tmp_path, capsys):
    made = CASES[name].build(8)
    path = tmp_path / "hurtful.json"
    write(made, path)

    status = main(["check", "--json", str(path)])
    (entry,) = json.loads(capsys.readouterr().out)["files"]
    assert status == int(bool(CASES[name].kinds))
    assert entry["clean"] == (not CASES[name].kinds)
    assert main(["check", "--explain", "2", str(path)]) == status
    assert main(["explain", str(path), "0"]) == 0
    folder = tmp_path / "evidence"
    save_evidence(Evidence(document=made), folder)
    assert main(["verdict", str(folder)]) in {0, 1}
    assert "Traceback" not in capsys.readouterr().err


# --- the ends of the number line --------------------------------------------------------------------------------------------


def test_no_sum_wraps_at_the_highest_offset():
    made = huge_and_far(3)

    assert made.plans[0].peak_bytes == check(made).stats.peak_bytes == 1 << 63


def test_the_peak_of_slots_below_an_arena_is_nothing():
    made = Plan(program=chain(2), arena=np.zeros(2, np.int32), offset=np.full(2, -FAR), nbytes=np.array([64, 0]))

    assert made.peak_bytes == check(Document.of(made)).stats.peak_bytes == 0


def test_live_bytes_beyond_64_bits_are_summed_exactly():
    n = 5
    every = program(np.full(n, FAR), np.arange(n), (np.array([n]), np.arange(n)), (np.zeros(1, int), np.empty(0)))

    assert liveness.live_bytes(every).tolist() == [n * FAR]
    assert liveness.lower_bound(every) == n * FAR
    assert liveness.peak(every).nbytes == n * FAR
    assert check(document(every, 0)).stats.lower_bound_bytes == n * FAR


# --- bounds ------------------------------------------------------------------------------------------------------------------


def test_reads_of_more_pieces_than_are_looked_at_are_still_counted(monkeypatch):
    """Each says that it is cut short, none is left out, and the count is a lower bound."""
    monkeypatch.setattr(dataflow, "PIECES", 300)
    report = check(lost_fragments(400))

    stale = report.of_kind("StaleRead")
    assert len(stale) == 200
    assert report.truncated
    assert stale[-1].message.endswith("; more bytes of this read may be wrong")
    assert all(len(v.bytes) == 1 for v in stale[3:])


def in_pieces(n, *, extra=0):
    """Return a program that uploads a buffer in n pieces and reads them as one value, with the plan that lays nothing over it.

    Each of the `extra` elements behind them is never written.
    """
    b = ProgramBuilder("pieces")
    buffer = b.buffer("b", 4 * (n + extra))
    for i in range(n):
        b.op(HOST_WRITE, (), (b.value(f"b{i}", buffer, "f32", (1,), offset=4 * i),))
    b.op("sum", (b.value("whole", buffer, "f32", (n + extra,)),), (b.tensor("sum", "f32", (1,)),))
    return plan_of(b.build(), {0: 0, 1: 1 << 20})


def twice(plan, *, skip):
    """Two runs of a session; in the second the host leaves out the uploads of `skip`."""
    return Document.of(Run(program=plan.program, plan=plan), Run(program=plan.program, plan=plan, skip=skip))


def recycled():
    """Return a plan that lays another buffer over an input after its last read."""
    b = ProgramBuilder("recycled")
    x, y, t, z = (b.tensor(name, "f32", (64,)) for name in "xytz")
    b.op(HOST_WRITE, (), (x,))
    for kind, a, made in (("exp", x, y), ("log", y, t), ("neg", t, z)):
        b.op(kind, (a,), (made,))
    b.op(HOST_READ, (z,), ())
    return plan_of(b.build(), {0: 0, 1: 256, 2: 0, 3: 512})


def test_a_warning_ends_no_look_at_a_read(monkeypatch):
    """The bytes are old, which is worth a warning, and written over, which is not found if the look ends at the first."""
    monkeypatch.setattr(dataflow, "PIECES", 0)

    assert check(twice(recycled(), skip=(0,))).counts == {"HistoryRead": 1, "StaleRead": 1}


def test_a_piece_that_is_wrong_is_found_behind_any_number_that_are_right(monkeypatch):
    """The budget ends what is told of a read, not whether it is right."""
    monkeypatch.setattr(dataflow, "PIECES", 0)
    report = check(Document.of(in_pieces(3 * dataflow.FEW, extra=1)))

    assert report.counts == {"UninitialisedRead": 1}
    assert report.violations[0].bytes == ((12 * dataflow.FEW, 12 * dataflow.FEW + 4),)
    assert not report.truncated


def test_warnings_beyond_the_budget_are_counted_and_told_in_part(monkeypatch):
    monkeypatch.setattr(dataflow, "PIECES", 0)
    n = 3 * dataflow.FEW
    report = check(twice(in_pieces(n), skip=tuple(range(n))))

    assert report.clean
    assert not report.truncated
    assert report.counts == {"HistoryRead": 1}
    assert report.warnings[0].bytes == ((0, 4 * dataflow.FEW),)
    assert report.warnings[0].message.endswith("; more bytes of this read may be wrong")


def test_a_read_of_more_pieces_than_are_looked_at_is_no_clean_verdict(monkeypatch):
    monkeypatch.setattr(dataflow, "PIECES", 0)
    monkeypatch.setattr(dataflow, "MOST", 0)
    few = dataflow.FEW

    assert check(twice(in_pieces(few), skip=tuple(range(few)))).clean
    assert check(Document.of(in_pieces(few - 1, extra=1))).counts == {"UninitialisedRead": 1}
    hidden = in_pieces(few, extra=1)
    with pytest.raises(ModelError, match="runs: 1 reads have more pieces than can be compared"):
        check(Document.of(hidden))
    report = check(Document.of(Run(program=hidden.program, plan=hidden), *twice(recycled(), skip=(0,)).runs))
    assert report.counts == {"HistoryRead": 1, "StaleRead": 1}
    assert report.truncated


def test_a_count_beyond_a_million_is_a_lower_bound_and_says_so():
    report = check(one_address(1500), limit=5)

    assert report.truncated
    assert COUNT_LIMIT <= report.count <= 1500 * 1499 // 2 + 1499


def test_more_byte_runs_than_can_be_followed_are_one_clear_line(monkeypatch):
    monkeypatch.setattr(script, "MAX_RUNS", 100)

    with pytest.raises(ModelError, match=r"programs\[0\]\.ops: access 400 byte runs .* at most 100"):
        check(CASES["combs"].build(400))


def test_more_pairs_than_can_be_told_apart_are_no_clean_verdict(monkeypatch):
    """Woven operands and results share no byte; beyond the bound that is not known, and is not said."""
    side = 8
    reads, writes = (
        (np.array([0, side]), np.arange(side)),
        (np.array([side, side]), np.append(np.arange(side), side + np.arange(side))),
    )
    offset, count, stride = np.arange(2 * side), np.full(2 * side, 9), np.full(2 * side, 2 * side)
    made = program([16 * side * 9], np.zeros(2 * side), reads, writes, offset=offset, count=count, stride=stride)
    assert check(document(made, 0)).clean

    monkeypatch.setattr(in_place, "PAIR_CAP", -100)
    with pytest.raises(ModelError, match="ops: 64 pairs of operand and result may share bytes; at most"):
        check(document(made, 0))


CROWD = 40
"""Operands and results of one op, each against each: more pairs than eight for each access."""


def believed(builder, pair):
    """Return the kinds found in the belief that a pair of buffers may share, whose op comes last."""
    made = builder.build()
    count = len(made.buffers)
    pinned = list(range(count))
    problem = Problem.of(made, start=[0] * count, stop=[len(made.ops)] * count, pinned=pinned, may_share=[pair])
    return check(Document.of(problem)).counts


def crowd(builder, donor, recipient, **op):
    """Add an op that reads a buffer as a whole, many times, and writes another in as many pieces."""
    whole = builder.value("whole", donor, "f32", (CROWD,))
    first = builder.value("first", donor, "f32", (1,))
    pieces = [builder.value(f"piece{i}", recipient, "f32", (1,), offset=4 * i) for i in range(CROWD)]
    builder.op("crowd", (first, *[whole] * CROWD), pieces, **op)


def flip(builder):
    """Add an op that may hand `d` over to `r` by what it declares, but reads another part of `d` after it wrote there."""
    d, r = builder.buffer("d", 64), builder.buffer("r", 64)
    builder.op(HOST_WRITE, (), (builder.value("d.whole", d, "f32", (16,)),))
    tail, whole = builder.value("d.tail", d, "f32", (8,), offset=32), builder.value("d.again", d, "f32", (16,))
    builder.op("flip", (tail, whole), (builder.value("r.tail", r, "f32", (8,), offset=32),), in_place=((0, 0),))
    return d, r


def test_a_pair_beyond_those_told_apart_is_judged_all_the_same(monkeypatch):
    """The pairs of the first op are more than are listed; those of the second are looked at when its own are known to be unsafe."""
    monkeypatch.setattr(in_place, "PAIR_CAP", 0)
    b = ProgramBuilder("p")
    crowd(b, b.buffer("D", 4 * CROWD), b.buffer("R", 4 * CROWD), in_place=((0, 0),))

    assert believed(b, flip(b)) == {"BadShare": 1}


def test_an_op_that_breaks_the_rule_by_itself_is_found_behind_one_that_does_so_often(monkeypatch):
    monkeypatch.setattr(in_place, "PAIR_CAP", 0)
    b = ProgramBuilder("p")
    both = b.buffer("B", 4 * CROWD)
    crowd(b, both, both, in_place=())
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    z = b.buffer("z", 16)
    before, after = b.value("before", z, "f32", (4,)), b.value("after", z, "f32", (3,), offset=4)
    b.op(HOST_WRITE, (), (x, before))
    b.op("f", (x, before), (y, after), in_place=((0, 0),))

    assert believed(b, (1, 2)) == {"BadShare": 1}


def test_rounds_of_looking_at_what_may_share_are_bounded(monkeypatch):
    monkeypatch.setattr(in_place, "PAIR_CAP", 0)
    monkeypatch.setattr(in_place, "ROUNDS", 1)
    b = ProgramBuilder("p")
    crowd(b, b.buffer("D", 4 * CROWD), b.buffer("R", 4 * CROWD), in_place=((0, 0),))

    with pytest.raises(
        ModelError, match="ops: more pairs of operand and result may share bytes than can be judged in 1 round"
    ):
        believed(b, flip(b))


def test_ops_that_declare_nothing_and_cannot_be_told_apart_get_no_verdict(monkeypatch):
    """Any of their exact pairs may be one that is believed in: called wrong, it would be only because it was not looked at."""
    b = ProgramBuilder("p")
    given = [b.tensor(f"x{i}", "f32", (4,)) for i in range(CROWD)]
    b.op(HOST_WRITE, (), given)
    taken = [b.tensor(f"y{i}", "f32", (4,) if i else (2, 2)) for i in range(CROWD)]
    b.op("f", given, taken, in_place=None)
    last = (CROWD - 1, 2 * CROWD - 1)
    assert believed(b, last) == {}

    monkeypatch.setattr(in_place, "PAIR_CAP", 0)
    with pytest.raises(ModelError, match="ops: more pairs of operand and result of ops with unknown contracts"):
        believed(b, last)


def test_results_that_overlap_beyond_those_told_apart_make_counts_lower_bounds(monkeypatch):
    b = ProgramBuilder("p")
    buffer = b.buffer("b", 16)
    b.op("f", (), [b.value(f"v{i}", buffer, "f32", (4,)) for i in range(8)])
    made = Document.of(plan_of(b.build(), {0: 0}))
    assert not check(made).truncated

    monkeypatch.setattr(writes, "PAIR_CAP", 24)
    report = check(made)
    assert report.counts == {"ResultsOverlap": 1}
    assert report.truncated


def test_more_streams_than_can_be_ordered_are_one_clear_line(monkeypatch):
    monkeypatch.setattr(clocks, "MAX_WORK", 100)

    with pytest.raises(ModelError, match="streams: 30 streams are used by 30 ops: streams x ops may be at most 100"):
        check(all_at_once(30))


def test_results_with_crossing_strides_are_looked_at_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("allocsim.model.wellformed.MAX_PIECES", 10)

    with pytest.raises(
        ModelError, match=r"values\[0\]: with the results before it, too many elements on strides that cross"
    ):
        crossing()
    monkeypatch.undo()
    assert check(document(crossing(), 0)).clean


def crossing():
    """Return a program whose result has strides of which none steps over the other."""
    builder = ProgramBuilder("p")
    buffer = builder.buffer("b", 64)
    builder.op("f", (), (builder.value("v", buffer, "u8", (4, 3), strides=(3, 5)),))
    return builder.build()
