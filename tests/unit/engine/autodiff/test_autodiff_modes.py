"""Several losses, seeds of any shape, what stops a gradient, windows of accumulation, gradients of gradients, forward mode, storage dtypes."""

import numpy as np
import pytest

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff import backward, get_grad, get_grad_acc, jvp, keeping, reset
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.runtime import Runtime


@pytest.fixture
def graph():
    return Graph("modes")


def weight(graph, name="w", shape=(2, 3)):
    return graph.parameter(name, shape, "f64", trainable=True)


ONE = {"loss_grad": np.ones(1)}


def test_several_losses_sum(graph, execute, rng):
    """As ggml has it: each loss is seeded with 1, and what they share gets the sum; a loss given twice counts once."""
    w, v = weight(graph), weight(graph, "v")
    first, second = graph.op("sum", graph.op("sqr", w)), graph.op("sum", graph.op("mul", w, v))
    found = backward(graph, [first, second, first])
    data = {"w": rng.standard_normal((2, 3)), "v": rng.standard_normal((2, 3))}
    by_w, by_v = execute(graph, {**data, **ONE}, found[w], found[v])

    np.testing.assert_allclose(by_w, 2 * data["w"] + data["v"], rtol=1e-14)
    np.testing.assert_allclose(by_v, data["w"], rtol=1e-14)


def test_a_loss_on_the_way_to_another_gets_both(graph, execute):
    """One loss is made of another: its own seed and what comes back through it add up."""
    w = weight(graph, shape=(1,))
    inner = graph.op("scale", w, s=3.0)
    outer = graph.op("sqr", inner)
    found = backward(graph, [inner, outer])
    (gradient,) = execute(graph, {"w": np.array([2.0]), **ONE}, found[w])

    assert gradient[0] == 3 + 2 * 6 * 3


def test_outputs_of_any_shape_take_seeds_of_their_own(graph, execute, rng):
    """A vector-Jacobian product: no scalar, no sum."""
    w, x = weight(graph, shape=(4, 3)), graph.parameter("x", (2, 3), "f64")
    y = graph.op("mul_mat", w, x)
    vector = graph.input("vector", (2, 4), "f64")
    found = backward(graph, y, seeds={y: vector})
    data = {"w": rng.standard_normal((4, 3)), "x": rng.standard_normal((2, 3)), "vector": rng.standard_normal((2, 4))}
    (gradient,) = execute(graph, data, found[w])

    np.testing.assert_allclose(gradient, data["vector"].T @ data["x"], rtol=1e-13)


def test_stop_gradient_passes_the_value_and_nothing_back(graph, execute, rng):
    """y = w * stop(w) has the gradient stop(w); through stop alone there is no way, and the message says what cut it."""
    w = weight(graph)
    held = graph.op("stop_gradient", w)
    loss = graph.op("sum", graph.op("mul", w, held))
    found = backward(graph, loss)
    data = {"w": rng.standard_normal((2, 3))}
    (gradient,) = execute(graph, {**data, **ONE}, found[w])

    assert held.storage is w
    assert np.array_equal(gradient, data["w"])
    with pytest.raises(EngineError, match=r"depends on none.*no gradient flows through stop_gradient \('x'\)"):
        backward(graph, graph.op("sum", held))


def test_what_jumps_is_named_when_it_is_the_only_way(graph):
    """argmax and count_equal have no gradient, and say so; nothing is silently zero."""
    w = weight(graph)
    ids = graph.op("argmax", w)
    equal = graph.op("count_equal", ids, graph.input("labels", (2,), "i32"))
    one_hot = graph.op(
        "scatter",
        graph.op("full", shape=(2, 1), value=1.0, dtype="f64"),
        graph.op("reshape", ids, shape=(2, 1)),
        length=3,
    )
    with pytest.raises(EngineError, match=r"no gradient flows through argmax \('x'\)"):
        backward(graph, graph.op("sum", one_hot))
    with pytest.raises(EngineError, match=r"count_equal i32\[1\] is none of f32, f64"):
        backward(graph, equal)


def test_straight_through_shows_one_value_and_differentiates_another(graph, execute, rng):
    """The value is that of `step`, to the bit and without a copy; the gradient is that of the sigmoid."""
    w, weights = weight(graph), graph.parameter("weights", (2, 3), "f64")
    soft = graph.op("sigmoid", w)
    hard = graph.op("step", w)
    y = graph.op("straight_through", hard, soft)
    found = backward(graph, graph.op("sum", graph.op("mul", y, weights)))
    data = {"w": rng.standard_normal((2, 3)), "weights": rng.standard_normal((2, 3))}
    value, gradient = execute(graph, {**data, **ONE}, y, found[w])
    s = 1 / (1 + np.exp(-data["w"]))

    assert y.storage is hard
    assert np.array_equal(value, (data["w"] > 0) * 1.0)
    np.testing.assert_allclose(gradient, data["weights"] * s * (1 - s), rtol=1e-12)


def test_a_window_of_accumulation_is_started_by_reset_and_kept_by_skipping(graph):
    """Three runs of one window give the sum of their gradients, and the next window starts from zero: the seed text's a x^2 + b."""
    x, a, b = (graph.parameter(name, (1,), "f64", trainable=True) for name in "xab")
    loss = graph.op("add", graph.op("mul", a, graph.op("mul", x, x)), b)
    found = backward(graph, loss, accumulate=True)
    lowered = lower(graph, [found[x]])
    parameters = {"x": np.array([2.0]), "a": np.array([3.0]), "b": np.array([4.0])}
    start = reset(graph)
    within = {name: array for name, array in start.items() if name == "loss_grad"}
    with Runtime(lowered, find("ggml").plan(lowered.program), parameters=parameters) as runtime:
        seen = [float(runtime.run(start)[found[x].name][0])]
        seen += [float(runtime.run(within, skip=keeping(graph))[found[x].name][0]) for _ in range(2)]
        seen.append(float(runtime.run(start)[found[x].name][0]))

    assert seen == [12, 24, 36, 12]
    assert set(start) == {"loss_grad", "acc.x", "acc.a", "acc.b"}
    assert get_grad_acc(graph, x) is graph.find("acc.x")
    assert get_grad(graph, x) is found[x]
    assert get_grad(graph, loss) is graph.find("loss_grad")
    assert get_grad(graph, graph.find("acc.x")) is None


def test_gradients_of_gradients_in_one_graph(graph, execute):
    """x^4 at 2, three times over: 32, 48, 48; all three passes stand in one program."""
    x = weight(graph, "x", (1,))
    y = graph.op("pow", x, p=4.0)
    orders = []
    for _ in range(3):
        y = backward(graph, y, parameters=[x])[x]
        orders.append(y)
    seeds = {leaf.name: np.ones(1) for leaf in graph.leafs if leaf.name.startswith("loss_grad")}
    found = execute(graph, {"x": np.array([2.0]), **seeds}, *orders)

    assert set(seeds) == {"loss_grad", "loss_grad_2", "loss_grad_3"}
    assert [float(f[0]) for f in found] == pytest.approx([32, 48, 48], rel=1e-12)


def test_a_penalty_on_the_gradient_trains_through_it(graph, execute, rng):
    """The derivative of |dL/dx|^2 by w: of sum(tanh(x w)), against finite differences of the penalty."""
    w, x = weight(graph, shape=(3,)), graph.parameter("x", (3,), "f64")
    inner = backward(graph, graph.op("sum", graph.op("tanh", graph.op("mul", w, x))), parameters=[x])
    penalty = graph.op("sum", graph.op("sqr", inner[x]))
    found = backward(graph, penalty, parameters=[w])
    data = {"x": rng.standard_normal(3), "loss_grad": np.ones(1), "loss_grad_2": np.ones(1)}
    at = rng.standard_normal(3)
    value = lambda w: float(execute(graph, {**data, "w": w}, penalty)[0][0])  # noqa: E731
    (gradient,) = execute(graph, {**data, "w": at}, found[w])
    steps = 1e-6 * np.eye(3)

    np.testing.assert_allclose(gradient, [(value(at + d) - value(at - d)) / 2e-6 for d in steps], rtol=1e-6)


def test_forward_mode_runs_no_part_of_the_reverse_pass(graph, execute, rng):
    """Along a chain the tangent costs a few ops a link, and no op of the program reads the transposed product."""
    x = weight(graph, "x")
    y = x
    for _ in range(20):
        y = graph.op("tanh", graph.op("scale", y, s=1.1))
    graph.expand(y)
    before = len(graph.nodes)
    direction = graph.input("direction", (2, 3), "f64")
    (moved,) = jvp(graph, [y], {x: direction})
    data = {"x": rng.standard_normal((2, 3)), "direction": rng.standard_normal((2, 3))}
    (found,) = execute(graph, data, moved)
    slope, value = np.ones((2, 3)), data["x"]
    for _ in range(20):
        value = np.tanh(1.1 * value)
        slope = slope * 1.1 * (1 - value**2)

    np.testing.assert_allclose(found, slope * data["direction"], rtol=1e-11)
    assert len(graph.nodes) - before <= 20 * 5
    assert not any(node.kind == "full" for node in graph.nodes)


def test_forward_mode_takes_several_outputs_and_directions(graph, execute, rng):
    """Outputs that do not depend on a direction do not move; one direction may serve two tensors that share a gradient."""
    a, b, c = (weight(graph, name) for name in "abc")
    y, z = graph.op("add", a, b), graph.op("mul", c, c)
    direction = graph.input("direction", (2, 3), "f64")
    moved, still = jvp(graph, [y, z], {a: direction, b: direction})
    data = {name: rng.standard_normal((2, 3)) for name in ("a", "b", "c", "direction")}
    known = {leaf.name for leaf in graph.leafs}
    first, second = execute(graph, {n: array for n, array in data.items() if n in known}, moved, still)

    np.testing.assert_allclose(first, 2 * data["direction"])
    assert not second.any()
    with pytest.raises(EngineError, match=r"tangent direction .* does not fit"):
        jvp(graph, [y], {weight(graph, "d", (3,)): direction})


def test_gradients_by_intermediate_tensors(graph, execute, rng):
    """A node may be asked for like a leaf, and the loss itself has its seed."""
    w = weight(graph)
    h = graph.op("exp", w)
    loss = graph.op("sum", graph.op("sqr", h))
    found = backward(graph, loss, parameters=[h, w, loss])
    data = {"w": rng.standard_normal((2, 3))}
    by_h, by_w = execute(graph, {**data, **ONE}, found[h], found[w])

    np.testing.assert_allclose(by_h, 2 * np.exp(data["w"]), rtol=1e-13)
    np.testing.assert_allclose(by_w, 2 * np.exp(data["w"]) ** 2, rtol=1e-13)
    assert found[loss] is graph.find("loss_grad")


def test_a_copy_over_memory_nobody_reads_lets_the_gradient_through(graph, execute, rng):
    """cpy destroys what its destination held, which no rule reads: the gradient of its source is that of its result."""
    w, place = weight(graph), graph.state("place", (3, 2), "f64")
    y = graph.op("cpy", graph.op("sqr", w), place)
    found = backward(graph, graph.op("sum", graph.op("sqr", y)))
    data = {"w": rng.standard_normal((2, 3))}
    (gradient,) = execute(graph, {**data, **ONE}, found[w])

    np.testing.assert_allclose(gradient, 4 * data["w"] ** 3, rtol=1e-12)


def test_forward_mode_gives_one_answer_for_each_output_asked_for(graph, execute, rng):
    """An output named twice has its derivative twice, so that outputs and answers go together."""
    x, direction = graph.input("x", (3,), "f64"), graph.input("d", (3,), "f64")
    y, z = graph.op("sqr", x), graph.op("neg", x)
    data = {"x": rng.standard_normal(3), "d": rng.standard_normal(3)}
    found = execute(graph, data, *jvp(graph, [y, y, z, y], {x: direction}))
    square = 2 * data["x"] * data["d"]
    for mine, right in zip(found, (square, square, -data["d"], square), strict=True):
        np.testing.assert_allclose(mine, right)
