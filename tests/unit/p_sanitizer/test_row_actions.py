"""Poison, pieces, and both executors of rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocsim.p_sanitizer import poison
from allocsim.p_sanitizer.compiled_executor import Compiled
from allocsim.p_sanitizer.held_ranges import Pieces
from allocsim.p_sanitizer.row_actions import EXPECT, FILL, HASH, HASH4, HASH8, SAME, SNAP, VERIFY, Plain, Rows, pattern

SIZE = 256
EXECUTORS = pytest.mark.parametrize("executor", [Plain, Compiled])


def pool(seed=0):
    raw = np.random.default_rng(seed).integers(0, 256, SIZE + 64).astype(np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + SIZE]


@pytest.mark.parametrize("word", [poison.NEVER, poison.ZONE, poison.released(0), poison.released(20_000)])
def test_poison_is_a_quiet_nan_in_both_widths_and_survives_arithmetic(word):
    filled = pattern(0, 64, word)
    for dtype in (np.float32, np.float64):
        values = filled.view(dtype)
        assert np.isnan(values).all()
        with np.errstate(all="raise"):  # a signalling NaN would say so
            assert poison.found(values * dtype(2) + dtype(1)) == [word]
            assert poison.found(-values) == [word]
    assert (np.isnan(filled.view(np.float16))).any()


def test_ordinary_nans_and_numbers_are_no_poison():
    values = np.array([np.nan, -np.nan, np.inf, 0.0, -1e38, 1e-45], np.float32)
    assert poison.found(values) == poison.found(values.astype(np.float64)) == []
    assert poison.found(np.zeros(4, np.int32)) == []
    with np.errstate(all="ignore"):
        assert poison.found(np.array([0.0, np.inf]) / np.array([0.0, np.inf])) == []


@given(st.lists(st.tuples(st.integers(0, 31), st.integers(1, 16), st.integers(0, 5)), max_size=12))
def test_pieces_hold_what_was_put_last(puts):
    """A piece that is cut keeps its tag; what is left of it on either side gets the key it is given."""
    line, model = Pieces(32, -1, 7), [(-1, 7, 0)] * 32
    for number, (low, length, tag) in enumerate(puts, 1):
        high = min(low + length, 32)
        before, after = model[low], model[high - 1]
        line.put(low, high, tag, 100 * number, rest=(100 * number + 1, 100 * number + 2))
        for place in range(low - 1, -1, -1):
            if model[place][2] != before[2]:
                break
            model[place] = before[0], 100 * number + 1, (number, "left")
        for place in range(high, 32):
            if model[place][2] != after[2]:
                break
            model[place] = after[0], 100 * number + 2, (number, "right")
        model[low:high] = [(tag, 100 * number, number)] * (high - low)
    rows = line.rows()
    assert [(tag, key) for low, high, tag, key in rows for _ in range(low, high)] == [cell[:2] for cell in model]
    assert [row[0] for row in rows] == [0, *(row[1] for row in rows[:-1])]
    twin = line.copy()
    for low, length, _ in puts:
        high = min(low + length, 32)
        pieces = line.within(low, high)
        assert [(tag, key) for a, b, tag, key in pieces for _ in range(a, b)] == [cell[:2] for cell in model[low:high]]
        assert line.meeting(low, high) == [row for row in rows if max(row[0], low) < min(row[1], high)]
        assert line.meeting(high, high) == line.meeting(high, low) == []
        assert line.one(low, high) == (pieces[0][2] if len(pieces) == 1 else None)
    line.put(0, 32, 9)
    assert twin.rows() == rows


@EXECUTORS
@given(st.integers(0, SIZE - 1), st.integers(0, SIZE), st.integers(0, SIZE - 1), st.integers(1, 255))
@settings(max_examples=60)
def test_a_changed_byte_shows_in_what_covers_it_and_nowhere_else(executor, at, nbytes, place, flip):
    nbytes = min(nbytes, SIZE - at)
    memory = pool()
    doer = executor(memory)
    word = poison.released(7)
    doer.load(
        Rows.of([(HASH, at, nbytes, 0), (SNAP, at, nbytes, 0), (VERIFY, at, nbytes, 0), (SAME, at, nbytes, 0)]),
        hashes=1,
        snaps=SIZE,
    )
    assert doer.run(0, 2) == []
    memory[place] ^= flip
    covered = at <= place < at + nbytes
    assert doer.run(2, 4) == ([2, 3] if covered else [])
    if covered:
        assert np.flatnonzero(doer.copy(0, nbytes)).tolist() == [place - at]
        assert doer.run(2, 3) == []  # a change is told once
    doer.load(Rows.of([(FILL, at, nbytes, word), (EXPECT, at, nbytes, word)]), hashes=1, snaps=0)
    untouched = memory.copy()
    assert doer.run(0, 2) == []
    assert np.array_equal(memory[at : at + nbytes], pattern(at, nbytes, word))
    assert np.array_equal(np.delete(memory, range(at, at + nbytes)), np.delete(untouched, range(at, at + nbytes)))
    memory[place] ^= flip
    assert doer.run(1, 2) == ([1] if covered else [])


@EXECUTORS
@pytest.mark.parametrize(("action", "dtype"), [(HASH4, np.float32), (HASH8, np.float64)])
def test_poison_is_found_in_any_element(executor, action, dtype):
    item = np.dtype(dtype).itemsize
    for element in range(16):
        memory = pool()
        memory[:] = 1
        memory[item : 17 * item].view(dtype)[element : element + 1].view(np.uint32)[:] = poison.released(element)
        doer = executor(memory)
        doer.load(Rows.of([(action, item, 16 * item, 0)]), hashes=1, snaps=0)
        assert doer.run(0, 1) == [0]
    memory[:] = 1
    assert doer.run(0, 1) == []


@EXECUTORS
def test_hashes_follow_their_keys_and_memory_outside_has_digests(executor):
    memory = pool()
    doer = executor(memory)
    doer.load(Rows.of([(HASH, 0, 64, 0), (HASH, 64, 64, 1)]), hashes=2, snaps=0)
    doer.run(0, 2)
    doer.move([1, 0])
    doer.load(Rows.of([(VERIFY, 64, 64, 0), (VERIFY, 0, 64, 1)]), hashes=9, snaps=0)
    assert doer.run(0, 2) == []
    outside = np.arange(33, dtype=np.uint8)
    before = doer.digest(outside[1:])
    outside[20] ^= 1
    assert doer.digest(outside[1:]) != before
    assert doer.digest(outside[1:5]) != doer.digest(outside[2:6])
    swapped = np.arange(64, dtype=np.uint8)
    before = doer.digest(swapped)
    swapped[:8] = swapped[[4, 5, 6, 7, 0, 1, 2, 3]]
    assert doer.digest(swapped) != before
