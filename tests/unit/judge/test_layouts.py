"""Which bytes a value lies in, against the definition: one element at a time."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.diagnostics.sentences import _bytes
from allocsim.errors import ModelError
from allocsim.judge.fast import SCREENED, check, s_apart, selector
from allocsim.judge.fast.accesses import Extents, in_step, pieces_moved
from allocsim.judge.fast.s_apart import Moves, inside
from allocsim.judge.fast.s_tags import agreement
from allocsim.model import Document
from allocsim.model.layout import PACKED_LIMIT
from allocsim.programs.builder import ProgramBuilder, plan_of

ROOM = 600
VIEWS = st.lists(
    st.integers(1, 3).flatmap(
        lambda axes: st.tuples(
            st.tuples(*[st.integers(1, 4)] * axes),
            st.tuples(*[st.sampled_from((-12, -4, 1, 2, 3, 4, 8, 20))] * axes),
            st.integers(250, 260),
            st.sampled_from(("u8", "i16", "f32")),
        )
    ),
    min_size=2,
    max_size=4,
)
WIDTH = {"u8": 1, "i16": 2, "f32": 4}


def starts(view):
    """Return where each element begins, in row-major order."""
    shape, strides, offset, _ = view
    return [offset + sum(map(int.__mul__, place, strides)) for place in product(*map(range, shape))]


def extents_of(views):
    b = ProgramBuilder("views")
    buffer = b.buffer("b", ROOM)
    for number, (shape, strides, offset, dtype) in enumerate(views):
        b.value(f"v{number}", buffer, dtype, shape, strides=strides, offset=offset)
    b.op("f", tuple(range(len(views))), ())
    return Extents(b.build())


def stretches(of):
    cut = sorted(of)
    return [
        [low, high]
        for low, high in zip([a for a in cut if a - 1 not in of], [a + 1 for a in cut if a + 1 not in of], strict=True)
    ]


@settings(max_examples=30)
@given(VIEWS)
def test_the_runs_of_a_value_are_the_bytes_of_its_elements(views):
    extents = extents_of(views)
    for number, view in enumerate(views):
        own = {at + byte for at in starts(view) for byte in range(WIDTH[view[3]])}
        assert [list(run) for run in extents.runs(number)] == stretches(own)


@settings(max_examples=20)
@given(VIEWS, st.integers(-3, 3))
def test_pieces_say_where_each_unit_of_two_values_stands(views, shift):
    one = views[0]
    other = (one[0], views[1][1][: len(one[0])] + one[1][len(views[1][1]) :], views[1][2], one[3])
    for pair in ((one, other), (one, (*one[:2], one[2] - shift, one[3]))):
        source, target, length = pieces_moved(extents_of(pair), 0, 1)
        moved = [(int(a) + n, int(b) + n) for a, b, k in zip(source, target, length, strict=True) for n in range(k)]
        units = [
            (a + n, b + n) for a, b in zip(starts(pair[0]), starts(pair[1]), strict=True) for n in range(WIDTH[one[3]])
        ]
        assert moved == units
        for by in (shift, 0, units[0][0] - units[0][1]):
            assert in_step(extents_of(pair), 0, 1, by) is all(a == b + by for a, b in units)


@pytest.mark.parametrize("dtype", ["f32", "u8", "i4"])
@pytest.mark.parametrize(("one", "other"), list(product((-8, 0, 4, 60, 90), repeat=2)))
def test_a_move_of_what_follows_one_another_is_found_without_columns(monkeypatch, dtype, one, other):
    """It moves what the columns say, cut to both buffers alike, also where a half byte begins or ends it."""
    b = ProgramBuilder("move")
    bits = 4 if dtype == "i4" else 0
    x, y = (
        b.value(name, b.buffer(name, 64), dtype, (9,), offset=at, bit_offset=bits)
        for name, at in (("x", one), ("y", other))
    )
    b.same((x,), (y,))
    extents = Extents(b.build(), 8 if bits else 1)
    begins, ends, lengths = pieces_moved(extents, x, y)
    monkeypatch.setattr(s_apart, "pieces_moved", None)
    (move,) = Moves(extents).of(0)
    assert move.cut == inside(begins, ends, lengths, *extents.room.tolist())
    assert move.ways == {*(ends - begins).tolist()}


@pytest.mark.parametrize(
    ("other", "delta", "expected"),
    [
        ((0, 8, 2, 6, (1, 0)), 0, ([(2, 5)], [])),
        ((0, 8, 2, 4, (1, 0)), 0, ([(2, 5)], [])),
        ((0, 8, 4, 9, (1, 0)), 0, ([(4, 5)], [])),
        ((0, 8, 5, 9, (1, 0)), 0, ([], [])),
        ((0, 8, 0, 0, (1, 0)), 0, ([], [])),
        ((0, 8, 2, 4, (1, 3)), 0, ([], [(2, 5)])),
        ((0, 8, 2, 4, (1, -3)), 3, ([(2, 5)], [])),
        ((0, 8, 2, 4, (1, 3)), -3, ([(2, 5)], [])),
        ((0, 8, 2, 4, (2, 0)), 0, ([], [(2, 5)])),
        ((0, 8, 2, 4, None), 0, ([], [(2, 5)])),
        ((0, 8, 2, 4, (1, -8)), 8, ([], [])),
        ((0, 8, 2, 4, (1, -7)), 7, ([(2, 5)], [])),
        ((0, 8, 2, 4, (1, 8)), -8, ([], [])),
    ],
)
def test_two_buffers_agree_where_they_hold_one_tag_in_a_byte_they_share(other, delta, expected):
    assert agreement([(0, 8, 1, 4, (1, 0))], [other], delta) == expected


def test_two_buffers_that_follow_each_other_in_time_neither_agree_nor_differ():
    assert agreement([(0, 8, 1, 4, (1, 0))], [(0, 8, 5, 9, (1, 0))], 0) == ([], [])


def test_untagged_bytes_agree_with_none():
    assert agreement([(0, 8, 1, 4, None)], [(0, 8, 1, 4, None)], 0) == ([], [(1, 5)])


def test_without_numba_no_screen_is_asked_and_any_other_missing_module_is_an_error():
    def missing(name):
        def ask(_screens):
            raise ModuleNotFoundError(f"no module {name}", name=name)

        return ask

    assert SCREENED._asked(missing("numba")) is None
    with pytest.raises(ModuleNotFoundError, match="rectangles"):
        SCREENED._asked(missing("rectangles"))
    assert selector.PLAIN._asked(missing("rectangles")) is None


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([], "no bytes"),
        ([(0, 4)], "bytes [0, 4)"),
        ([(0, 4), (8, 12), (16, 20)], "bytes [0, 4), [8, 12), [16, 20)"),
        ([(0, 4), (8, 12), (16, 20), (24, 28)], "bytes [0, 4), [8, 12), [16, 20) and 1 more ranges"),
        ([(8 * n, 8 * n + 4) for n in range(9)], "bytes [0, 4), [8, 12), [16, 20) and 6 more ranges"),
    ],
)
def test_three_ranges_are_listed_and_the_others_counted(found, said):
    assert _bytes(found) == said


def test_a_program_without_a_plan_has_no_peak():
    made = ProgramBuilder("bare")
    made.tensor("x", "f32", (4,))
    stats = check(Document(programs=(made.build(),))).stats
    assert (stats.buffers, stats.peak_bytes, stats.lower_bound_bytes) == (1, 0, 0)


def test_a_byte_is_too_high_for_packed_values_wherever_it_is_named():
    """Where values share a byte, addresses are counted in bits: one slot that is too high is, though all else is low."""
    b = ProgramBuilder("nibbles")
    byte = b.buffer("byte", 1)
    low, high = b.value("low", byte, "i4", (1,)), b.value("high", byte, "i4", (1,), bit_offset=4)
    b.op("f", (), (low, high))
    made = plan_of(b.build(), {0: PACKED_LIMIT})

    with pytest.raises(ModelError, match=f"addresses reach up to byte {PACKED_LIMIT + 1}"):
        check(Document.of(made))


def test_what_a_same_moves_is_cut_to_both_buffers():
    """8 bytes from 0 to 6, where the target has 10; from -2 to 1; from 5, where the source has 8."""
    starts, ends, lengths = (np.array(column) for column in ([0, -2, 5], [6, 1, 0], [8, 4, 9]))
    assert inside(starts, ends, lengths, 8, 10) == [(0, 6, 4), (0, 3, 2), (5, 0, 3)]
