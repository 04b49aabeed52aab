"""Programs of several ranks side by side: where they meet, where they do not, and one document."""

import random
from dataclasses import replace

import pytest

from allocsim.diagnostics import check
from allocsim.errors import ModelError
from allocsim.model import Document, Role
from allocsim.programs import rank_meetings
from allocsim.programs.builder import ProgramBuilder, plan_of
from allocsim.programs.joined_ranks import joined
from allocsim.programs.rank_meetings import meetings, plans_of

WORLD = {"world": [(0, 1)]}


def rank(*rows, streams=("compute", "comm"), nbytes=64):
    """A program of rows (kind, group or None, stream, after); each op reads the result of the one before."""
    b = ProgramBuilder("p", streams=streams)
    last = b.tensor("x", "u8", (nbytes,), role=Role.INPUT)
    b.op("host.write", (), (last,))
    for number, (kind, group, stream, after) in enumerate(rows):
        made = b.tensor(f"v{number}", "u8", (nbytes,))
        meta = {"collective": group, "params": {"ranks": 2}} if group else None
        b.op(kind, (last,), (made,), name=f"{kind}{number}", stream=stream, after=after, meta=meta)
        last = made
    return b.build()


SUM = ("all_reduce", "world", 1, (0,))
LOCAL = ("relu", None, 0, (1,))


def told_of(ranks, *, kind="all-reduce", **meta):
    b = ProgramBuilder("p")
    sides = [b.tensor(name, "u8", (4,)) for name in "ab"]
    b.op("host.write", (), sides[:1])
    b.op(kind, sides[:1], sides[1:], meta={"collective": "g", **meta})
    return Document.of(plan_of(replace(b.build(), meta={"ranks": ranks}), {0: 0, 1: 64}))


TWO = {"count": 2, "groups": {"g": [[0, 1]]}}
PERMUTE = "collective-permute"


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (told_of({"count": 2, "groups": {"g": 5}}), "is no list of lists of ranks"),
        (told_of({"count": 2, "groups": {"g": [5]}}), "is no list of lists of ranks"),
        (told_of({"count": 2, "groups": {"g": [["0"]]}}), "is no list of lists of ranks"),
        (told_of({"count": 1 << 16, "groups": {}}), "is none of"),
        (told_of(TWO, collective=["g"]), "is none of g"),
        (told_of(TWO, params=5), "params: is no object"),
        (told_of(TWO, to=1, **{"from": 1}), "says to and from"),
        *[
            (told_of(TWO, kind=PERMUTE, params={"pairs": pairs}), "are no pairs of places of ranks")
            for pairs in (5, [5], [[0]], [[0, 2]], [[-1, 0]], [["x", 1]])
        ],
    ],
)
def test_what_a_document_says_of_ranks_is_taken_or_refused_in_a_line(document, line):
    with pytest.raises(ModelError, match=line):  # noqa: PT012 - either says it
        plans, groups = plans_of([document])
        meetings([plan.program for plan in plans], groups)


def test_ranks_of_more_ops_than_are_joined_are_refused(monkeypatch):
    monkeypatch.setattr(rank_meetings, "OPS", 3)
    with pytest.raises(ModelError, match="2 ranks have 4 ops; at most 3 are joined"):
        plans_of([told_of(TWO)])


def test_equal_programs_meet_and_are_judged_clean():
    programs = [rank(SUM, LOCAL)] * 2
    met = meetings(programs, WORLD)
    assert not met.faults
    assert [(m.kind, m.steps, m.number) for m in met.found] == [("all_reduce", (1, 1), 0)]
    document = joined([plan_of(p, dict.fromkeys(range(3), 0) | {1: 64, 2: 128}) for p in programs], WORLD)
    assert check(document).clean
    assert document.programs[0].streams == ("rank0/compute", "rank0/comm", "rank1/compute", "rank1/comm")
    assert [arena.name for arena in document.arenas] == ["rank0/cpu", "rank1/cpu"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (rank(("all_gather", "world", 1, (0,)), LOCAL), "rank 1 brings all_gather 'all_gather0' of 64 bytes"),
        (rank(SUM, LOCAL, nbytes=32), "rank 1 brings all_reduce 'all_reduce0' of 32 bytes"),
        (rank(("relu", None, 0, ())), "rank 1 has none left"),
    ],
)
def test_parts_that_do_not_fit_are_one_finding_and_no_document(other, says):
    """Kind, size and number must agree; the finding names both ranks and their ops."""
    programs = [rank(SUM, LOCAL), other]
    (fault,) = meetings(programs, WORLD).faults
    assert fault.kind == "CollectiveMismatch"
    assert says in fault.message
    assert fault.ranks == (0, 1)
    with pytest.raises(ModelError, match="CollectiveMismatch: collective 0 of group 'world': rank 0 brings"):
        joined([plan_of(p, [None] * len(p.buffers)) for p in programs], WORLD)


def test_collectives_of_two_groups_in_crossed_order_are_a_deadlock():
    """Each rank waits for the other in the group it came to first; on streams of their own they do not."""
    groups = {"a": [(0, 1)], "b": [(0, 1)]}
    first, second = ("all_reduce", "a", 1, ()), ("all_reduce", "b", 1, ())
    (fault,) = meetings([rank(first, second), rank(second, first)], groups).faults
    assert fault.kind == "CollectiveDeadlock"
    assert fault.ranks == (0, 1)
    assert (
        "rank 0 stands at 'all_reduce0' (op 1, group 'a'); rank 1 stands at 'all_reduce0' (op 1, group 'b')"
        in fault.message
    )
    apart = ("all_reduce", "a", 0, ())
    assert not meetings([rank(apart, second), rank(second, apart)], groups).faults


def messenger(*rows):
    """A program of messages (side, place of the other, bytes, stream), each of a value of its own."""
    b = ProgramBuilder("p", streams=("compute", "there", "back"))
    for number, (side, other, nbytes, stream) in enumerate(rows):
        value = b.tensor(f"v{number}", "u8", (nbytes,))
        meta = {"collective": "world", side: other}
        if side == "to":
            step = b.op("host.write", (), (value,))
            b.op("send", (value,), (), name=f"send{number}", stream=stream, after=[step], meta=meta)
        else:
            b.op("recv", (), (value,), name=f"recv{number}", stream=stream, meta=meta)
    return b.build()


def placed(program):
    return plan_of(program, {n: 64 * n for n in range(len(program.buffers))})


def test_messages_of_two_ranks_meet_in_their_order_and_are_joined():
    """They may be of other sizes each, and go between any two ranks of the group; who takes waits for who brings."""
    groups = {"world": [(0, 1, 2)]}
    programs = [
        messenger(("to", 2, 16, 1), ("to", 2, 64, 1)),
        messenger(("from", 2, 8, 2)),
        messenger(("to", 1, 8, 2), ("from", 0, 16, 1), ("from", 0, 64, 1)),
    ]
    met = meetings(programs, groups)
    assert not met.faults
    assert {(m.kind, m.ranks, m.number) for m in met.found} == {
        ("message", (0, 2), 0),
        ("message", (0, 2), 1),
        ("message", (2, 1), 0),
    }
    document = joined([placed(program) for program in programs], groups)
    assert check(document).clean
    (program,) = document.programs
    for op in (op for op in program.ops if op.kind == "recv"):
        (giver,) = op.after
        assert program.ops[giver].kind == "send.give"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            [("from", 0, 32, 1)],
            "message 0 of group 'world': rank 0 brings send 'send0' of 64 bytes (op 1), rank 1 takes",
        ),
        ([], "rank 1 has none left"),
        ([("from", 0, 64, 1)] * 2, "message 1 of group 'world': rank 0 has none left, rank 1 takes recv 'recv1' of 64"),
    ],
)
def test_a_message_that_is_not_taken_as_it_is_brought_is_a_mismatch(other, says):
    (fault,) = meetings([messenger(("to", 1, 64, 1)), messenger(*other)], WORLD).faults
    assert fault.kind == "CollectiveMismatch"
    assert says in fault.message


def test_two_ranks_that_bring_before_they_take_are_a_deadlock_on_one_stream():
    """A library may let who brings wait, so it is one; the order of a document does not count on it."""
    one, two = ([("to", other, 64, stream) for stream in (1,)] + [("from", other, 64, 1)] for other in (1, 0))
    (fault,) = meetings([messenger(*one), messenger(*two)], WORLD).faults
    assert fault.kind == "CollectiveDeadlock"
    assert "rank 0 stands at 'send0'" in fault.message
    assert "rank 1 stands at 'send0'" in fault.message
    apart = [[one[0], (*one[1][:3], 2)], [(*two[0][:3], 2), two[1]]]
    assert not meetings([messenger(*rows) for rows in apart], WORLD).faults
    assert not meetings([messenger(*one), messenger(*two[::-1])], WORLD).faults


@pytest.mark.parametrize("other", [0, 2, -1, "1", None])
def test_a_message_to_nobody_else_is_refused(other):
    with pytest.raises(ModelError, match="is no other of 2 ranks"):
        meetings([messenger(("to", other, 64, 1))] * 2, WORLD)


def test_an_order_drawn_is_legal():
    """Every event comes after what it waits for: its stream, its waits, and those who give."""
    programs = [rank(SUM, LOCAL, ("all_gather", "world", 1, (2,)), ("relu", None, 0, ()))] * 2
    met = meetings(programs, WORLD)
    draw = random.Random(5)
    for _ in range(50):
        order = met.order(lambda ready: draw.randrange(len(ready)))
        place = {event: number for number, event in enumerate(order)}
        assert len(place) == 2 * (5 + 2)
        for meeting in met.found:
            given = [place[r, s, False] for r, s in zip(meeting.ranks, meeting.steps, strict=True)]
            assert all(place[r, s, True] > max(given) for r, s in zip(meeting.ranks, meeting.steps, strict=True))


def test_a_broadcast_waits_for_its_root_alone():
    """So what orders ranks is only what the kind needs: the root may go on before the others come."""
    b = [rank(("broadcast", "world", 1, ()), LOCAL)] * 2
    order = meetings(b, WORLD).order(lambda ready: min(range(len(ready)), key=lambda i: ready[i][1]))
    events = [event for event in order if event.step == 1]
    assert [tuple(event) for event in events] == [(0, 1, False), (0, 1, True), (1, 1, False), (1, 1, True)]


@pytest.mark.parametrize(
    ("groups", "says"),
    [
        ({"world": [(0, 1), (1,)]}, "rank 1 is in two parts"),
        ({"world": [(0, 2)]}, "none of the 2 ranks"),
        ({"w": [(0, 1)]}, "group 'world' is none of w"),
        ({"world": [(0,)]}, "rank 1 is in no part of group 'world'"),
    ],
)
def test_groups_that_are_no_partition_are_refused(groups, says):
    with pytest.raises(ModelError, match=says):
        meetings([rank(SUM)] * 2, groups)


def test_a_wait_left_out_on_one_rank_races_in_the_document_of_all():
    """The document has the race of that rank, on its arena, and no other."""
    good, bad = rank(SUM, LOCAL), rank(SUM, ("relu", None, 0, ()))
    plans = [plan_of(p, {0: 0, 1: 64, 2: 128}) for p in (good, bad)]
    found = check(joined(plans, WORLD)).violations
    assert {v.kind for v in found} == {"Race"}
    assert {v.buffer for v in found} == {4}


def with_params(kind, **params):
    """A program of one collective with these parameters."""
    b = ProgramBuilder("p", streams=("compute", "comm"))
    x, y = (b.tensor(name, "u8", (64,)) for name in "xy")
    b.op("host.write", (), (x,))
    b.op(kind, (x,), (y,), stream=1, after=(0,), meta={"collective": "world", "params": params})
    return b.build()


@pytest.mark.parametrize(("kind", "name"), [("broadcast", "root"), ("send_receive", "by")])
def test_ranks_that_bring_other_parameters_do_not_meet(kind, name):
    """A broadcast from another root, or a message to another neighbour, hangs in every library."""
    (fault,) = meetings([with_params(kind, **{name: 0}), with_params(kind, **{name: 1})], WORLD).faults
    assert fault.kind == "CollectiveMismatch"
    assert f"{name} 0" in fault.message
    assert f"{name} 1" in fault.message


@pytest.mark.parametrize("params", [{"root": 5}, {"root": "x"}, {"by": None}])
def test_a_root_that_is_no_rank_is_refused(params):
    with pytest.raises(ModelError, match="are no places among 2 ranks"):
        meetings([with_params("broadcast", **params)] * 2, WORLD)
