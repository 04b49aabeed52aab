"""The functions that are made of ops of the table: values against numpy's formulas, first and second derivatives against finite differences, what is refused."""

from math import erf

import numpy as np
import pytest

import engine
from allocsim.errors import EngineError
from engine import gradcheck, gradgradcheck, tensor
from engine.front import functions as fn
from engine.front.modules import Gru, LayerNorm, Lstm
from engine.training import Dataset, Settings, fit

R = np.random.default_rng(11)


def drawn(*shape):
    return R.standard_normal(shape)


def above(*shape):
    return np.abs(R.standard_normal(shape)) + 0.3


X, Y, Z = drawn(3, 4) * 1.7, drawn(3, 4), drawn(2, 3, 4)
INSIDE = R.uniform(-0.9, 0.9, (3, 4))
SHARE = R.uniform(0.05, 0.95, (3, 4))
CLASSES = np.array([0, 2, 1])
SIGNS = np.array([1.0, -1.0, 1.0])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def log_softmax(x):
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def picked(x):
    return -log_softmax(x)[np.arange(3), CLASSES]


TABLE = {
    "log1p": (fn.log1p, np.log1p, above(3, 4)),
    "expm1": (fn.expm1, np.expm1, X),
    "erf": (fn.erf, np.vectorize(erf), X),
    "square": (fn.square, np.square, X),
    "frac": (fn.frac, lambda x: x - np.trunc(x), X),
    "log2": (fn.log2, np.log2, above(3, 4)),
    "log10": (fn.log10, np.log10, above(3, 4)),
    "exp2": (fn.exp2, np.exp2, X),
    "reciprocal": (fn.reciprocal, np.reciprocal, above(3, 4)),
    "rsqrt": (fn.rsqrt, lambda x: x**-0.5, above(3, 4)),
    "tan": (fn.tan, np.tan, INSIDE),
    "sinh": (fn.sinh, np.sinh, X),
    "cosh": (fn.cosh, np.cosh, X),
    "asin": (fn.asin, np.arcsin, INSIDE),
    "acos": (fn.acos, np.arccos, INSIDE),
    "atan": (fn.atan, np.arctan, X),
    "atan2": (fn.atan2, np.arctan2, X, Y),
    "hypot": (fn.hypot, np.hypot, X, Y),
    "logaddexp": (fn.logaddexp, np.logaddexp, X, Y),
    "remainder": (fn.remainder, np.mod, X, Y),
    "fmod": (fn.fmod, np.fmod, X, Y),
    "lerp": (lambda a, b: fn.lerp(a, b, 0.3), lambda a, b: a + 0.3 * (b - a), X, Y),
    "masked_fill": (lambda x: fn.masked_fill(x, Y > 0, 7.0), lambda x: np.where(Y > 0, 7.0, x), X),
    "relu6": (lambda x: fn.relu6(x * 4.0), lambda x: np.clip(4 * x, 0, 6), X),
    "hardtanh": (fn.hardtanh, lambda x: np.clip(x, -1, 1), X),
    "hardsigmoid": (fn.hardsigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1), X),
    "hardswish": (fn.hardswish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1), X),
    "leaky_relu": (lambda x: fn.leaky_relu(x, 0.1), lambda x: np.where(x > 0, x, 0.1 * x), X),
    "prelu": (fn.prelu, lambda x, w: np.where(x > 0, x, w * x), X, above(4)),
    "elu": (lambda x: fn.elu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x)), X),
    "celu": (lambda x: fn.celu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x / 0.7)), X),
    "selu": (fn.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), X),
    "softsign": (fn.softsign, lambda x: x / (1 + abs(x)), X),
    "log_sigmoid": (fn.log_sigmoid, lambda x: np.log(sigmoid(x)), X),
    "mish": (fn.mish, lambda x: x * np.tanh(np.log1p(np.exp(x))), X),
    "tanhshrink": (fn.tanhshrink, lambda x: x - np.tanh(x), X),
    "softshrink": (fn.softshrink, lambda x: np.sign(x) * np.maximum(abs(x) - 0.5, 0), X),
    "hardshrink": (fn.hardshrink, lambda x: np.where(abs(x) > 0.5, x, 0), X),
    "threshold": (lambda x: fn.threshold(x, 0.1, 3.0), lambda x: np.where(x > 0.1, x, 3.0), X),
    "glu": (fn.glu, lambda x: x[:, :2] * sigmoid(x[:, 2:]), X),
    "nan_to_num": (fn.nan_to_num, np.nan_to_num, X),
    "var": (lambda x: fn.var(x, (0, 2)), lambda x: x.var((0, 2), ddof=1), Z),
    "std": (lambda x: fn.std(x, 1, correction=0, keepdims=True), lambda x: x.std(1, keepdims=True), Z),
    "norm 1": (lambda x: fn.norm(x, 1, 1), lambda x: abs(x).sum(1), Z),
    "norm 2": (lambda x: fn.norm(x, 2, (0, 2)), lambda x: np.sqrt((x * x).sum((0, 2))), Z),
    "norm 3": (lambda x: fn.norm(x, 3, -1), lambda x: (abs(x) ** 3).sum(-1) ** (1 / 3), Z),
    "norm inf": (lambda x: fn.norm(x, float("inf"), (0, 1)), lambda x: abs(x).max((0, 1)), Z),
    "normalize": (fn.normalize, lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True), X),
    "cosine_similarity": (
        fn.cosine_similarity,
        lambda a, b: (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1),
        *(X, Y),
    ),
    "logsumexp": (lambda x: fn.logsumexp(x, (0, -1)), lambda x: np.log(np.exp(x).sum((0, -1))), Z),
    "prod": (lambda x: fn.prod(x, 1), lambda x: x.prod(1), Z),
    "prod of all": (fn.prod, np.prod, drawn(5)),
    "cumsum": (lambda x: fn.cumsum(x, 1), lambda x: x.cumsum(1), drawn(2, 7)),
    "cumprod": (lambda x: fn.cumprod(x, 0), lambda x: x.cumprod(0), drawn(5, 2)),
    "sort": (lambda x: fn.sort(x, 1)[0], lambda x: np.sort(x, 1), Z),
    "sort down": (lambda x: fn.sort(x, descending=True)[0], lambda x: -np.sort(-x), Z),
    "topk": (lambda x: fn.topk(x, 2)[0], lambda x: -np.sort(-x)[..., :2], Z),
    "flip": (lambda x: fn.flip(x, (0, 2)), lambda x: np.flip(x, (0, 2)), Z),
    "roll": (lambda x: fn.roll(x, -5, 2), lambda x: np.roll(x, -5, 2), Z),
    "tile": (lambda x: fn.tile(x, (2, 1, 3, 1)), lambda x: np.tile(x, (2, 1, 3, 1)), Z),
    "index_select": (lambda x: fn.index_select(x, 1, [2, 0, 2]), lambda x: x[:, [2, 0, 2]], Z),
    "tril": (lambda x: fn.tril(x, -1), lambda x: np.tril(x, -1), Z),
    "triu": (fn.triu, np.triu, Z),
    "diagonal": (fn.diagonal, lambda x: x.diagonal(0, -2, -1), Z),
    "trace": (fn.trace, np.trace, X),
    "dot": (fn.dot, np.dot, drawn(4), drawn(4)),
    "outer": (fn.outer, np.outer, drawn(4), drawn(3)),
    "cross": (fn.cross, np.cross, drawn(4, 3), drawn(4, 3)),
    "cdist": (fn.cdist, lambda a, b: np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1)), drawn(3, 4), drawn(5, 4)),
    "einsum": (
        lambda a, b, c: fn.einsum("bij,kj,i->kb", a, b, c),
        lambda a, b, c: np.einsum("bij,kj,i->kb", a, b, c),
        *(Z, drawn(5, 4), drawn(3)),
    ),
    "einsum of one": (lambda x: fn.einsum("abc->ca", x), lambda x: np.einsum("abc->ca", x), Z),
    "interpolate": (
        lambda x: fn.interpolate(x, (6, 2)),
        lambda x: x[:, [0, 0, 1, 1, 2, 2]][..., [0, 2]],
        Z,
    ),
    "l1_loss": (fn.l1_loss, lambda a, b: abs(a - b).mean(), X, Y),
    "huber_loss": (
        lambda a, b: fn.huber_loss(a, b, delta=0.8, reduction="sum"),
        lambda a, b: np.where(abs(a - b) <= 0.8, (a - b) ** 2 / 2, 0.8 * (abs(a - b) - 0.4)).sum(),
        *(X, Y),
    ),
    "smooth_l1_loss": (
        lambda a, b: fn.smooth_l1_loss(a, b, beta=0.8),
        lambda a, b: np.where(abs(a - b) <= 0.8, (a - b) ** 2 / 1.6, abs(a - b) - 0.4).mean(),
        *(X, Y),
    ),
    "binary_cross_entropy": (
        fn.binary_cross_entropy,
        lambda p, t: -(t * np.log(p) + (1 - t) * np.log(1 - p)).mean(),
        *(SHARE, R.uniform(0, 1, (3, 4))),
    ),
    "binary_cross_entropy_with_logits": (
        fn.binary_cross_entropy_with_logits,
        lambda x, t: -(t * np.log(sigmoid(x)) + (1 - t) * np.log(sigmoid(-x))).mean(),
        *(X, SHARE),
    ),
    "kl_div": (
        lambda q, p: fn.kl_div(q, p, reduction="batchmean"),
        lambda q, p: (p * (np.log(p) - q)).sum() / 3,
        *(X, SHARE),
    ),
    "hinge_embedding_loss": (
        lambda x: fn.hinge_embedding_loss(x, SIGNS, reduction="none"),
        lambda x: np.where(SIGNS == 1, x, np.maximum(0, 1 - x)),
        drawn(3),
    ),
    "margin_ranking_loss": (
        lambda a, b: fn.margin_ranking_loss(a, b, SIGNS, margin=2.0),
        lambda a, b: np.maximum(0, 2 - SIGNS * (a - b)).mean(),
        *(drawn(3), drawn(3)),
    ),
    "triplet_margin_loss": (
        lambda a, b, c: fn.triplet_margin_loss(a, b, c, margin=9.0),
        lambda a, b, c: (
            np.linalg.norm(a - b + 1e-6, axis=-1) - np.linalg.norm(a - c + 1e-6, axis=-1) + 9
        ).mean(),
        *(X, Y, drawn(3, 4)),
    ),
    "poisson_nll_loss": (fn.poisson_nll_loss, lambda x, t: (np.exp(x) - t * x).mean(), X, above(3, 4)),
    "gaussian_nll_loss": (
        fn.gaussian_nll_loss,
        lambda x, t, v: ((np.log(v) + (x - t) ** 2 / v) / 2).mean(),
        *(X, Y, above(3, 4)),
    ),
    "nll_loss": (lambda x: fn.nll_loss(x, CLASSES), lambda x: -x[np.arange(3), CLASSES].mean(), X),
    "cross_entropy ignoring": (
        lambda x: fn.cross_entropy(x, CLASSES, ignore_index=2),
        lambda x: picked(x)[[0, 2]].mean(),
        X,
    ),
    "cross_entropy smooth": (
        lambda x: fn.cross_entropy(x, CLASSES, label_smoothing=0.2, reduction="none"),
        lambda x: 0.8 * picked(x) - 0.2 * log_softmax(x).mean(-1),
        X,
    ),
    "focal_loss": (
        fn.focal_loss,
        lambda x, t: (
            -(t * np.log(sigmoid(x)) + (1 - t) * np.log(sigmoid(-x)))
            * (1 - sigmoid(x) * t - sigmoid(-x) * (1 - t)) ** 2
        ).mean(),
        *(X, SHARE),
    ),
    "batch_norm": (
        fn.batch_norm,
        lambda x, g, b: (x - x.mean((0, 2), keepdims=True))
        / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
        * g[:, None]
        + b[:, None],
        *(drawn(4, 3, 2), drawn(3), drawn(3)),
    ),
    "group_norm": (
        lambda x: fn.group_norm(x, 1),
        lambda x: (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5),
        Z,
    ),
    "instance_norm": (
        fn.instance_norm,
        lambda x: (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5),
        Z,
    ),
    "expand": (lambda x: fn.expand(x, 2, -1, -1), lambda x: np.broadcast_to(x, (2, 3, 4)), X),
    "repeat_interleave": (lambda x: fn.repeat_interleave(x, 2, 1), lambda x: x.repeat(2, 1), X),
    "swapaxes": (lambda x: fn.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1), Z),
    "movedim": (lambda x: fn.movedim(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), Z),
    "masked_select": (lambda x: fn.masked_select(x, X > 0), lambda x: x[X > 0], X),
    "tensordot": (lambda a, b: fn.tensordot(a, b, 1), lambda a, b: np.tensordot(a, b, 1), Z, drawn(4, 2)),
    "kron": (fn.kron, np.kron, drawn(2, 2), drawn(1, 3)),
    "addmm": (lambda x, a, b: fn.addmm(x, a, b, alpha=2.0), lambda x, a, b: x + 2 * a @ b, drawn(3, 2), X, drawn(4, 2)),
    "diff": (fn.diff, np.diff, X),
    "softmin": (fn.softmin, lambda x: np.exp(-x) / np.exp(-x).sum(-1, keepdims=True), X),
    "median": (fn.median, lambda x: np.sort(x)[:, 1], X),
    "quantile": (lambda x: fn.quantile(x, 0.4, 0), lambda x: np.quantile(x, 0.4, 0), X),
    "pixel_shuffle": (
        lambda x: fn.pixel_shuffle(x, 2),
        lambda x: x.reshape(1, 2, 2, 2, 1, 3).transpose(0, 1, 4, 2, 5, 3).reshape(1, 2, 2, 6),
        drawn(1, 8, 1, 3),
    ),
    "index_add": (
        lambda x, v: fn.index_add(x, 1, [0, 2, 0], v),
        lambda x, v: x + v @ np.eye(4)[[0, 2, 0]],
        *(X, drawn(3, 3)),
    ),
}  # fmt: skip
"""Name -> (the function, numpy's, inputs that lie beside no kink)."""


@pytest.mark.parametrize("name", TABLE)
def test_the_values_are_numpys(name):
    function, oracle, *inputs = TABLE[name]
    found, wanted = function(*(tensor(x, dtype="float64") for x in inputs)), np.asarray(oracle(*inputs))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_first_derivatives_are_those_of_finite_differences(name):
    function, _, *inputs = TABLE[name]
    assert gradcheck(function, *inputs)


SMOOTH = (
    *("log1p", "erf", "rsqrt", "tan", "sinh", "asin", "atan", "atan2", "hypot", "logaddexp", "elu", "selu"),
    *("log_sigmoid", "mish", "glu", "var", "std", "logsumexp", "prod", "cumprod", "cdist", "batch_norm", "focal_loss"),
    *("gaussian_nll_loss", "softmin"),
)
LINEAR = ("expand", "repeat_interleave", "movedim", "masked_select", "tensordot", "kron", "addmm", "diff", "median", "quantile", "pixel_shuffle", "index_add")  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_products_with_what_is_linear_have_second_derivatives(name):
    """The derivative is linear in what comes back, and that is differentiated too."""
    function, _, *inputs = TABLE[name]
    assert gradgradcheck(lambda *given: function(*given) ** 2, *inputs, rtol=1e-4, atol=1e-6).ok


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_are_those_of_finite_differences(name):
    function, _, *inputs = TABLE[name]
    rng = np.random.default_rng(5)
    weights = tensor(rng.standard_normal(np.shape(TABLE[name][1](*inputs))), dtype="float64")

    def slope(*given):
        for x in given:
            x.zero_grad()
        (function(*given) * weights).sum().backward(create_graph=True)
        return given[0].grad

    leaves = [tensor(x, requires_grad=True, dtype="float64") for x in inputs]
    direction = rng.standard_normal(inputs[0].shape)
    first = slope(*leaves)
    for x in leaves:
        x.zero_grad()
    (first * tensor(direction, dtype="float64")).sum().backward()
    found = leaves[0].grad.numpy()
    step = 1e-5

    def along(shift):
        moved = [
            tensor(x + (shift if place == 0 else 0), requires_grad=True, dtype="float64")
            for place, x in enumerate(inputs)
        ]
        return slope(*moved).numpy()

    wanted = (along(step * direction) - along(-step * direction)) / (2 * step)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


WHOLE = {
    "floor": (fn.floor, np.floor),
    "ceil": (fn.ceil, np.ceil),
    "trunc": (fn.trunc, np.trunc),
    "round": (fn.round, np.rint),
    "sign": (fn.sign, np.sign),
    "isnan": (fn.isnan, np.isnan),
    "isinf": (fn.isinf, np.isinf),
    "isfinite": (fn.isfinite, np.isfinite),
    "logical_not": (fn.logical_not, np.logical_not),
    "nan_to_num": (fn.nan_to_num, np.nan_to_num),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_jumps_is_right_at_halves_zeros_infinities_and_nan(name):
    function, oracle = WHOLE[name]
    x = np.array([0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.0, -7.2, 1e12, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(function(tensor(x, dtype="float64")).numpy(), oracle(x).astype(float))


def test_no_gradient_comes_where_nothing_changes_and_none_is_nan_where_a_root_is_0():
    x = tensor(np.zeros((2, 3)), requires_grad=True, dtype="float64")
    (fn.norm(x, 2, -1) + fn.std(x, -1) + fn.hypot(x, 0.0).sum(-1)).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros((2, 3)))


def test_a_product_with_zeros_has_the_products_of_the_others_as_gradients():
    x = tensor([[2.0, 0.0, 5.0], [0.0, 0.0, 3.0]], requires_grad=True, dtype="float64")
    fn.prod(x, 1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 10, 0], [0, 0, 0]])


def test_sums_and_logarithms_of_infinities_are_their_limits():
    x = tensor([[np.inf, 1.0], [-np.inf, -np.inf], [1e308, 1.0]], dtype="float64")
    np.testing.assert_array_equal(fn.logsumexp(x, -1).numpy(), [np.inf, -np.inf, 1e308])
    np.testing.assert_array_equal(fn.logaddexp(x[:, 0], x[:, 1]).numpy(), [np.inf, -np.inf, 1e308])


def test_operators_of_whole_numbers_and_truth():
    x, y = tensor([5.0, -5.0, 0.0]), tensor([3.0, 3.0, 0.5])
    np.testing.assert_array_equal((x % y).numpy(), [2, 1, 0])
    np.testing.assert_array_equal((7.0 % y).numpy(), [1, 1, 0])
    np.testing.assert_array_equal(((x > 0) & (y > 1)).numpy(), [1, 0, 0])
    np.testing.assert_array_equal(((x > 0) | (y > 1)).numpy(), [1, 1, 0])
    np.testing.assert_array_equal((~(x > 0)).numpy(), [0, 1, 1])


def test_places_are_given_with_what_is_sorted():
    x = tensor([[3.0, 1.0, 3.0, np.nan], [0.0, -1.0, 2.0, 2.0]])
    assert fn.argsort(x).numpy().tolist() == [[1, 0, 2, 3], [1, 0, 2, 3]]
    assert fn.argsort(x, descending=True).numpy().tolist() == [[0, 2, 1, 3], [2, 3, 0, 1]]
    assert fn.topk(x, 1, 0, largest=False)[1].numpy().tolist() == [[1, 1, 1, 1]]
    assert fn.argmin(x[1]).item() == 1


REFUSED = [
    (lambda x: fn.einsum("ii->i", x), "twice"),
    (lambda x: fn.einsum("...i->i", x), "letters"),
    (lambda x: fn.einsum("ij,jk->ik", x), "2 operands"),
    (lambda x: fn.einsum("ij->k", x), "result"),
    (lambda x: fn.topk(x, 5), "5 of 4"),
    (lambda x: fn.var(x, 3), "axis 3"),
    (lambda x: fn.var(x, (0, 0)), "distinct axes"),
    (lambda x: fn.group_norm(x, 3), "groups"),
    (lambda x: fn.l1_loss(x, x, reduction="most"), "reduction"),
    (lambda x: fn.nll_loss(x, [0, 1, 9]), "class numbers run"),
    (lambda x: fn.glu(fn.tril(x)[:, :3]), "halves"),
    (lambda x: fn.interpolate(x, (2, 2), mode="cubic"), "nearest or bilinear"),
    (lambda x: fn.swapaxes(x, 0, 2), "axis 2"),
    (lambda x: fn.movedim(x, 0, 5), "axis 5"),
    (lambda x: fn.arange(0, 3, 0), "arange"),
    (lambda x: fn.full((2, -1), 0.0), "full: negative"),
    (lambda x: fn.quantile(x, 1.5), "no share"),
    (lambda x: fn.median(x[:0], 0), "no elements"),
    (lambda x: fn.kron(x, x[0]), "one rank"),
    (lambda x: fn.tensordot(x, x, 1), "do not meet"),
    (lambda x: fn.pixel_shuffle(x, 2), "N, C, H, W"),
    (lambda x: fn.masked_select(x, [True, False]), "broadcast"),
    (lambda x: fn.unfold(x, 2), "axes image"),
    (lambda x: fn.conv3d(x, x), "N, C, D, H, W"),
    (lambda x: fn.conv3d(x.reshape(1, 1, 1, 3, 4), x.reshape(1, 1, 1, 3, 4), stride=(1, 2)), "3 whole numbers"),
    (lambda x: fn.conv3d(x.reshape(1, 1, 1, 3, 4), x.reshape(1, 1, 3, 4, 1)), "depth 3"),
    (lambda x: fn.adaptive_avg_pool2d(x, 0), "at least 1"),
    (lambda x: fn.grid_sample(x, x), "OH, OW, 2"),
    (
        lambda x: fn.grid_sample(x.reshape(1, 1, 3, 4), x[:, :2].reshape(1, 3, 1, 2), mode="bicubic"),
        "bilinear or nearest",
    ),
    (fn.meshgrid, "vectors"),
    (lambda x: fn.put_along_dim(x, [[0.5]], 1.0), "ids of float64"),
    (lambda x: fn.put_along_dim(x, [[9]], 1.0), "out of bounds"),
    (lambda x: fn.ctc_loss(x, [[1]], [1], [1]), "T, N, C"),
    (lambda x: fn.ctc_loss(x.reshape(3, 1, 4), [[1]], [4], [1]), "4.* of 3 steps"),
    (lambda x: fn.ctc_loss(x.reshape(3, 1, 4), [[4]], [3], [1]), "indices run"),
    (lambda x: fn.randint(3, 3, (2,), seed=0), "no whole number"),
    (lambda x: fn.multinomial(x, 5, seed=0), "5 of 4"),
]


@pytest.mark.parametrize(("wrong", "words"), REFUSED)
def test_misuse_is_refused_in_one_line(wrong, words):
    with pytest.raises(EngineError, match=words) as caught:
        wrong(tensor(X))
    assert "\n" not in str(caught.value)


def test_places_are_drawn_in_proportion_to_their_weights():
    weights = tensor([[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]])
    drawn = fn.multinomial(weights, 4000, replacement=True, seed=3).numpy()
    assert drawn.shape == (2, 4000)
    np.testing.assert_allclose(np.bincount(drawn[0], minlength=3) / 4000, [0.25, 0, 0.75], atol=0.02)
    assert (drawn[1] == 1).all()
    firsts = [fn.multinomial(weights[0], 2, seed=seed).numpy()[0] for seed in range(400)]
    np.testing.assert_allclose(np.mean(firsts), 1.5, atol=0.1)  # 0 in a quarter of them, else 2


def test_lstm_and_gru_are_their_formulas_step_by_step():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 4, 3))
    lstm, gru = Lstm(3, 5, rng), Gru(3, 5, rng)
    for module in (lstm, gru):
        for name in ("weight", "recurrent", "bias"):
            setattr(module, name, tensor(getattr(module, name).numpy().astype(float), requires_grad=True))
    gru.recurrent_bias = tensor(rng.standard_normal(15), requires_grad=True)
    h, c, g = np.zeros((2, 5)), np.zeros((2, 5)), np.zeros((2, 5))
    w, u = lstm.weight.numpy(), lstm.recurrent.numpy()
    v, s, b = gru.weight.numpy(), gru.recurrent.numpy(), gru.recurrent_bias.numpy()
    for step in range(4):
        i, f, n, o = np.split(x[:, step] @ w.T + h @ u.T, 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(n)
        h = sigmoid(o) * np.tanh(c)
        (a, z, m), (ra, rz, rm) = np.split(x[:, step] @ v.T, 3, -1), np.split(g @ s.T + b, 3, -1)
        new = np.tanh(m + sigmoid(a + ra) * rm)
        g = (1 - sigmoid(z + rz)) * new + sigmoid(z + rz) * g
    seen, (last, cell) = lstm(tensor(x))
    np.testing.assert_allclose(seen[:, -1].numpy(), h, rtol=1e-9)
    np.testing.assert_allclose(last.numpy(), h, rtol=1e-9)
    np.testing.assert_allclose(cell.numpy(), c, rtol=1e-9)
    np.testing.assert_allclose(gru(tensor(x))[1].numpy(), g, rtol=1e-9)
    assert sorted(dict(LayerNorm(4).parameters())) == ["bias", "weight"]


RECORDED = {
    "cross_entropy ignoring": lambda z, labels: fn.cross_entropy(z, labels, ignore_index=2),
    "cross_entropy smooth": lambda z, labels: fn.cross_entropy(z, labels, label_smoothing=0.1),
    "nll_loss": lambda z, labels: fn.nll_loss(z.log_softmax(), labels),
    "order": lambda z, labels: fn.mse_loss(fn.sort(z)[0] + fn.topk(z, 3)[0], fn.one_hot(labels, 3)),
    "scans": lambda z, labels: fn.huber_loss(fn.cumsum(z, 1) * fn.prod(z, 1, keepdims=True), fn.one_hot(labels, 3)),
    "statistics": lambda z, labels: fn.kl_div((z / fn.std(z, 0)).log_softmax(), fn.one_hot(labels, 3)),
    "windows": lambda z, labels: fn.mse_loss(
        fn.adaptive_avg_pool2d(
            fn.conv3d(z.reshape(8, 1, 1, 1, 3), tensor(np.ones((1, 1, 1, 1, 2)), dtype="float32")), (1, 3)
        ).reshape(8, 3)
        + fn.grid_sample(z.reshape(8, 1, 1, 3), tensor(np.zeros((8, 1, 3, 2)), dtype="float32")).reshape(8, 3),
        fn.one_hot(labels, 3),
    ),
    "said": lambda z, labels: (
        fn.ctc_loss(fn.stack([z, z * 0.5]).log_softmax(), [[1]] * 8, [2] * 8, [1] * 8) + fn.nll_loss(z, labels)
    ),
    "products": lambda z, labels: fn.l1_loss(fn.einsum("ij,ik->ij", z, z), fn.one_hot(labels, 3)),
}


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_model_trains_with_them_to_the_loss_that_is_typed(name):
    rng = np.random.default_rng(0)
    data, labels = rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 3, 8).astype(np.int32)
    weights = {"w": rng.normal(size=(6, 3)).astype(np.float32)}
    loss = RECORDED[name]

    def model(p, data, labels):
        return loss(data @ p["w"], labels)

    recorded = engine.model(model, weights, example={"data": data, "labels": labels}, dtypes={"labels": "int32"})
    fitted = fit(recorded, Dataset.of(data, labels), Settings(epochs=2, batch=8, loss="sum"))
    typed = model({"w": tensor(weights["w"])}, tensor(data), labels).item()
    np.testing.assert_allclose(fitted.history[0].training.losses[0], typed, rtol=1e-6)
