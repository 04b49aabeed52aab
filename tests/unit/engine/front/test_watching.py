"""Looking into a backward pass, ops of one's own, and derivatives of functions."""

import numpy as np
import pytest

import engine
from allocsim.errors import EngineError
from engine import Graph, backward, detect_anomaly, hessian, jacobian, jvp, no_grad, tensor, vmap
from engine.autodiff import get_grad, get_grad_acc, keeping, reset
from engine.front import functions as fn
from engine.front.custom_ops import custom_op, forget
from engine.kernels import KERNELS
from engine.ops import OPS


def leaf(*values):
    return tensor(np.array(values), True)


# gradients of results, hooks, the history


def test_a_result_keeps_its_gradient_where_that_is_asked_for():
    x = leaf(1.0, 2.0)
    h = x * 3.0
    h.retain_grad()
    other = h.exp()
    (h * h + other).sum().backward()
    np.testing.assert_allclose(h.grad, 2 * h.numpy() + other.numpy())
    np.testing.assert_allclose(x.grad, 3 * h.grad.numpy())
    assert other.grad is None
    (h * h).sum().backward()  # adds up, as in leaves
    np.testing.assert_allclose(h.grad, 4 * h.numpy() + other.numpy())


def test_planned_and_recorded_passes_keep_the_same_gradients():
    found = []
    for create_graph in (False, True):
        x = leaf(0.3, -0.7)
        h = x.tanh()
        h.retain_grad()
        ((h * x).sum() * h.sum()).backward(create_graph=create_graph)
        found.append((x.grad.numpy(), h.grad.numpy()))
    for planned, recorded in zip(*found, strict=True):
        np.testing.assert_array_equal(planned, recorded)


def test_hooks_see_the_whole_gradient_in_turn_and_may_replace_it():
    x, seen = leaf(1.0, 2.0), []
    h = x * 2.0
    h.register_hook(lambda g: seen.append(g.numpy().tolist()))
    remove = h.register_hook(lambda g: g * 10.0)
    h.register_hook(lambda g: seen.append(g.numpy().tolist()))
    (h * 3.0 + h).sum().backward()
    assert seen == [[4.0, 4.0], [40.0, 40.0]]
    np.testing.assert_array_equal(x.grad, [80, 80])

    remove()
    x.zero_grad()
    x.register_hook(lambda g: np.clip(g, -1, 1))
    (h * 3.0 + h).sum().backward()
    np.testing.assert_array_equal(x.grad, [1, 1])


def test_a_pass_with_hooks_that_change_nothing_gives_the_bits_of_the_planned_one(rng):
    data, weights = rng.normal(size=(4, 5)), rng.normal(size=(5, 3))

    def run(hooked):
        w = tensor(weights, True)
        h = (tensor(data) @ w).gelu()
        if hooked:
            h.register_hook(lambda _g: None)
        fn.cross_entropy(fn.rms_norm(h), [0, 1, 2, 0]).backward()
        return w.grad.numpy()

    np.testing.assert_array_equal(run(True), run(False))


@pytest.mark.parametrize("answer", [np.ones(3), tensor(np.ones(2, np.float32)), "words"])
def test_an_answer_that_does_not_fit_is_refused(answer):
    h = leaf(1.0, 2.0) * 2.0
    h.register_hook(lambda _g: answer)
    with pytest.raises(EngineError, match="hook"):
        h.sum().backward()


def test_what_has_no_gradient_has_no_hooks():
    for ask in (lambda x: x.retain_grad(), lambda x: x.register_hook(lambda g: g)):
        with pytest.raises(EngineError, match="has no gradient"):
            ask(tensor(1.0))


def test_the_history_can_be_walked():
    w, x = leaf(2.0).named("w"), tensor([3.0])
    y = ((w * x.astype("float64")).tanh()).sum()
    kinds, at = [], y.grad_fn
    while at is not None:
        kinds.append(at.kind)
        last, at = at, next(iter(at.next_functions), None)
    assert kinds == ["sum", "tanh", "mul", "leaf"]
    assert last.variable is w
    assert y.grad_fn == y.grad_fn
    assert repr(y.grad_fn).startswith("<GradientFunction sum f64[1]")
    assert y.grad_fn.next_functions[0].next_functions[0].next_functions[1] is None
    assert (w * 2.0).grad_fn.params == {"s": 2.0}
    assert x.grad_fn is None
    assert w.grad_fn is None


def test_the_first_number_that_is_not_finite_is_named():
    x = leaf(0.0, 4.0).named("x")
    root = x.sqrt()
    root.sum().backward()  # infinities are results like any other
    assert np.isinf(x.grad.numpy()[0])
    with detect_anomaly():
        with pytest.raises(EngineError, match=r"derivative of sqrt by x f64\[2\] is inf at \[0\]"):
            root.sum().backward()
        with pytest.raises(EngineError, match=r"log f64\[2\] holds -inf at \[0\]; log makes it of sqrt"):
            root.log().sum().backward()
        x.zero_grad()
        (x + 1.0).log().sum().backward()
    np.testing.assert_allclose(x.grad, [1.0, 0.2])


# ops of one's own


@pytest.fixture
def cube():
    made = custom_op(
        "cube_of_mine",
        lambda out, x: np.multiply(x, x * x, out=out),
        lambda op, gradient, x: (op("mul", gradient, op("scale", op("sqr", x), s=3.0)),),
        in_place=(0,),
    )
    yield made
    forget("cube_of_mine")


def test_an_op_of_ones_own_is_an_op_everywhere(cube, execute):
    x = leaf(1.0, 2.0)
    cube(x).sum().backward(create_graph=True)
    np.testing.assert_array_equal(x.grad, [3, 12])
    slope = x.grad
    x.zero_grad()
    slope.sum().backward()
    np.testing.assert_array_equal(x.grad, [6, 12])

    graph = Graph("cubes")
    w = graph.parameter("w", (2,), "f64", trainable=True)
    gradients = backward(graph, graph.op("sum", graph.op("cube_of_mine", w)))
    (found,) = execute(graph, {"w": np.array([1.0, 2.0]), "loss_grad": np.ones(1)}, gradients[w])
    np.testing.assert_array_equal(found, [3, 12])


@pytest.mark.parametrize(
    ("forward", "backward_", "in_place", "message"),
    [
        (lambda out, x: np.multiply(x, x, out=out), lambda op, g, x: (op("mul", g, x),), (), "the derivative: gradcheck: out of tolerance"),
        (
            lambda out, x: np.multiply(x, x, out=out),
            lambda op, g, x: (op("mul", g, op("scale", op("stop_gradient", x), s=2.0)),),
            (),
            "the second derivative: gradcheck",
        ),
        (lambda out, x: (out.fill(0.0), np.add(out, x, out=out)), lambda op, g, x: (g,), (0,), "is not: result over operand 0"),
        (np.copyto, lambda op, g, x: (), (), "gives 0 gradients for 1 operands"),
        (np.copyto, None, (1,), "operand 1 of 1 is declared in place"),
        (lambda x: x, None, (), r"forward is called as forward\(out, x\), and takes \(x\)"),
        (np.copyto, lambda dy, x: dy, (), r"backward is called as backward\(op, gradient, x\), and takes \(dy, x\)"),
        (lambda x, out: np.multiply(x, x, out=out), None, (), "forward changes an operand"),
        (lambda out, x: np.copyto(out[:1], x[:1]), None, (), "does not write every element"),
    ],
)  # fmt: skip
def test_an_op_that_is_wrong_is_no_op(forward, backward_, in_place, message):
    with pytest.raises(EngineError, match=message):
        custom_op("wrong_one", forward, backward_, in_place=in_place)
    assert "wrong_one" not in OPS
    assert "wrong_one" not in KERNELS


def test_names_of_the_table_are_not_taken_and_rows_of_the_table_not_forgotten(cube):
    for name in ("add", "cube_of_mine"):
        with pytest.raises(EngineError, match="is an op already"):
            custom_op(name, lambda out, x: None)
    with pytest.raises(EngineError, match="no op of one's own"):
        forget("add")


# derivatives of functions


def test_jacobians_hessians_and_products_agree_with_each_other(rng):
    a, x, v = rng.normal(size=(3, 4)), rng.normal(size=4), rng.normal(size=4)

    def function(x):
        return (tensor(a) @ x).tanh() * 2.0

    full = jacobian(function, x).numpy()
    assert full.shape == (3, 4)
    value, along = jvp(function, (x,), (v,))
    np.testing.assert_array_equal(value, function(tensor(x)).numpy())
    np.testing.assert_allclose(along, full @ v, rtol=1e-12)
    second = hessian(lambda x: function(x).sum(), x).numpy()
    np.testing.assert_allclose(second, second.T, rtol=1e-9)
    np.testing.assert_allclose(second, -(a.T * (4 * np.tanh(a @ x) / np.cosh(a @ x) ** 2)) @ a, rtol=1e-9)


def test_what_does_not_depend_has_zeros_and_what_is_several_comes_as_several():
    by_x, by_w = jacobian(lambda x, w: x * 2.0, np.ones(2), np.ones(3))
    np.testing.assert_array_equal(by_x, 2 * np.eye(2))
    np.testing.assert_array_equal(by_w, np.zeros((2, 3)))
    np.testing.assert_array_equal(hessian(lambda x: x.sum(), np.ones(2)), np.zeros((2, 2)))
    np.testing.assert_array_equal(jvp(lambda x: tensor([1.0]), (np.ones(1),), (np.ones(1),))[1], [0])
    for ask, message in (
        (lambda: jacobian(lambda: None), "no input"),
        (lambda: jvp(lambda x: x, (np.ones(2),), (np.ones(3),)), "tangent 0 has shape"),
        (lambda: hessian(lambda x: x, np.ones(2)), "one number is needed"),
        (lambda: jacobian(lambda x: 1.0, np.ones(2)), "a tensor is needed"),
    ):
        with pytest.raises(EngineError, match=message):
            ask()


def test_a_function_is_mapped_over_rows():
    x = leaf(*range(6)).detach().reshape(2, 3)
    np.testing.assert_array_equal(vmap(lambda row: row.sum())(x), [3, 12])
    np.testing.assert_array_equal(vmap(lambda column: column.sum(), in_axes=1)(x), [3, 5, 7])
    with pytest.raises(EngineError, match="rows along 0"):
        vmap(lambda a, b: a)(x, x[:1])


# parameters that the loss does not reach, accumulators of the caller


def test_a_parameter_that_the_loss_does_not_reach_has_no_gradient():
    graph = Graph("partly")
    w, other = (graph.parameter(name, (2,), trainable=True) for name in ("w", "other"))
    graph.expand(graph.op("neg", other))
    found = backward(graph, graph.op("sum", w))
    assert list(found) == [w]
    assert get_grad(graph, other) is None
    x, y = leaf(1.0), leaf(1.0)
    (x * 2.0).backward()
    assert y.grad is None


def test_accumulators_may_be_the_callers_own():
    graph = Graph("own")
    w, v = (graph.parameter(name, (2,), trainable=True) for name in ("w", "v"))
    mine = graph.state("mine", (2,), reset=True)
    backward(graph, graph.op("sum", graph.op("mul", w, v)), accumulate={w: mine})
    assert get_grad_acc(graph, w) is mine
    assert keeping(graph) == ("mine", "acc.v")
    assert set(reset(graph)) == {"mine", "acc.v", "loss_grad"}
    for add, message in (
        (lambda graph: graph.parameter("p", (2,)), "is no state"),
        (lambda graph: graph.state("s", (3,)), "does not fit"),
    ):
        graph = Graph("unfit")
        w = graph.parameter("w", (2,), trainable=True)
        with pytest.raises(EngineError, match=message):
            backward(graph, graph.op("sum", w), accumulate={w: add(graph)})


def test_names_are_those_of_the_package():
    for name in ("custom_op", "detect_anomaly", "hessian", "jacobian", "jvp", "model", "scope", "vmap"):
        assert callable(getattr(engine, name))
    with no_grad():
        assert not (leaf(1.0) * 2.0).requires_grad


# hooks, and bytes that change in place


def test_a_hook_on_a_leaf_stays_through_steps_of_an_optimizer():
    """What an optimizer changes under no_grad() is the same leaf, and so it is through a detached twin."""
    x = leaf(1.0, 2.0)
    remove = x.register_hook(lambda gradient: gradient * 0.5)
    for _ in range(3):
        x.zero_grad()
        (x * 2.0).sum().backward()
        assert x.grad.numpy().tolist() == [1, 1]
        with no_grad():
            x -= x.grad
        x.detach().mul_(0.5)
    remove()
    x.zero_grad()
    (x * 2.0).sum().backward()
    assert x.grad.numpy().tolist() == [2, 2]


@pytest.mark.filterwarnings("ignore::engine.front.rebasing.CopyWarning")
def test_a_hook_on_a_tensor_that_was_changed_through_a_view_is_asked_after_the_next_change():
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1.0
    y[:1] *= 4.0
    y.register_hook(lambda gradient: gradient * 0.5)
    y[1:2] += x[:1]
    y.sum().backward()
    assert x.grad.numpy().tolist() == [2 + 1, 0.5, 0.5]
