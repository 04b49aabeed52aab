"""Where a buffer is put: the lowest bytes that nobody else needs, found again by trying every place."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.cure.room import Rigour, rooms_of
from allocsim.model import Arena, Document, Run
from allocsim.programs.builder import ProgramBuilder, plan_of
from repro.small.words import belief, plan, program

BUFFERS = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from((1, 2, 4)), st.integers(0, 20), st.integers(0, 5), st.integers(1, 4)),
    min_size=2,
    max_size=7,
)


def room_of(rows, foreign):
    b = ProgramBuilder("rows")
    for number, (nbytes, alignment, *_) in enumerate(rows):
        b.buffer(f"b{number}", nbytes, alignment=alignment)
    made = b.build()
    room = rooms_of(Document.of(plan_of(made, [row[2] for row in rows])))[0]
    start = np.array([row[3] for row in rows])
    return replace(
        room,
        start=start,
        stop=start + [row[4] for row in rows],
        foreign=tuple((0, a, b) for a, b in foreign),
        ends=(24,),
    )


def met(room, one, other, rigour):
    return rigour is not Rigour.LIVING or (room.start[one] < room.stop[other] and room.start[other] < room.stop[one])


@settings(max_examples=30)
@given(
    BUFFERS,
    st.sets(st.integers(0, 6)),
    st.sampled_from(Rigour),
    st.booleans(),
    st.lists(st.sampled_from(((0, 3), (8, 9), (30, 40))), max_size=2),
)
def test_a_moved_buffer_gets_the_lowest_bytes_that_are_free(rows, chosen, rigour, stay, foreign):
    room = room_of(rows, foreign)
    chosen = {buffer for buffer in chosen if buffer < len(rows)}
    was = room.offset.tolist()
    assert room.copy().move(chosen, rigour, stay=stay)
    assert room.offset.tolist() == was
    assert room.move(chosen, rigour, stay=stay)
    order = sorted(chosen, key=lambda n: (-rows[n][0], room.start[n], room.stop[n], n))
    settled = [n for n in range(len(rows)) if n not in chosen]
    for buffer in range(len(rows)):
        if buffer not in chosen:
            assert room.offset[buffer] == was[buffer]
    for buffer in order:
        size, step = rows[buffer][:2]
        taken = [
            (int(room.offset[n]), int(room.offset[n]) + rows[n][0])
            for n in settled
            if rows[n][0] and met(room, n, buffer, rigour)
        ]
        taken += foreign + ([(0, 24)] if rigour is Rigour.FRESH else [])
        free = [at for at in range(0, 200, step) if all(b <= at or at + size <= a for a, b in taken)]
        at = int(room.offset[buffer])
        if stay and was[buffer] in free:
            assert at == was[buffer]
        elif size:
            assert at == free[0]
        settled.append(buffer)


def test_a_buffer_that_finds_no_room_is_not_moved_beyond_the_end():
    for capacity, fits in ((24, True), (23, False)):
        b = ProgramBuilder("small", arenas=(Arena(name="cpu", alignment=8, capacity=capacity),))
        for name in "xyz":
            b.buffer(name, 8)
        planned = plan_of(b.build(), [0, 0, 8])
        room = rooms_of(Document.of(planned))[0]
        assert room.move({1}, Rigour.EVERYBODY) is fits
        assert room.peak() == (24 if fits else 16)


def test_a_slot_needs_the_largest_of_what_slot_buffer_and_belief_say_for_all_the_life_they_say():
    made = program("x = host.write; a = f x; b = g a; c = h b; host.read c")
    believed = belief(made, a=(0, 3), pinned="b")
    believed = replace(believed, nbytes=np.array([64, 64, 96, 64]))
    planned = plan(made, "x=0 a=64 b=128 c=256", believed)
    planned = replace(planned, nbytes=np.array([64, 128, 64, 64]))
    document = Document.of(planned)
    room = rooms_of(document)[0]
    assert room.nbytes.tolist() == [64, 128, 96, 64]
    assert list(zip(room.start.tolist(), room.stop.tolist(), strict=True))[1:3] == [(0, 3), (2, 5)]
    assert room.ends == (320, 0)
    assert room.peak() == 320
    far = replace(planned, offset=planned.offset + 1000)
    assert rooms_of(replace(document, plans=(planned, far)))[0].ends == (1320, 0)


@pytest.mark.parametrize("skip", [(), (0,)])
def test_what_one_run_leaves_for_another_is_kept_from_other_plans(skip):
    made = program("x = host.write; a = f x; host.read a")
    one, other = plan(made, "x=0 a=64"), plan(made, "x=128 a=192")
    document = Document.of(Run.of(one), Run.of(one, skip=skip), Run.of(other))
    mine, theirs = rooms_of(document).values()
    assert theirs.foreign == (((0, 0, 64),) if skip else ())
    assert mine.foreign == ()
    assert bool(mine.stop[0] > 3) is bool(skip)


def test_a_buffer_that_may_stay_does_so_right_behind_another_though_there_is_room_below():
    made = program("x = host.write; a = f x; host.read a")
    planned = plan(made, "x=64 a=128")
    room = rooms_of(Document.of(planned))[0]
    assert room.move({1}, Rigour.EVERYBODY, stay=True)
    assert room.offset.tolist() == [64, 128]


def test_a_buffer_of_no_bytes_takes_no_place():
    room = room_of([(0, 1, 4, 0, 4), (8, 1, 20, 0, 4)], [])
    assert room.move({1}, Rigour.LIVING)
    assert room.offset.tolist() == [4, 0]
