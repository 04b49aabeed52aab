"""Joins, conflicts and segments against their definitions, on generated ranges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allocsim.judge.fast import SCREENED, selector
from allocsim.judge.fast import owners as segments
from allocsim.judge.fast.intervals import SHORTER, TOP, Ranges, among, by_number, conflicts, end_of, join
from allocsim.judge.fast.owners import FLOOR, NEVER, OwnerAxis, merged, shared
from allocsim.judge.fast.screens import rectangles

RANGE = st.tuples(st.integers(0, 12), st.integers(1, 6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
COLUMN = st.lists(st.tuples(st.integers(0, 2), RANGE), max_size=12)
RECTANGLES = st.lists(st.tuples(RANGE, RANGE), max_size=14)


def meet(a, b):
    return max(a[0], b[0]) < min(a[1], b[1])


def ranges(rows):
    keys, bounds = [key for key, _ in rows], np.array([r for _, r in rows], dtype=np.int64).reshape(-1, 2)
    return Ranges(key=np.array(keys, dtype=np.int64), low=bounds[:, 0], high=bounds[:, 1])


@given(COLUMN, COLUMN, st.integers(0, 8))
def test_join_is_every_pair_of_one_key_that_meets_once(left, right, cap):
    expected = {(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a[0] == b[0] and meet(a[1], b[1])}
    found = join(ranges(left), ranges(right), cap=1 << 20)
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(expected)
    assert found.total == len(expected)
    cut = join(ranges(left), ranges(right), cap=cap)
    assert (len(cut.left), cut.total) == (min(cap, len(expected)), len(expected))


def meeting(rectangles_):
    """Return every two rows that meet, the first to start on the left, the lower row where both start together."""
    return {
        min((a[0][0], i, j), (b[0][0], j, i))[1:]
        for i, a in enumerate(rectangles_)
        for j, b in enumerate(rectangles_[:i])
        if meet(a[0], b[0]) and meet(a[1], b[1])
    }


@given(RECTANGLES, st.integers(0, 8))
def test_conflicts_are_every_two_rectangles_that_meet_once_and_the_first_to_start_on_the_left(rows, cap):
    expected = meeting(rows)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    found = conflicts(*columns, cap=1 << 20, selector=SCREENED)
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(expected)
    cut = conflicts(*columns, cap=cap, selector=SCREENED)
    assert (len(cut.left), cut.total) == (min(cap, len(expected)), min(cap + 1, len(expected)))


@given(RECTANGLES, st.integers(0, 8), st.integers(1, 5))
def test_compiled_conflicts_are_the_same_whatever_the_length_of_a_stretch(rows, cap, stretch):
    expected = meeting(rows)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selector, "RECTANGLES_FROM", 0)
        patch.setattr(rectangles, "STRETCH", stretch)
        found = conflicts(*columns, cap=1 << 20, selector=SCREENED)
        cut = conflicts(*columns, cap=cap, selector=SCREENED)
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(expected)
    begins = [rows[right][0][0] for right in found.right.tolist()]
    assert begins == sorted(begins)
    assert (len(cut.left), cut.total) == (min(cap, len(expected)), min(cap + 1, len(expected)))
    assert set(zip(cut.left.tolist(), cut.right.tolist(), strict=True)) <= expected


@pytest.mark.parametrize("seed", range(3))
def test_compiled_conflicts_of_thousands_are_those_of_the_plain_join(seed):
    """A tree of several levels, in stretches that carry many rows on, with ends at both ends of the number line."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 3000, 6000)
    stop = start + rng.integers(1, (3, 40, 3000)[seed], 6000)
    low = rng.choice([-(1 << 62), -7, 0, 1 << 61], 6000) + rng.integers(0, 100_000, 6000)
    high = end_of(low, rng.choice([1, 50, 1 << 62], 6000, p=[0.5, 0.49, 0.01]))
    plain = conflicts(start, stop, low, high, cap=1 << 22, selector=selector.PLAIN)
    left, right, more = rectangles.met(start, stop, low, high, cap=1 << 22)
    assert not more
    assert plain.total == len(left) > 100
    assert np.array_equal(np.sort(plain.left * 6000 + plain.right), np.sort(left * 6000 + right))


def remembered(writes, asked):
    """Compare segments with a dict of bytes after the same writes."""
    memory, bytes_ = OwnerAxis(), {}
    for owner, runs in enumerate(writes):
        memory.write_runs(list(runs), owner)
        bytes_.update(dict.fromkeys((byte for low, high in runs for byte in range(low, high)), owner))
    low, high = asked
    pieces = memory.pieces(low, high)
    expected = [bytes_.get(byte, NEVER) for byte in range(low, high)]
    assert [owner for a, b, owner in pieces for _ in range(a, b)] == expected
    assert [a for a, _, _ in pieces] == [low, *(b for _, b, _ in pieces[:-1])]
    assert pieces[-1][1] == high
    assert len(memory.pieces(FLOOR, 1 << 70)) <= 2 * sum(map(len, writes)) + 1
    for owner in {*expected, len(writes)}:
        assert memory.holds(low, high, owner) == (len(pieces) == 1 and expected[0] == owner)


WRITES = st.lists(st.lists(RANGE, min_size=1, max_size=5).map(sorted).map(merged), max_size=16)


@given(WRITES, RANGE)
def test_segments_remember_the_last_writer_of_every_byte(writes, asked):
    remembered(writes, asked)


@given(WRITES, RANGE)
def test_segments_remember_across_chunks(writes, asked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "CHUNK", 2)
        remembered(writes, asked)


@given(st.lists(RANGE, max_size=6).map(sorted).map(merged), st.lists(RANGE, max_size=6).map(sorted).map(merged))
def test_shared_bytes_are_those_in_both(a, b):
    def bytes_of(runs):
        return {byte for low, high in runs for byte in range(low, high)}

    assert bytes_of(shared(list(a), list(b))) == bytes_of(a) & bytes_of(b)


@given(
    st.lists(st.integers(-9, 9), max_size=9),
    st.lists(st.integers(-9, 9), max_size=9),
    st.sampled_from(["", "column", "others"]),
)
def test_numbers_among_others_are_those_that_numpy_finds_whichever_side_is_the_longer(column, others, longer):
    column = column * (3 * SHORTER if longer == "column" else 1)
    others = others * (3 * SHORTER if longer == "others" else 1)
    wanted = set(others)
    one, other = np.array(column, dtype=np.int64), np.array(others, dtype=np.int64)

    found = among(one, other)

    assert found.dtype == np.bool_
    assert found.tolist() == [number in wanted for number in column]


def test_ends_saturate_instead_of_wrapping():
    base = np.array([1 << 62, -(1 << 62), 5], dtype=np.int64)
    length = np.array([1 << 62, 1 << 62, 7], dtype=np.int64)
    assert end_of(base, length).tolist() == [TOP, 0, 12]


def test_rows_of_each_number_come_in_order_and_those_below_zero_not_at_all():
    column = np.array([3, -1, 0, 3, -2, 0, 7])
    assert [rows.tolist() for rows in by_number(column)] == [[2, 5], [0, 3], [6]]
    assert [rows.tolist() for rows in by_number(np.array([5, 5]))] == [[0, 1]]
    assert list(by_number(np.array([-1]))) == list(by_number(column[:0])) == []
