"""What is built of several rows: against loops over the definition, and PyTorch where it is installed."""

from itertools import product

import engine_oracle
import numpy as np
import pytest

from allocsim.errors import EngineError
from engine.autodiff import backward
from engine.graph import Graph, composites
from engine.kernels import KERNELS


@pytest.fixture
def graph():
    return Graph("compose")


def leafs(graph, rng, **shapes):
    """Return trainable float64 parameters of these shapes, and data for them."""
    data = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    return [graph.parameter(name, shape, "f64", trainable=True) for name, shape in shapes.items()], data


def gradients_of(graph, y, data, execute, rng):
    """Return y, weights, and the gradient of sum(y * weights) by parameter name."""
    weights = graph.input("weights", y.shape, y.dtype)
    loss = graph.op("sum", graph.op("mul", y, weights))
    found = backward(graph, loss)
    data = {**data, "weights": rng.standard_normal(y.shape), "loss_grad": np.ones(1)}
    out = execute(graph, data, y, *found.values())
    return out[0], data["weights"], {p.name: g for p, g in zip(found, out[1:], strict=True)}


def convolved(x, w, stride, padding, dilation):
    """Return the cross-correlation, pixel by pixel."""
    x = np.pad(x, ((0, 0), (0, 0), *((p, p) for p in padding)))
    reach = [d * (k - 1) + 1 for k, d in zip(w.shape[2:], dilation, strict=True)]
    oh, ow = ((n - r) // s + 1 for n, r, s in zip(x.shape[2:], reach, stride, strict=True))
    y = np.zeros((len(x), len(w), oh, ow))
    for row, column in product(range(oh), range(ow)):
        top, left = row * stride[0], column * stride[1]
        seen = x[:, :, top : top + reach[0] : dilation[0], left : left + reach[1] : dilation[1]]
        y[:, :, row, column] = np.tensordot(seen, w, axes=([1, 2, 3], [1, 2, 3]))
    return y


CONVOLUTIONS = [
    ((2, 3, 6, 7), (4, 3, 3, 2), {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 2), "dilation": (1, 1)}),
    ((1, 2, 8, 8), (1, 2, 3, 3), {"stride": (1, 2), "padding": (2, 2), "dilation": (2, 3)}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}),
]


@pytest.mark.parametrize("shapes", CONVOLUTIONS, ids=str)
def test_conv2d_is_the_cross_correlation(graph, execute, rng, shapes):
    """Pixel by pixel, with bias, for strides, padding and dilation of each axis."""
    image, filters, how = shapes
    (x, w, b), data = leafs(graph, rng, x=image, w=filters, b=filters[:1])
    y, _, _ = gradients_of(graph, composites.conv2d(x, w, b, **how), data, execute, rng)

    np.testing.assert_allclose(
        y, convolved(data["x"], data["w"], **how) + data["b"][:, None, None], rtol=1e-12, atol=1e-12
    )


def test_conv1d_is_conv2d_of_one_row(graph, execute, rng):
    """The same windows, without a height."""
    (x, w), data = leafs(graph, rng, x=(2, 3, 9), w=(4, 3, 3))
    y, _, _ = gradients_of(graph, composites.conv1d(x, w, stride=2, padding=1, dilation=2), data, execute, rng)
    wanted = convolved(data["x"][:, :, None], data["w"][:, :, None], (1, 2), (0, 1), (1, 2))[:, :, 0]

    np.testing.assert_allclose(y, wanted, rtol=1e-12, atol=1e-12)


def test_max_pooling_takes_the_largest_and_sends_the_gradient_there(graph, execute, rng):
    """Padding never wins, overlapping windows add up, and of equals the first gets the gradient."""
    (x,), data = leafs(graph, rng, x=(2, 3, 5, 6))
    data["x"] = -np.abs(data["x"])
    data["x"][0, 0, :2, :2] = -0.25  # four equals
    y, weights, found = gradients_of(
        graph, composites.max_pool2d(x, (2, 3), stride=1, padding=(1, 1)), data, execute, rng
    )
    padded = np.pad(data["x"], ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    wanted, share = np.zeros_like(y), np.zeros_like(padded)
    for n, c, i, j in np.ndindex(y.shape):
        window = padded[n, c, i : i + 2, j : j + 3]
        wanted[n, c, i, j] = window.max()
        row, column = np.unravel_index(window.argmax(), window.shape)
        share[n, c, i + row, j + column] += weights[n, c, i, j]

    assert np.array_equal(y, wanted)
    np.testing.assert_allclose(found["x"], share[:, :, 1:-1, 1:-1], rtol=1e-13)


@pytest.mark.parametrize("grouped", [False, True])
def test_fused_attention_is_its_parts(graph, execute, rng, grouped):
    """Value and every gradient are those of scores, softmax and product as ops of their own, for more rows than a block."""
    heads = 2 if grouped else 4
    (q, k, v), data = leafs(graph, rng, q=(4, 70, 6), k=(heads, 9, 6), v=(heads, 9, 5))
    mask = graph.input("mask", (70, 9), "f64")
    data["mask"] = np.where(rng.random((70, 9)) < 0.3, -np.inf, 0.0)
    data["mask"][:, 0] = 0.0
    y, _, found = gradients_of(
        graph, graph.op("attention", q, k, v, mask, scale=0.4), data, execute, np.random.default_rng(1)
    )
    other = Graph("parts")
    twins = [other.parameter(t.name, t.shape, "f64", trainable=True) for t in (q, k, v)]
    whole = composites.attention_by_parts(*twins, other.input("mask", (70, 9), "f64"), scale=0.4)
    apart, _, wanted = gradients_of(other, whole, data, execute, np.random.default_rng(1))

    np.testing.assert_allclose(y, apart, rtol=1e-12, atol=1e-13)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-11, atol=1e-12)
    assert sum(node.kind == "attention_back" for node in graph.nodes) == 1, "the three gradients share one op"


def causal(queries, keys):
    """A causal mask with something to add where it lets see, and a few more keys left out."""
    mask = np.random.default_rng(8).normal(size=(queries, keys))
    mask[np.random.default_rng(9).random(mask.shape) < 0.2] = -np.inf
    mask[:, 0] = 0.5
    mask[np.arange(keys) > np.arange(queries)[:, None] + keys - queries] = -np.inf
    return mask


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (64, 64), (150, 150), (70, 90), (1, 3)])
def test_causal_attention_is_that_with_a_causal_mask(execute, rng, queries, keys):
    """Value, gradients, and gradients of a gradient, whether or not the scores beyond are computed."""
    shapes = {"q": (4, queries, 6), "k": (2, keys, 6), "v": (2, keys, 5), "mask": (queries, keys)}
    data = {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"mask": causal(queries, keys)}
    found = []
    for told in (False, True):
        graph = Graph("attention")
        q, k, v = (graph.parameter(name, shapes[name], "f64", trainable=True) for name in "qkv")
        mask = graph.input("mask", shapes["mask"], "f64")
        y = graph.op("attention", q, k, v, mask, scale=0.4, causal=told)
        gradients = backward(
            graph, graph.op("sum", graph.op("sqr", y)), seed=graph.op("full", shape=(1,), value=1.0, dtype="f64")
        )
        again = backward(
            graph,
            graph.op("sum", graph.op("sqr", gradients[q])),
            seed=graph.op("full", shape=(1,), value=1.0, dtype="f64"),
        )
        wanted = [y, *gradients.values(), *again.values()]
        graph.expand(*wanted)
        found.append(execute(graph, data, *wanted))

    assert len(found[0]) == 7
    for whole, part in zip(*found, strict=True):
        np.testing.assert_allclose(part, whole, rtol=1e-10, atol=1e-11 * np.abs(whole).max(initial=0))


@pytest.mark.parametrize("kind", ["attention", "attention_back"])
def test_a_row_that_sees_further_than_it_was_said_to_is_nan(kind):
    """One number beyond the diagonal is enough, near it or far, in the first block or the last; other rows are right."""
    rng = np.random.default_rng(4)
    queries, keys = 140, 150
    operands = [rng.normal(size=shape) for shape in ((1, queries, 3), (1, keys, 3), (1, keys, 2))]
    operands = ([rng.normal(size=(1, queries, 2))] if kind == "attention_back" else []) + operands
    out = np.empty((1, queries, 2) if kind == "attention" else (queries * 3 + keys * 5,))
    for row, key in ((0, 11), (0, 149), (63, 74), (64, 75), (130, 141)):
        mask = causal(queries, keys)
        mask[row, key] = 0.0
        function, args = KERNELS[kind]["blocks"].bind({"scale": 0.5, "causal": True}, (*operands, mask), (out,))
        function(*args)
        expected = engine_oracle.MEANING[kind](*operands, causal(queries, keys), scale=0.5)
        rows = out[0] if kind == "attention" else out[: queries * 3].reshape(queries, 3)
        right = expected[0] if kind == "attention" else expected[: queries * 3].reshape(queries, 3)
        assert np.isnan(rows[row]).all()
        np.testing.assert_allclose(np.delete(rows, row, 0), np.delete(right, row, 0), rtol=1e-10, atol=1e-12)
        assert kind == "attention" or np.isnan(out[queries * 3 :]).any(), "keys that the row sees get its NaN"


def test_causal_attention_of_no_queries_is_empty_and_its_gradients_are_zero():
    """There is nothing to weigh, and nobody looked at the keys."""
    q, k, v, mask = (np.zeros(shape) for shape in ((2, 0, 3), (2, 4, 3), (2, 4, 5), (0, 4)))
    y, packed = np.empty((2, 0, 5)), np.full(2 * 4 * (3 + 5), np.nan)
    for kind, operands, out in (("attention", (q, k, v, mask), y), ("attention_back", (y, q, k, v, mask), packed)):
        function, args = KERNELS[kind]["blocks"].bind({"scale": 0.5, "causal": True}, operands, (out,))
        function(*args)

    assert (packed == 0).all()


def test_causal_attention_is_refused_without_a_mask_or_with_more_queries_than_keys(graph):
    """The first has nothing to say what is causal; the second has queries that see nothing."""
    q, k, v = (graph.input(name, shape) for name, shape in {"q": (2, 4, 3), "k": (2, 3, 3), "v": (2, 3, 3)}.items())
    with pytest.raises(EngineError, match="needs a mask, and at least as many keys as queries"):
        graph.op("attention", k, k, v, scale=1.0, causal=True)
    with pytest.raises(EngineError, match="needs a mask, and at least as many keys as queries"):
        graph.op("attention", q, k, v, graph.input("mask", (4, 3)), scale=1.0, causal=True)


def test_split_and_concat_undo_each_other(graph, execute, rng):
    """Parts are views; put together again they are the whole, whatever the axis and number."""
    (x,), data = leafs(graph, rng, x=(4, 7))
    parts = composites.split(x, (2, 0, 4, 1), axis=-1)
    y = composites.concat(parts, axis=1)
    found, weights, gradients = gradients_of(graph, y, data, execute, rng)

    assert all(part.storage is x for part in parts)
    assert np.array_equal(found, data["x"])
    np.testing.assert_allclose(gradients["x"], weights)
    assert [p.shape for p in composites.split(x, 2)] == [(2, 7)] * 2
    for wrong in ((2, 3), 2, (8, -1)):
        with pytest.raises(EngineError, match="axis 1"):
            composites.split(x, wrong, axis=1)


def test_layer_norm_and_largest(graph, execute, rng):
    """Gain and bias after norm; the largest of a row keeps its axis."""
    (x, gain, bias), data = leafs(graph, rng, x=(3, 5), gain=(5,), bias=(5,))
    normed = composites.layer_norm(x, gain, bias, eps=1e-3)
    top = composites.largest(x, axis=0)
    graph.expand(normed, top)
    found, peak = execute(graph, data, normed, top)
    centred = data["x"] - data["x"].mean(-1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * data["gain"] + data["bias"]

    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert np.array_equal(peak, data["x"].max(0, keepdims=True))


def test_gumbel_softmax_samples_what_softmax_says(graph, execute):
    """Hard samples are one-hot, as frequent as their probabilities, the same for the same seed; the gradient is the soft one's."""
    probabilities = np.array([0.6, 0.3, 0.1])
    logits = graph.parameter("logits", (4000, 3), "f64", trainable=True)
    seed = graph.input("seed", (1,), "i32")
    hard = composites.gumbel_softmax(logits, seed, temperature=0.7, hard=True, salt=5)
    soft = composites.gumbel_softmax(logits, seed, temperature=0.7, salt=5)
    weights = graph.parameter("weights", (4000, 3), "f64")
    by_hard = backward(graph, graph.op("sum", graph.op("mul", hard, weights)))
    by_soft = backward(graph, graph.op("sum", graph.op("mul", soft, weights)))
    data = {
        "logits": np.tile(np.log(probabilities), (4000, 1)),
        "weights": np.random.default_rng(0).standard_normal((4000, 3)),
    }
    data |= {"seed": np.array([3], np.int32), "loss_grad": np.ones(1), "loss_grad_2": np.ones(1)}
    reads = (hard, soft, by_hard[logits], by_soft[logits])
    one, mild, first, second = execute(graph, data, *reads)
    again = execute(graph, {**data, "seed": np.array([4], np.int32)}, *reads)[0]

    assert ((one == 0) | (one == 1)).all()
    assert (one.argmax(-1) == mild.argmax(-1)).all()
    np.testing.assert_allclose(
        one.mean(0), probabilities, atol=0.03
    )  # three standard deviations of the rarest are 0.014
    np.testing.assert_allclose(first, second, rtol=1e-12, atol=1e-15)
    assert not np.array_equal(one, again)


def test_dropout_is_its_parts_and_draws_the_same_mask_back(graph, execute, rng):
    """What is kept is what `uniform` of the same seed and salt says; the share dropped is p; backward uses the same mask."""
    (x,), data = leafs(graph, rng, x=(200, 50))
    seed = graph.input("seed", (1,), "i32")
    data["seed"] = np.array([9], np.int32)
    drawn = graph.op("uniform", seed, shape=(200, 50), salt=2, dtype="f64")
    graph.expand(drawn)
    y = graph.op("dropout", x, seed, p=0.3, salt=2)
    weights = graph.parameter("weights", y.shape, "f64")
    found = backward(graph, graph.op("sum", graph.op("mul", y, weights)))
    data |= {"weights": np.ones(y.shape), "loss_grad": np.ones(1)}
    out, numbers, gradient = execute(graph, data, y, drawn, found[x])

    assert np.array_equal(out, np.where(numbers >= 0.3, data["x"] * np.float64(1 / 0.7), 0))
    assert np.array_equal(gradient != 0, numbers >= 0.3)
    assert (out == 0).mean() == pytest.approx(0.3, abs=0.02)  # four standard deviations are 0.018
    assert 0 < numbers.min() < 0.001
    assert 0.999 < numbers.max() < 1


def test_bad_shapes_are_one_clear_line(graph):
    """The op, the operands and the rule."""
    x = graph.input("x", (2, 3, 5, 6))
    w = graph.input("w", (4, 2, 3, 3))
    with pytest.raises(EngineError, match=r"conv2d of x f32\[2, 3, 5, 6\] with w f32\[4, 2, 3, 3\]"):
        composites.conv2d(x, w)
    with pytest.raises(EngineError, match="does not fit into"):
        composites.conv2d(x, graph.input("big", (4, 3, 9, 9)))
    with pytest.raises(EngineError, match="could be empty"):
        composites.max_pool2d(x, 2, padding=2)
    with pytest.raises(EngineError, match="conv1d"):
        composites.conv1d(x, w)
    with pytest.raises(EngineError, match="no tensors"):
        composites.concat([])


TORCH = [
    ("conv2d", lambda t, x, w: t.nn.functional.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2))),
    ("max_pool2d", lambda t, x, w: t.nn.functional.max_pool2d(x, (2, 3), stride=(1, 2), padding=(1, 1))),
    ("avg_pool2d", lambda t, x, w: t.nn.functional.avg_pool2d(x, (2, 3), stride=(1, 2), padding=(1, 1))),
]
OURS = {
    "conv2d": lambda x, w: composites.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 2)),
    "max_pool2d": lambda x, w: composites.max_pool2d(x, (2, 3), stride=(1, 2), padding=(1, 1)),
    "avg_pool2d": lambda x, w: composites.avg_pool2d(x, (2, 3), stride=(1, 2), padding=(1, 1)),
}


@pytest.mark.parametrize(("kind", "theirs"), TORCH, ids=lambda value: value if isinstance(value, str) else "")
def test_images_are_treated_as_pytorch_does(graph, execute, rng, kind, theirs):
    """Value and gradients of convolution and pooling agree with PyTorch's."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    (x, w), data = leafs(graph, rng, x=(2, 3, 7, 8), w=(4, 3, 3, 2))
    twins = {name: torch.tensor(array, requires_grad=True) for name, array in data.items()}
    whole = theirs(torch, twins["x"], twins["w"])
    y = OURS[kind](x, w)
    used = [p for p, name in ((x, "x"), (w, "w")) if kind == "conv2d" or name == "x"]
    weights = graph.input("weights", y.shape, "f64")
    found = backward(graph, graph.op("sum", graph.op("mul", y, weights)), parameters=used)
    data |= {"weights": rng.standard_normal(y.shape), "loss_grad": np.ones(1)}
    leafs_used = {leaf.name for leaf in graph.leafs}
    value, *gradients = execute(graph, {n: a for n, a in data.items() if n in leafs_used}, y, *found.values())
    (whole * torch.tensor(data["weights"])).sum().backward()

    np.testing.assert_allclose(value, whole.detach().numpy(), rtol=1e-12, atol=1e-12)
    for parameter, gradient in zip(found, gradients, strict=True):
        np.testing.assert_allclose(gradient, twins[parameter.name].grad.numpy(), rtol=1e-11, atol=1e-12)
