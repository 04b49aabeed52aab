"""What functions of the front make of arguments at the edge: the right numbers, or one line."""

import numpy as np
import pytest

from allocsim.errors import EngineError
from engine import tensor
from engine.front import functions as fn
from engine.front.attention_modules import MultiheadAttention
from engine.front.modules import Gru, Lstm

try:
    import torch
except ImportError:
    torch = None
F = torch and torch.nn.functional

compared = pytest.mark.skipif(torch is None, reason="PyTorch is not installed")
RNG = np.random.default_rng(4)
ONES = tensor(np.ones((2, 3, 4, 4, 4)))
FILTERS = tensor(np.ones((5, 3, 2, 2, 2)))
SCORES = tensor(RNG.standard_normal((2, 3, 4)))
IMAGE = tensor(RNG.standard_normal((1, 1, 4, 4)))
ROWS = tensor(RNG.standard_normal((5, 3)))
STEPS = tensor(np.ones((1, 5, 3), np.float32))


def attended(mask):
    return fn.attention(SCORES, SCORES, SCORES, mask)


def heads(*counts):
    """Return what heads find for batches of these lengths."""
    return MultiheadAttention(4, 2, RNG)(*(tensor(np.ones((n, 3, 4), np.float32)) for n in counts))


def spoken(labels, lengths, scores=None):
    """Return the loss of labels in two steps of four classes that are all alike."""
    scores = tensor(np.zeros((2, 1, 4))) if scores is None else scores
    return fn.ctc_loss(scores.log_softmax(), np.array(labels), [2], lengths, reduction="none")


def sampled(place, *, align, mode="border", form=None):
    """Return what a row of 0, 1, 2, 3 holds at a place, and its slope there; by PyTorch where `form` is that."""
    made = torch.tensor if form else tensor
    row = made(np.arange(4.0).reshape(1, 1, 1, 4))
    grid = made(np.array([[[[place, 0.0]]]]), requires_grad=True)
    how = {"padding_mode": mode, "align_corners": align}
    y = (F if form else fn).grid_sample(row, grid, **how)
    y.sum().backward()
    return y.sum().item(), grid.grad[0, 0, 0, 0].item()


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
        (lambda: attended(np.eye(3, dtype=int)), "mask of int64 is neither of truth"),
        (lambda: attended([[1, 0, 0], [0, 1, 0], [0, 0, 1]]), "mask of int64 is neither of truth"),
        (lambda: attended(tensor(np.eye(3), dtype="int32")), "mask of int32 is neither of truth"),
        (lambda: fn.attention(SCORES[[0, 1, 0, 1]], SCORES, SCORES), "do not broadcast to those"),
        (lambda: heads(2, 1, 1), "of one N"),
        (lambda: heads(1, 2, 2), "of one N"),
        (lambda: heads(2, 2, 1), "of one N"),
        (lambda: fn.interpolate(IMAGE, (0, 3)), "lengths of at least 1"),
        (lambda: fn.interpolate(IMAGE, (3, -1), mode="bilinear"), "lengths of at least 1"),
        (lambda: fn.interpolate(IMAGE[:, :, :0], (2, 2)), "lengths of at least 1"),
        (lambda: fn.linear(ROWS, tensor(np.ones((2, 3))), tensor(np.ones((4, 5, 2)))), "does not broadcast to"),
        (lambda: fn.linear(ROWS, tensor(np.ones((1, 3))), tensor(np.ones(7))), "does not broadcast to"),
        (lambda: fn.linear(ROWS, tensor(np.ones((2, 3))), tensor(np.ones(3))), "do not broadcast"),
        (lambda: fn.linear(ROWS, tensor(np.ones((3, 2, 1)))), r"\[out, in\] are needed"),
        (lambda: spoken([[1, 0]], [2]), "0 is the blank, and stands among the labels"),
        (lambda: fn.glu(ROWS, 2), "axis 2 does not name"),
        (lambda: fn.celu(ROWS, 0.0), "divided by alpha"),
        (lambda: fn.concat([ROWS], 2), "axis 2 does not name"),
        (lambda: fn.concat([ROWS], -3), "axis -3 does not name"),
        (lambda: fn.outer(ROWS, ROWS[0]), "two vectors are needed"),
        (lambda: fn.addmm(tensor(np.ones(5)), ROWS[:, :2], tensor(np.ones((2, 1)))), "does not broadcast to"),
        (lambda: fn.prelu(ROWS[0], ROWS), "does not broadcast to"),
        (lambda: fn.huber_loss(ROWS, ROWS, delta=0.0), "above 0"),
        (lambda: fn.smooth_l1_loss(ROWS, ROWS, beta=-1.0), "above 0"),
        (lambda: fn.binary_cross_entropy(ROWS[0], ROWS), "does not broadcast to"),
        (lambda: fn.binary_cross_entropy_with_logits(ROWS[0], ROWS[:3, :1]), "does not broadcast to"),
        (lambda: fn.binary_cross_entropy_with_logits(ROWS[0], 1.0, weight=ROWS), "does not broadcast to"),
        (lambda: fn.binary_cross_entropy_with_logits(ROWS[0], 1.0, pos_weight=ROWS), "does not broadcast to"),
        (lambda: fn.cosine_embedding_loss(ROWS, ROWS, np.ones((5, 1))), "does not broadcast to"),
        (lambda: fn.margin_ranking_loss(ROWS[0], ROWS[1], np.ones((2, 3))), "does not broadcast to"),
        (lambda: fn.poisson_nll_loss(ROWS[0], ROWS), "does not broadcast to"),
        (lambda: fn.gaussian_nll_loss(ROWS, ROWS, np.ones(3)), "none of its rows"),
        (lambda: fn.scatter_add(ROWS, 0, np.zeros((1, 4), int), tensor(np.ones((1, 4)))), "do not fit into"),
        (lambda: fn.conv_transpose2d(IMAGE[..., :1, :1], IMAGE[..., :1, :1], padding=1), "nothing is left"),
        (lambda: Lstm(3, 4, RNG)(STEPS, (tensor(np.zeros((6, 4), np.float32)),) * 2), r"of \[N, 4\] are needed"),
        (lambda: Lstm(3, 4, RNG)(STEPS[0]), r"\[N, T, inputs\]"),
        (lambda: Gru(3, 4, RNG)(STEPS, tensor(np.zeros((6, 4), np.float32))), r"of \[N, 4\] are needed"),
        (lambda: Gru(3, 4, RNG)(STEPS[:, :0]), "a step at least"),
        (lambda: fn.softmin([1.0]), "where a tensor is needed"),
        (lambda: fn.outer([1.0], [2.0]), "where a tensor is needed"),
        (lambda: fn.einsum("i,i->", [1.0], [2.0]), "where a tensor is needed"),
        (lambda: fn.median([1.0]), "where a tensor is needed"),
        (lambda: fn.cosine_similarity([1.0], [2.0]), "where a tensor is needed"),
        (lambda: fn.index_add(ROWS, 0, [0], [1.0]), "where a tensor is needed"),
        (lambda: fn.index_add([1.0], 0, [0], ROWS), "where a tensor is needed"),
        (lambda: fn.linear([[1.0]], ROWS), "where a tensor is needed"),
        (lambda: fn.linear(ROWS, [[1.0, 2.0, 3.0]]), "where a tensor is needed"),
        (lambda: fn.dot(ROWS[0], [1.0, 2.0, 3.0]), "where a tensor is needed"),
        (lambda: fn.grid_sample(IMAGE, [[[[0.0, 0.0]]]]), "where a tensor is needed"),
        (lambda: fn.kron(ROWS, [[1.0]]), "where a tensor is needed"),
        (lambda: fn.tile([1.0], 2), "where a tensor is needed"),
        (lambda: fn.prelu([1.0], 0.1), "where a tensor is needed"),
        (lambda: fn.binary_cross_entropy([0.5], [1.0]), "where a tensor is needed"),
        (lambda: fn.cross_entropy([[1.0]], [0], label_smoothing=0.1), "where a tensor is needed"),
        (lambda: fn.batch_norm([[1.0]]), "where a tensor is needed"),
        (lambda: fn.interpolate([[1.0]], 2), "where a tensor is needed"),
        (lambda: Lstm(3, 4, RNG)([[[1.0, 2.0, 3.0]]]), "Lstm of list"),
        (lambda: Lstm(3, 4, RNG)(STEPS[0, 0, 0]), r"of \(\): a tensor"),
        (lambda: Lstm(3, 4, RNG)(STEPS, (STEPS[:, 0],)), r"2 of \[N, 4\] are needed"),
        (lambda: Lstm(3, 4, RNG)(STEPS, ([0.0], [0.0])), "from list, list"),
        (lambda: Gru(3, 4, RNG)(STEPS[0, 0, 0]), r"of \(\): a tensor"),
        (lambda: fn.tile(ROWS, np.array(2)), "no whole numbers"),
        (lambda: fn.tile(ROWS, tensor(2.0)), "no whole numbers"),
        (lambda: fn.cross_entropy(ROWS, np.ones((2, 5, 3)), reduction="sum"), "does not broadcast to"),
        (lambda: fn.cross_entropy(ROWS, [0] * 5, label_smoothing=2.0), "it is a share"),
        (lambda: fn.cross_entropy(ROWS, [0] * 5, label_smoothing=np.nan), "it is a share"),
        (lambda: fn.kl_div(ROWS[0, 0], ROWS[0, 0], reduction="batchmean"), "batchmean"),
        (lambda: fn.layer_norm(IMAGE, tensor(np.ones((4, 4)))), "the last axis"),
        (lambda: fn.layer_norm(ROWS, None, tensor(np.ones(1))), "the last axis"),
        (lambda: fn.rms_norm(ROWS, tensor(np.ones((5, 1)))), "the last axis"),
        (lambda: fn.batch_norm(ROWS, np.ones(1)), "one number each"),
        (lambda: fn.batch_norm(IMAGE, mean=np.zeros(3), variance=np.ones(3)), "one number each"),
        (lambda: fn.group_norm(IMAGE, 1, np.ones(2)), "one number each"),
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


def test_what_targets_hold_beyond_their_length_is_not_read():
    """Of 16 ways two steps may go, 3 say a label: twice, or once with a blank before or behind."""
    wanted = np.log(16 / 3)
    for padding in (-1, 0, 3, 99):
        assert spoken([[1, padding, padding]], [1]).numpy() == pytest.approx([wanted])


@compared
def test_padded_targets_are_pytorchs():
    scores = RNG.standard_normal((5, 2, 4))
    labels, lengths = [[1, 2, -1], [3, -1, -1]], [2, 1]
    mine, theirs = tensor(scores, requires_grad=True), torch.tensor(scores, requires_grad=True)
    fn.ctc_loss(mine.log_softmax(), np.array(labels), [5, 4], lengths).backward()
    said = torch.tensor(labels), torch.tensor([5, 4]), torch.tensor(lengths)
    F.ctc_loss(theirs.log_softmax(-1), *said).backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.numpy(), atol=1e-12)


def test_smoothing_is_that_of_a_label_that_sums_to_one():
    """Four classes alike; of a label that sums to 2, a fifth is taken, and 0.2 / 4 given to each class."""
    logits = tensor(np.zeros((1, 4)), requires_grad=True)
    loss = fn.cross_entropy(logits, np.array([[1.0, 1.0, 0.0, 0.0]]), label_smoothing=0.2)
    loss.backward()
    assert loss.item() == pytest.approx(1.8 * np.log(4))
    np.testing.assert_allclose(logits.grad.numpy(), [[-0.4, -0.4, 0.4, 0.4]], atol=1e-12)


@compared
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_smoothing_of_any_rows_is_pytorchs(reduction):
    given = RNG.standard_normal((3, 4)), RNG.random((3, 4))
    mine, theirs = ([made(x, requires_grad=True) for x in given] for made in (tensor, torch.tensor))
    y = fn.cross_entropy(*mine, label_smoothing=0.3, reduction=reduction)
    z = F.cross_entropy(*theirs, label_smoothing=0.3, reduction=reduction)
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), atol=1e-12)
    y.sum().backward()
    z.sum().backward()
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), atol=1e-12)


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
@pytest.mark.parametrize("key", [slice(None), (slice(None), slice(1)), [0, 1]])
def test_what_is_laid_may_have_more_axes_of_length_one(key):
    x = tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = x * 2.0
    y[key] = (x * 5.0)[key][None, None]
    (y * y).sum().backward()
    wanted = np.full((2, 2), 2.0)
    wanted[key] = 5.0
    np.testing.assert_array_equal(y.numpy(), wanted * x.numpy())
    np.testing.assert_array_equal(x.grad.numpy(), 2 * wanted**2 * x.numpy())


@pytest.mark.parametrize(
    ("place", "align", "mode", "wanted"),
    [
        (-1.0, True, "border", (0.0, 0.0)),  # the middle of the first pixel
        (1.0, True, "border", (3.0, 0.0)),
        (0.5, True, "border", (2.25, 1.5)),  # pixel (1 + 0.5) 3 / 2, which moves by 3 / 2
        (1.5, True, "border", (3.0, 0.0)),
        (-0.75, False, "border", (0.0, 0.0)),  # pixel ((1 - 0.75) 4 - 1) / 2 = 0
        (0.75, False, "border", (3.0, 0.0)),
        (0.5, False, "border", (2.5, 2.0)),
        (1.0, True, "reflection", (3.0, 0.0)),
        (1.5, True, "reflection", (2.25, -1.5)),  # pixel 3.75, as far beyond 3 as 2.25 is before it
        (-1.5, True, "reflection", (0.75, -1.5)),
        (1.5, False, "reflection", (2.5, -2.0)),  # pixel 4.5, mirrored at 3.5
        (0.8, False, "reflection", (3.0, 0.0)),  # pixel 3.1, within the outer half of the last one
        (5.5, True, "reflection", (2.25, -1.5)),  # pixel 9.75, which is 3.75 behind two mirrors
    ],
)
def test_a_place_at_or_beyond_the_outer_pixels_has_no_slope(place, align, mode, wanted):
    assert sampled(place, align=align, mode=mode) == pytest.approx(wanted)


@compared
@pytest.mark.parametrize("mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_places_and_slopes_are_pytorchs(mode, align):
    for place in (*np.arange(-24, 25) / 8, 0.1, -0.3, 5.7):
        found, wanted = (sampled(place, align=align, mode=mode, form=form) for form in (None, torch))
        assert found == pytest.approx(wanted), place


def slopes(function, *given):
    """Return a value and its gradients, as lists."""
    leaves = [tensor(np.array(x), requires_grad=True) for x in given]
    y = function(*leaves)
    y.sum().backward()
    return y.numpy().tolist(), *(x.grad.numpy().tolist() for x in leaves)


def test_norms_of_some_zeros_have_slopes_and_equals_share_that_of_the_largest():
    assert slopes(lambda x: fn.norm(x, np.inf), [1.0, -1.0, 0.5]) == (1.0, [0.5, -0.5, 0.0])
    assert slopes(lambda x: fn.norm(x, -np.inf), [1.0, -1.0, 3.0]) == (1.0, [0.5, -0.5, 0.0])
    assert slopes(lambda x: fn.norm(x, 0.5), [0.0, 4.0]) == (4.0, [0.0, 1.0])
    assert slopes(lambda x: fn.norm(x, -1), [0.0, 4.0]) == (0.0, [0.0, 0.0])
    assert fn.norm(tensor([np.inf, np.inf]), -1).item() == np.inf


def test_a_sure_probability_that_is_wrong_has_a_slope():
    value, slope, _ = slopes(lambda p, t: fn.binary_cross_entropy(p, t, reduction="none"), [0.0, 1.0], [1.0, 0.0])
    assert value == [100.0, 100.0]
    np.testing.assert_allclose(slope, [-1e12, 1e12])


def test_labels_of_nothing_have_a_slope():
    """It is the surprise at the class, log 4 where four classes are alike."""
    labels = [[1.0, 0.0, 0.0, 0.0]]
    for reduction in ("mean", "sum", "none"):
        how = {"reduction": reduction}
        _, _, slope = slopes(lambda x, t, how=how: fn.cross_entropy(x, t, **how), np.zeros((1, 4)), labels)
        np.testing.assert_allclose(slope, np.full((1, 4), np.log(4)))


def test_variances_are_those_of_rows_where_there_is_one_for_each():
    zeros = tensor(np.zeros((2, 2)))
    loss = fn.gaussian_nll_loss(zeros, zeros, np.array([1.0, np.exp(2.0)]), reduction="none")
    np.testing.assert_allclose(loss.numpy(), [[0.0, 0.0], [1.0, 1.0]])


def test_what_is_added_may_reach_a_part():
    x, places, values = tensor(np.ones((3, 2))), np.array([[2], [0]]), tensor(np.array([[5.0], [7.0]]))
    assert fn.scatter_add(x, 0, places, values).numpy().tolist() == [[8, 1], [1, 1], [6, 1]]
    assert fn.scatter_add(x, -1, places[:1] - 2, values[:1]).numpy().tolist() == [[6, 1], [1, 1], [1, 1]]


def test_a_cosine_is_that_of_what_is_broadcast():
    """Of [3, 4] and [1, 1]: 7 / (5 sqrt 2)."""
    found = fn.cosine_similarity(tensor([[3.0, 4.0]]), tensor([[1.0]]))
    assert found.numpy() == pytest.approx([7 / (5 * np.sqrt(2))])


def test_a_kronecker_product_may_be_of_one_tensor():
    np.testing.assert_array_equal(fn.kron(ROWS, ROWS).numpy(), np.kron(ROWS.numpy(), ROWS.numpy()))


def test_one_count_tiles_the_last_axis():
    assert fn.tile(tensor([[1.0, 2.0]]), 2).numpy().tolist() == [[1, 2, 1, 2]]


def test_more_correction_than_elements_leaves_a_variance_without_end():
    assert fn.var(tensor([1.0, 2.0]), correction=2).item() == np.inf


def test_nothing_said_is_all_blanks():
    assert fn.ctc_loss(tensor(np.zeros((2, 1, 4))).log_softmax(), np.zeros((1, 0), int), [2], [0]).item() == (
        pytest.approx(2 * np.log(4))
    )


HARD = {
    "norm inf": (lambda x, y: fn.norm(x, np.inf, 0), lambda x, y: torch.linalg.vector_norm(x, np.inf, 0)),
    "norm 0.5": (lambda x, y: fn.norm(x, 0.5, 0), lambda x, y: torch.linalg.vector_norm(x, 0.5, 0)),
    "norm -2": (lambda x, y: fn.norm(x, -2, 1), lambda x, y: torch.linalg.vector_norm(x, -2, 1)),
    "smoothing": (
        lambda x, y: fn.cross_entropy(x, y, label_smoothing=0.3, reduction="sum"),
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.3, reduction="sum"),
    ),
    "distributions": (
        lambda x, y: fn.cross_entropy(x, y, reduction="none"),
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
    ),
    "variances of rows": (
        lambda x, y: fn.gaussian_nll_loss(x, y, (x[0] * x[0]) + 1.0),
        lambda x, y: F.gaussian_nll_loss(x, y, (x[0] * x[0]) + 1.0),
    ),
    "cosines": (
        lambda x, y: fn.cosine_similarity(x, y[:, :1]),
        lambda x, y: F.cosine_similarity(x, y[:, :1], -1),
    ),
    "hinge": (
        lambda x, y: fn.hinge_embedding_loss(x, y.detach(), reduction="none"),
        lambda x, y: F.hinge_embedding_loss(x, y.detach(), reduction="none"),
    ),
    "scatter_add": (
        lambda x, y: fn.scatter_add(x, 1, [[2], [0]], y[:2, :1]),
        lambda x, y: x.scatter_add(1, torch.tensor([[2], [0]]), y[:2, :1]),
    ),
    "var": (lambda x, y: fn.var(x, 0, correction=0) * y, lambda x, y: x.var(0, correction=0) * y),
}


@compared
@pytest.mark.parametrize("name", HARD)
def test_hard_arguments_are_pytorchs(name):
    """Whole numbers: zeros and equals are among them."""
    given = np.round(np.random.default_rng(7).standard_normal((2, 3, 3)))
    mine, theirs = ([made(x, requires_grad=True) for x in given] for made in (tensor, torch.tensor))
    y, z = (function(*leaves) for function, leaves in zip(HARD[name], (mine, theirs), strict=True))
    np.testing.assert_allclose(y.numpy(), z.detach().numpy(), atol=1e-12)
    y.sum().backward()
    z.sum().backward()
    for one, other in zip(mine, theirs, strict=True):
        if one.grad is not None:
            np.testing.assert_allclose(one.grad.numpy(), other.grad.numpy(), atol=1e-12)
