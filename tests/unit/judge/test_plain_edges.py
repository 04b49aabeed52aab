"""Edges of the rules at which a change of one number in the plain judge shows: both judges say what the text says."""

import json
from collections import Counter
from functools import reduce
from operator import getitem

import pytest

from allocsim import check
from allocsim.document import dumps
from allocsim.errors import ModelError
from allocsim.judge import plain
from allocsim.judge.fast import h_races
from allocsim.judge.plain import races
from allocsim.model import Arena, Document
from allocsim.programs.builder import ProgramBuilder, plan_of

BYTES = (Arena(name="cpu", alignment=1),)


def judged(document):
    """Return the violations that both judges find, by the plain one's records."""
    slow, quick = plain.judge(plain.read(json.loads(dumps(document)))), check(document)
    assert Counter(v.kind for v in slow.violations) == Counter(v.kind for v in quick.violations)
    return slow.violations


def over(operand, result, promise):
    """A result in a buffer of its own that lies where its operand begins; each is (dtype, shape, strides, bytes of the buffer)."""
    b = ProgramBuilder("p", arenas=BYTES)
    x, y = (
        b.value(name, b.buffer(name, nbytes), dtype, shape, strides=strides)
        for name, (dtype, shape, strides, nbytes) in (("x", operand), ("y", result))
    )
    b.op("host.write", (), (x,))
    b.op("f", (x,), (y,), in_place=[promise])
    b.op("host.read", (y,), ())
    return Document.of(plan_of(b.build(), [0, 0]))


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
    ("path", "count"),
    [
        (("programs", 0, "values", 0, "buffer"), 2),
        (("programs", 0, "ops", 1, "operands", 0), 2),
        (("programs", 0, "ops", 1, "results", 0), 2),
        (("programs", 0, "buffers", 0, "arena"), 1),
        (("plans", 0, "slots", 0, "arena"), 1),
        (("plans", 0, "program"), 1),
    ],
    ids=["buffer of a value", "operand", "result", "arena of a buffer", "arena of a slot", "program of a plan"],
)
def test_an_index_that_is_the_count_is_refused(path, count):
    tree = json.loads(dumps(over(EIGHT, EIGHT, (0, 0))))
    *way, last = path
    reduce(getitem, way, tree)[last] = count
    with pytest.raises(ModelError, match=f"{count} does not exist; there are {count}"):
        plain.read(tree)
