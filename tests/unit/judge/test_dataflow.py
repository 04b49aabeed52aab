"""Reads: each finds what it would find with every buffer in memory of its own, or is reported with its witnesses."""

import pytest

from allocsim import check
from allocsim.model import Document, Role, Run
from allocsim.programs.builder import plan_of
from repro.small.words import plan, program


def reads(report):
    """Return the records about reads."""
    return report.of_kind("UninitialisedRead", "OverwrittenRead", "StaleRead", "HistoryRead")


def test_a_late_read_names_victim_writer_and_reader(tiny):
    b = tiny()
    x = b.uploaded("x")
    y = b.run((x,), "y")
    z = b.run((y,), "z")
    b.op("late", (x, z), (b.temp("w"),))
    report = b.judge([0, 8, 0, 16])
    (stale,) = report.of_kind("StaleRead")
    assert (stale.run, stale.step, stale.op, stale.value, stale.buffer) == (0, 3, 3, x, 0)
    assert (stale.other_run, stale.other_op, stale.other_buffer) == (0, 2, 2)
    assert (stale.want_run, stale.want_op) == (0, 0)
    assert stale.bytes == ((0, 8),)
    assert stale.names == {
        "op_name": "late",
        "value_name": "x",
        "buffer_name": "x",
        "other_op_name": "z",
        "other_buffer_name": "z",
        "want_op_name": "host.write",
    }
    assert stale.message == (
        "op 3 'late' reads bytes [0, 8) of buffer 0 'x' as value 0 'x' in m0[0, 8): their content comes from "
        "op 2 'z' of run 0 (value 2 'z'), not from op 0 'host.write' of run 0 (value 0 'x')"
    )


def test_only_the_bytes_taken_are_stale(tiny):
    b = tiny()
    x = b.uploaded("x", 4)
    b.run((), "y", 1)
    b.download(x)
    (stale,) = reads(b.judge([0, 8]))
    assert stale.bytes == ((8, 12),)


def test_several_writers_make_one_record_whose_witness_is_of_the_lowest_byte(tiny):
    b = tiny()
    x = b.uploaded("x", 4)
    b.run((), "high", 1)
    b.run((), "low", 1)
    b.download(x)
    (stale,) = reads(b.judge([0, 12, 0]))
    assert stale.bytes == ((0, 4), (12, 16))
    assert stale.other_op == 2


def test_a_write_found_at_a_shifted_address_is_stale(tiny):
    """The bytes are of the right write, but not the right bytes of it."""
    b = tiny()
    w = b.temp("w", 4, role=Role.STATE)
    b.op("use", (w,), (b.temp("y", 1),))
    p = b.build()
    near, far = plan_of(p, [0, 64]), plan_of(p, [4, 64])
    (stale,) = reads(check(Document.of(Run.of(near), Run.of(far))))
    assert (stale.run, stale.bytes, stale.other_run, stale.other_op) == (1, ((0, 16),), None, None)
    assert stale.other_buffer == 0


def test_a_read_before_any_write_is_the_programs_defect_and_not_also_stale(tiny):
    b = tiny()
    x = b.temp("x")
    b.run((), "y")
    b.download(x)
    (found,) = reads(b.judge([0, 0]))
    assert (found.kind, found.value, found.bytes) == ("UninitialisedRead", x, ((0, 8),))
    assert found.other_op is None
    assert found.want_op is None


def test_what_is_read_twice_by_one_op_is_reported_once(tiny):
    b = tiny()
    x = b.temp("x")
    b.op("square", (x, x), (b.temp("y"),))
    assert [v.kind for v in reads(b.judge([0, 8]))] == ["UninitialisedRead"]


def test_an_old_value_read_after_a_mutation_is_the_programs_defect_under_every_plan(tiny):
    b = tiny()
    x = b.uploaded("x")
    new = b.value("x.new", 0, "f32", (2,))
    b.op("add_", (x,), (new,), in_place=((0, 0),))
    b.download(x)
    b.download(new)
    (found,) = b.judge([0]).violations
    assert (found.kind, found.op, found.value) == ("OverwrittenRead", 2, x)
    assert (found.other_run, found.other_op, found.want_run, found.want_op) == (0, 1, 0, 0)


def test_a_view_of_a_mutated_buffer_reads_what_is_there_now(tiny):
    b = tiny()
    x = b.uploaded("x")
    seen = b.view(x, "seen", (2,))
    b.op("add_", (x,), (b.value("x.new", 0, "f32", (2,)),), in_place=((0, 0),))
    b.download(seen)
    assert b.judge([0]).clean


def test_the_op_of_a_view_touches_no_bytes(tiny):
    b = tiny()
    x = b.temp("x")
    b.view(x, "seen", (1,))
    assert b.judge([None]).clean


def test_columns_of_one_buffer_have_crossing_hulls_and_no_common_byte(tiny):
    b = tiny()
    buffer = b.buffer("m", 16)
    left = b.value("left", buffer, "f32", (2,), strides=(8,))
    right = b.value("right", buffer, "f32", (2,), strides=(8,), offset=4)
    b.op("l", (), (left,))
    b.op("r", (left,), (right,))
    b.download(left, right)
    assert b.judge([0]).clean


def test_an_element_between_two_others_shares_no_byte_with_them(tiny):
    """The hull of the result covers the operand, which is dense; its bytes do not."""
    b = tiny()
    buffer = b.buffer("m", 12)
    middle = b.value("middle", buffer, "f32", (1,), offset=4)
    edges = b.value("edges", buffer, "f32", (2,), strides=(8,))
    b.op("m", (), (middle,))
    b.op("e", (middle,), (edges,))
    b.download(middle, edges)
    assert b.judge([0]).clean


def test_a_flip_and_a_broadcast_read_the_bytes_they_cover(tiny):
    b = tiny()
    x = b.uploaded("x", 4)
    flip = b.value("flip", 0, "f32", (3,), strides=(-4,), offset=12)
    same = b.value("same", 0, "f32", (5,), strides=(0,), offset=12)
    b.run((), "y", 1)
    b.download(flip, same)
    b.download(x)
    found = reads(b.judge([0, 12]))
    assert [(v.op, v.value, v.bytes) for v in found] == [
        (2, flip, ((12, 16),)),
        (2, same, ((12, 16),)),
        (3, x, ((12, 16),)),
    ]


def test_a_strided_value_is_stale_in_its_own_bytes_only(tiny):
    b = tiny()
    b.uploaded("x", 4)
    odd = b.value("odd", 0, "f32", (2,), strides=(8,), offset=4)
    b.run((), "y", 3)
    b.download(odd)
    (stale,) = reads(b.judge([0, 0]))
    assert stale.bytes == ((4, 8),)


def test_an_empty_shape_reads_no_byte_and_is_an_access_all_the_same(tiny):
    b = tiny()
    empty = b.temp("empty", 0)
    b.download(empty)
    assert b.judge([0]).clean
    assert [v.kind for v in b.judge([None]).violations] == ["Unplaced"]


def test_an_op_reads_all_before_it_writes(tiny):
    b = tiny()
    x = b.uploaded("x")
    y = b.run((x,), "y", in_place=((0, 0),))
    b.download(y)
    assert b.judge([0, 0]).clean


@pytest.mark.parametrize("slot", ["own", None])
def test_memory_of_its_own_is_nobody_elses(tiny, slot):
    b = tiny()
    x = b.uploaded("x")
    b.run((), "y")
    b.download(x)
    assert not reads(b.judge([slot, 0]))


def test_bytes_outside_a_buffer_are_left_out_of_the_replay(tiny):
    b = tiny()
    far = b.value("far", b.buffer("x", 8), "f32", (4,))
    b.op("k", (), (far,))
    y = b.run((), "y")
    b.download(far, y)
    report = b.judge([0, 8])
    assert [v.kind for v in report.violations] == ["OutOfBounds"]


def test_what_a_same_takes_from_outside_a_buffer_touches_no_other_bytes(tiny):
    """Half of the operand is nobody's, so half of the result, at bytes 16 to 24, is nothing: bytes 0 to 8 stay what they are."""
    b = tiny()
    x = b.uploaded("x")
    far = b.value("far", b.buffer("a", 8), "f32", (4,))
    b.op("k", (), (far,))
    b.op("same", (far,), (b.temp("y", 4),))
    b.download(x)
    assert [v.kind for v in b.judge([0, 24, 8]).violations] == ["OutOfBounds"]


def test_bytes_are_followed_through_a_bad_slot(tiny):
    b = tiny()
    x = b.uploaded("x")
    b.run((), "y")
    b.download(x)
    assert [v.kind for v in b.judge([-4, 0]).violations] == ["OutOfBounds", "Overlap", "StaleRead"]


# sessions --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def seeded(tiny):
    """A seed that the host lays, an op that reads it, and one that comes after."""
    b = tiny()
    seed = b.uploaded("seed")
    grad = b.run((seed,), "grad")
    b.download(b.run((grad,), "out"))
    return b.build()


def test_a_seed_laid_once_whose_slot_is_recycled_is_stale_from_the_second_run_on(seeded):
    plan = plan_of(seeded, [0, 8, 0])
    report = check(Document.of(Run.of(plan), Run.of(plan, skip=(0,)), Run.of(plan, skip=(0,))))
    found = report.of_kind("StaleRead")
    assert [(v.run, v.op, v.other_run, v.other_op, v.want_run, v.want_op) for v in found] == [
        (1, 1, 0, 2, 0, 0),
        (2, 1, 1, 2, 0, 0),
    ]
    assert [(v.run, v.value) for v in report.of_kind("HistoryRead")] == [(1, 0), (2, 0)]


def test_a_seed_laid_once_that_keeps_its_slot_is_only_worth_a_warning(seeded):
    plan = plan_of(seeded, [0, 8, 16])
    report = check(Document.of(Run.of(plan), Run.of(plan, skip=(0,))))
    assert report.clean
    (warning,) = report.warnings
    assert (warning.kind, warning.run, warning.other_run, warning.other_op) == ("HistoryRead", 1, 0, 0)


def test_without_a_session_every_run_has_fresh_memory(seeded):
    report = check(Document.of(plan_of(seeded, [0, 8, 16]), plan_of(seeded, [0, 8, 16])))
    assert report.clean
    assert not report.warnings


def test_an_input_never_uploaded_is_uninitialised(seeded):
    plan = plan_of(seeded, [0, 8, 16])
    (found,) = check(Document.of(Run.of(plan, skip=(0,)))).violations
    assert (found.kind, found.op) == ("UninitialisedRead", 1)


def counter(tiny, name, *, temp=False):
    b = tiny(name=name)
    s = b.temp("s", role=Role.STATE)
    if temp:
        b.uploaded("t")
    b.op("count", (s,), (b.value("s.new", 0, "f32", (2,)),), in_place=((0, 0),))
    return b.build()


def test_a_state_is_one_buffer_in_all_programs_and_is_no_history(tiny):
    one, two = counter(tiny, "one"), counter(tiny, "two")
    report = check(Document.of(Run.of(plan_of(one, [0])), Run.of(plan_of(two, [0])), Run.of(plan_of(one, [0]))))
    assert report.clean
    assert not report.warnings


def test_a_later_plan_that_moves_a_state_finds_nothing_there(tiny):
    program = counter(tiny, "one")
    report = check(Document.of(Run.of(plan_of(program, [0])), Run.of(plan_of(program, [64]))))
    (stale,) = report.violations
    assert (stale.kind, stale.run, stale.other_run, stale.other_op, stale.want_run, stale.want_op) == (
        "StaleRead", 1, None, None, 0, 0,
    )  # fmt: skip
    assert "their content comes from no write" in stale.message


def test_a_state_in_memory_of_its_own_may_not_come_back_to_an_old_copy(tiny):
    program = counter(tiny, "one")
    own, placed = plan_of(program, ["own"]), plan_of(program, [0])
    report = check(Document.of(Run.of(own), Run.of(placed), Run.of(own)))
    assert [(v.run, v.other_run, v.want_run) for v in report.of_kind("StaleRead")] == [(1, None, 0), (2, 0, 1)]


def test_a_state_overwritten_in_a_run_it_is_no_part_of_is_found_when_it_is_read(tiny):
    other = tiny(name="other")
    other.uploaded("big", 8)
    stranger, program = other.build(), counter(tiny, "one")
    first, second = Run.of(plan_of(stranger, [0])), Run.of(plan_of(program, [8]))
    assert check(Document.of(first)).clean
    (stale,) = check(Document.of(first, second)).violations
    assert (stale.kind, stale.run, stale.other_run, stale.other_op, stale.want_op) == ("StaleRead", 1, 0, 0, None)
    assert stale.names["other_buffer_name"] == "big"
    assert check(Document.of(second, first)).clean


def test_content_is_laid_in_buffer_order_so_the_later_one_wins(tiny):
    b = tiny()
    one, two = b.temp("one", role=Role.PARAMETER), b.temp("two", role=Role.PARAMETER)
    b.op("k", (one, two), (b.temp("y"),))
    report = b.judge([0, 4, 64])
    (stale,) = report.of_kind("StaleRead")
    assert (stale.value, stale.bytes, stale.other_buffer, stale.other_run) == (one, ((4, 8),), two, None)


def test_a_stale_plan_reads_what_its_old_slots_let_others_take(tiny):
    """The plan was made when nothing read x late."""
    short, long = tiny(name="short"), tiny(name="long")
    for b, late in ((short, False), (long, True)):
        x = b.uploaded("x")
        y = b.run((x,), "y")
        z = b.run((y,), "z")
        b.download(z, *((x,) if late else ()))
    made_for, found = short.build(), long.build()
    plan = plan_of(made_for, [0, 8, 0])
    assert check(Document.of(Run.of(plan))).clean
    report = check(Document.of(plan, Run.of(plan, program=found)))
    assert [(v.kind, v.program, v.plan) for v in report.violations] == [("Overlap", 1, 0), ("StaleRead", 1, 0)]


def test_twenty_runs_alike_find_the_same_defect_in_each(seeded):
    plan = plan_of(seeded, [0, 0, 8])
    report = check(Document.of(*[Run.of(plan)] * 20))
    assert [v.run for v in report.of_kind("UnsafeInPlace")] == list(range(20))
    assert report.count == 40


def test_memory_of_its_own_of_a_second_program_is_no_arena():
    """w is kept outside the arena in one run and placed in the next; it takes no byte of the state in the arena's first slot."""
    first = program("a = f s; host.read a", roles={"s": Role.STATE})
    second = program("w = g; host.read w", name="q", roles={"w": Role.STATE})
    kept, own, placed = plan(first, "s=0 a=64"), plan(second, "w=own"), plan(second, "w=128")
    assert check(Document.of(Run.of(kept), Run.of(own), Run.of(placed), Run.of(kept))).clean


@pytest.mark.parametrize("slots", ["x=own y=own", "x=0 y=64", "x=0 y=own", "x=own y=64"])
def test_an_output_read_once_the_next_run_has_made_its_own_is_late_wherever_it_lies(slots):
    made = plan(program("x = host.write; y = f x; host.read y"), slots)
    found = check(Document.of(Run.of(made, read_after=1), Run.of(made))).violations
    assert [(v.kind, v.run, v.want_run, v.other_run) for v in found] == [("StaleRead", 0, 0, 1)]
