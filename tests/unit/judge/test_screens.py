"""Compiled screens: the axis against the plain one, and each screen against what it stands for."""

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from allocsim import loads
from allocsim.errors import ModelError
from allocsim.judge.fast import SCREENED, check, selector
from allocsim.judge.fast.accesses import Extents
from allocsim.judge.fast.holes import holes_of
from allocsim.judge.fast.owners import NEVER, OwnerAxis
from allocsim.judge.fast.s_script import Runs
from allocsim.judge.fast.screens import axes as kernels
from allocsim.judge.fast.screens import reads as screen
from allocsim.judge.fast.trial import TrialDocument
from allocsim.model import OWN, Document, Plan, Run, layout
from allocsim.programs.builder import plan_of


@pytest.fixture
def compiled(monkeypatch):
    """Send everything through the screen, however small."""
    monkeypatch.setattr(screen, "COMPILE_FROM", 0)


def test_small_documents_are_screened_from_the_one_on_that_pays_for_all_before_it(tiny, monkeypatch):
    monkeypatch.setattr(screen, "SMALL", 1)
    monkeypatch.setattr(screen, "_done", [0.0])
    b = tiny()
    b.run((b.uploaded("x"),), "y")
    runs = Runs.of(TrialDocument(Document.of(plan_of(b.build(), [0, 1])), selector.PLAIN).trials)
    monkeypatch.setattr(screen, "COMPILE_FROM", 3 * sum(map(len, runs.scripts)))
    assert [screen.reads_to_look_at(runs) is None for _ in range(4)] == [True, True, False, False]


def stretches(pieces):
    """Return pieces with neighbours of one owner joined."""
    joined = []
    for low, high, owner in pieces:
        if joined and joined[-1][2] == owner and joined[-1][1] == low:
            joined[-1] = (joined[-1][0], high, owner)
        else:
            joined.append((low, high, owner))
    return joined


def walked(axis):
    """Return all segments of an axis, and check what its chunks promise."""
    heads, chunk, sizes, starts, owners, _, counts = axis
    found = []
    for place in range(counts[0]):
        held = chunk[place]
        assert 0 < sizes[held] <= kernels.ROOM
        assert heads[place] == starts[held, 0]
        found += zip(starts[held, : sizes[held]].tolist(), owners[held, : sizes[held]].tolist(), strict=True)
    assert [low for low, _ in found] == sorted({low for low, _ in found})
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_painted_axis_holds_what_segments_hold_with_neighbours_joined(seed):
    random = Random(seed)
    axis, plain = kernels.axis_for(4000), OwnerAxis()
    kernels.clear(axis, NEVER)
    reach = 60 if seed % 2 else 20_000
    for _ in range(1500):
        low = random.randrange(reach)
        high = low + random.choice((1, 3, 20, reach // 2))
        owner = random.randrange(3)
        kernels.paint(axis, low, high, owner)
        plain.write(low, high, owner)
    starts = walked(axis)
    assert [(low, owner) for low, _, owner in stretches(plain.pieces(-5, 3 * reach))][1:] == starts[1:]
    for _ in range(300):
        low = random.randrange(reach)
        high = low + random.randrange(1, 40)
        (only, *rest) = stretches(plain.pieces(low, high))
        assert kernels.held_by(axis, low, high) == (kernels.FLOOR if rest else only[2])


def test_an_axis_reaches_to_the_last_address():
    axis = kernels.axis_for(8)
    kernels.clear(axis, NEVER)
    kernels.paint(axis, 1 << 62, kernels.end_at(1 << 62, 1 << 62), 7)

    assert kernels.held_by(axis, 1 << 62, kernels.TOP) == 7
    assert kernels.held_by(axis, 0, 1 << 62) == NEVER


def test_the_holes_of_many_values_are_those_of_each(tiny):
    random = Random(3)
    t = tiny()
    layouts = []
    for _ in range(60):
        rank = random.randrange(1, 4)
        shape = tuple(random.randrange(1, 5) for _ in range(rank))
        strides = tuple(random.choice((-24, -12, -8, 0, 4, 8, 12, 20, 32)) for _ in range(rank))
        low, high = layout.hull(shape, strides, 0, 4)
        offset = random.randrange(0, 9) - low - random.choice((0, 0, 6))
        layouts.append((shape, strides, offset))
        buffer = t.buffer("b", high - low + random.randrange(4))
        t.op("f", (t.value("v", buffer, "f32", shape, strides=strides, offset=offset),), ())
    program = t.build()
    extents = Extents(program)
    for value, (shape, strides, offset) in enumerate(layouts):
        size = int(program.buffers.nbytes[value])
        cut = np.clip(layout.byte_runs(shape, strides, offset, 4), 0, size).tolist()
        assert extents.runs(value) == [(a, b) for a, b in cut if a < b]


def test_too_many_byte_runs_are_refused_before_any_is_made(tiny):
    t = tiny()
    for _ in range(5):
        buffer = t.buffer("b", 1 << 30)
        t.op("f", (), (t.value("v", buffer, "u8", (1 << 22,), strides=(2,)),))
    values = t.build().values

    with pytest.raises(
        ModelError, match="values: the values with holes have 20971520 byte runs in all; at most 16777216"
    ):
        holes_of(values, np.arange(5), values.hulls[:, 0], values.hulls[:, 1])


def test_a_session_with_a_buffer_that_moves_and_comes_back_is_seen_through_the_screen(tiny, compiled):
    """What lies at the old place dates from before the move, though nobody else wrote there."""
    t = tiny()
    x = t.uploaded("x")
    t.download(x)
    program = t.build()
    here, there = (
        Plan(program=program, arena=np.zeros(1, np.int32), offset=np.array([at]), nbytes=np.array([8]))
        for at in (0, 64)
    )
    runs = (Run.of(here), Run.of(there), Run.of(here, skip=(0,)))

    report = check(Document(programs=(program,), plans=(here, there), session=runs))

    assert [(v.kind, v.run, v.other_run, v.want_run) for v in report.violations] == [("StaleRead", 2, 0, 1)]


def test_pieces_written_by_many_and_read_by_many_need_no_look(tiny, compiled):
    """Every reader reads all pieces through a view: a question for each reader, not one for each piece of each."""
    t = tiny()
    whole = t.temp("whole", 64)
    for at in range(64):
        t.op("f", (), (t.value(f"piece{at}", 0, "f32", (1,), offset=4 * at),))
    for _ in range(50):
        t.op("g", (whole,), ())
    plan = Plan(program=t.build(), arena=np.zeros(1, np.int32), offset=np.zeros(1, np.int64), nbytes=np.array([256]))
    document = Document.of(plan)
    looks = screen.reads_to_look_at(Runs.of(TrialDocument(document, SCREENED).trials))

    assert [rows.tolist() for rows in looks] == [[]]
    assert check(document).clean


def test_a_part_read_after_the_whole_was_written_anew_is_seen_through_the_screen(tiny, compiled):
    """What the parts wrote is forgotten: the buffer is held by one write again."""
    t = tiny()
    whole = t.temp("whole", 2)
    low, high = (t.value(f"part{at}", 0, "f32", (1,), offset=4 * at) for at in (0, 1))
    t.op("f", (), (low,))
    t.op("f", (), (high,))
    t.download(low, high)
    t.op("f", (), (whole,))
    t.download(low, whole)

    (found,) = t.judge([0]).violations
    assert (found.kind, found.op, found.value, found.other_op) == ("OverwrittenRead", 4, low, 3)


def test_memory_of_its_own_is_left_alone(tiny, compiled):
    t = tiny()
    x = t.uploaded("x")
    t.download(x)
    plan = Plan(program=t.build(), arena=np.full(1, OWN, np.int32), offset=np.zeros(1, np.int64), nbytes=np.array([8]))

    assert check(Document.of(plan)).clean


CASES = Path(__file__).parents[2] / "data" / "cases"


def padded(accesses):
    """Return `screen-miss` with so many harmless accesses behind it, to buffers that nothing else lies on."""
    made = json.loads((CASES / "screen-miss.json").read_text())
    (program,), (plan,) = made["programs"], made["plans"]
    made["arenas"][0] = {"name": "cpu", "alignment": 4}
    first = len(program["values"])
    for number in range(2):
        program["buffers"].append({"name": f"pad{number}", "nbytes": 16, "role": "temporary"})
        program["values"].append(
            {"name": f"pad{number}", "buffer": len(program["buffers"]) - 1, "dtype": "f32", "shape": [4]}
        )
        plan["slots"].append({"arena": 0, "offset": 128 + 16 * number, "nbytes": 16})
    program["ops"] += [
        {"kind": "host.write", "results": [first]},
        {"kind": "f", "operands": [first], "results": [first + 1]},
    ]
    program["ops"] += [{"kind": "g", "operands": [first, first + 1]} for _ in range(accesses // 2)]
    return loads(json.dumps(made).encode())


def test_what_a_same_leaves_in_place_is_lost_to_its_other_results_also_through_the_screen(compiled):
    """`v4` stays where it is, and `v3`, moved by the same op, lies over it: the reader of `v4` finds `v3`."""
    document = padded(0)
    report = check(document)
    assert report == check(document, plain=True)
    assert [(v.kind, v.op) for v in report.of_kind("StaleRead")] == [("StaleRead", 2)]


def test_so_it_is_with_the_screen_of_a_large_document():
    document = padded(201_000)
    assert check(document) == check(document, plain=True)
