"""Derivatives as expressions: what is read is what is computed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engine import Graph, backward
from engine.autodiff.expressions import expression


def test_a_derivative_is_written_as_it_is_computed():
    graph = Graph("f")
    x, a = graph.parameter("x", (1,), trainable=True), graph.input("a", (1,))
    f = graph.op("sub", graph.op("tanh", graph.op("scale", x, s=2.0)), graph.op("div", a, graph.op("add", x, a)))
    assert expression(f) == "tanh(2 * x) - a / (x + a)"
    assert expression(x) == "x"
    shared, slope = expression(backward(graph, f)[x]).splitlines()
    assert shared == "add = x + a"
    assert slope == "-(-1 * loss_grad * (a / add) / add) + 2 * (loss_grad - loss_grad * tanh(2 * x)**2)"


def test_a_power_of_a_power_keeps_its_order_and_a_number_its_digits():
    graph = Graph("f")
    x = graph.parameter("x", (1,))
    assert expression(graph.op("pow", graph.op("pow", x, p=2.0), p=3.0)) == "(x**2)**3"
    assert expression(graph.op("sqr", graph.op("sqr", graph.op("sqr", x)))) == "((x**2)**2)**2"
    assert expression(graph.op("sqr", graph.op("neg", x))) == "(-x)**2"
    assert expression(graph.op("neg", graph.op("sqr", x))) == "-x**2"
    assert expression(graph.op("scale", x, s=16777217.0)) == "16777217 * x"
    assert float(expression(graph.op("scale", x, s=1 / 3)).removesuffix(" * x")) == 1 / 3


@st.composite
def terms(draw, graph, leaves):
    made = list(leaves)
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["add", "sub", "mul", "div", "neg", "sqr", "pow", "scale"]))
        operands = [
            made[draw(st.integers(0, len(made) - 1))] for _ in range(2 if kind in {"add", "sub", "mul", "div"} else 1)
        ]
        params = {"pow": {"p": 3.0}, "scale": {"s": draw(st.sampled_from([-2.0, 1 / 3, 16777217.0]))}}.get(kind, {})
        made.append(graph.op(kind, *operands, **params))
    return made[-1]


@given(st.data())
def test_an_expression_read_by_python_is_the_value(data):
    """Lines are assignments, the last is the value: evaluated in order, they come to what numpy makes of the graph."""
    graph = Graph("f")
    leaves = [graph.input(name, (1,)) for name in "ab"]
    end = data.draw(terms(graph, leaves))
    known = {"a": np.float64(1.25), "b": np.float64(-0.75)}
    values = dict(zip(leaves, known.values(), strict=True))
    with np.errstate(all="ignore"):
        for node in graph.tensors[2:]:
            one, *other = (values[source] for source in node.sources)
            if node.kind in {"pow", "scale"}:
                values[node] = one**3 if node.kind == "pow" else one * node.params["s"]
                continue
            values[node] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": lambda x: -x, "sqr": lambda x: x * x}[node.kind](one, *other)  # fmt: skip
        *lines, last = expression(end).splitlines()
        for line in lines:
            name, _, text = line.partition(" = ")
            known[name] = eval(text, {}, known)
        found = eval(last, {}, known)
    np.testing.assert_allclose(found, values[end], rtol=1e-12)
