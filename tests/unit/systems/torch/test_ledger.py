"""The ledger of a recorded run: what becomes of blocks, views, mutations, reused addresses and what was there before. No torch."""

import pytest

from allocsim import Role
from allocsim.judge.fast import check
from allocsim.systems.torch.ledger import Extent, Ledger
from allocsim.verdict import judge
from allocsim.verdict.evidence import Evidence


def part(n, offset=0, stride=4):
    return Extent("f32", (n,), (stride,), offset)


def judged(ledger):
    document = ledger.document()
    return document, check(document)


def named(document, kind="buffers"):
    return list(getattr(document.programs[0], kind).names)


def chain(ledger, addresses):
    """A block for each address: each read once by the next call, then given back."""
    key, block = None, ledger.meet("x", "cpu", 0x1000, 64, "x")
    for number, address in enumerate(addresses):
        operand = ledger.read(block, part(16))
        block = ledger.give(number, "cpu", address, 64, f"b{number}")
        ledger.call("f", [operand], [(block, part(16))])
        if key is not None:
            ledger.free(key)
        key = number
    return block


def test_an_address_that_serves_again_after_its_free_is_clean_and_the_arena_is_what_was_used():
    ledger = Ledger("reuse")
    chain(ledger, [0x2000, 0x9000, 0x2000, 0x9000])
    document, report = judged(ledger)

    assert report.violations == ()
    assert report.stats.peak_bytes == 128
    assert report.stats.lower_bound_bytes == 128
    assert [int(e[1]) for e in document.plans[0].events].count(0) >= 4


def test_an_address_that_is_given_out_while_its_owner_lives_is_the_plans_fault():
    ledger = Ledger("broken")
    chain(ledger, [0x2000, 0x9000, 0x2000])
    block = ledger.alive[2]
    one, two = ledger.read(block, part(16)), None
    taken = ledger.give("taker", "cpu", 0x2000, 64, "taker")
    ledger.call("g", [one], [(taken, part(16))])
    two = ledger.read(block, part(16))
    ledger.call("late", [two], [(ledger.give("end", "cpu", 0x20000, 64, "end"), part(16))])
    _, report = judged(ledger)

    kinds = {v.kind for v in report.violations}
    assert {"StaleRead", "Overlap", "LifetimeIgnored", "AllocOverLive"} <= kinds


def test_what_was_there_before_and_stays_is_kept_apart_and_what_goes_lies_where_it_lay():
    ledger = Ledger("before")
    stays, goes = ledger.meet("s", "cpu", 0x100, 64, "stays"), ledger.meet("g", "cpu", 0x200, 64, "goes")
    out = ledger.give("o", "cpu", 0x300, 64, "out")
    ledger.call("add", [ledger.read(stays, part(16)), ledger.read(goes, part(16))], [(out, part(16))])
    ledger.free("g")
    late = ledger.give("l", "cpu", 0x200, 64, "late")
    ledger.call("relu", [ledger.read(out, part(16))], [(late, part(16))])
    document, report = judged(ledger)
    program = document.programs[0]

    assert report.violations == ()
    assert [Role(role) for role in program.buffers.role] == [
        Role.PARAMETER, Role.INPUT, Role.TEMPORARY, Role.TEMPORARY
    ]  # fmt: skip
    assert document.plans[0].arena.tolist() == [-1, 0, 0, 0]
    assert document.plans[0].offset[1] == document.plans[0].offset[3]
    assert program.ops[0].kind == "host.write"


def test_content_met_late_on_bytes_that_were_used_was_filled_just_then():
    """A constant that the host makes in the middle of a run may lie where a temporary lay."""
    ledger = Ledger("late")
    chain(ledger, [0x2000, 0x9000])
    constant = ledger.meet("c", "cpu", 0x2000, 64, "constant")
    out = ledger.give("o", "cpu", 0x30000, 64, "out")
    ledger.call("add", [ledger.read(constant, part(16))], [(out, part(16))])
    document, report = judged(ledger)

    assert report.violations == ()
    assert "host.write" in [op.kind for op in document.programs[0].ops]


def test_two_tensors_over_memory_that_nobody_gave_out_are_one_block_until_both_are_gone():
    ledger = Ledger("numpy")
    one = ledger.meet("a", "cpu", 0x100, 64, "array")
    two = ledger.meet("b", "cpu", 0x110, 16, "slice")
    ledger.free("a")

    assert one is two
    assert two.stop is None
    ledger.free("b")
    assert two.stop == 0


def test_what_is_met_over_a_live_piece_of_it_is_one_block_grown_to_both():
    ledger = Ledger("piece first")
    piece = ledger.meet("piece", "cpu", 0x140, 64, "piece")
    ledger.call("mul_", [ledger.read(piece, part(16))], [(piece, part(16))], in_place=((0, 0),))
    whole = ledger.meet("whole", "cpu", 0x100, 256, "whole")
    out = ledger.give("o", "cpu", 0x1000, 256, "out")
    ledger.call("add", [ledger.read(whole, part(64))], [(out, part(64))])
    ledger.free("piece")
    ledger.free("whole")
    document, report = judged(ledger)
    values = document.programs[0].values

    assert piece is whole
    assert (whole.address, whole.nbytes) == (0x100, 256)
    assert report.violations == ()
    assert max(values.offset[values.buffer == whole.index].tolist()) == 64  # the piece, in the whole


def test_a_block_that_moves_ends_after_the_call_that_reads_it():
    ledger = Ledger("moved")
    old = ledger.give("t", "cpu", 0x100, 64, "old")
    ledger.call("ones", [], [(old, part(16))])
    operand = ledger.read(old, part(16))
    new = ledger.give("t", "cpu", 0x1000, 128, "new")
    ledger.call("resize", [operand], [(new, part(16))])
    ledger.end(old)
    _, report = judged(ledger)

    assert report.violations == ()
    assert (old.stop, new.stop) == (2, None)


def test_a_write_to_a_part_is_a_mutation_and_later_readers_see_views_of_it():
    ledger = Ledger("mutation")
    x = ledger.meet("x", "cpu", 0x100, 64, "x")
    y = ledger.give("y", "cpu", 0x200, 64, "y")
    ledger.call("copy", [ledger.read(x, part(16))], [(y, part(16))])
    ledger.call("fill_", [], [(y, part(4, offset=16))])
    z = ledger.give("z", "cpu", 0x300, 64, "z")
    ledger.call("relu", [ledger.read(y, part(16))], [(z, part(16))])
    document, report = judged(ledger)
    program = document.programs[0]

    assert report.violations == ()
    assert [op.kind for op in program.ops] == ["view", "copy", "fill_", "view", "relu", "host.read"]
    assert int(program.values.buffer[program.ops[2].results[0]]) == y.index


def test_memory_that_is_read_before_anybody_wrote_it_is_said():
    ledger = Ledger("empty")
    x, y = ledger.give("x", "cpu", 0x100, 64, "x"), ledger.give("y", "cpu", 0x200, 64, "y")
    ledger.call("relu", [ledger.read(x, part(16))], [(y, part(16))])
    _, report = judged(ledger)

    assert {v.kind for v in report.violations} == {"UninitialisedRead"}


def test_nothing_recorded_is_a_document_of_nothing():
    assert named(Ledger("nothing").document()) == []


def handed_on(*, taker=0, told=""):
    """Block a of stream 0 is read on stream 1, given back, and its bytes serve `taker`."""
    ledger = Ledger("streams")
    order, side = ledger.order, ledger.order.stream("side 1")
    main = ledger.order.stream("side 0")
    ledger.stream = "side 0"
    a = ledger.give("a", "gpu", 0x1000, 64, "a")
    ledger.call("ones", (), [(a, part(16))])
    order.record("made", main)
    order.wait("made", side)
    ledger.stream = "side 1"
    c = ledger.give("c", "gpu", 0x9000, 64, "c")
    ledger.call("relu", [ledger.read(a, part(16))], [(c, part(16))])
    if told == "record_stream":
        ledger.lend(a, "side 1")
    ledger.free("a")
    if told == "wait":
        order.record("read", side)
        order.wait("read", order.stream(f"side {taker}"))
    if told == "synchronize":
        order.synchronize(side)
    ledger.stream = f"side {taker}"
    b = ledger.give("b", "gpu", 0x1000, 64, "b")
    ledger.call("zeros", (), [(b, part(16))])
    return ledger.document()


def causes_of(document):
    return {(cause.class_, cause.party) for cause in judge(Evidence(document=document)).causes}


def test_a_block_that_another_stream_still_reads_races_with_its_next_owner():
    """The allocator kept its rule, since it was told of no use on another stream."""
    document = handed_on()

    assert {v.kind for v in check(document).violations} == {"Race"}
    assert causes_of(document) == {("C09", "schedule")}


def test_a_block_that_serves_another_stream_with_nothing_between_is_the_plans_fault():
    assert ("C09", "plan") in causes_of(handed_on(taker=2))


@pytest.mark.parametrize("told", ["record_stream", "wait", "synchronize"])
def test_a_block_whose_uses_are_told_or_waited_for_is_clean(told):
    document = handed_on(told=told)

    assert check(document).violations == ()
    assert document.programs[0].streams == ("host", "side 1", "side 0")
    assert document.programs[0].meta == ({"assumed_returns": 1} if told == "record_stream" else {})


def test_the_stream_that_memory_was_given_out_on_is_its_own_though_another_fills_it():
    """`empty` on one stream, filled on another, given back: the race is nobody's but the schedule's."""
    ledger = Ledger("filled elsewhere")
    ledger.stream = 7
    a = ledger.give("a", "gpu", 0x1000, 64, "a")
    ledger.take("empty", [a])
    ledger.stream = 8
    ledger.call("ones", (), [(a, part(16))])
    ledger.free("a")
    ledger.stream = 7
    b = ledger.give("b", "gpu", 0x1000, 64, "b")
    ledger.call("zeros", (), [(b, part(16))])

    assert causes_of(ledger.document()) == {("C09", "schedule")}


def test_what_the_host_does_is_done_before_what_it_orders_next():
    ledger = Ledger("host")
    x = ledger.give("x", "cpu", 0x100, 64, "x")
    ledger.call("ones", (), [(x, part(16))])
    ledger.stream = 7
    y = ledger.give("y", "gpu", 0x100, 64, "y")
    ledger.call("copy", [ledger.read(x, part(16))], [(y, part(16))])
    ledger.stream = "host"
    ledger.call("mul_", [ledger.read(x, part(16))], [(x, part(16))], in_place=((0, 0),))
    racing = ledger.document()
    assert {v.kind for v in check(racing).violations} == {"Race"}

    ops = racing.programs[0].ops
    assert [(op.kind, op.stream, op.after) for op in ops] == [
        ("ones", 0, ()), ("copy", 1, (0,)), ("mul_", 0, ()), ("host.read", 0, (1,)),
    ]  # fmt: skip


def test_what_is_met_on_used_bytes_while_a_stream_runs_comes_after_all_before_it():
    ledger = Ledger("met")
    for name, stream in (("a", 7), ("b", 8)):
        ledger.stream = stream
        block = ledger.give(name, "gpu", 0x1000, 64, name)
        ledger.order.synchronize()
        ledger.call("ones", (), [(block, part(16))])
        ledger.free(name)
    ledger.stream = 9
    met = ledger.meet("c", "gpu", 0x1000, 64, "c")
    out = ledger.give("o", "gpu", 0x2000, 64, "o")
    ledger.call("relu", [ledger.read(met, part(16))], [(out, part(16))])

    assert check(ledger.document()).violations == ()
