"""Bytes sorted by who touches them: who meets whom, and in how many bytes, stays as it was."""

import random
from itertools import combinations

import pytest

from allocsim.errors import ModelError
from allocsim.systems.triton.byte_classes import runs_of
from allocsim.systems.triton.shared_views import SharedView


def tile(home, rows=8, columns=16, slots=1):
    return SharedView.of(f"<{slots}x{rows}x{columns}xf16, #s>", {}, home)


def bytes_of(view, at):
    """Return the bytes of an arena that a view names, one by one, with rows in order."""
    offset, shape, strides = view.layout
    found = [at + offset]
    for size, stride in zip(shape, strides, strict=True):
        found = [low + stride * index for low in found for index in range(size)]
    return set(found)


def moved(runs, at):
    return {at + low + step for low, size in runs for step in range(size)}


def test_halves_of_columns_are_one_run_each_and_lie_side_by_side():
    whole = tile(0).indexed(0)
    left, right = whole.sliced([0, 0], (8, 8)), whole.sliced([0, 8], (8, 8))

    found = runs_of([(0, 64)], [256], [whole, left, right])

    assert found == {whole: ((0, 256),), left: ((0, 128),), right: ((128, 128),)}


def test_bytes_are_not_moved_where_no_view_has_gaps():
    ring = tile(0, slots=3)
    assert runs_of([(0, 0)], [768], [ring, ring.indexed(2)]) == {ring: ((0, 768),), ring.indexed(2): ((512, 256),)}


@pytest.mark.parametrize("seed", range(40))
def test_meetings_keep_their_bytes_and_allocations_their_place(seed):
    rng = random.Random(seed)
    slots = [(0, 32 * rng.randrange(12)) for _ in range(rng.randrange(1, 5))]
    shapes = [rng.choice(((4, 8), (8, 16), (2, 32))) for _ in slots]
    views = []
    for home, shape in enumerate(shapes):
        ring = tile(home, *shape, slots=2)
        views += [ring, ring.indexed(1)]
        for _ in range(rng.randrange(60 if seed == 0 else 4)):
            height, width = rng.randrange(1, shape[0] + 1), rng.randrange(1, shape[1] + 1)
            starts = [rng.randrange(shape[0] - height + 1), rng.randrange(shape[1] - width + 1)]
            views.append(ring.indexed(rng.randrange(2)).sliced(starts, (height, width)))
    nbytes = [2 * 2 * rows * columns for rows, columns in shapes]

    found = runs_of(slots, nbytes, views)

    before = [bytes_of(view, slots[view.home][1]) for view in views]
    after = [moved(found[view], slots[view.home][1]) for view in views]
    assert [len(one) for one in before] == [len(one) for one in after]
    for one, other in combinations(range(len(views)), 2):
        assert len(before[one] & before[other]) == len(after[one] & after[other])
    for (_, at), size in zip(slots, nbytes, strict=True):  # an allocation has the bytes that it had
        span = set(range(at, at + size))
        assert [len(one & span) for one in before] == [len(one & span) for one in after]


def test_more_than_a_block_has_is_refused():
    slice_ = tile(0).indexed(0).sliced([0, 0], (8, 8))
    with pytest.raises(ModelError, match="more than a block has"):
        runs_of([(0, 1 << 40)], [256], [slice_])
