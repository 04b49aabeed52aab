"""Documents made to hurt get a right verdict or one clear line, near-linearly; `benchmarks/checks.py` has them a million rows large."""

import json

import numpy as np
import pytest
from hurtful import CASES, FAR, all_at_once, chain, document, huge_and_far, lost_fragments, one_address, program, wrong_beliefs

from allocsim import liveness
from allocsim.attribution import causes
from allocsim.builder import ProgramBuilder
from allocsim.checks import check, clocks, dataflow, in_place, script
from allocsim.checks.case import COUNT_LIMIT
from allocsim.cli import main
from allocsim.document import write
from allocsim.errors import ModelError
from allocsim.evidence import Evidence
from allocsim.evidence import save as save_evidence
from allocsim.model import Document, Plan
from allocsim.verdict import judge

SMALL, LARGE = 400, 100_000


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
@pytest.mark.parametrize("name", CASES)
def test_a_large_hurtful_document_gets_the_right_verdict(name):
    assert_right(name, LARGE, check(CASES[name].build(LARGE), limit=100))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["one address", "huge and far", "one op", "wrong beliefs"])
def test_thousands_of_violations_have_a_verdict_and_each_a_cause(name):
    """What is asked of one violation is looked up: asked of the program anew, each of these would take hours."""
    made = CASES[name].build(12_000)
    report, found = causes(made)

    assert len(found) == len(report.violations) >= 10_000
    assert {cause.fault for cause in found} == {"plan"}
    assert {finding.fault for finding in judge(Evidence(document=made)).findings} == {"plan"}


def test_wrong_beliefs_without_end_hide_nothing_that_is_wrong_with_the_plan():
    """More of them than are listed, and all of them before what a run does: the verdict names the plan's fault all the same."""
    made = wrong_beliefs(4000).plans[0].problem
    over = Evidence(document=document(made.program, 0, problem=made))
    apart = Evidence(document=document(made.program, 64 * (np.arange(4000) % 3), problem=made))

    assert check(over.document).counts["LifetimeTooShort"] + check(over.document).counts["BadSize"] == 7999
    assert judge(over).clauses[0].startswith("the plan is not legal (7998 conflicts in 1 run")
    assert judge(over).detectors["S"]["count"] == 7998
    assert judge(apart).clauses[0] == "the plan is legal (0 conflicts in 4000 ops)"
    assert judge(apart).detectors["S"]["status"] == "clean"
    assert judge(apart).detectors["L"]["count"] == 3999 + 4000 + 3998


@pytest.mark.parametrize("name", CASES)
def test_the_command_has_a_verdict_for_each(name, tmp_path, capsys):
    made = CASES[name].build(60)
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
    assert stale[-1].message.endswith("; its other pieces were not looked at")
    assert all(len(v.bytes) <= dataflow.FEW for v in stale[3:])


def test_a_count_beyond_a_million_is_a_lower_bound_and_says_so():
    report = check(one_address(1500), limit=5)

    assert report.truncated
    assert COUNT_LIMIT <= report.count <= 1500 * 1499 // 2 + 1499


def test_more_byte_runs_than_can_be_followed_are_one_clear_line(monkeypatch):
    monkeypatch.setattr(script, "MAX_RUNS", 100)

    with pytest.raises(ModelError, match=r"programs\[0\]\.ops: read and write 400 byte runs .* at most 100"):
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
    with pytest.raises(ModelError, match="ops: 64 pairs of operand and result come near each other; at most"):
        check(document(made, 0))


def test_more_streams_than_can_be_ordered_are_one_clear_line(monkeypatch):
    monkeypatch.setattr(clocks, "MAX_WORK", 100)

    with pytest.raises(ModelError, match="streams: 30 in use over 30 ops: at most 100 for streams x ops are supported"):
        check(all_at_once(30))


def test_results_with_crossing_strides_are_looked_at_up_to_a_bound(monkeypatch):
    monkeypatch.setattr("allocsim.wellformed.MAX_PIECES", 10)

    with pytest.raises(ModelError, match=r"values\[0\]: with the results before it, too many elements on strides that cross"):
        crossing()
    monkeypatch.undo()
    assert check(document(crossing(), 0)).clean


def crossing():
    """Return a program whose result has strides of which none steps over the other."""
    builder = ProgramBuilder("p")
    buffer = builder.buffer("b", 64)
    builder.op("f", (), (builder.value("v", buffer, "u8", (4, 3), strides=(3, 5)),))
    return builder.build()
