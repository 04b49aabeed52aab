"""What the backward pass builds, shares, skips and refuses."""

from dataclasses import replace

import numpy as np
import pytest

from allocsim.errors import EngineError
from engine.autodiff import backward
from engine.graph import Graph
from engine.graph.lowering import lower
from engine.ops import OPS


@pytest.fixture
def graph():
    return Graph("test")


def weight(graph, name="w", shape=(2, 3)):
    return graph.parameter(name, shape, "f64", trainable=True)


def kinds(graph):
    return [node.kind for node in graph.nodes]


def test_first_contribution_is_the_gradient_itself(graph):
    """Both operands of an add share the upstream gradient; no copy is made."""
    a, b = weight(graph, "a"), weight(graph, "b")
    loss = graph.op("sum", graph.op("add", a, b))
    found = backward(graph, loss)

    assert found[a] is found[b]
    assert kinds(graph) == ["add", "sum", "repeat"]


def test_further_contributions_are_added(graph, execute, rng):
    """A tensor used three times, twice by one op, gets the sum of three contributions."""
    w = weight(graph)
    loss = graph.op("sum", graph.op("mul", graph.op("mul", w, w), w))
    found = backward(graph, loss)
    data = {"w": rng.standard_normal((2, 3)), "loss_grad": np.array([2.0])}

    assert kinds(graph).count("add") == 2
    (gradient,) = execute(graph, data, found[w])
    np.testing.assert_allclose(gradient, 2 * 3 * data["w"] ** 2, rtol=1e-13)


def test_only_what_needs_a_gradient_is_built(graph):
    """No op is spent on inputs, frozen weights, indices or masks."""
    table, ids = graph.parameter("table", (5, 3), "f64"), graph.input("ids", (2,), "i32")
    w = weight(graph)
    loss = graph.op("sum", graph.op("mul", graph.op("get_rows", table, ids), w))
    backward(graph, loss)

    assert kinds(graph) == ["get_rows", "mul", "sum", "repeat", "mul"]


def test_parameters_asked_for_need_not_be_trainable(graph):
    """An input can be differentiated by name; a trainable weight left out is not."""
    x, w = graph.input("x", (2, 3), "f64"), weight(graph)
    loss = graph.op("sum", graph.op("mul", x, w))
    found = backward(graph, loss, parameters=[x])

    assert list(found) == [x]
    assert graph.gradients == found


def test_seed_of_the_caller_is_used(graph, execute):
    """The seed scales every gradient and need not be an input of its own."""
    w, seed = weight(graph), graph.parameter("seed", (1,), "f64")
    loss = graph.op("sum", graph.op("scale", w, s=2.0))
    found = backward(graph, loss, seed=seed)
    (gradient,) = execute(graph, {"w": np.zeros((2, 3)), "seed": np.array([0.5])}, found[w])

    assert (gradient == 1).all()


def test_accumulators_add_up_until_they_are_reset(graph):
    """With accumulate, every contribution is added in place to a state tensor."""
    w = weight(graph)
    loss = graph.op("sum", graph.op("mul", w, w))
    found = backward(graph, loss, accumulate=True)

    assert kinds(graph).count("add_inplace") == 2
    assert found[w].storage.name == "acc.w"
    assert lower(graph, [found[w]]).skip("acc.w") == (1,)


def test_backward_nodes_carry_stage_layer_and_name(graph):
    """What a derivative adds belongs to the layer of the node it differentiates."""
    w = weight(graph)
    with graph.scope("layer.7", layer=7):
        y = graph.op("silu", w, name="y")
    loss = graph.op("sum", y)
    found = backward(graph, loss)

    assert (found[w].layer, found[w].stage, found[w].name) == (7, "backward", "grad.w.silu_back")
    assert (loss.layer, y.stage) == (None, "forward")


def test_missing_rule_names_op_and_argument(graph, monkeypatch):
    """An argument without a derivative is refused, never taken for constant."""
    known = {name: rule for name, rule in OPS["mul"].derivatives.items() if name != "b"}
    monkeypatch.setitem(OPS, "mul", replace(OPS["mul"], derivatives=known))
    w = weight(graph)
    loss = graph.op("sum", graph.op("mul", graph.input("x", (2, 3), "f64"), w))
    with pytest.raises(EngineError, match=r"mul has no derivative for its argument 'b'"):
        backward(graph, loss)


def test_a_view_of_a_view_with_gaps_has_no_derivative(graph):
    """Which element of its source a view shows is known only where that is contiguous."""
    w = weight(graph)
    loss = graph.op("sum", graph.op("view", graph.op("transpose", w), shape=(3,), strides=(1,)))
    with pytest.raises(EngineError, match="contiguous"):
        backward(graph, loss)


def test_mutation_on_the_way_is_refused(graph):
    """What an in-place op destroyed cannot be differentiated."""
    w, acc = weight(graph), graph.state("acc", (2, 3), "f64")
    loss = graph.op("sum", graph.op("add_inplace", acc, w))
    with pytest.raises(EngineError, match="add_inplace changes acc"):
        backward(graph, loss)


def test_misuse_is_refused(graph):
    """No scalar, no parameters, no dependence, a node as parameter, a second pass."""
    x, w, other = graph.input("x", (2, 3), "f64"), weight(graph), weight(graph, "other")
    plain = graph.op("sum", x)
    loss = graph.op("sum", w)
    with pytest.raises(EngineError, match=r"shape \(1,\)"):
        backward(graph, graph.op("silu", w))
    with pytest.raises(EngineError, match="no trainable parameter"):
        backward(graph, loss, parameters=[])
    with pytest.raises(EngineError, match="depends on none"):
        backward(graph, plain)
    with pytest.raises(EngineError, match="no leaf"):
        backward(graph, loss, parameters=[loss], accumulate=True)
    with pytest.raises(EngineError, match=r"does not depend on other"):
        backward(graph, loss, parameters=[w, other])
    with pytest.raises(EngineError, match="no loss"):
        backward(graph, [])
    with pytest.raises(EngineError, match="none of the losses"):
        backward(graph, loss, seeds={plain: plain})
    with pytest.raises(EngineError, match="does not fit"):
        backward(graph, loss, seeds={loss: w})
    with pytest.raises(EngineError, match="belongs to graph"):
        backward(Graph("other"), loss)
