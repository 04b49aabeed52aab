"""Gradients by any tensors, products with Jacobians and Hessians, maps over rows: each against another way to it."""

import numpy as np
import pytest

import engine
from allocsim.errors import EngineError
from engine import grad, gradcheck, gradgradcheck, hessian, hvp, inference_mode, jacobian, jvp, tensor, vjp, vmap
from engine.front import functions as fn
from engine.front.differences import directioncheck
from engine.front.modules import Dropout
from engine.training import Trainer

DRAW = np.random.default_rng(3)
X, V = DRAW.normal(size=(2, 3)), DRAW.normal(size=(2, 3))


def loss(x):
    return ((x.tanh() * x) ** 2).sum()


def test_gradients_by_leaves_and_by_results_leave_grad_alone():
    x, w = tensor(X, True), tensor(V, True)
    h = x * w
    y = (h.tanh() * x).sum()
    by_x, by_h, by_w = grad(y, (x, h, w))
    assert x.grad is w.grad is h.grad is None
    y.backward()
    np.testing.assert_array_equal(by_x, x.grad)
    np.testing.assert_array_equal(by_w, w.grad)
    np.testing.assert_allclose(by_h, X * (1 - np.tanh(X * V) ** 2))
    assert not by_x.requires_grad


@pytest.mark.parametrize(
    "asked",
    [
        lambda f: jacobian(f, X),
        lambda f: hessian(lambda x: f(x).sum(), X),
        lambda f: jvp(f, (X,), (V,)),
        lambda f: hvp(lambda x: f(x).sum(), X, V),
        lambda f: vjp(f, (X,), V),
        lambda f: gradcheck(f, X),
        lambda f: gradgradcheck(f, X),
        lambda f: directioncheck(f, X),
    ],
)
@pytest.mark.parametrize("before", [None, 7.0])
def test_derivatives_of_functions_leave_the_gradients_of_what_these_read_alone(asked, before):
    w = tensor(V, True)
    w.grad = before and tensor(np.full(V.shape, before))
    asked(lambda x: (x * w).tanh())
    assert w.grad is None if before is None else (w.grad.numpy() == before).all()


@pytest.mark.parametrize(
    "asked",
    [
        lambda f: jacobian(f, X).numpy().sum((-2, -1)),
        lambda f: jvp(f, (X,), (np.ones_like(X),))[1].numpy(),
        lambda f: vjp(f, (X,), np.ones_like(X))[1][0].numpy(),
    ],
)
def test_an_input_that_the_function_changes_has_the_slopes_of_all_that_it_held(asked):
    """As `backward` has it: 2 of what was there, and 3 of what was laid there."""

    def changes(x):
        before = x * 2.0
        with engine.no_grad():
            x.add_(1.0)
        return before + x * 3.0

    np.testing.assert_array_equal(asked(changes), np.full(X.shape, 5.0))


def test_hooks_of_what_a_function_reads_are_not_asked():
    asked, w = [], tensor(V, True)
    w.register_hook(lambda _: asked.append(1))
    jacobian(lambda x: x * w, X)
    assert not asked


def test_gradients_of_gradients():
    x = tensor(X, True)
    slope = grad(loss(x), x, create_graph=True)
    second = grad(slope, x, V)
    np.testing.assert_allclose(second, hvp(loss, X, V)[1])
    assert hvp(loss, X, V)[0].item() == loss(tensor(X)).item()
    np.testing.assert_allclose(second.numpy().ravel(), hessian(loss, X).numpy().reshape(6, 6) @ V.ravel(), rtol=1e-10)


def test_a_linear_function_has_a_second_derivative_of_zeros():
    x = tensor(X, True)
    slope = grad((x * 3.0).sum(), x, create_graph=True)
    assert not grad(slope, x, np.ones_like(X), unused="zeros").numpy().any()
    assert not hvp(lambda x: (x * 3.0).sum(), X, V)[1].numpy().any()
    assert grad(slope, (x,), np.ones_like(X), unused="none") == (None,)
    assert gradgradcheck(lambda x: x * 3.0, X).ok


def test_products_with_a_jacobian_are_those_of_all_of_it():
    def function(x, w):
        return (x @ w).tanh()

    w, v = DRAW.normal(size=(3, 2)), DRAW.normal(size=(2, 2))
    value, (by_x, by_w) = vjp(function, (X, w), v)
    np.testing.assert_array_equal(value, function(tensor(X), tensor(w)))
    for found, whole in zip((by_x, by_w), jacobian(function, X, w), strict=True):
        np.testing.assert_allclose(found, np.tensordot(v, whole.numpy(), 2), rtol=1e-12)
    assert not vjp(lambda x, _: x, (X, w), V)[1][1].numpy().any()


@pytest.mark.parametrize("function", [lambda x, w: x @ w, lambda x, w: fn.logsumexp((x @ w).tanh(), 0), lambda x, w: (x * w.T).softmax()])  # fmt: skip
def test_second_derivatives_agree_with_differences(function):
    assert gradgradcheck(function, X, DRAW.normal(size=(3, 2))).ok


def test_a_wrong_second_derivative_is_found():

    def halved(x):
        """The square, of which the first derivative is right and the second 0."""
        return x * x.detach() * 2.0 - (x * x).detach()

    assert np.array_equal(grad(halved(x := tensor(X, True)).sum(), x), 2 * X)
    with pytest.raises(EngineError, match="gradcheck"):
        gradgradcheck(halved, X)


@pytest.mark.parametrize("out_axes", [0, 1, -1])
def test_maps_take_each_operand_along_its_axis(out_axes):
    a, b, c = DRAW.normal(size=(4, 3)), DRAW.normal(size=(3, 4)), DRAW.normal(size=3)
    found = vmap(lambda x, y, z: x * y + z, in_axes=(0, 1, None), out_axes=out_axes)(*map(tensor, (a, b, c)))
    np.testing.assert_array_equal(found, np.stack([a[i] * b[:, i] + c for i in range(4)], out_axes))
    np.testing.assert_array_equal(vmap(lambda x: x.sum(), in_axes=-1)(tensor(b)), b.sum(0))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: grad(x * 2.0, x), "give the gradient"),
        (lambda x: grad((x * 2.0).sum(), tensor(1.0, True)), "does not depend on"),
        (lambda x: grad((x * 2.0).sum(), x, unused="nothing"), "unused is 'nothing'"),
        (lambda x: grad(x * 2.0, x, [1.0]), r"gradient has shape \(1,\)"),
        (lambda x: hvp(lambda x: x, X, V), "one number is needed"),
        (vmap(lambda x: x, in_axes=None), "taken by rows"),
        (vmap(lambda x: x, in_axes=7), "axis 7 is none"),
        (lambda x: vmap(lambda x, y: x, in_axes=(0, 1))(x, x), r"\[2, 3\] rows"),
    ],
)
def test_misuse_is_one_line(call, says):
    with pytest.raises(EngineError, match=says):
        call(tensor(X, True))


def test_inference_records_nothing_and_drops_nothing():
    x = tensor(X, True)
    with inference_mode():
        y = Dropout(0.5)(x) * 2.0
    assert not y.requires_grad
    assert np.array_equal(y, X * 2)
    with pytest.raises(EngineError, match="a seed is needed"):
        Dropout(0.5)(x)


def test_hard_samples_differ_in_each_step_and_have_the_gradient_of_the_soft_ones():
    def choosing(p, data):
        return fn.gumbel_softmax(data + p["w"], hard=True, temperature=2.0)

    net = engine.model(choosing, {"w": np.zeros(8, np.float32)})
    rows = np.zeros((3, 8), np.float32)
    with Trainer(net, loss="sum", optimizer="sgd", hyper={"alpha": 0.0}) as trainer:
        drawn = [trainer.step({"data": rows}).outputs for _ in range(6)]
    assert all(set(np.unique(one)) == {0.0, 1.0} and (one.sum(-1) == 1).all() for one in drawn)
    assert len({one.tobytes() for one in drawn}) > 1
