"""Edges of the rules at which a change of one number in the plain judge shows: both judges say what the text says."""

import json
from functools import reduce
from operator import getitem

import pytest
from agreement_plain import compare

from allocsim import check
from allocsim.document import dumps, loads
from allocsim.errors import ModelError
from allocsim.judge import plain
from allocsim.judge.fast import h_races
from allocsim.judge.plain import document_records, races
from allocsim.judge.plain.ranges import HeldRanges, merged
from allocsim.model import SAME, Arena, Document, Problem, Role, Run
from allocsim.programs.builder import ProgramBuilder, plan_of

BYTES = (Arena(name="cpu", alignment=1),)


def judged(document):
    """Return the violations of a document of which both judges say the same, field by field."""
    tree = json.loads(dumps(document))
    assert compare(tree) == []
    return plain.judge(plain.read(tree)).violations


def laid(operand, result, slots, pairs, *, kind="f"):
    """An op from one buffer to another; each side is (dtype, shape, strides, bytes of the buffer), and an offset in it, if not 0."""
    b = ProgramBuilder("p", arenas=BYTES)
    x, y = (
        b.value(name, b.buffer(name, nbytes), dtype, shape, strides=strides, offset=sum(offset))
        for name, (dtype, shape, strides, nbytes, *offset) in (("x", operand), ("y", result))
    )
    b.op("host.write", (), (x,))
    b.op(kind, (x,), (y,), in_place=pairs)
    b.op("host.read", (y,), ())
    return Document.of(plan_of(b.build(), slots))


def over(operand, result, promise):
    """The result lies where its operand begins."""
    return laid(operand, result, [0, 0], [promise])


EIGHT = ("u8", (8,), None, 8)


@pytest.mark.parametrize(
    ("operand", "result", "safe"),
    [
        (EIGHT, EIGHT, True),
        (EIGHT, ("u8", (7,), None, 7), True),
        (("u8", (7,), None, 8), ("u8", (8,), None, 8), False),
        (("u8", (8,), None, 9), ("u8", (9,), None, 9), False),
        (("f32", (2, 2), (8, 4), 16), ("f32", (4,), None, 16), True),
        (("f32", (2, 2), (16, 4), 24), ("f32", (4,), None, 16), False),
        (("f32", (2, 2), (4, 8), 16), ("f32", (4,), None, 16), False),
    ],
    ids=["equal", "a byte less", "a byte more", "a byte more than eight", "rows", "rows apart", "columns"],
)
def test_what_may_share_its_first_bytes_is_no_larger_and_in_one_piece(operand, result, safe):
    assert {v.kind for v in judged(over(operand, result, (0, 0, "bytes")))} == (
        set() if safe else {"UnsafeInPlace", "Overlap"}
    )


def test_two_buffers_take_turns_at_one_slot_step_by_step():
    """The life of a buffer ends at the step before its next one begins; the two are not one."""
    b = ProgramBuilder("p", arenas=BYTES)
    homes = [b.buffer(name, 8) for name in "xy"]
    before = b.value("v0", homes[0], "u8", (8,))
    b.op("host.write", (), (before,))
    for step in range(1, 6):
        after = b.value(f"v{step}", homes[step % 2], "u8", (8,))
        b.op("f", (before,), (after,), in_place=[(0, 0)])
        before = after
    b.op("host.read", (before,), ())
    assert judged(Document.of(plan_of(b.build(), [0, 0]))) == ()


@pytest.mark.parametrize(("limit", "told"), [(6, 3), (5, 2), (4, 2), (3, 1), (1, 0)])
def test_an_order_that_shows_a_race_is_told_as_long_as_there_is_room_for_all_of_it(limit, told, monkeypatch):
    b = ProgramBuilder("p", arenas=BYTES, streams=("a", "b"))
    for name, stream in ("x0", 0), ("y0", 0), ("z0", 0), ("u1", 1):
        b.op("f", (), (b.tensor(name, "u8", (8,)),), stream=stream)
    for module in (races, h_races):
        monkeypatch.setattr(module, "SCHEDULE_LIMIT", limit)
    document = Document.of(plan_of(b.build(), [0] * 4))
    schedules = [v.schedule for v in judged(document) if v.kind == "Race"]
    assert schedules == [(3, earlier) if earlier < told else None for earlier in range(3)]
    assert schedules == [v.schedule for v in check(document).of_kind("Race")]


@pytest.mark.parametrize(
    ("path", "what", "count"),
    [
        (("programs", 0, "values", 0, "buffer"), "buffer", 2),
        (("programs", 0, "ops", 1, "operands", 0), "value", 2),
        (("programs", 0, "ops", 1, "results", 0), "value", 2),
        (("programs", 0, "buffers", 0, "arena"), "arena", 1),
        (("plans", 0, "slots", 0, "arena"), "arena", 1),
        (("plans", 0, "program"), "program", 1),
    ],
    ids=["buffer of a value", "operand", "result", "arena of a buffer", "arena of a slot", "program of a plan"],
)
def test_an_index_that_is_the_count_is_refused(path, what, count):
    tree = json.loads(dumps(over(EIGHT, EIGHT, (0, 0))))
    *way, last = path
    reduce(getitem, way, tree)[last] = count
    with pytest.raises(ModelError, match=rf": {what} {count} does not exist; there are {count}"):
        plain.read(tree)


@pytest.mark.parametrize(
    ("operand", "result", "safe"),
    [
        (("f32", (2,), (8,), 12), ("f32", (2,), None, 8), False),
        (("f32", (1,), (8,), 12), ("f32", (1,), None, 8), True),
        (("f32", (2, 1), (4, 64), 8), ("f32", (2, 1), None, 8), True),
        (("f32", (2,), None, 8), ("i32", (2,), None, 8), True),
        (("f32", (2,), None, 8), ("f16", (2,), None, 4), False),
        (("u4", (3,), (0,), 2), ("u4", (3,), None, 2), True),
    ],
    ids=["apart", "one element", "an axis of one", "as wide", "narrower", "packed"],
)
def test_an_exact_pair_has_one_layout_in_every_axis_that_is_longer_than_one(operand, result, safe):
    assert {v.kind for v in judged(over(operand, result, (0, 0)))} == (set() if safe else {"UnsafeInPlace", "Overlap"})


def believed(buffers, slots, events=(), **problem):
    """A program without ops, with what a problem believes of its buffers."""
    tree = {
        "format": "allocsim",
        "version": 1,
        "programs": [{"buffers": [{"nbytes": 8, **buffer} for buffer in buffers], "values": [], "ops": []}],
        "problems": [{"program": 0, **problem}],
        "plans": [
            {
                "program": 0,
                "problem": 0,
                "slots": [{"arena": 0, "offset": offset, "nbytes": 8} for offset in slots],
                "events": [list(event) for event in events],
            }
        ],
    }
    return loads(json.dumps(tree))


@pytest.mark.parametrize(("role", "kinds"), [("temporary", set()), ("state", {"Overlap"})])
def test_a_believed_pair_hands_nothing_over_where_one_of_them_lasts(role, kinds):
    made = believed([{}, {"role": role}], [0, 0], start=[0, 1], stop=[2, 3], may_share=[[0, 1]])
    assert {v.kind for v in judged(made)} & {"Overlap"} == kinds


@pytest.mark.parametrize(("step", "outside"), [(0, False), (1, True)])
def test_a_life_of_the_first_step_is_missed_by_what_is_allocated_behind_it(step, outside):
    made = believed([{}], [0], [(step, "alloc", 0)], start=[0], stop=[1])
    assert any(v.kind == "EventOutsideLifetime" for v in judged(made)) == outside


def test_a_state_of_two_plans_is_met_as_planned_and_not_apart():
    """Two runs that nothing orders write two halves of it, which the plans lay onto each other."""
    plans = []
    for low, offset in ((8, 0), (0, 8)):
        b = ProgramBuilder("p", arenas=BYTES)
        state = b.buffer("s", 16, role=Role.STATE)
        b.op("f", (), (b.value("half", state, "u8", (8,), offset=low),))
        plans.append(plan_of(b.build(), [offset]))
    ordered, apart = (
        Document.of(*(Run.of(plan, after=after) for plan, after in zip(plans, waits, strict=True)))
        for waits in ((None, None), ((), ()))
    )
    assert [v.kind for v in judged(ordered) if v.kind == "Race"] == []
    (race,) = (v for v in judged(apart) if v.kind == "Race")
    assert (race.in_apart, *(v.in_apart for v in check(apart).of_kind("Race"))) == (False, False)


@pytest.mark.parametrize("number", ["8", True, None, -1, (1 << 62) + 1, 1.5, [8]])
def test_what_is_no_count_is_refused(number):
    tree = json.loads(dumps(over(EIGHT, EIGHT, (0, 0))))
    tree["programs"][0]["buffers"][0]["nbytes"] = number
    with pytest.raises(ModelError, match=r"is not an integer from 0 to 2\^62"):
        plain.read(tree)


def test_ranges_without_a_byte_are_left_out():
    assert merged([(2, 2)]) == merged([]) == ()
    assert merged([(0, 4), (4, 4), (6, 6), (8, 9)]) == ((0, 4), (8, 9))


def test_a_buffer_without_a_slot_is_missed_where_one_run_of_the_plan_touches_it():
    b = ProgramBuilder("p", arenas=BYTES)
    b.op("host.write", (), (b.tensor("x", "u8", (8,)),))
    plan = plan_of(b.build(), [None])
    assert [v.kind for v in judged(Document.of(Run.of(plan), Run.of(plan, skip=(0,))))] == ["Unplaced"]
    assert judged(Document.of(Run.of(plan, skip=(0,)))) == ()


def test_each_time_that_a_buffer_is_given_back_while_it_lives_is_told():
    events = [(0, "alloc", 0), (1, "free", 0), (3, "alloc", 0), (4, "free", 0), (6, "alloc", 0)]
    found = judged(believed([{}], [0], events, start=[0], stop=[8]))
    assert [v.step for v in found if v.kind == "EventOutsideLifetime"] == [1, 4]


def test_a_pair_has_one_address_wherever_in_their_buffers_the_two_lie():
    x, y = ("u8", (8,), None, 16, 8), EIGHT
    assert judged(laid(x, y, [0, 8], [(0, 0)])) == ()
    assert judged(laid(y, x, [8, 0], [(0, 0)])) == ()
    assert judged(laid(x, y, [0, 0], [(0, 0)])) == ()  # they share no byte
    assert {v.kind for v in judged(laid(x, y, [0, 4], [(0, 0)]))} == {"UnsafeInPlace", "Overlap"}


def test_of_two_promises_for_one_pair_the_stronger_counts():
    x, y = EIGHT, ("u8", (2, 4), None, 8)
    for pairs, safe in (([(0, 0)], False), ([(0, 0), (0, 0, "bytes")], True), ([(0, 0, "bytes"), (0, 0)], True)):
        assert (judged(laid(x, y, [0, 0], pairs)) == ()) == safe, pairs


@pytest.mark.parametrize("kind", ["f", SAME])
def test_a_value_that_reaches_a_byte_beyond_its_buffer_is_found(kind):
    for operand, result in ((9, 9), (8, 9), (9, 8)):
        sides = [("u8", (count,), None, 8) for count in (operand, result)]
        if kind != SAME or operand == result:
            found = [v for v in judged(laid(*sides, [0, 16], [], kind=kind)) if v.kind == "OutOfBounds"]
            assert {v.buffer for v in found} == {buffer for buffer, side in enumerate((operand, result)) if side == 9}


def test_a_layout_has_as_many_ranges_as_there_may_be_and_no_more(monkeypatch):
    monkeypatch.setattr(document_records, "MAX_PIECES", 3)
    for count in (3, 4):
        b = ProgramBuilder("p", arenas=BYTES)
        x = b.value("x", b.buffer("x", 8 * count), "u8", (count,), strides=(8,))
        b.op("host.write", (), (x,))
        tree = json.loads(dumps(Document.of(plan_of(b.build(), [0]))))
        if count == 3:
            assert plain.judge(plain.read(tree)).clean
        else:
            with pytest.raises(ModelError, match="a layout of more than 3 ranges is not supported"):
                plain.judge(plain.read(tree))


def test_a_same_hands_nothing_on_from_beyond_its_operands_buffer():
    """Whatever lies there as planned: the byte is outside."""
    b = ProgramBuilder("p", arenas=BYTES)
    z = b.tensor("z", "u8", (8,))
    x, y = (b.value(name, b.buffer(name, nbytes), "u8", (9,)) for name, nbytes in (("x", 8), ("y", 9)))
    b.op("host.write", (), (z,))
    b.op("host.write", (), (x,))
    b.op(SAME, (x,), (y,))
    b.op("host.read", (y,), ())
    b.op("host.read", (z,), ())
    assert "OutOfBounds" in {v.kind for v in judged(Document.of(plan_of(b.build(), [8, 0, 16])))}


def test_the_stride_of_a_packed_axis_is_0_said_or_not():
    tree = json.loads(dumps(over(("u4", (3,), None, 2), ("u4", (3,), None, 2), (0, 0))))
    (said, unsaid) = tree["programs"][0]["values"]
    said["strides"] = [0]
    assert "strides" not in unsaid
    assert compare(tree) == []
    assert plain.judge(plain.read(tree)).clean


@pytest.mark.parametrize("version", [1, 2])
def test_what_version_2_brought_is_refused_in_version_1(version):
    tree = json.loads(dumps(over(EIGHT, EIGHT, (0, 0, "bytes"))))
    assert tree["version"] == 2
    tree["version"] = version
    if version == 2:
        assert plain.judge(plain.read(tree)).clean
    else:
        with pytest.raises(ModelError, match=r'needs "version": 2'):
            plain.read(tree)


@pytest.mark.parametrize(("late", "refused"), [(0, True), (1, False), (2, True)])
def test_a_late_read_waits_for_a_later_run_that_there_is(late, refused):
    tree = json.loads(dumps(Document.of(*(Run.of(over(EIGHT, EIGHT, (0, 0)).plans[0]) for _ in range(2)))))
    tree["version"] = 2
    tree["session"][0]["read_after"] = late
    if refused:
        with pytest.raises(ModelError, match=f"there is no run {late} later than run 0"):
            plain.read(tree)
    else:
        assert compare(tree) == []


def test_a_believed_pair_may_have_its_donor_behind_its_recipient():
    b = ProgramBuilder("p", arenas=BYTES)
    y, x, z = (b.value(name, b.buffer(name, 8), "u8", (8,)) for name in "yxz")
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,), in_place=[(0, 0)])
    b.op("f", (y,), (z,), in_place=[(0, 0)])
    b.op("host.read", (z,), ())
    program = b.build()
    problem = Problem.of(program, start=[1, 0, 2], stop=[3, 2, 4], may_share=[[1, 0], [0, 2]])
    assert judged(Document(programs=(program,), problems=(problem,))) == ()


def test_a_range_without_a_byte_holds_nothing():
    memory = HeldRanges()
    memory.put(3, 3, "x")
    assert memory.at(0, 8) == [(0, 8, None)]
    memory.put(2, 6, "y")
    memory.put(4, 4, "x")
    assert memory.at(0, 8) == [(0, 2, None), (2, 6, "y"), (6, 8, None)]


@pytest.mark.parametrize(("version", "kinds"), [(1, {"LifetimeIgnored"}), (2, set())])
def test_an_op_called_same_is_of_any_kind_in_version_1(version, kinds):
    """Nothing says that its sides hold the same, so they may not lie at one address; nor has it as many of either."""
    ops = [
        {"kind": "host.write", "results": [0]},
        {"kind": "same", "operands": [0], "results": [1], "in_place": [[0, 0]]},
    ]
    ops += [{"kind": "f", "operands": [1], "results": [2]}, {"kind": "host.read", "operands": [2]}]
    program = {"buffers": [{"nbytes": 8}] * 3, "ops": ops}
    program["values"] = [{"buffer": buffer, "dtype": "u8", "shape": [8]} for buffer in range(3)]
    problem = {"program": 0, "start": [0, 1, 2], "stop": [4, 3, 4], "may_share": []}
    slots = [{"arena": 0, "offset": offset, "nbytes": 8} for offset in (0, 0, 64)]
    tree = {"format": "allocsim", "version": version, "programs": [program], "problems": [problem]}
    tree["plans"] = [{"program": 0, "problem": 0, "slots": slots}]
    assert {v.kind for v in judged(loads(json.dumps(tree)))} & {"LifetimeIgnored"} == kinds
    if version == 1:
        ops[:2] = [{"kind": "host.write", "results": [0, 2]}, {"kind": "same", "operands": [0, 2], "results": [1]}]
        ops[2:3] = []
        ops[-1] = {"kind": "host.read", "operands": [1]}
        judged(loads(json.dumps(tree)))
