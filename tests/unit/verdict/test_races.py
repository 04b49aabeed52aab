"""H in the verdict: what races say of class, party and witnesses, from real documents."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim import document as native
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Problem, Run
from allocsim.programs.allocator_trace import trace
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence
from repro.small.words import plan, program

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
    (finding,) = verdict.joint
    assert (finding.class_, finding.party) == ("C09", "plan")
    assert (finding.victim.buffer_name, finding.writer.op_name, finding.reader.op_name) == ("x", "f", "g")
    assert finding.belief == "the plan assumes that op 1 (g) has ended before op 2 (f) begins"
    assert verdict.text.startswith(
        "the plan is legal in list order (0 conflicts in 5 ops) but not in every order its streams allow; C09"
    )
    assert verdict.detectors["S"]["status"] == "clean"
    assert verdict.detectors["L"]["status"] == "clean"
    assert verdict.detectors["H"] == {"status": "violations", "count": 1, "streams": 2, "in_apart": 0}


def test_a_wait_that_nobody_made_is_the_schedules_fault():
    verdict = judge(branches(waits=((0,), (), ())))
    (finding,) = verdict.joint
    assert (finding.class_, finding.party) == ("C09", "schedule")
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
    (finding,) = judge(Evidence(document=Document.of(plan_of(builder.build(), {0: 0, 1: 0})))).joint
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
    assert verdict.joint[0].places == 3


def block(word, name, **more):
    return {"event": word, "block": name, **({"address": 0, "nbytes": 64} if word == "alloc" else {}), **more}


def use(kind, stream=0, **more):
    return {"event": "use", "kind": kind, "stream": stream, **more}


def handed_on(*, taker=0, home=0, before=(), free_late=False):
    """Block a, written on stream `home` and read on the other; b in its bytes, written on stream `taker`."""
    back = [block("free", "a")]
    return [
        block("alloc", "a"),
        use("fill", home, writes=["a"]),
        {"event": "record", "mark": 1, "stream": home},
        {"event": "wait", "mark": 1, "stream": 1 - home},
        use("copy", 1 - home, reads=["a"]),
        *before,
        *([] if free_late else back),
        block("alloc", "b"),
        use("fill", taker, writes=["b"]),
        use("host.read", taker, reads=["b"]),
        *(back if free_late else []),
    ]


def of_races(events):
    return {(c.class_, c.party) for c in judge(Evidence(document=trace(events))).causes if c.change.kind == "wait"}


def test_where_an_allocator_kept_its_rule_a_missing_record_stream_is_the_schedules():
    """Freed and taken again on its own stream: the use on the other one is what nobody told of."""
    assert of_races(handed_on()) == {("C09", "schedule")}
    assert of_races(handed_on(home=1, taker=1)) == {("C09", "schedule")}


def test_an_allocator_that_hands_on_to_another_stream_without_order_breaks_its_rule():
    """Stream 2 takes what stream 0 filled, and waits for nothing."""
    assert of_races(handed_on(taker=2)) == {("C09", "plan")}


def test_an_allocator_that_hands_on_before_it_was_given_back_breaks_its_rule():
    assert of_races(handed_on(free_late=True)) == {("C09", "plan")}


def test_another_stream_that_waits_for_the_first_keeps_the_rule():
    marks = [{"event": "record", "mark": 2, "stream": 0}, {"event": "wait", "mark": 2, "stream": 2}]
    assert of_races(handed_on(taker=2, before=marks)) == {("C09", "schedule")}


def test_a_planner_that_was_told_lifetimes_has_to_bear_every_order():
    """The same book with a problem: it knew when the copy reads, and on which stream."""
    document = trace(handed_on())
    (plan,) = document.plans
    problem = Problem.of(plan.program)
    told = Document.of(replace(plan, problem=replace(problem, start=np.array([0, 2]), stop=np.array([2, 4]))))
    assert {(c.class_, c.party) for c in judge(Evidence(document=told)).causes if c.change.kind == "wait"} == {
        ("C09", "plan")
    }


def test_who_kept_the_rule_is_said_of_a_file_as_well_and_either_cure_is_priced():
    document = native.loads(native.dumps(trace(handed_on())))
    (cause,) = judge(Evidence(document=document)).causes
    assert cause.belief == (
        "the bytes were freed, in the order of their own stream, before op 2 (fill) took them; "
        "the plan's events do not report that op 1 (copy), on another stream, uses them"
    )
    assert [change.kind for change in cause.cure.changes] == ["wait"]
    assert cause.cure.alternative is not None


def waits(text, slots):
    """The waits that are left out, each with the pairs of ops that race for it."""
    made = Document.of(Run.of(plan(program(text), slots)))
    return {
        (c.party, c.change.op, c.change.after): {(v.other_op, v.op) for v in c.violations}
        for c in judge(Evidence(document=made)).causes
    }


def test_each_of_two_waits_has_the_race_that_it_ends():
    text = "x = host.write; a = f x ~1 ^0; b = g x ~2 ^0; c = h a; d = k b; e = m c d; host.read e"

    assert waits(text, "x=0 a=64 b=128 c=192 d=256 e=320") == {
        ("schedule", 3, 1): {(1, 3)},
        ("schedule", 4, 2): {(2, 4)},
    }


def test_a_wait_of_the_programs_on_its_first_op_takes_the_races_of_reuse_along():
    """p, which op 0 wrote too, gives its bytes to q: the wait that y needs on op 0 orders that as well; op 1 is on a third stream."""
    text = "a p = f ~1; z = e ~2; y = g a; q = k y; host.read q"

    assert waits(text, "a=64 p=0 z=128 y=192 q=0") == {("schedule", 2, 0): {(0, 2), (0, 3), (0, 4)}}
