"""How far two arrays are apart, in units in the last place and relative to the largest; and what is still rounding."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.d_differential.distance import Gap, gap_of
from engine.d_differential.rounding import FACTOR, bound, nature, worst

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)


def gap(mine, right, dtype=np.float32):
    return gap_of(np.array(mine, dtype), np.array(right, dtype))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("number", [1.0, -1.0, 0.0, 1e-30, -3.5e4])
def test_the_next_float_is_one_unit_away(number, dtype):
    one = dtype(number)
    assert gap([one], [np.nextafter(one, dtype(np.inf))], dtype).ulp == 1
    assert gap([np.nextafter(one, dtype(-np.inf))], [np.nextafter(one, dtype(np.inf))], dtype).ulp == 2


def test_zeros_of_either_sign_are_one_number_and_equal_nans_agree():
    assert gap([0.0], [-0.0]).equal
    assert gap([np.nan, np.inf], [np.nan, np.inf]).equal
    assert gap([], []).equal


@pytest.mark.parametrize(("mine", "right"), [([np.nan], [1]), ([1], [np.nan]), ([np.inf], [1]), ([np.inf], [-np.inf])])
def test_what_is_not_finite_on_one_side_is_said_so(mine, right):
    found = gap(mine, right)
    assert (found.finite, found.elements, found.shown) == (False, 1, None)


def test_the_error_is_against_the_largest_that_is_right():
    assert gap([1, 2], [1, 4]).error == 0.5
    assert gap([0, 1], [0, 0]).error == 1.0
    assert gap([3], [3]).error == 0.0
    assert gap([1, 5], [1, np.inf]).finite is False


def test_two_dtypes_are_compared_as_numbers():
    found = gap_of(np.array([1, 2], np.float32), np.array([1, 2.5]))
    assert (found.error, found.ulp) == (0.2, None)
    assert gap_of(np.array([1, 2], np.int32), np.array([1, 3], np.int32)) == Gap(
        error=1 / 3, ulp=None, finite=True, elements=1
    )


def test_strided_arrays_are_compared_where_they_lie():
    grid = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert gap_of(grid[:, ::2], grid[:, ::2].copy()).equal
    assert gap_of(grid[:, ::2], grid[:, 1::2]).elements == 6


@given(st.lists(st.tuples(FINITE, FINITE), min_size=1, max_size=20))
def test_both_measures_are_what_they_say(pairs):
    mine, right = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    found = gap_of(mine, right)
    exact = np.abs(mine.astype(np.float64) - right.astype(np.float64)).max()
    assert found.error == exact / (np.abs(right.astype(np.float64)).max() or 1.0)

    def place(number):  # of a float among all floats, counted from zero
        bits = int(np.float32(abs(number)).view(np.int32))
        return bits if number >= 0 else -bits

    assert found.ulp == max(abs(place(a) - place(b)) for a, b in zip(mine, right, strict=True))


def test_rounding_is_what_is_within_four_bits_of_the_reference():
    reference = Gap(error=1e-6, ulp=None, finite=True, elements=1)
    limit = bound(reference, 0.0, np.dtype(np.float32))
    assert limit == FACTOR * 1e-6
    assert nature(Gap(error=limit, ulp=1, finite=True, elements=1), reference, limit) == "rounding"
    assert nature(Gap(error=limit * 1.01, ulp=1, finite=True, elements=1), reference, limit) == "corruption"


def test_a_reference_that_is_exact_by_luck_does_not_convict():
    lucky = Gap(error=0.0, ulp=None, finite=True, elements=0)
    assert bound(lucky, 2e-6, np.dtype(np.float32)) == FACTOR * 2e-6
    assert bound(lucky, 0.0, np.dtype(np.float32)) == FACTOR * np.finfo(np.float32).eps
    assert bound(lucky, 0.0, np.dtype(np.int32)) == 0.0


def test_what_is_no_number_is_corruption_unless_the_reference_is_none_either():
    broken = Gap(error=0.0, ulp=0, finite=False, elements=1)
    assert nature(broken, Gap(error=0.0, ulp=0, finite=True, elements=0), 1.0) == "corruption"
    assert nature(broken, broken, 1.0) == "rounding"


def test_the_worst_of_several():
    assert worst([]) == "equal"
    assert worst(["equal", "rounding"]) == "rounding"
    assert worst(["corruption", "rounding"]) == "corruption"
