"""Branches of a target's own Python, seen in its own process."""

import sys

import pytest

from allocsim.fuzzing import FuzzCase, Target
from allocsim.fuzzing.tracing import branches, own_files
from allocsim.programs.builder import ProgramBuilder

PLANNER = """
def plan(problem):
    offsets, top = [], 0
    for nbytes in problem.nbytes.tolist():
        if nbytes > 1000:
            top += 64
        offsets.append(top)
        top += nbytes
    return offsets
"""


@pytest.fixture
def planner(tmp_path, monkeypatch):
    (tmp_path / "traced_planner.py").write_text(PLANNER)
    monkeypatch.syspath_prepend(tmp_path)
    yield "traced_planner:plan"
    sys.modules.pop("traced_planner", None)


def case(floats):
    builder = ProgramBuilder("p")
    value = builder.tensor("x", "f32", (floats,))
    builder.op("host.write", (), (value,))
    builder.op("host.read", (value,), ())
    return FuzzCase(program=builder.build())


def test_a_branch_not_taken_is_named_and_one_taken_later_adds_up(planner):
    pytest.importorskip("coverage")
    with Target(name=planner, trace=True).open() as asker:
        assert asker.ask([case(4)])[0].plan is not None
        first = asker.take_seen()
        (before,) = branches(first)
        asker.ask([case(4000)])
        (after,) = branches(first | asker.take_seen())

    assert before.file.endswith("traced_planner.py")
    assert (before.there_are, before.taken, before.never) == (4, 3, ((5, 6),))
    assert (after.taken, after.never) == (4, ())


def test_without_tracing_nothing_is_seen(planner):
    with Target(name=planner).open() as asker:
        asker.ask([case(4)])
        assert asker.take_seen() == set()
    assert branches(()) == []


def test_a_planner_of_the_shelf_is_its_belief_and_its_placement():
    from allocsim.allocators import find  # noqa: PLC0415 - only here

    names = [path.rpartition("/")[2] for path in own_files(find("greedy_by_size"))]

    assert names == ["exact.py", "greedy.py"]


def test_the_data_base_of_branches_is_closed(planner, tmp_path, monkeypatch):
    """Python 3.13 warns of one that is dropped open."""
    coverage = pytest.importorskip("coverage")
    closed, real = [], coverage.CoverageData.close
    monkeypatch.setattr(
        coverage.CoverageData, "close", lambda self, force=False: closed.append(force) or real(self, force=force)
    )
    (row,) = branches({f"{tmp_path / planner.split(':')[0]}.py:5:6"})
    assert row.there_are == 4
    assert closed[-1]  # one in memory is closed by force alone
