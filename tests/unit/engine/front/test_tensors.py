"""The front: what people type gives the numbers of the texts, HIPS autograd's gradients, and one clear line when it cannot."""

import gc

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError, UnknownNameError
from engine import gradcheck, no_grad, tensor
from engine.front import functions as fn
from engine.front import kept, reverse
from engine.front.rebasing import CopyWarning


def leaves(*values):
    return [tensor(value, requires_grad=True) for value in values]


def grads(*tensors):
    return [t.grad.numpy() for t in tensors]


# the numbers of the texts


def test_the_affine_square_gives_49_and_its_gradients_and_a_second_backward_doubles_them():
    w, x, b = leaves(2.0, 3.0, 1.0)
    y = (w * x + b) ** 2
    y.backward()
    assert y.item() == 49
    assert [t.grad.item() for t in (w, x, b)] == [42, 28, 14]
    y.backward()
    assert [t.grad.item() for t in (w, x, b)] == [84, 56, 28]
    for t in (w, x, b):
        t.zero_grad()
    y.backward()
    assert [t.grad.item() for t in (w, x, b)] == [42, 28, 14]


def test_ggml_s_example_has_the_derivative_12():
    x, a, b = tensor(2.0, requires_grad=True), tensor(3.0), tensor(4.0)
    f = a * (x * x) + b
    f.backward()
    assert (f.item(), x.grad.item(), a.grad, b.grad) == (16, 12, None, None)


def test_micrograd_s_expression_gives_its_known_values():
    a, b = leaves(-4.0, 2.0)
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    g.backward()
    assert f"{g.item():.4f} {a.grad.item():.4f} {b.grad.item():.4f}" == "24.7041 138.8338 645.5773"


def test_micrograd_s_sanity_check_gives_pytorch_s_values():
    (x,) = leaves(-4.0)
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    h = (z * z).relu()
    y = h + q + q * x
    y.backward()
    assert (y.item(), x.grad.item()) == (-20, 46)


def test_a_linear_layer_has_the_two_matrix_products_as_its_gradient(rng):
    xs, ws, upstream = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal((5, 4))
    x, w = leaves(xs, ws)
    (x @ w).backward(upstream)
    np.testing.assert_allclose(x.grad, upstream @ ws.T, rtol=1e-12)
    np.testing.assert_allclose(w.grad, xs.T @ upstream, rtol=1e-12)


def test_micrograd_s_kind_of_classifier_learns():
    """Two moons of points, one hidden layer, plain gradient descent under no_grad."""
    rng = np.random.default_rng(7)
    angle = rng.uniform(0, np.pi, 60)
    side = np.arange(60) % 2
    points = np.stack(
        [np.where(side, 1 - np.cos(angle), np.cos(angle)), np.where(side, 0.5 - np.sin(angle), np.sin(angle))], 1
    )
    labels = tensor(2.0 * side - 1).reshape(60, 1)
    w, b, v, c = leaves(rng.normal(size=(2, 16)), np.zeros(16), rng.normal(size=(16, 1)) / 4, np.zeros(1))
    for _ in range(150):
        scores = (tensor(points) @ w + b).relu() @ v + c
        loss = (1 - labels * scores).relu().mean()
        loss.backward()
        with no_grad():
            for p in (w, b, v, c):
                p.sub_(p.grad * 1.0)
                p.zero_grad()
    assert np.mean((scores.numpy() > 0) == (labels.numpy() > 0)) > 0.95


# against HIPS autograd

UNARY = {
    "exp": (lambda t: (t * 0.3).exp(), lambda a: anp.exp(a * 0.3)),
    "log": (lambda t: (t * t + 1).log(), lambda a: anp.log(a * a + 1)),
    "tanh": (lambda t: t.tanh(), anp.tanh),
    "sigmoid": (lambda t: t.sigmoid(), lambda a: 1 / (1 + anp.exp(-a))),
    "relu": (lambda t: t.relu(), lambda a: anp.where(a > 0, a, 0.0)),
    "gelu": (lambda t: t.gelu(), lambda a: 0.5 * a * (1 + anp.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3)))),
    "negative": (lambda t: -t, lambda a: -a),
    "cube": (lambda t: (t * 0.5) ** 3, lambda a: (a * 0.5) ** 3),
    "from_two": (lambda t: 2 - t, lambda a: 2 - a),
    "transposed": (lambda t: t.T, lambda a: a.T),
    "flat": (lambda t: t.T.reshape(-1), lambda a: anp.reshape(a.T, -1)),
    "sum_first": (lambda t: t.sum(axis=0) if t.ndim else t, lambda a: anp.sum(a, axis=0) if a.ndim else a),
    "mean_last": (
        lambda t: t.mean(-1, keepdims=True) if t.ndim else t,
        lambda a: anp.mean(a, axis=-1, keepdims=True) if a.ndim else a,
    ),
}
BINARY = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "sub": (lambda a, b: a - b, lambda a, b: a - b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "div": (lambda a, b: a / (b * b + 1), lambda a, b: a / (b * b + 1)),
}
SHAPES = ((), (1,), (4,), (3, 4), (3, 1), (1, 4), (2, 3, 4))


def meet(a, b):
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True


def values_of(recipe, values, column):
    """Apply each step to the newest value (and one before it, where their shapes broadcast); return the leaf used and all results."""
    made = list(values)
    for name, pick in recipe:
        if name in UNARY:
            made.append(UNARY[name][column](made[-1]))
        elif meet(made[-1].shape, (other := made[pick % len(made)]).shape):
            made.append(BINARY[name][column](made[-1], other))
    return made[len(values) - 1 :]


def evaluate(recipe, values, column):
    """Return the sum of squares of all results."""
    total = 0.0
    for value in values_of(recipe, values, column):
        square = value * value
        total = total + (square.sum() if column == 0 else anp.sum(square))
    return total


recipes = st.lists(
    st.tuples(st.sampled_from(sorted(UNARY) + sorted(BINARY) * 3), st.integers(0, 9)), min_size=1, max_size=7
)


@settings(max_examples=60, deadline=None)
@given(recipe=recipes, shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3), seed=st.integers(0, 2**16))
def test_generated_expressions_have_autograd_s_values_and_gradients(recipe, shapes, seed):
    """Whatever is typed: value and every gradient agree with HIPS autograd in float64."""
    rng = np.random.default_rng(seed)
    arrays = [rng.uniform(-1.5, 1.5, shape) for shape in shapes]
    with np.errstate(over="ignore"):
        assume(
            max(np.abs(value).max() for value in values_of(recipe, arrays, 1)) < 100
        )  # the oracle's tanh overflows beyond
    tensors = leaves(*arrays)
    y = evaluate(recipe, tensors, 0)
    y.backward()
    oracle = lambda *given: evaluate(recipe, given, 1)  # noqa: E731
    np.testing.assert_allclose(y.item(), oracle(*arrays), rtol=1e-9)
    for t, expected in zip(tensors, grad(oracle, argnum=tuple(range(len(arrays))))(*arrays), strict=True):
        found = np.zeros(t.shape) if t.grad is None else t.grad.numpy()
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 1, 2, 3), (6, 3, 4)),
        ((0, 3), (3, 2)),
    ],
)
def test_matmul_is_numpy_s_for_every_rank(left, right, rng):
    a, b = rng.standard_normal(left), rng.standard_normal(right)
    x, y = leaves(a, b)
    z = x @ y
    assert z.shape == (a @ b).shape
    np.testing.assert_allclose(z, a @ b, rtol=1e-12)
    weights = rng.standard_normal(z.shape)
    z.backward(weights)
    expected = grad(lambda a, b: anp.sum(anp.matmul(a, b) * weights), argnum=(0, 1))(a, b)
    for t, g in zip((x, y), expected, strict=True):
        np.testing.assert_allclose(t.grad, g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (1, 1, 1), (2, 3)])
def test_shapes_without_elements_or_dimensions_go_through(shape):
    (x,) = leaves(np.full(shape, 2.0))
    (x * 3 + 1).sum().backward()
    assert x.grad.shape == shape
    np.testing.assert_array_equal(x.grad, np.full(shape, 3.0))


def test_float32_stays_float32_beside_numbers(rng):
    (x,) = leaves(rng.standard_normal((3, 2)).astype(np.float32))
    y = (2 * x + 1).tanh() / 3 - 0.5
    y.backward(np.ones((3, 2)))
    assert y.dtype == x.grad.dtype == np.float32


# gradients, kept programs, allocators


def test_every_allocator_gives_the_same_bits(rng):
    data = [rng.standard_normal(s) for s in ((4, 3), (3, 5), (5,))]

    def run(allocator):
        x, w, b = leaves(*data)
        ((x @ w + b).gelu() * x.sum()).sum().backward(allocator=allocator)
        return [g.tobytes() for g in grads(x, w, b)]

    assert len({tuple(run(name)) for name in ALLOCATORS}) == 1
    with pytest.raises(UnknownNameError, match="allocator 'gmgl'"):
        run("gmgl")


def test_a_plan_is_kept_for_its_structure_and_never_used_for_another(rng):
    """Equal structure plans once; another shape, parameter (its sign of zero too) or set of leaves is another program."""
    reverse._kept.clear()

    def run(data, p, other):
        (x,) = leaves(data)
        y = ((x * p) * tensor(np.asarray(other, x.dtype), requires_grad=False)).sum()
        y.backward()
        return x.grad.numpy()

    for data in rng.standard_normal((3, 4)):
        np.testing.assert_array_equal(run(data, 2.0, data), 2 * data)
    assert len(reverse._kept) == 1
    np.testing.assert_array_equal(run(np.ones(5), 2.0, 3.0), np.full(5, 6.0))
    assert np.signbit(run(np.ones(4), -0.0, np.ones(4))).all()
    assert not np.signbit(run(np.ones(4), 0.0, np.ones(4))).any()
    assert len(reverse._kept) == 4
    for n in range(40):
        run(np.ones(n + 10), 1.0, 1.0)
    assert len(reverse._kept) == kept.KEPT


def test_a_leaf_is_its_own_gradient_and_constants_have_none():
    (x,) = leaves(5.0)
    x.backward()
    x.backward(3.0)
    assert x.grad.item() == 4
    with pytest.raises(EngineError, match="requires a gradient"):
        (tensor(1.0) * 2).backward()


def test_backward_of_several_elements_wants_a_gradient_of_their_shape():
    (x,) = leaves([1.0, 2.0])
    with pytest.raises(EngineError, match="2 elements; give the gradient"):
        (x * 2).backward()
    with pytest.raises(EngineError, match=r"shape \(3,\)"):
        (x * 2).backward([1, 2, 3])
    (x * 2).backward([1, 10])
    np.testing.assert_array_equal(x.grad, [2, 20])


def test_a_value_used_twice_and_a_leaf_behind_two_paths_collect_all():
    (x,) = leaves(3.0)
    y = x * x
    (y + y * x).backward()
    assert x.grad.item() == 2 * 3 + 3 * 9


# no_grad and detach


def test_no_grad_records_nothing_and_ends_also_by_an_error():
    (x,) = leaves(2.0)
    with no_grad():
        assert not (x * x).requires_grad
    with pytest.raises(EngineError), no_grad():
        x.reshape(7)
    assert (x * x).requires_grad


def test_detach_stops_the_gradient_and_shares_the_bytes():
    (x,) = leaves(3.0)
    (x * x.detach()).backward()
    assert x.grad.item() == 3
    x.detach().copy_(7.0)
    assert (x.item(), (x * 1).item()) == (7, 7)


def test_a_step_under_no_grad_is_seen_by_the_next_graph():
    (w,) = leaves(1.0)
    for expected in (2.0, 1.6, 1.28):
        loss = w * w
        loss.backward()
        assert w.grad.item() == pytest.approx(expected)
        with no_grad():
            w.sub_(w.grad * 0.1)
        w.zero_grad()


# changes in place


def test_a_value_that_backward_needs_is_missed_by_name():
    x, w = tensor([1.0, 2.0], requires_grad=True, name="x"), tensor([3.0, 4.0], requires_grad=True, name="w")
    y = (x * w).sum()
    with no_grad():
        w.add_(1.0)
    with pytest.raises(
        EngineError, match=r"derivative of mul needs w f32\[2\] as it was at version 0; add_ changed it"
    ):
        y.backward()
    assert x.grad is None


@pytest.mark.parametrize(
    ("function", "needs"),
    [
        (lambda y: y.exp(), False),
        (lambda y: y**2, True),
        (lambda y: y.log(), True),
        (lambda y: y + 3, False),
        (lambda y: 2 * y, False),
        (lambda y: y.sum(), False),
        (lambda y: y.tanh(), False),
        (lambda y: y.gelu(), True),
    ],
)
def test_an_operand_changed_later_matters_only_where_the_derivative_reads_it(function, needs):
    x, factor = leaves([1.0, 2.0], 2.0)
    y = x + 0.5
    z = function(y)
    with pytest.warns(CopyWarning, match="mul_ of add"):
        y.mul_(factor)
    if needs:
        with pytest.raises(EngineError, match="mul_ changed it in place"):
            z.sum().backward()
    else:
        z.sum().backward()
        assert x.grad is not None


def test_a_result_changed_later_matters_where_the_derivative_reads_the_result():
    (x,) = leaves([1.0, 2.0])
    y = x.exp()
    y.add_(1.0)
    with pytest.raises(EngineError, match=r"derivative of exp needs exp f32\[2\] .* add_ changed it"):
        y.sum().backward()
    z = x * 3
    z.add_(1.0)
    z.sum().backward()
    np.testing.assert_array_equal(z, [4, 7])
    np.testing.assert_array_equal(x.grad, [3, 3])


def test_arithmetic_in_place_is_differentiated():
    x, w = leaves([1.0, 2.0], [3.0, 4.0])
    y = x * 2
    y.add_(w).div_(2.0).sub_(w * w).mul_(3.0)
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [3, 3])
    np.testing.assert_array_equal(w.grad, 3 * (0.5 - 2 * np.array([3.0, 4.0])))


def test_a_change_through_a_view_or_a_twin_is_caught_as_well():
    for change in (lambda x: x.detach().reshape(-1).set_(0, 9.0), lambda x: x.detach().T.zero_()):
        (x,) = leaves([[1.0, 2.0], [3.0, 4.0]])
        y = (x**2).sum()
        change(x)
        with pytest.raises(EngineError, match=r"derivative of sqr needs .*(set_|zero_) changed it"):
            y.backward()


def test_a_change_outside_the_history_keeps_the_way_of_the_gradient():
    (x,) = leaves([1.0, 2.0])
    y = x * 3
    with no_grad():
        y.set_(0, 100.0)
    (y * y).sum().backward()
    np.testing.assert_array_equal(x.grad, [600, 36])


def test_a_view_of_what_got_another_history_has_it_too():
    """Of a change of the base the views know, and the twin that was cut off does not."""
    (x,) = leaves([[1.0, 2.0]])
    for base, share in ((x * 2, 3.0), (tensor([[0.0, 0.0]]), 1.0)):
        view, twin = base.T, base.detach()
        with pytest.warns(CopyWarning, match="others see these bytes"):
            base.add_(x)
        x.zero_grad()
        view.sum().backward()
        np.testing.assert_array_equal(x.grad, [[share, share]])
        np.testing.assert_array_equal(view, base.T)
        assert not (twin * 2).requires_grad


def test_a_detached_twin_has_a_history_of_its_own():
    x, w = leaves([1.0, 2.0, 3.0], 5.0)
    y = x * 2.0
    twin = y[1:].detach()
    with pytest.warns(CopyWarning):
        twin *= w
    with pytest.warns(CopyWarning):
        twin[:1] *= w
    assert y.numpy().tolist() == [2.0, 100.0, 30.0]
    (y * [1.0, 10.0, 100.0]).sum().backward()
    assert (x.grad.numpy().tolist(), w.grad) == ([2.0, 20.0, 200.0], None)
    (twin * [1.0, 1000.0]).sum().backward()
    assert w.grad.item() == 2.0 * 5.0 * 4.0 + 1000.0 * 6.0


def test_a_kept_gradient_follows_from_every_view_of_the_latest_value():
    (x,) = leaves([1.0, 2.0, 3.0, 4.0])
    y = x * 1.0
    y.retain_grad()
    other = y.reshape(2, 2)
    with pytest.warns(CopyWarning):
        y[:2].mul_(3.0)
    with pytest.warns(CopyWarning):
        y.add_(1.0)
    (other * [[1.0, 2.0], [3.0, 4.0]]).sum().backward()
    assert y.grad.numpy().tolist() == [1.0, 2.0, 3.0, 4.0]
    assert x.grad.numpy().tolist() == [3.0, 6.0, 3.0, 4.0]
    y.grad = None
    y.retain_grad()
    assert other.reshape(-1).grad_fn is not None
    (other * 2.0).sum().backward()
    assert y.grad.numpy().tolist() == [2.0] * 4


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_a_soft_maximum_along_any_axis_has_bytes_that_views_share(name):
    (x,) = leaves([[1.0, 2.0], [3.0, 4.0]])
    y = getattr(x, name)(0)
    flat = y.reshape(4)
    with no_grad():
        y.zero_()
    assert flat.numpy().tolist() == [0.0] * 4


def test_what_cannot_be_differentiated_in_place_is_refused():
    (x,) = leaves([1.0, 2.0])
    y = x * 1
    with no_grad():
        unseen = y[:1]
    turned = (tensor([[1.0, 2.0], [3.0, 4.0]]) * 1).T.detach()
    turned.add_(x)
    for change, message in (
        (lambda: x.add_(1.0), r"add_ of .*leaf that wants a gradient"),
        (lambda: x.reshape(2, 1).mul_(2.0), "a view of a leaf that wants a gradient changes only under"),
        (lambda: x.__setitem__(0, 1.0), "a view of a leaf that wants a gradient changes only under"),
        (lambda: unseen.mul_(x[:1]), r"taken under no_grad\(\) of what has a gradient"),
        (lambda: turned[:1].mul_(x[:1]), "does not lie densely"),
        (lambda: y.set_(0, 1.0), r"set_ of .* has no derivative"),
        (lambda: y.__setitem__(np.array([0, 1]), tensor([1.0, 2.0, 3.0])), "does not broadcast"),
        (lambda: y.copy_(tensor([[1.0, 2.0]] * 3)), "does not broadcast"),
        (lambda: y.add_([[1.0, 2.0], [3.0, 4.0]]), r"result has shape \(2, 2\)"),
    ):  # fmt: skip
        with pytest.raises(EngineError, match=message):
            change()
    with pytest.raises(ValueError, match="read-only"):
        x.data[0] = 1.0


def test_a_factor_in_place_has_the_gradient_of_the_old_value():
    """The derivative of `y *= w` by w is what y was; it is copied, and the copy is told at this line."""
    x, w = leaves([1.0, 2.0], [4.0, 5.0])
    y = x * 3
    with pytest.warns(CopyWarning, match=r"copied, 8 bytes") as told:
        y.mul_(w)
    assert [one.filename for one in told] == [__file__]
    y.sum().backward()
    np.testing.assert_array_equal(w.grad, [3, 6])
    np.testing.assert_array_equal(x.grad, [12, 15])


def test_nothing_is_copied_where_no_derivative_asks(recwarn):
    x, w = leaves([1.0, 2.0], [4.0, 5.0])
    y = x * 3
    y += w
    y -= w * w
    y *= 2.0
    y /= w
    y.sum().backward()
    assert not recwarn.list


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
@pytest.mark.parametrize("take", [
    lambda b: b[1], lambda b: b[:, 1:3], lambda b: b.T, lambda b: b.T[1:, ::2], lambda b: b.reshape(2, 6)[1], lambda b: b[::2].transpose(1, 0)[2:],
])  # fmt: skip
@pytest.mark.parametrize("base_needs", [True, False])
def test_a_view_changed_in_place_changes_base_and_other_views_with_their_history(take, base_needs):
    """Against the same made without a change in place: the elements of the view replaced by a mask."""
    array = np.arange(12.0).reshape(3, 4) / 7
    seen = take(np.arange(12).reshape(3, 4))
    x, w = leaves(array, np.full(seen.shape, 1.5))
    base = x * 2 if base_needs else tensor(array * 2)
    before, other = base.T, base[0]
    view = take(base)
    view *= w
    ((before * before).sum() + (other * 3).sum() + (view.tanh()).sum() + (base * base * base).sum()).backward()

    found = [x.grad.numpy() if base_needs else None, w.grad.numpy()]
    x.zero_grad()
    w.zero_grad()
    old = x * 2 if base_needs else tensor(array * 2)
    spread = np.zeros((12, seen.size))
    spread[seen.reshape(-1), np.arange(seen.size)] = 1.0
    there = tensor(spread.sum(1).reshape(3, 4))
    new = (tensor(spread) @ w.reshape(-1)).reshape(3, 4) * old * there + old * (1.0 - there)
    np.testing.assert_allclose(base, new, rtol=1e-12)
    ((new * new).sum() + (new[0] * 3).sum() + (take(new).tanh()).sum() + (new * new * new).sum()).backward()
    np.testing.assert_allclose(found[1], w.grad, rtol=1e-12)
    if base_needs:
        np.testing.assert_allclose(found[0], x.grad, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
def test_elements_are_laid_and_what_was_there_gets_a_gradient_of_zero():
    x, w = leaves([1.0, 2.0, 3.0], 5.0)
    y = x * 2
    y[0] = w * w
    y[1] += 1.0
    y[2:] = 7.0
    y.sum().backward()
    np.testing.assert_array_equal(y, [25, 5, 7])
    np.testing.assert_array_equal(x.grad, [0, 2, 0])
    assert w.grad.item() == 10
    y = x * 2
    y.zero_()
    assert y.requires_grad
    x.zero_grad()
    y.sum().backward()
    np.testing.assert_array_equal(x.grad, [0, 0, 0])
    plain = tensor([1.0, 2.0])
    plain[0], plain[np.array([1])] = 3.0, 4.0
    np.testing.assert_array_equal(plain, [3, 4])


def test_a_kept_gradient_is_that_of_the_latest_value_and_a_view_of_all_is_another_value():
    (x,) = leaves([1.0, 2.0])
    y = x * 3
    y.retain_grad()
    y += 1.0
    y *= 2.0
    (y * tensor([1.0, 10.0])).sum().backward()
    np.testing.assert_array_equal(y.grad, [1, 10])
    for same in (x.reshape(2), x.transpose(0), x[:]):
        assert same is not x
        same.register_hook(lambda gradient: gradient * 100.0)
    x.zero_grad()
    x.sum().backward()
    np.testing.assert_array_equal(x.grad, [1, 1])


# deep and wide


@pytest.mark.parametrize("depth", [20_000, pytest.param(100_000, marks=pytest.mark.campaign)])
def test_a_deep_chain_of_scalars_needs_no_recursion(depth):
    """Far deeper than the interpreter recurses: values, gradients, and freeing it again."""
    x, w = leaves(np.float64(0.5), np.float64(0.99999))
    y = x
    for _ in range(depth):
        y = y * w
    y.backward()
    assert y.item() == pytest.approx(0.5 * 0.99999**depth, rel=1e-9)
    assert x.grad.item() == pytest.approx(0.99999**depth, rel=1e-9)
    assert w.grad.item() == pytest.approx(0.5 * depth * 0.99999 ** (depth - 1), rel=1e-9)
    del y
    gc.collect()


# gradcheck


def test_gradcheck_accepts_what_is_right_and_tells_how_close(rng):
    report = gradcheck(
        lambda x, w: (x @ w).log_softmax() * x.sum(1, keepdims=True), rng.normal(size=(3, 4)), rng.normal(size=(4, 2))
    )
    assert report.ok
    assert report.entries == 20
    assert "20 entries, worst is input" in str(report)


def test_gradcheck_names_the_worst_entry_of_what_is_wrong():
    wrong = lambda x: x * x.detach()  # noqa: E731 - half of the derivative is hidden
    with pytest.raises(EngineError, match=r"worst is input 0 at \[2\]: derivative .*, finite difference"):
        gradcheck(wrong, [1.0, 2.0, -50.0])
    assert not gradcheck(wrong, [1.0, 2.0], fail=False).ok
    with pytest.raises(EngineError, match="no entries"):
        gradcheck(wrong, np.zeros((0, 3)))


# one clear line


@pytest.mark.parametrize(
    ("mistake", "line"),
    [
        (lambda: tensor([[1.0], [1.0, 2.0]]), "tensor: .*inhomogeneous"),
        (lambda: tensor("abc"), "no dtype of real numbers"),
        (lambda: tensor([1.0], dtype="int8"), "int8 is none of float32, float64"),
        (lambda: tensor([1.0, 2.0]) + tensor([1.0, 2.0, 3.0]), r"add.*shapes \(2,\) and \(3,\) do not broadcast"),
        (lambda: tensor([1.0]) * tensor(np.ones(1)), "mul.*all must be f32 or all f64"),
        (lambda: tensor(np.ones((2, 3))) @ tensor(np.ones((2, 3))), "lengths 3 and 2 differ"),
        (lambda: tensor(1.0) @ tensor(np.ones((2, 3))), "scalar has no matrix product"),
        (lambda: tensor([1.0, 2.0]).item(), "2 elements; item needs one"),
        (lambda: tensor([1.0, 2.0]).reshape(3), r"2 elements; shape \(3,\)"),
        (lambda: tensor([1.0, 2.0]).sum(axis=1), "axis 1 does not name"),
        (lambda: tensor([1.0, 2.0]).transpose(1), "permute"),
        (lambda: tensor(np.ones((0,))).mean(), "no elements"),
        (lambda: tensor([1.0]).set_(5, 1.0), "set_ of .*out of bounds"),
    ],
)
def test_mistakes_give_one_clear_line(mistake, line):
    with pytest.raises(EngineError, match=line) as caught:
        mistake()
    assert "\n" not in str(caught.value)


def test_infinities_are_results_without_a_warning():
    (x,) = leaves(0.0)
    y = x.log() + 1 / x
    y.backward()
    assert y.item() == 0 or np.isnan(y.item())
    assert np.isinf(x.grad.item()) or np.isnan(x.grad.item())


# gradients of gradients own their bytes and keep the history they were given


def test_each_leaf_gets_a_recorded_gradient_of_its_own():
    a, b = leaves([1.0, 2.0], [3.0, 4.0])
    (a + b).sum().backward(create_graph=True)
    with no_grad():
        a.grad.mul_(5.0)
    assert b.grad.numpy().tolist() == [1, 1]


@pytest.mark.parametrize("given", [np.array([1.0, 2.0]), tensor([1.0, 2.0])], ids=["array", "tensor"])
def test_a_recorded_gradient_shares_no_memory_with_the_one_given(given):
    (x,) = leaves([5.0, 6.0])
    (x + 1).backward(given, create_graph=True)
    if isinstance(given, np.ndarray):
        given[:] = 9
    else:
        given.copy_(9.0)
    assert x.grad.numpy().tolist() == [1, 2]
    x.grad.zero_()


def test_a_leaf_s_own_recorded_gradient_is_a_copy_too():
    (x,), v = leaves([5.0, 6.0]), np.array([1.0, 2.0])
    x.backward(v, create_graph=True)
    v[:] = 9
    assert x.grad.numpy().tolist() == [1, 2]


def test_create_graph_keeps_the_history_of_the_gradient_given():
    """x.grad = 2 x v, so the gradient of its sum is 2 x for v and 2 v for x."""
    x, v = leaves([3.0, 4.0], [5.0, 6.0])
    (x * x).backward(v, create_graph=True)
    slope = x.grad
    x.zero_grad()
    slope.sum().backward()
    assert v.grad.numpy().tolist() == [6, 8]
    assert x.grad.numpy().tolist() == [10, 12]


@pytest.mark.parametrize("two", [np.int64(2), np.float32(2), np.array(2), np.array(2.0)], ids=repr)
def test_an_exponent_of_numpy_is_a_number(two):
    (x,) = leaves([-3.0, 2.0])
    (x**two).sum().backward()
    assert (x**two).numpy().tolist() == [9, 4]
    assert x.grad.numpy().tolist() == [-6, 4]


def test_powers_have_derivatives_at_zero():
    (x,) = leaves([0.0, 2.0])
    (x**0).sum().backward()
    assert x.grad.numpy().tolist() == [0, 0]
    x.zero_grad()
    (x**1).backward([1.0, 1.0], create_graph=True)
    slope = x.grad
    x.zero_grad()
    slope.sum().backward()
    assert x.grad.numpy().tolist() == [0, 0]


def test_augmented_assignment_changes_the_bytes():
    (p,) = leaves(np.array([8.0, 4.0]))
    same = p
    with no_grad():
        p += 2.0
        p -= tensor(np.array([1.0, 1.0]))
        p *= 2.0
        p /= 3.0
    assert same is p
    assert p.numpy().tolist() == [6, 10 / 3]
    assert p.requires_grad
    assert p.is_leaf
    with pytest.raises(EngineError, match="a leaf that wants a gradient changes only under no_grad"):
        p -= 1.0


@pytest.mark.parametrize(
    "key",
    [
        0,
        (slice(None), 1),
        (..., 0),
        (slice(1, None), None, 2),
        slice(None, None, 2),
        (slice(None, None, 3), slice(1, None, 2)),
        (1, 2),
    ],
    ids=str,
)
def test_numbers_and_slices_are_views(key):
    """What is written into x[key] is written into x, as numpy and PyTorch have it; so is what is done to x, for backward."""
    array = np.arange(16.0).reshape(4, 4)
    x, twin = tensor(array), array.copy()
    x[key].mul_(-1.0)
    twin[key] *= -1.0
    assert x.numpy().tolist() == twin.tolist()
    with no_grad():
        x.T[key].zero_()
        twin.T[key] = 0.0
    assert x.numpy().tolist() == twin.tolist()

    (p,) = leaves(array)
    (p[key] ** 2).sum().backward()
    expected = np.zeros((4, 4))
    expected[key] = 2 * array[key]
    assert p.grad.numpy().tolist() == expected.tolist()


def test_every_second_element_of_a_turned_view_has_both_derivatives():
    gradcheck(lambda x: ((x.T[1::2, ::3] ** 3)[::2] * 0.5).tanh(), np.linspace(-1.0, 1.0, 35).reshape(5, 7))
    (x,) = leaves(np.linspace(-1.0, 1.0, 12).reshape(3, 4))
    (x[::2, ::3] ** 3).sum().backward(create_graph=True)
    slope = x.grad
    x.zero_grad()
    slope.sum().backward()
    expected = np.zeros((3, 4))
    expected[::2, ::3] = 6 * x.numpy()[::2, ::3]
    np.testing.assert_allclose(x.grad.numpy(), expected)


def test_one_tensor_joined_to_none_is_a_copy():
    x = tensor([1.0, 2.0])
    joined, stacked = fn.concat([x]), fn.stack([x])
    x.add_(1.0)
    assert joined.numpy().tolist() == [1, 2]
    assert stacked.numpy().tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "chosen",
    [
        lambda x: x.relu(),
        lambda x: fn.maximum(x, 0.0),
        lambda x: fn.maximum(tensor([0.0, 0.0]), x),
        lambda x: -fn.minimum(-x, 0.0),
        lambda x: fn.where(x > 0, x, 0.0),
        lambda x: fn.where(x <= 0, 0.0, x),
    ],
)
def test_what_a_choice_did_not_take_gets_no_gradient_even_of_infinity(chosen):
    """The slope of the square root at 0 is infinite; where 0 was chosen over x, that is nothing to x, as in PyTorch."""
    (x,) = leaves([-1.0, 4.0])
    chosen(x).sqrt().sum().backward()
    assert x.grad.numpy().tolist() == [0, 0.25]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_slope_of_relu_is_1_from_the_least_number_on(dtype):
    least = np.nextafter(np.dtype(dtype).type(0), np.dtype(dtype).type(1))
    x = tensor(np.array([-least, -0.0, 0.0, least, np.inf]), True, dtype=dtype)
    x.relu().sum().backward()
    assert x.grad.numpy().tolist() == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_classes_are_told_apart_beside_large_logits(dtype):
    """log_softmax and the cross entropies depend on differences alone: a shift of all logits is invisible."""
    rows = np.array([[0.0, 1.0, 2.0, 3.0]], dtype)
    exact = -np.log(np.exp(np.float64(rows) - 3).sum()) + rows - 3
    share = np.array([[0.5, 0.0, 0.25, 0.25]], dtype)
    for shift in (0.0, 1e4, -1e4, 2.0**20):
        x = tensor(rows + np.dtype(dtype).type(shift))
        np.testing.assert_allclose(x.log_softmax().numpy(), exact, rtol=1e-6)
        np.testing.assert_allclose(fn.cross_entropy(x, [1]).item(), -exact[0, 1], rtol=1e-6)
        np.testing.assert_allclose(fn.cross_entropy(x, share).item(), -(exact * share).sum(), rtol=1e-6)
    equal = tensor(np.array([[1e30, 1e30]], dtype))
    np.testing.assert_allclose(equal.log_softmax().numpy(), -np.log(2), rtol=1e-6)


@pytest.mark.parametrize("norm", [fn.rms_norm, fn.layer_norm])
def test_norms_of_empty_rows_have_two_derivatives(norm):
    (x,) = leaves(np.zeros((2, 0)))
    (norm(x) ** 2).sum().backward(create_graph=True)
    slope = x.grad
    x.zero_grad()
    (slope**2).sum().backward()
    assert x.grad.shape == (2, 0)


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
@pytest.mark.parametrize("cut", ["detached", "a view taken under no_grad"])
def test_laying_the_same_bytes_without_their_history_cuts_the_gradient(cut):
    y = tensor(np.ones(2, np.float32), True)
    x = y * 2
    with no_grad():
        view = x[0]
    x[0] = x.detach()[0] if cut == "detached" else view
    x.sum().backward()
    assert y.grad.numpy().tolist() == [0, 2]
