"""Every function of the front: HIPS autograd's values and gradients, first and second order, on dense, strided, broadcast, one-element and empty operands."""

from dataclasses import dataclass, field

import autograd.numpy as anp
import ml_dtypes
import numpy as np
import pytest
from autograd import grad
from engine_oracle import erf

from allocsim.errors import EngineError, UnknownNameError
from engine import gradcheck, tensor
from engine.front import functions as fn
from engine.graph import Graph, composites
from engine.ops import OPS, REQUIRED


@dataclass(frozen=True, kw_only=True)
class Row:
    """A function of the front and the same in plain numpy."""

    name: str
    ours: object
    theirs: object
    shapes: tuple
    """One tuple of operand shapes for each case."""
    smooth: bool = True
    params: dict = field(default_factory=dict)

    def __str__(self):
        return self.name


def log_softmax(x, axis=-1):
    high = anp.max(x, axis=axis, keepdims=True)
    return x - high - anp.log(anp.sum(anp.exp(x - high), axis=axis, keepdims=True))


def softmax(x, axis=-1):
    return anp.exp(log_softmax(x, axis))


def normed(x, eps, *, centred):
    c = x - anp.mean(x, axis=-1, keepdims=True) if centred else x
    return c / anp.sqrt(anp.mean(c * c, axis=-1, keepdims=True) + eps)


def conv2d(x, w, b=None, *, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    """Sum over the elements of the window, one shifted image for each."""
    (ph, pw), (sh, sw), (dh, dw) = padding, stride, dilation
    n, c, h, wide = x.shape
    f, _, kh, kw = w.shape
    edges = [anp.zeros((n, c, ph, wide)), anp.zeros((n, c, h + 2 * ph, pw))]
    x = anp.concatenate([edges[0], x, edges[0]], axis=2)
    x = anp.concatenate([edges[1], x, edges[1]], axis=3)
    oh, ow = (h + 2 * ph - dh * (kh - 1) - 1) // sh + 1, (wide + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    total = anp.zeros((n, f, oh, ow))
    for i in range(kh):
        for j in range(kw):
            part = x[:, :, i * dh : i * dh + sh * (oh - 1) + 1 : sh, j * dw : j * dw + sw * (ow - 1) + 1 : sw]
            total = total + anp.einsum("nchw,fc->nfhw", part, w[:, :, i, j])
    return total if b is None else total + anp.reshape(b, (1, -1, 1, 1))


def pooled(x, kernel, reduce):
    n, c, h, w = x.shape
    oh, ow = h // kernel, w // kernel
    parts = anp.reshape(x[:, :, : oh * kernel, : ow * kernel], (n, c, oh, kernel, ow, kernel))
    return reduce(anp.reshape(anp.transpose(parts, (0, 1, 2, 4, 3, 5)), (n, c, oh, ow, kernel * kernel)), axis=-1)


def attention(q, k, v, mask=None, scale=None):
    scores = q @ anp.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    return softmax(scores if mask is None else scores + mask) @ v


def spread(x, places, shape):
    """Add each element of x to its place in zeros, as a matrix product."""
    flat = anp.reshape(x, (-1,))
    matrix = (np.asarray(places).reshape(-1)[None] == np.arange(np.prod(shape))[:, None]) * 1.0
    return anp.reshape(matrix @ flat, shape)


MASK = np.where(np.tril(np.ones((3, 5))), 0.0, -np.inf)
IDS = np.array([[3, 0, 3], [1, 1, 2]])
ONE, SOME = ((1,), (1, 1)), ((3, 4), (2, 3, 4))
PAIRS = (
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((), (2, 3)),
    ((1,), (1,)),
    ((0, 3), (1, 3)),
    ((2, 0), (1,)),
)


def one(*shapes):
    return tuple((shape,) for shape in shapes)


ROWS = (
    Row(name="add", ours=lambda a, b: a + b, theirs=lambda a, b: a + b, shapes=PAIRS),
    Row(name="sub", ours=lambda a, b: a - b, theirs=lambda a, b: a - b, shapes=PAIRS),
    Row(name="mul", ours=lambda a, b: a * b, theirs=lambda a, b: a * b, shapes=PAIRS),
    Row(name="div", ours=lambda a, b: a / (b * b + 1), theirs=lambda a, b: a / (b * b + 1), shapes=PAIRS),
    Row(name="maximum", ours=fn.maximum, theirs=anp.maximum, shapes=PAIRS, smooth=False),
    Row(name="minimum", ours=fn.minimum, theirs=anp.minimum, shapes=PAIRS, smooth=False),
    Row(name="where", ours=lambda a, b: fn.where(a.data > 0.2, a * b, b), theirs=lambda a, b: anp.where(a > 0.2, a * b, b + 0 * a), shapes=PAIRS),
    Row(name="abs", ours=lambda x: x.abs(), theirs=anp.abs, shapes=one((3, 4)), smooth=False),
    Row(name="clamp", ours=lambda x: x.clamp(-0.5, 0.5), theirs=lambda x: anp.clip(x, -0.5, 0.5), shapes=one((3, 4), (0,)), smooth=False),
    Row(name="relu", ours=lambda x: x.relu(), theirs=lambda x: anp.where(x > 0, x, 0.0), shapes=one((3, 4), (0, 2)), smooth=False),
    *(
        Row(name=name, ours=lambda x, name=name: getattr(x, name)(), theirs=theirs, shapes=one((), (1,), (0, 2), (3, 4)))
        for name, theirs in {
            "exp": anp.exp, "sin": anp.sin, "cos": anp.cos, "tanh": anp.tanh, "softplus": lambda x: anp.log(1 + anp.exp(x)),
            "sigmoid": lambda x: 1 / (1 + anp.exp(-x)), "silu": lambda x: x / (1 + anp.exp(-x)),
            "gelu": lambda x: 0.5 * x * (1 + anp.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        }.items()
    ),
    Row(name="gelu exact", ours=lambda x: x.gelu(exact=True), theirs=lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))), shapes=one((3, 4), (0,))),
    Row(name="log sqrt", ours=lambda x: (x * x + 1).log() + (x * x + 2).sqrt(), theirs=lambda x: anp.log(x * x + 1) + anp.sqrt(x * x + 2), shapes=one((3, 4), (0, 1))),
    Row(name="softmax", ours=lambda x: x.softmax(), theirs=softmax, shapes=one(*SOME, *ONE, (0, 3))),
    Row(name="softmax of the first axis", ours=lambda x: x.softmax(0), theirs=lambda x: softmax(x, 0), shapes=one(*SOME, *ONE)),
    Row(name="log_softmax", ours=lambda x: x.log_softmax(), theirs=log_softmax, shapes=one(*SOME, *ONE, (0, 3))),
    Row(name="log_softmax of axis 1", ours=lambda x: x.log_softmax(1), theirs=lambda x: log_softmax(x, 1), shapes=one(*SOME)),
    Row(name="sum", ours=lambda x: x.sum(), theirs=anp.sum, shapes=one((), *SOME, *ONE, (0,), (2, 0))),
    Row(name="sum of axes", ours=lambda x: x.sum((0, -1)) * x, theirs=lambda x: anp.sum(x, axis=(0, -1)) * x, shapes=one((3, 4), (0, 3))),
    Row(name="mean", ours=lambda x: x.mean(0, keepdims=True), theirs=lambda x: anp.mean(x, axis=0, keepdims=True), shapes=one(*SOME, *ONE, (2, 0))),
    Row(name="max", ours=lambda x: x.max(-1), theirs=lambda x: anp.max(x, axis=-1), shapes=one(*SOME, *ONE), smooth=False),
    Row(name="min of all", ours=lambda x: x.min(), theirs=anp.min, shapes=one(*SOME, *ONE), smooth=False),
    Row(name="reshape", ours=lambda x: x.T.reshape(-1), theirs=lambda x: anp.reshape(anp.transpose(x), -1), shapes=one(*SOME, (1,), (0, 2))),
    Row(name="broadcast_to", ours=lambda x: x.broadcast_to(2, 3, 4), theirs=lambda x: x + anp.zeros((2, 3, 4)), shapes=one((3, 4), (1, 4), (4,), ())),
    Row(name="window", ours=lambda x: x[1:, ..., -2:], theirs=lambda x: x[1:, ..., -2:], shapes=one(*SOME, (1, 2), (2, 0))),
    Row(name="row", ours=lambda x: x[-1], theirs=lambda x: x[-1], shapes=one(*SOME, *ONE, (2, 0))),
    Row(name="steps", ours=lambda x: x[::-1, ::2], theirs=lambda x: x[::-1, ::2], shapes=one(*SOME, (1, 1), (2, 0))),
    Row(name="rows twice", ours=lambda x: x[[0, -1, 0]], theirs=lambda x: x[np.array([0, -1, 0])], shapes=one(*SOME, *ONE)),
    Row(name="columns", ours=lambda x: x[:, [[0, 1], [1, 1]]], theirs=lambda x: x[:, np.array([[0, 1], [1, 1]])], shapes=one(*SOME, (1, 2))),
    Row(name="new axes", ours=lambda x: x[None, :, 0, None], theirs=lambda x: x[None, :, 0, None], shapes=one(*SOME, (1, 1))),
    Row(name="nothing", ours=lambda x: x[2:1], theirs=lambda x: x[2:1], shapes=one((3, 4))),
    Row(name="concat", ours=lambda a, b: fn.concat([a, b, a], 1), theirs=lambda a, b: anp.concatenate([a, b, a], 1), shapes=(((2, 3), (2, 1)), ((2, 0), (2, 2)), ((1, 1), (1, 1)))),
    Row(name="stack", ours=lambda a, b: fn.stack([a, b], -1), theirs=lambda a, b: anp.stack([a, b], -1), shapes=(((2, 3), (2, 3)), ((), ()), ((0, 2), (0, 2)))),
    Row(name="split", ours=lambda x: fn.split(x, [1, 2], 1)[1] * 3, theirs=lambda x: x[:, 1:] * 3, shapes=one((2, 3), (0, 3))),
    Row(name="pad", ours=lambda x: fn.pad(x, (1, 0), (0, 2), 0.5), theirs=lambda x: anp.pad(x, ((1, 0), (0, 2)), "constant", constant_values=0.5), shapes=one((3, 4), (1, 1), (0, 2))),
    Row(name="gather", ours=lambda x: fn.gather(x, IDS), theirs=lambda x: x[np.arange(2)[:, None], IDS], shapes=one((2, 4))),
    Row(name="scatter", ours=lambda x: fn.scatter(x, IDS, 4), theirs=lambda x: spread(x, IDS + 4 * np.arange(2)[:, None], (2, 4)), shapes=one((2, 3))),
    Row(name="embedding", ours=lambda x: fn.embedding(x, IDS), theirs=lambda x: x[IDS], shapes=one((4, 5), (4, 1))),
    Row(name="matmul", ours=lambda a, b: a @ b, theirs=anp.matmul, shapes=(((3, 4), (4, 2)), ((2, 3, 4), (4, 2)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((3,), (3,)))),
    Row(name="rms_norm", ours=lambda x, g: fn.rms_norm(x, g, eps=1e-2), theirs=lambda x, g: normed(x, 1e-2, centred=False) * g, shapes=(((3, 4), (4,)), ((1, 1), (1,)), ((0, 3), (3,)))),
    Row(name="layer_norm", ours=lambda x, g, b: fn.layer_norm(x, g, b, eps=1e-2), theirs=lambda x, g, b: normed(x, 1e-2, centred=True) * g + b, shapes=(((3, 4), (4,), (4,)), ((0, 3), (3,), (3,)))),
    Row(name="conv2d", ours=lambda x, w, b: fn.conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2)), theirs=lambda x, w, b: conv2d(x, w, b, stride=(2, 1), padding=(1, 2), dilation=(1, 2)), shapes=(((2, 3, 5, 6), (4, 3, 3, 2), (4,)), ((0, 1, 3, 3), (2, 1, 2, 2), (2,)))),
    Row(name="conv2d of one pixel", ours=fn.conv2d, theirs=conv2d, shapes=(((1, 1, 1, 1), (1, 1, 1, 1)),)),
    Row(name="conv1d", ours=lambda x, w: fn.conv1d(x, w, stride=2, padding=1), theirs=lambda x, w: conv2d(x[:, :, None], w[:, :, None], stride=(1, 2), padding=(0, 1))[:, :, 0], shapes=(((2, 3, 7), (4, 3, 3)),)),
    Row(name="max_pool2d", ours=lambda x: fn.max_pool2d(x, 2), theirs=lambda x: pooled(x, 2, anp.max), shapes=one((2, 3, 4, 6), (1, 1, 2, 2), (0, 1, 2, 2)), smooth=False),
    Row(name="avg_pool2d", ours=lambda x: fn.avg_pool2d(x, 2), theirs=lambda x: pooled(x, 2, anp.mean), shapes=one((2, 3, 5, 6), (1, 1, 2, 2), (0, 1, 2, 2))),
    Row(name="attention", ours=lambda q, k, v: fn.attention(q, k, v, MASK), theirs=lambda q, k, v: attention(q, k, v, MASK), shapes=(((2, 3, 4), (2, 5, 4), (2, 5, 6)),)),
    Row(name="attention without a mask", ours=lambda q, k, v: fn.attention(q, k, v, scale=0.3), theirs=lambda q, k, v: attention(q, k, v, scale=0.3), shapes=(((3, 4), (5, 4), (5, 6)), ((1, 1), (1, 1), (1, 1)), ((0, 2), (3, 2), (3, 2)))),
    Row(name="rope", ours=lambda x: fn.rope(x, [0, 2], base=100.0), theirs=lambda x: turned(x, np.array([0, 2]), 100.0), shapes=one((2, 3, 4))),
    Row(name="dropout of nothing", ours=lambda x: fn.dropout(x, 0.0, seed=1) * x, theirs=lambda x: x * x, shapes=one(*SOME, (), (0,))),
    Row(name="mse_loss", ours=fn.mse_loss, theirs=lambda a, b: anp.mean((a - b) ** 2), shapes=(((3, 4), (3, 4)), ((1,), (1,)))),
    Row(name="cross_entropy", ours=lambda x, y: fn.cross_entropy(x, y.softmax()), theirs=lambda x, y: -anp.sum(softmax(y) * log_softmax(x)) / x.shape[0], shapes=(((3, 4), (3, 4)), ((1, 1), (1, 1)))),
    Row(name="cross_entropy of classes", ours=lambda x: fn.cross_entropy(x, [1, 0, 3]), theirs=lambda x: -anp.mean(log_softmax(x)[np.arange(3), np.array([1, 0, 3])]), shapes=one((3, 4))),
    Row(name="acc", ours=lambda a, b: fn.op("acc", a, b, starts=(1, 0)), theirs=lambda a, b: a + anp.pad(b, ((1, 0), (0, 1)), "constant"), shapes=(((3, 4), (2, 3)),)),
)  # fmt: skip


def turned(x, positions, base):
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * base ** (-np.arange(half) / half)
    pairs = anp.reshape(x, (*x.shape[:-1], half, 2))
    a, b = pairs[..., 0], pairs[..., 1]
    return anp.reshape(
        anp.stack([a * anp.cos(angle) - b * anp.sin(angle), a * anp.sin(angle) + b * anp.cos(angle)], -1), x.shape
    )


CASES = [(row, shapes) for row in ROWS for shapes in row.shapes]


def leafs(arrays, *, strided):
    """Return leafs that want a gradient, and what the function gets: themselves, or views of them with the axes reversed."""
    made = [tensor(a.T if strided else a, requires_grad=True) for a in arrays]
    return made, [t.T if strided else t for t in made]


def gradient_of(t, *, strided):
    found = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
    return found.T if strided else found


def autograds(row, arrays, weights):
    """Return autograd's gradient of sum(f * weights) by all operands; zeros where there are no elements to differentiate by."""
    if not all(a.size for a in arrays):
        return None
    value = lambda *given: anp.sum(row.theirs(*given) * weights)  # noqa: E731
    return grad(value, argnum=tuple(range(len(arrays))))(*arrays)


@pytest.mark.parametrize("strided", [False, True], ids=["dense", "strided"])
@pytest.mark.parametrize(("row", "shapes"), CASES, ids=lambda x: str(x).replace(" ", ""))
def test_values_and_gradients_are_those_of_hips_autograd(row, shapes, strided, rng):
    """Planned, and recorded op by op, to the same bits."""
    arrays = [rng.uniform(-1.5, 1.5, shape) for shape in shapes]
    made, given = leafs(arrays, strided=strided)
    y = row.ours(*given)
    weights = rng.standard_normal(y.shape)

    np.testing.assert_allclose(y.numpy(), row.theirs(*arrays), rtol=1e-10, atol=1e-11)
    y.backward(weights)
    planned = [gradient_of(t, strided=strided) for t in made]
    for t, array, found, wanted in zip(made, arrays, planned, autograds(row, arrays, weights) or arrays, strict=True):
        assert found.shape == array.shape
        if all(a.size for a in arrays):
            np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)
        t.zero_grad()
    y.backward(weights, create_graph=True)
    for t, found in zip(made, planned, strict=True):
        assert np.array_equal(gradient_of(t, strided=strided), found)


@pytest.mark.parametrize(("row", "shapes"), [(r, s) for r, s in CASES if r.smooth and all(0 not in x for x in s)], ids=lambda x: str(x).replace(" ", ""))  # fmt: skip
def test_gradients_of_gradients_are_those_of_hips_autograd(row, shapes, rng):
    """Along a direction: the derivative of what the first pass recorded."""
    arrays = [rng.uniform(-1.5, 1.5, shape) for shape in shapes]
    made, given = leafs(arrays, strided=False)
    y = row.ours(*given)
    weights, directions = rng.standard_normal(y.shape), [rng.standard_normal(a.shape) for a in arrays]
    y.backward(weights, create_graph=True)
    first = [t.grad for t in made]
    for t in made:
        t.zero_grad()
    along = sum((g * d).sum() for g, d in zip(first, directions, strict=True) if g is not None)

    def slope(*given):
        firsts = grad(lambda *xs: anp.sum(row.theirs(*xs) * weights), argnum=tuple(range(len(given))))(*given)
        return sum(anp.sum(g * d) for g, d in zip(firsts, directions, strict=True)) + 0.0 * anp.sum(given[0])

    wanted = grad(slope, argnum=tuple(range(len(arrays))))(*arrays)
    if along.requires_grad:
        along.backward()
    for t, expected in zip(made, wanted, strict=True):
        found = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


# what jumps, what is random, what is stored in 16 bits


def test_argmax_and_counts_have_no_gradient_and_say_so(rng):
    x = tensor(rng.standard_normal((3, 4)), requires_grad=True)

    assert x.argmax(1).numpy().tolist() == x.numpy().argmax(1).tolist()
    assert x.argmax().item() == x.numpy().argmax()
    assert fn.count_equal(x.argmax(1), [0, 0, 0]) == (x.numpy().argmax(1) == 0).sum()
    assert (x > 0).numpy().tolist() == (x.numpy() > 0).tolist()
    with pytest.raises(EngineError, match="depends on nothing that requires a gradient"):
        (x > 0).sum().backward()


def test_dropout_keeps_or_scales_each_element_and_its_gradient_alike(rng):
    """The same seed draws the same mask, in forward and backward; another seed or salt another one."""
    x = tensor(rng.uniform(1, 2, (40, 50)), requires_grad=True)
    y = fn.dropout(x, 0.25, seed=7)
    y.sum().backward()
    kept = y.numpy() != 0

    np.testing.assert_allclose(y.numpy()[kept], x.numpy()[kept] / 0.75, rtol=1e-15)
    np.testing.assert_allclose(x.grad.numpy(), kept / 0.75, rtol=1e-15)
    assert 0.70 < kept.mean() < 0.80
    assert np.array_equal(fn.dropout(x, 0.25, seed=7).numpy(), y.numpy())
    assert not np.array_equal(fn.dropout(x, 0.25, seed=8).numpy(), y.numpy())
    assert not np.array_equal(fn.dropout(x, 0.25, seed=7, salt=1).numpy(), y.numpy())
    assert fn.dropout(x, 1.0, seed=0).sum().item() == 0


def test_a_hard_gumbel_sample_is_one_hot_with_the_gradient_of_the_soft_one(rng):
    x = tensor(rng.standard_normal((5, 4)), requires_grad=True)
    weights = rng.standard_normal((5, 4))
    hard, soft = (fn.gumbel_softmax(x, seed=3, temperature=0.7, hard=h) for h in (True, False))
    hard.backward(weights)
    through = x.grad.numpy()
    x.zero_grad()
    soft.backward(weights)

    assert np.array_equal(hard.numpy(), np.eye(4)[soft.numpy().argmax(-1)])
    assert np.array_equal(x.grad.numpy(), through)
    assert gradcheck(lambda x: fn.gumbel_softmax(x, seed=3, temperature=0.7), x).ok


def test_straight_through_has_one_s_value_and_the_other_s_gradient(rng):
    x = tensor(rng.standard_normal(6), requires_grad=True)
    y = fn.straight_through(x > 0, x.sigmoid())
    y.sum().backward()
    s = 1 / (1 + np.exp(-x.numpy()))

    assert np.array_equal(y.numpy(), x.numpy() > 0)
    np.testing.assert_allclose(x.grad, s * (1 - s), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_storage_rounds_values_and_gradients_and_is_summed_wide(dtype, rng):
    x = tensor(rng.standard_normal((2, 3)), requires_grad=True)
    stored = x.astype(dtype)
    narrow = stored.numpy().dtype
    y = stored.T.reshape(-1).astype("float64") * 3 + stored.T.reshape(-1).astype("float64") * (1 + 2**-7)
    y.sum().backward()

    assert narrow == {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[dtype]
    assert np.array_equal(stored.numpy(), x.numpy().astype(narrow))
    assert np.array_equal(x.grad.numpy(), np.full((2, 3), float(narrow.type(4 + 2**-7))))


def test_whole_numbers_become_what_they_meet_unless_int32_is_asked_for():
    """An index is asked for; a count beside a tensor is a number."""
    x = tensor(np.ones(3, np.float32), requires_grad=True)
    for count in (np.arange(3, dtype=np.int32), [0, 1, 2], np.arange(3, dtype=np.int8)):
        assert (x * count).dtype == np.float32
        assert tensor(count).dtype == np.float32
    assert tensor([0, 1], dtype="int32").dtype == np.int32
    assert tensor(np.ones(2, np.float16)).dtype == np.float16
    with pytest.raises(EngineError, match="must be f32 or all f64"):
        x * np.ones(3)


# the table, and mistakes


def test_every_row_that_is_no_mutation_can_be_called_by_name(rng):
    """A result, or one line that says what the operands should have been."""
    x = rng.standard_normal((3, 4))
    same = set()
    for kind, rule in OPS.items():
        if rule.mutates is None and not any(value is REQUIRED for value in rule.params.values()):
            try:
                found = fn.op(kind, *[tensor(abs(x))] * (len(rule.arguments) - rule.optional))
            except EngineError as error:
                assert "must " in str(error)  # noqa: PT017 - most give a result
            else:
                same |= {kind} if found.shape == (3, 4) else set()
        elif rule.mutates is None:
            with pytest.raises(EngineError, match="is missing"):
                fn.op(kind, *[tensor(abs(x))] * len(rule.arguments))
    assert same >= {"expm1", "sgn", "step", "stop_gradient", "cont", "add", "soft_max"}
    assert np.array_equal(fn.op("stop_gradient", tensor(x)).numpy(), x)
    assert fn.op("norm_back", tensor(x), tensor(x), eps=1e-5).shape == (3, 4)
    assert np.allclose(fn.op("repeat_back", tensor(x), shape=(1, 4)).numpy(), x.sum(0, keepdims=True))
    assert fn.op("view", tensor(x), shape=(2, 2), strides=(4, 1), offset=1).numpy().tolist() == x[:2, 1:3].tolist()
    refused = {kind for kind, rule in OPS.items() if rule.mutates is not None}
    for kind in refused:
        with pytest.raises(EngineError, match="writes over an operand"):
            fn.op(kind, tensor(x))
    with pytest.raises(UnknownNameError, match=r"'ad'.*add"):
        fn.op("ad", tensor(x))


def test_convolutions_of_the_front_are_those_of_a_graph_to_the_bit(execute, rng):
    """One function builds both."""
    x, w = rng.standard_normal((2, 3, 6, 5)), rng.standard_normal((4, 3, 3, 2))
    graph = Graph("conv")
    y = composites.conv2d(
        graph.parameter("x", x.shape, "f64"), graph.parameter("w", w.shape, "f64"), stride=2, padding=(1, 0)
    )
    graph.expand(y)
    (found,) = execute(graph, {"x": x, "w": w}, y)

    assert np.array_equal(fn.conv2d(tensor(x), tensor(w), stride=2, padding=(1, 0)).numpy(), found)


def roped(x, ids):
    return fn.rope(x.reshape(2, 1, 4), ids)


@pytest.mark.parametrize(
    ("function", "ids"),
    [
        (fn.gather, [[0, 1], [2, 3]]),
        (lambda x, ids: fn.scatter(x, ids, 5), [[0, 1, 2, 3], [1, 2, 3, 4]]),
        (roped, [3, 4]),
        (fn.cross_entropy, [1, 2]),
        (fn.embedding, [1, 1]),
        (lambda x, ids: x[ids] if isinstance(ids, np.ndarray) else x[ids.numpy()], [1, 1]),
    ],
    ids=["gather", "scatter", "rope", "cross_entropy", "embedding", "getitem"],
)
@pytest.mark.parametrize("own", [False, True], ids=["array", "tensor"])
def test_indices_changed_after_the_call_do_not_change_the_gradient(function, ids, own, rng):
    data = rng.standard_normal((2, 4))
    gradients = []
    for change in (False, True):
        x, given = tensor(data, requires_grad=True), np.array(ids, np.int32)
        given = tensor(given, dtype="int32") if own else given
        y = function(x, given)
        if change and own:
            given.zero_()
        elif change:
            given[:] = 0
        y.backward(np.arange(1.0, y.size + 1).reshape(y.shape))
        gradients.append(x.grad.numpy())

    assert np.array_equal(*gradients)


def test_labels_that_are_distributions_may_be_arrays_and_have_any_rank(rng):
    data, soft = rng.standard_normal((2, 3, 4)), rng.random((2, 3, 4))
    x = tensor(data, requires_grad=True)
    for labels in (soft, soft.tolist(), tensor(soft)):
        assert fn.cross_entropy(x, labels).item() == pytest.approx(-(soft * log_softmax(data)).sum() / 6, rel=1e-12)
    assert gradcheck(lambda x: fn.cross_entropy(x, soft), x).ok
    assert fn.cross_entropy(x[0, 0], soft[0, 0]).item() == pytest.approx(
        -(soft[0, 0] * log_softmax(data[0, 0])).sum(), rel=1e-12
    )
    assert all(np.isnan(fn.cross_entropy(x[:0, 0], none).item()) for none in ([], soft[:0, 0]))  # the mean of no rows


def test_what_keeps_the_shape_keeps_that_of_a_scalar():
    x = tensor(2.0)
    assert {f.shape for f in (fn.rms_norm(x), fn.layer_norm(x), fn.gumbel_softmax(x, seed=1))} == {()}


def test_numbers_of_numpy_and_lists_are_taken_where_numbers_and_tuples_are(rng):
    data = rng.standard_normal((2, 3))
    x, images, filters = tensor(data), tensor(np.ones((1, 2, 4, 4))), tensor(np.ones((3, 2, 2, 2)))
    assert np.array_equal(x.sum(np.int64(0)).numpy(), x.sum(0).numpy())
    assert np.array_equal(x.max(np.int64(1)).numpy(), data.max(1))
    assert np.array_equal(x.softmax(np.int64(0)).numpy(), x.softmax(0).numpy())
    assert np.array_equal(x.transpose((1, 0)).numpy(), data.T)
    assert np.array_equal(fn.op("permute", x, axes=[1, 0]).numpy(), data.T)
    assert np.array_equal(
        fn.conv2d(images, filters, stride=[2, 1]).numpy(), fn.conv2d(images, filters, stride=(2, 1)).numpy()
    )
    assert fn.avg_pool2d(images, [2, 2]).shape == (1, 2, 2, 2)
    assert fn.op("full", shape=[2]).shape == (2,)
    assert np.array_equal(x.clamp(None, 0).numpy(), np.minimum(data, 0))
    assert np.array_equal(x.clamp(0).numpy(), np.maximum(data, 0))
    assert fn.one_hot([1], 2, dtype="int32").numpy().tolist() == [[0, 1]]


X = np.ones((2, 3))
IMAGES, FILTERS = tensor(np.ones((1, 2, 4, 4))), tensor(np.ones((3, 2, 2, 2)))


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda x: x[2], r"index 2 is none of the 2 elements of axis 0 of constant f64\[2, 3\]"),
        (lambda x: x[[0, -3]], "index -3 is none of the 2"),
        (lambda x: x[0, 0, 0], "names 3 axes of 2"),
        (lambda x: x[..., ...], r"with several \.\.\."),
        (lambda x: x[0.5], "is of float64"),
        (lambda x: x[[True, False, True]], "boolean"),
        (lambda x: x[[0, 1], [0, 1, 1]], "could not be broadcast"),
        (lambda x: x[[0], [7]], "index 7 is out of bounds"),
        (lambda x: x[tensor([0.5])], "is of float32"),
        (lambda x: x.softmax(2), "axis 2 does not name"),
        (lambda x: x.max(-3), "axis -3 does not name"),
        (lambda x: x[:0].argmax(0), "no elements along axis 0"),
        (lambda x: x.broadcast_to(2, 4), r"does not broadcast to \(2, 4\)"),
        (lambda x: x.astype("int8"), "'int8' is none of float32, float64"),
        (lambda x: x.astype("float7"), "'float7' is none of float32, float64"),
        (lambda x: x.astype("int32"), "i32"),
        (lambda x: fn.concat([]), "no tensors"),
        (lambda x: fn.concat([x, x[0]]), "must agree"),
        (lambda x: fn.concat([x.sum()]), "a scalar has no axis"),
        (lambda x: fn.stack([x], 3), "axis 3 is none of the 3"),
        (lambda x: fn.split(x, 2, 1), "2 equal parts do not make up the 3"),
        (lambda x: fn.pad(x, (1,), (0, 0)), "does not fit the 2 axes"),
        (lambda x: fn.where(1, 2, 3), "where was given no tensor"),
        (lambda x: fn.where(x, x, np.ones(4)), "do not broadcast"),
        (lambda x: fn.gather(x, [[3], [0]]), "indices run from 0 to 3"),
        (lambda x: fn.gather(x, [[0.5], [0]]), "whole numbers of 32 bits"),
        (lambda x: fn.scatter(x, [[0, 1, 5]] * 2, 3), "indices run from 0 to 5"),
        (lambda x: fn.embedding(x, [2]), "index 2 is none of the 2"),
        (lambda x: fn.one_hot([3], 3), "run from 3 to 3"),
        (lambda x: fn.conv2d(x, x), r"\[N, C, H, W\]"),
        (lambda x: fn.max_pool2d(x, 2), "must have the axes image"),
        (lambda x: fn.attention(x, x, x[0]), r"\[\.\., T, d\]"),
        (lambda x: fn.dropout(x, 1.5, seed=0), "is no probability"),
        (lambda x: fn.mse_loss(x, np.ones(3)), r"the target \(3,\)"),
        (lambda x: fn.cross_entropy(x, [0]), r"class numbers \(1,\)"),
        (lambda x: fn.cross_entropy(x, [0, 3]), "run from 0 to 3"),
        (lambda x: fn.rms_norm(X), "ndarray given where a tensor is needed"),
        (lambda x: fn.concat([x, X]), "ndarray given where a tensor is needed"),
        (lambda x: fn.stack([X]), "ndarray given where a tensor is needed"),
        (lambda x: fn.mse_loss(X, X), "ndarray given where a tensor is needed"),
        (lambda x: fn.cross_entropy([[0.0, 1.0]], [0]), "list given where a tensor is needed"),
        (lambda x: fn.gather(X, [[0]]), "ndarray given where a tensor is needed"),
        (lambda x: fn.op("norm", x), "parameter eps is missing"),
        (lambda x: fn.op("norm", x, eps=1, ep=2), "no parameter ep; there are eps"),
        (lambda x: fn.op("add", x), "1 operands given; it takes a, b"),
        (lambda x: tensor([1, 2], True, dtype="int32"), "whole numbers have no gradient"),
        (lambda x: x[::0], "slice step cannot be zero"),
        (lambda x: x[1.5:2], "slice indices must be integers"),
        (lambda x: x[[[1], [1, 2]]], "inhomogeneous"),
        (lambda x: x.max((0, 1)), r"axis \(0, 1\) of .* names 2 axes; one is needed"),
        (lambda x: x.argmax((0, 1)), "names 2 axes; one is needed"),
        (lambda x: x.softmax((0, 1)), "names 2 axes; one is needed"),
        (lambda x: x.sum("a"), "axis: 'a' is no whole number"),
        (lambda x: x.transpose(1.5, 0), "transpose: .* are no whole numbers"),
        (lambda x: x.reshape("a"), "reshape: .* are no whole numbers"),
        (lambda x: x.reshape(1.5, 4), "reshape: .* are no whole numbers"),
        (lambda x: x.broadcast_to("a"), "broadcast_to: .* are no whole numbers"),
        (lambda x: x.clamp("a", 1), "clamp: could not convert"),
        (lambda x: x * 10**400, "too large"),
        (lambda x: x + 10**400, "too large"),
        (lambda x: x ** (10**400), "too large"),
        (lambda x: tensor(X, True).backward("a"), "the gradient given for .* could not convert"),
        (lambda x: tensor(X, True).argmax().backward(), "whole numbers, such as argmax gives"),
        (lambda x: fn.rms_norm(x, eps="a"), "rms_norm: could not convert"),
        (lambda x: fn.max_pool2d(IMAGES, "a"), "pool_index.*: kernel: 'a' are no whole numbers"),
        (lambda x: fn.conv2d(IMAGES, FILTERS, padding="same"), r"conv_2d.*: padding: 'same' are no whole numbers"),
        (lambda x: fn.conv2d(IMAGES, FILTERS, tensor([1.0])), r"the bias .* must have shape \(3,\)"),
        (lambda x: fn.conv1d(IMAGES[:, :, 0], FILTERS[:, :, 0], tensor([1.0])), r"the bias .* must have shape \(3,\)"),
        (lambda x: fn.pad(x, 1, 1), "pad: 1 are no whole numbers"),
        (lambda x: fn.pad(x, [1.5, 0], [0, 0]), "pad: .* are no whole numbers"),
        (lambda x: fn.op("argmax", x, axis=1.5), "argmax.*: axis: 1.5 is no whole number"),
        (
            lambda x: fn.max_pool2d(x.reshape(1, 1, 2, 3), (1.5, 1)),
            r"pool_index.*: kernel: \(1.5, 1\) are no whole numbers",
        ),
        (lambda x: fn.stack([x], axis=1.5), "stack: 1.5 is no whole number"),
        (lambda x: fn.scatter(x, [[0, 1, 2]] * 2, 3.7), "scatter: 3.7 is no whole number"),
        (lambda x: fn.gumbel_softmax(x, seed=1, temperature=0), "temperature is 0.0; it must be above 0"),
        (lambda x: fn.gumbel_softmax(x, seed=1, salt="a"), "salt: 'a' is no whole number"),
        (lambda x: fn.dropout(x, 0.5, seed=2**70), "seed is .*; it must fit 64 bits"),
        (lambda x: fn.dropout(x, 0.5, seed="a"), "seed: 'a' is no whole number"),
        (lambda x: fn.dropout(x, 0.5, seed=1.5), "seed: 1.5 is no whole number"),
        (lambda x: fn.dropout(x, 0.5, seed=1, salt=2**70), "salt is .*; it must fit 64 bits"),
        (lambda x: fn.one_hot([0], 2, dtype="int64"), "dtype int64 is none of"),
        (lambda x: fn.op("norm", x, eps="a"), "norm.* eps: could not convert"),
        (lambda x: fn.op("pow", x, p={}), "is no parameter"),
        (lambda x: fn.cross_entropy(x, np.ones((3, 4)) / 4), r"logits have shape \(2, 3\), labels \(3, 4\)"),
    ],
)
def test_mistakes_give_one_clear_line(mistake, line):
    with pytest.raises(EngineError, match=line) as caught:
        mistake(tensor(X))
    assert "\n" not in str(caught.value)
