"""The judge's twin on small cases whose answer is worked out by hand: which witnesses it names, and how it adds up bytes.

The checks must give the same answers, so both are asked: `judge` is a fixture.

Which kinds fire at all is in `tests/sensitivity`.
"""

import numpy as np
import oracle
import pytest
from facts import accesses, as_ranges, bytes_of, live_steps, permissible

from allocsim.judge import fast
from allocsim.judge.violations import Stats
from allocsim.model import HOST_READ, HOST_WRITE, Arena, Document, Event, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

BYTES = (Arena(name="cpu", alignment=1),)


@pytest.fixture(params=[oracle.judge, fast.check], ids=["oracle", "fast"])
def judge(request):
    return request.param


def shared(offset):
    """x is written, t takes its bytes at `offset`, the host reads x; op 1 is the thief, op 3 the late reader."""
    b = ProgramBuilder("p", arenas=BYTES)
    x, t = b.tensor("x", "u8", (8,)), b.tensor("t", "u8", (8,))
    b.op(HOST_WRITE, (), (x,))
    b.op("fill", (), (t,))
    b.view(x, "x[2:]", (6,), offset=2)
    b.op(HOST_READ, (2, t), ())
    return Document.of(plan_of(b.build(), {0: 0, 1: offset}))


def test_a_stale_read_names_reader_thief_and_the_write_that_was_wanted(judge):
    violation = next(v for v in judge(shared(5)).violations if v.kind == "StaleRead")
    assert violation.run == violation.plan == violation.program == 0
    assert 3 == violation.op == violation.step
    assert violation.value == 2
    assert violation.buffer == 0
    assert (violation.other_run, violation.other_op) == (0, 1)
    assert violation.other_buffer == 1
    assert (violation.want_run, violation.want_op) == (0, 0)
    assert violation.bytes == ((5, 8),)


def test_an_overlap_names_both_buffers_and_the_bytes_of_the_first(judge):
    violation = next(v for v in judge(shared(5)).violations if v.kind == "Overlap")
    assert (violation.buffer, violation.other_buffer) == (0, 1)
    assert violation.bytes == ((5, 8),)


def test_bytes_are_walked_element_by_element():
    b = ProgramBuilder("p")
    buffer = b.buffer("x", 16)
    b.value("columns", buffer, "f16", (2, 2), strides=(8, 4), offset=1)
    b.value("flip", buffer, "u8", (3,), strides=(-2,), offset=4)
    b.value("broadcast", buffer, "u8", (2, 2), strides=(0, 1))
    b.value("scalar", buffer, "f32", (), offset=3)
    b.value("empty", buffer, "f32", (0, 3))
    program = b.build()
    assert [bytes_of(program, v) for v in range(5)] == [
        [1, 2, 5, 6, 9, 10, 13, 14],
        [4, 2, 0],
        [0, 1, 0, 1],
        [3, 4, 5, 6],
        [],
    ]


@pytest.mark.parametrize(
    ("places", "ranges"),
    [([], ()), ([3], ((3, 4),)), ([2, 1, 4, 5, 1], ((1, 3), (4, 6)))],
)
def test_ranges_are_maximal_and_half_open(places, ranges):
    assert ranges == as_ranges(places)


def test_views_and_left_out_uploads_are_no_access():
    b = ProgramBuilder("p")
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    seen = b.view(x, "v", (4,))
    b.op(HOST_READ, (seen,), ())
    b.view(seen, "w", (4,))
    program = b.build()
    assert [access.step for access in accesses(program)[0]] == [0, 2]
    assert [access.step for access in accesses(program, skip=(0,))[0]] == [2]
    assert {0, 1, 2} == live_steps(program)[0]


def test_parameters_live_through_the_whole_run_and_never_share():
    b = ProgramBuilder("p")
    w, y = b.tensor("w", "f32", (4,), role=Role.PARAMETER), b.tensor("y", "f32", (4,))
    b.op("nothing", (), ())
    b.op("relu", (w,), (y,), in_place=((0, 0),))
    program = b.build()
    assert {0, 1} == live_steps(program)[0]
    assert not permissible(program, 0, 1)


def test_content_is_laid_before_the_session_and_moves_with_no_plan(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    w = b.tensor("w", "f32", (4,), role=Role.PARAMETER)
    b.op(HOST_READ, (w,), ())
    program = b.build()
    (violation,) = judge(Document.of(Run.of(plan_of(program, {0: 0})), Run.of(plan_of(program, {0: 8})))).violations
    assert (violation.kind, violation.run) == ("StaleRead", 1)
    assert violation.bytes == ((0, 16),)
    assert (violation.other_run, violation.other_op) == (None, None)
    assert (violation.want_run, violation.want_op) == (None, None)


def test_a_stale_read_across_runs_names_the_run_that_wrote(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), ())
    b.op("fill", (), (y,))
    made = plan_of(b.build(), {0: 0, 1: 0})
    judgement = judge(Document.of(Run.of(made), Run.of(made, skip=(0,))))
    (violation,), (warning,) = judgement.violations, judgement.warnings
    assert (violation.run, violation.op) == (1, 1)
    assert (violation.other_run, violation.other_op) == (0, 2)
    assert (violation.want_run, violation.want_op) == (0, 0)
    assert (warning.kind, warning.run, warning.other_run, warning.other_op) == ("HistoryRead", 1, 0, 0)


def test_without_a_session_each_plan_runs_on_fresh_memory_and_runs_are_numbered(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    x = b.tensor("x", "f32", (4,))
    b.op(HOST_READ, (x,), ())
    program = b.build()
    violations = judge(Document.of(plan_of(program, {0: 0}), plan_of(program, {0: 4}))).violations
    assert [(v.kind, v.run, v.plan) for v in violations] == [("UninitialisedRead", 0, 0), ("UninitialisedRead", 1, 1)]


def test_a_chain_in_place_counts_once_in_the_bound(judge):
    b = ProgramBuilder("p")
    x, y, z = (b.tensor(name, "f32", (shape,)) for name, shape in (("x", 4), ("y", 4), ("z", 2)))
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (y,), in_place=((0, 0),))
    b.op("sum", (y,), (z,))
    document = Document.of(plan_of(b.build(), {0: 0, 1: 0, 2: 32}))
    assert Stats(ops=3, buffers=3, peak_bytes=40, lower_bound_bytes=24) == judge(document).stats


def test_each_buffer_is_in_one_pair_and_the_best_choice_counts(judge):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    u, v = b.tensor("u", "f32", (4,)), b.tensor("v", "f32", (4,))
    b.op(HOST_WRITE, (), (x, y))
    b.op("both", (x, y), (u, v), in_place=((0, 0), (1, 0), (0, 1)))
    document = Document.of(plan_of(b.build(), {0: 0, 1: 32, 2: 32, 3: 0}))
    assert not judge(document).violations
    assert judge(document).stats.lower_bound_bytes == 32


def test_a_program_without_ops_is_judged_by_its_belief(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    for name in "abc":
        b.buffer(name, 8)
    problem = Problem.of(b.build(), start=[0, 2, 0], stop=[4, 6, 9], gaps={2: ((1, 9),)})
    # c lives in step 0 only, so b may lie over it
    (violation,) = judge(Document.of(plan_of(problem.program, {0: 0, 1: 4, 2: 8}, problem=problem))).violations
    assert (violation.kind, violation.buffer, violation.other_buffer) == ("Overlap", 0, 1)


def believed(judge, start, stop, slots, **columns):
    """Return what a judge says of buffers of 8 bytes without ops."""
    b = ProgramBuilder("p", arenas=BYTES)
    for _ in start:
        b.buffer("b", 8)
    problem = Problem.of(b.build(), start=start, stop=stop, **columns)
    return judge(Document.of(plan_of(problem.program, slots, problem=problem)))


@pytest.mark.parametrize(
    ("stop", "offset", "kinds"),
    [(3, 0, []), (2, 0, []), (4, 0, ["Overlap"]), (3, 4, ["Overlap"])],
    ids=["in one step", "one after the other", "in two steps", "not at one address"],
)
def test_without_ops_a_believed_pair_may_meet_in_one_step_at_one_address(judge, stop, offset, kinds):
    report = believed(judge, [0, 2], [stop, 5], {0: 0, 1: offset}, may_share=[(0, 1)])
    assert [v.kind for v in report.violations] == kinds


def test_without_ops_a_believed_pair_counts_once_in_the_bound(judge):
    report = believed(judge, [0, 2, 2], [3, 5, 3], {0: 0, 1: 0, 2: 8}, may_share=[(0, 1)])
    assert report.stats.lower_bound_bytes == 16


def test_without_ops_two_buffers_that_may_share_either_way_count_as_one(judge):
    report = believed(judge, [4, 4], [5, 5], {0: 0, 1: 0}, may_share=[(0, 1), (1, 0)])
    assert not report.violations
    assert report.stats.lower_bound_bytes == 8


def test_without_ops_the_believed_size_is_what_a_slot_must_hold(judge):
    report = believed(judge, [0], [1], {0: 0}, nbytes=[9])
    assert [v.kind for v in report.violations] == ["Undersized"]


def test_a_pair_believed_twice_is_one_defect(judge):
    b = ProgramBuilder("p")
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x, y))
    violations = judge(Document.of(Problem.of(b.build(), may_share=[(0, 1), (1, 0), (0, 1)]))).violations
    assert sorted((v.kind, v.buffer, v.other_buffer) for v in violations) == [("BadShare", 0, 1), ("BadShare", 1, 0)]


def test_an_upload_left_out_shortens_the_lifetime_the_bound_is_made_of(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    x, y = b.tensor("x", "f32", (4,)), b.tensor("y", "f32", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("fill", (), (y,))
    b.op(HOST_READ, (y,), ())
    b.op(HOST_READ, (x,), ())
    made = plan_of(b.build(), {0: 0, 1: 16})
    assert judge(Document.of(Run.of(made))).stats.lower_bound_bytes == 32
    assert judge(Document.of(Run.of(made, skip=(0,)))).stats.lower_bound_bytes == 16


def test_content_found_is_named_as_the_readers_program_knows_it(judge):
    """Two programs keep w at different places in their tables; one has no u at all."""

    def reads_v(name, *tensors):
        b = ProgramBuilder(name, arenas=BYTES)
        values = {tensor: b.tensor(tensor, "u8", (8,), role=Role.STATE) for tensor in tensors}
        b.op(HOST_READ, (values["v"],), ())
        return b.build()

    one, other = reads_v("one", "v", "x", "w"), reads_v("other", "w", "v")
    document = Document.of(Run.of(plan_of(one, {0: 0, 1: 8, 2: 0})), Run.of(plan_of(other, {0: 0, 1: 0})))
    stale = [v for v in judge(document).violations if v.kind == "StaleRead"]
    assert [(v.run, v.buffer, v.other_run, v.other_buffer) for v in stale] == [(0, 0, None, 2), (1, 1, None, 0)]

    alone, stranger = reads_v("alone", "v"), reads_v("stranger", "v", "u")
    document = Document.of(Run.of(plan_of(alone, {0: 0})), Run.of(plan_of(stranger, {0: 8, 1: 0})))
    stale = [v for v in judge(document).violations if v.run == 0]
    assert [(v.kind, v.buffer, v.other_run, v.other_buffer) for v in stale] == [("StaleRead", 0, None, None)]


def test_a_permitted_pair_is_in_place_for_events_wherever_its_slots_start(judge):
    """Element 0 of both is at one address though the buffers start apart: no overlap, so no allocation over live bytes."""
    b = ProgramBuilder("p", arenas=BYTES)
    x = b.value("x", b.buffer("x", 12), "u8", (8,), offset=4)
    h = b.value("h", b.buffer("h", 8), "u8", (8,))
    b.op(HOST_WRITE, (), (x,))
    b.op("relu", (x,), (h,), in_place=((0, 0),))
    b.op(HOST_READ, (h,), ())
    events = np.array([(0, Event.ALLOC, 0), (1, Event.ALLOC, 1), (1, Event.FREE, 0), (2, Event.FREE, 1)])
    assert not judge(Document.of(plan_of(b.build(), {0: 0, 1: 4}, events=events))).violations


def test_a_donor_without_bytes_passes_none_to_its_recipient(judge):
    b = ProgramBuilder("p", arenas=BYTES)
    x, h = b.tensor("x", "u8", (0,)), b.tensor("h", "u8", (4,))
    b.op(HOST_WRITE, (), (x,))
    b.op("pad", (x,), (h,), in_place=((0, 0),))
    events = np.array([(0, Event.ALLOC, 0), (1, Event.ALLOC, 1), (1, Event.ALLOC, 0)])
    (violation,) = judge(Document.of(plan_of(b.build(), {0: 0, 1: 0}, events=events))).violations
    assert (violation.kind, violation.buffer, violation.other_buffer) == ("AllocOverLive", 0, 0)
