"""Overlap: two buffers that live at one time share no byte, but for the pairs that may."""

import numpy as np
import pytest

from allocsim.judge.fast import check, s_promises
from allocsim.model import Document, Plan, Problem, Role, Run
from allocsim.model.layout import LIMIT
from allocsim.programs.builder import plan_of
from repro.small import words


@pytest.fixture
def chain(tiny):
    """x -> y -> z, each read by the next op only; the ops declare nothing in place."""
    b = tiny()
    x = b.uploaded("x")
    b.run((b.run((x,), "y"),), "z")
    return b.build()


def overlaps(report):
    return [(v.run, v.op, v.buffer, v.other_buffer, v.bytes) for v in report.of_kind("Overlap")]


def judged(program, slots, **plan):
    return check(Document.of(plan_of(program, slots, **plan)))


def test_a_buffer_may_take_the_place_of_one_whose_last_reader_has_run(chain):
    assert judged(chain, [0, 8, 0]).clean


def test_operand_and_result_of_one_op_live_together(chain):
    assert overlaps(judged(chain, [0, 4, 16])) == [(0, 1, 0, 1, ((4, 8),))]


def test_touching_slots_share_no_byte(chain):
    assert judged(chain, [0, 8, 16]).clean


def test_a_conflict_is_named_lower_index_first_at_the_first_common_step(tiny):
    b = tiny()
    late, early = b.temp("late"), b.temp("early")
    b.op("e", (), (early,))
    b.op("l", (), (late,))
    b.download(early)
    (found,) = b.judge([4, 0]).of_kind("Overlap")
    assert (found.op, found.buffer, found.other_buffer, found.bytes) == (1, 0, 1, ((0, 4),))


def test_a_value_with_no_reader_must_not_overlap_what_lives_while_it_is_written(tiny):
    b = tiny()
    x = b.uploaded("x")
    b.run((), "unread")
    b.download(x)
    assert overlaps(b.judge([0, 0])) == [(0, 1, 0, 1, ((0, 8),))]


def test_every_pair_is_listed_not_only_neighbours(tiny):
    b = tiny()
    many = [b.uploaded(f"x{i}") for i in range(5)]
    b.download(*many)
    assert len(overlaps(b.judge([0] * 5))) == 10


def test_zero_bytes_overlap_nothing(tiny):
    b = tiny()
    x, none = b.uploaded("x"), b.temp("none", 0)
    b.upload(none)
    b.download(x, none)
    assert b.judge([0, 4]).clean


def test_arenas_are_apart_and_so_is_memory_of_its_own(tiny):
    b = tiny(arenas=2)
    x, y = b.uploaded("x"), b.temp("y", arena=1)
    b.upload(y)
    b.download(x, y)
    assert b.judge([0, 0]).clean
    assert b.judge([0, "own"]).clean


def test_a_parameter_lives_through_the_run_touched_or_not(tiny):
    b = tiny()
    b.temp("w", role=Role.PARAMETER)
    b.uploaded("x")
    assert overlaps(b.judge([0, 0])) == [(0, 0, 0, 1, ((0, 8),))]


def test_a_buffer_nobody_touches_does_not_live(tiny):
    b = tiny()
    b.temp("idle")
    b.uploaded("x")
    assert b.judge([0, 0]).clean


def test_the_bytes_of_a_conflict_are_the_buffers_not_the_slots(chain):
    plan = plan_of(chain, [0, 8, 16])
    roomy = Plan(program=chain, arena=plan.arena, offset=plan.offset, nbytes=np.array([100, 100, 100]))
    assert check(Document.of(roomy)).clean


def test_an_upload_left_out_is_no_access(tiny):
    """The second upload lies over y, which is still to be read; without it x is dead by then."""
    b = tiny()
    x = b.uploaded("x")
    b.download(x)
    y = b.run((), "y")
    again = b.value("again", 0, "f32", (2,))
    last = b.upload(again)
    b.download(y)
    plan = plan_of(b.build(), [0, 0])
    report = check(Document.of(Run.of(plan), Run.of(plan, skip=(last,))))
    assert overlaps(report) == [(0, 3, 0, 1, ((0, 8),))]


# permitted pairs -------------------------------------------------------------------------------------------------------------


def pair(tiny, *, in_place=((0, 0),), role=Role.TEMPORARY, late=False, extra=False, both=False):
    """An op that may lay y over x, and what may be wrong with that."""
    b = tiny()
    x = b.temp("x", role=role)
    b.upload(x)
    results = [b.temp("y")]
    if both:
        results.append(b.value("x.new", 0, "f32", (1,)))
    b.op("k", (x,), results, in_place=in_place)
    if late:
        b.download(x)
    if extra:
        b.upload(b.value("y.new", 1, "f32", (2,)))
    return b


def test_donor_and_recipient_of_a_declared_pair_may_meet(tiny):
    assert pair(tiny).judge([0, 0]).clean


def test_what_comes_after_the_recipients_birth_does_not_matter(tiny):
    assert pair(tiny, extra=True).judge([0, 0]).clean


@pytest.mark.parametrize("wrong", [{"in_place": ()}, {"late": True}, {"role": Role.STATE}, {"both": True}], ids=str)
def test_a_pair_is_not_permitted_otherwise(tiny, wrong):
    assert (0, 1, 0, 1, ((0, 8),)) in [(0, 1, *found[2:]) for found in overlaps(pair(tiny, **wrong).judge([0, 0]))]


def test_a_recipient_written_before_is_no_recipient(tiny):
    b = tiny()
    x, y = b.uploaded("x"), b.temp("y")
    b.op("early", (), (y,))
    b.op("k", (x,), (b.value("y.new", 1, "f32", (2,)),), in_place=((0, 0),))
    assert overlaps(b.judge([0, 0])) == [(0, 1, 0, 1, ((0, 8),))]


def test_one_broken_rule_at_the_op_takes_the_permission_from_all_its_pairs(tiny, kinds):
    b = tiny()
    x, other = b.uploaded("x"), b.uploaded("other")
    b.op("k", (x, other), (b.temp("y"), b.temp("z")), in_place=((0, 0),))
    assert kinds(b.judge([0, 8, 0, 8])) == ["UnsafeInPlace", "Overlap", "Overlap"]
    assert b.judge([0, 8, 0, 16]).clean


# programs without ops --------------------------------------------------------------------------------------------------------


def instance(tiny, start, stop, **columns):
    b = tiny()
    for index in range(len(start)):
        b.temp(f"b{index}")
    return Problem.of(b.build(), start=start, stop=stop, **columns)


def test_a_program_without_ops_is_judged_by_its_problem(tiny):
    problem = instance(tiny, [0, 3], [4, 6])
    assert overlaps(judged(problem.program, [0, 4], problem=problem)) == [(0, None, 0, 1, ((4, 8),))]
    assert judged(problem.program, [0, 8], problem=problem).clean
    apart = instance(tiny, [0, 4], [4, 6])
    assert judged(apart.program, [0, 4], problem=apart).clean


def test_gaps_and_believed_sizes_count(tiny):
    problem = instance(tiny, [0, 3], [9, 6], gaps={0: ((3, 6),)})
    assert judged(problem.program, [0, 0], problem=problem).clean
    wide = instance(tiny, [0, 3], [4, 6], nbytes=[16, 8])
    assert [v.kind for v in judged(wide.program, [0, 8], problem=wide).violations] == ["Undersized", "Overlap"]


def test_buffers_with_gaps_that_meet_again_are_one_conflict(tiny):
    problem = instance(tiny, [0, 0], [9, 9], gaps={0: ((3, 4), (6, 7))})
    assert len(overlaps(judged(problem.program, [0, 0], problem=problem))) == 1


def test_believed_lives_over_each_other_that_are_not_listed_are_counted(chain, monkeypatch):
    """Three buffers believed to live all the time meet at one address in three pairs, of which two are listed."""
    monkeypatch.setattr(s_promises, "COUNT_LIMIT", 1)
    belief = Problem.of(chain, start=[0, 0, 0], stop=[3, 3, 3])
    report = judged(chain, [0, 0, 0], problem=belief)
    assert (report.counts["LifetimeIgnored"], report.truncated) == (3, True)


def test_a_copy_may_lie_over_its_source_until_other_bytes_of_the_source_are_read(tiny):
    """y is a copy of the low half of x, laid over it; the high half of x, which nobody wrote, is needed at op 3 and no sooner."""
    b = tiny()
    x, y = b.buffer("x", 8), b.buffer("y", 8)
    low, high = b.value("x.low", x, "f32", (1,)), b.value("x.high", x, "f32", (1,), offset=4)
    copy, other = b.value("y.low", y, "f32", (1,)), b.value("y.high", y, "f32", (1,), offset=4)
    b.op("f", (), (low,))
    b.op("same", (low,), (copy,))
    b.op("f", (), (other,))
    b.run((high,), "z")
    b.download(low, copy, other)
    (found,) = b.judge([0, 0, 16]).of_kind("Overlap")
    assert (found.buffer, found.other_buffer, found.op) == (0, 1, 3)


def test_a_believed_pair_may_meet_in_one_step_at_one_address(tiny):
    problem = instance(tiny, [0, 3], [4, 6], may_share=[(0, 1)])
    assert judged(problem.program, [0, 0], problem=problem).clean
    assert overlaps(judged(problem.program, [0, 4], problem=problem))
    longer = instance(tiny, [0, 2], [4, 6], may_share=[(0, 1)])
    assert overlaps(judged(longer.program, [0, 0], problem=longer))


def test_a_problem_of_the_document_serves_where_the_plan_names_none(tiny):
    problem = instance(tiny, [0, 3], [4, 6])
    assert overlaps(check(Document.of(problem, plan_of(problem.program, [0, 0]))))
    assert judged(problem.program, [0, 0]).clean


# size ------------------------------------------------------------------------------------------------------------------------


def test_ends_beyond_64_bits_do_not_wrap(tiny):
    b = tiny()
    for name in "ab":
        b.upload(b.value(name, b.buffer(name, LIMIT), "u8", (1,)))
    b.download(0, 1)
    program = b.build()
    assert overlaps(judged(program, [LIMIT, LIMIT - 1])) == [(0, 1, 0, 1, ((0, LIMIT - 1),))]
    assert judged(program, [-LIMIT, 0]).of_kind("Overlap") == ()
    assert judged(program, [0, LIMIT]).clean
    assert judged(program, [0, LIMIT]).stats.peak_bytes == 2 * LIMIT


def test_conflicts_without_number_are_counted_and_not_all_listed(tiny):
    problem = instance(tiny, [0] * 1500, [1] * 1500)
    report = check(Document.of(plan_of(problem.program, [0] * 1500, problem=problem)), limit=7)
    assert len(report.violations) == 7
    assert report.truncated
    assert 1_000_000 < report.count <= 1500 * 1499 // 2


def test_the_content_of_a_state_lives_from_the_first_step_though_it_is_overwritten_later():
    made = words.program("t = e; y = f s; v:s = g y; host.read y", roles={"s": Role.STATE})
    (found,) = check(Document.of(words.plan(made, "s=0 t=0 y=64"))).of_kind("Overlap")
    assert found.op == 0
