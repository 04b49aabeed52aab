"""H in the verdict: what races say of class, party and witnesses, from real documents."""

import pytest

from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Problem, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence

MEMORIES = (Arena(name="near", alignment=1), Arena(name="far", alignment=1))
APART = {"x": 0, "b": 16, "a": 32, "y": 48}


def branches(*, reuse=(), waits=((0,), (), (1,)), far="", streams=2, believed=False, runs=1):
    """x; b = g(x) on the second stream, a = f(x) in place on the first, y = h(a, b); `waits` of g, f and h; `reuse`: names at byte 0."""
    builder = ProgramBuilder("p", arenas=MEMORIES, streams=[f"s{n}" for n in range(streams)])
    x, b, a, y = (builder.tensor(name, "f32", (4,), arena=int(name in far)) for name in "xbay")
    builder.op(HOST_WRITE, (), (x,))
    builder.op("g", (x,), (b,), stream=streams - 1, after=waits[0])
    builder.op("f", (x,), (a,), in_place=((0, 0),), after=waits[1])
    builder.op("h", (a, b), (y,), after=waits[2])
    builder.op(HOST_READ, (y,), ())
    program = builder.build()
    slots = {n: 0 if name in reuse else APART[name] for n, name in enumerate("xbay")}
    problem = Problem.of(program, start=[0, 1, 2, 3], stop=[3, 4, 4, 5], may_share=[(0, 2)]) if believed else None
    made = plan_of(program, slots, problem=problem)
    return Evidence(document=Document.of(*(Run.of(made) for _ in range(runs))))


def test_reuse_that_is_right_in_list_order_only_is_the_plans_fault():
    verdict = judge(branches(reuse="xa", believed=True))
    (finding,) = verdict.findings
    assert (finding.class_, finding.fault) == ("C09", "plan")
    assert (finding.victim.buffer_name, finding.writer.op_name, finding.reader.op_name) == ("x", "f", "g")
    assert finding.belief == "the plan takes op 1 (g) to be over before op 2 (f) begins"
    assert verdict.text.startswith(
        "the plan is legal in list order (0 conflicts in 5 ops) but not in every order its streams allow; C09"
    )
    assert verdict.detectors["S"]["status"] == "clean"
    assert verdict.detectors["L"]["status"] == "clean"
    assert verdict.detectors["H"] == {"status": "violations", "count": 1, "streams": 2, "in_apart": 0}


def test_a_wait_that_nobody_made_is_the_schedules_fault():
    verdict = judge(branches(waits=((0,), (), ())))
    (finding,) = verdict.findings
    assert (finding.class_, finding.fault) == ("C09", "schedule")
    assert (finding.victim.buffer_name, finding.writer.op_name, finding.reader.op_name) == ("b", "g", "h")
    assert finding.belief is None
    assert verdict.text.startswith("the plan is legal (0 conflicts in 5 ops); C09, fault of the schedule")
    assert verdict.detectors["H"]["in_apart"] == 1


@pytest.mark.parametrize("far", ["", "b", "y"])
def test_a_wait_that_is_missing_is_one_class_whether_or_not_a_copy_takes_part(far):
    """g carries x into the other memory, or h carries b back, or neither."""
    assert judge(branches(waits=((0,), (), ()), far=far)).classes == {("C09", "schedule")}
    assert judge(branches(reuse="xa", far=far)).classes == {("C09", "plan")}


def test_two_defects_at_once_are_both_named():
    verdict = judge(branches(reuse="xa", waits=((0,), (), ())))
    assert verdict.classes == {("C09", "plan"), ("C09", "schedule")}


def test_two_writes_have_a_loser_and_no_reader():
    builder = ProgramBuilder("p", arenas=MEMORIES, streams=("a", "b"))
    w, v = (builder.tensor(name, "f32", (4,)) for name in "wv")
    builder.op("f", (), (w,))
    builder.op("g", (), (v,), stream=1)
    (finding,) = judge(Evidence(document=Document.of(plan_of(builder.build(), {0: 0, 1: 0})))).findings
    assert (finding.victim.buffer_name, finding.writer.op_name, finding.reader) == ("w", "g", None)


@pytest.mark.parametrize(("streams", "status"), [(1, "not run"), (2, "clean")])
def test_h_says_whether_it_ran(streams, status):
    verdict = judge(branches(streams=streams))
    assert verdict.detectors["H"]["status"] == status
    assert verdict.sound


def test_a_race_of_every_run_is_no_news_of_the_later_ones():
    verdict = judge(branches(reuse="xa", runs=3))
    assert verdict.detectors["H"]["count"] == 3
    assert verdict.detectors["R"]["status"] == "clean"
    assert verdict.findings[0].count == 3
