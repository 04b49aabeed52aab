"""What functions of the front make of arguments at the edge: the right numbers, or one line."""

import numpy as np
import pytest

from allocsim.errors import EngineError
from engine import tensor
from engine.front import functions as fn
from engine.front.attention_modules import MultiheadAttention

RNG = np.random.default_rng(4)
ONES = tensor(np.ones((2, 3, 4, 4, 4)))
FILTERS = tensor(np.ones((5, 3, 2, 2, 2)))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_a_mask_of_truth_is_one_in_every_dtype(dtype):
    """Not every dtype has an infinity for what may not be looked at."""
    q, k, v = (tensor(RNG.standard_normal((2, 5, 4)), dtype=dtype) for _ in range(3))
    seen = np.tri(5, dtype=bool)
    wide = fn.attention(*(x.astype("float32") for x in (q, k, v)), seen)
    found = fn.attention(q, k, v, seen)

    assert found.dtype == q.dtype
    np.testing.assert_array_equal(found.numpy(), wide.astype(dtype).numpy())


@pytest.mark.parametrize("bits", [5, 23, 30])
def test_whole_numbers_of_any_range_have_every_bit_at_random(bits):
    drawn = fn.randint(0, 1 << bits, (100_000,), seed=5).numpy()
    ones = [(drawn >> bit & 1).mean() for bit in range(bits)]

    assert (drawn >= 0).all()
    assert np.allclose(ones, 0.5, atol=0.01)


def test_permutations_of_many_are_permutations_and_short_ones_all_come():
    assert sorted(fn.randperm(50_000, seed=2).numpy()) == list(range(50_000))
    assert len({tuple(fn.randperm(3, seed=seed).numpy()) for seed in range(60)}) == 6


@pytest.mark.parametrize("weights", [[1.0, np.nan, 2.0], [-1.0, 2.0], [0.0, 0.0], [[1.0, 1.0], [0.0, 0.0]]])
@pytest.mark.parametrize("replacement", [False, True])
def test_weights_that_are_none_are_refused(weights, replacement):
    with pytest.raises(EngineError, match="weights are at least 0"):
        fn.multinomial(tensor(weights), 1, replacement=replacement, seed=1)


@pytest.mark.parametrize("lengths", [[-1, 2], [0, 3]])
def test_lengths_of_targets_are_within_the_targets(lengths):
    said = tensor(np.zeros((3, 2, 4))).log_softmax(-1)
    with pytest.raises(EngineError, match="ctc_loss: lengths"):
        fn.ctc_loss(said, np.ones((2, 2), int), [3, 3], lengths)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fn.conv3d(ONES, FILTERS, stride=0), "are at least 1"),
        (lambda: fn.conv3d(ONES, FILTERS, dilation=(1, 0, 1)), "are at least 1"),
        (lambda: fn.diagonal(tensor([1.0])), "two axes are needed"),
        (lambda: fn.trace(tensor(1.0)), "two axes are needed"),
        (lambda: fn.allclose(tensor([1.0, 2.0]), tensor([1.0, 2.0, 3.0])), "allclose: "),
        (lambda: MultiheadAttention(8, 0, RNG), "0 heads do not divide"),
        (lambda: MultiheadAttention(8, 3, RNG), "3 heads do not divide"),
        (lambda: MultiheadAttention(8, 2, RNG)(tensor(np.ones((3, 8)))), r"\[N, T, width\] is needed"),
        (lambda: fn.multinomial([1.0, 2.0], 1, seed=1), "where a tensor is needed"),
        (lambda: fn.nonzero([1.0, 0.0]), "where a tensor is needed"),
        (lambda: fn.unique([1.0, 0.0]), "where a tensor is needed"),
    ],
)
def test_what_does_not_fit_is_one_line(call, said):
    with pytest.raises(EngineError, match=said):
        call()


def test_batches_of_nothing_give_nothing():
    x, grid = tensor(np.ones((0, 2, 3, 3))), tensor(np.ones((0, 2, 2, 2)))
    for mode in ("bilinear", "nearest"):
        assert fn.grid_sample(x, grid, mode=mode).shape == (0, 2, 2, 2)
    assert fn.conv3d(tensor(np.ones((0, 3, 4, 4, 4))), FILTERS).shape == (0, 5, 3, 3, 3)
