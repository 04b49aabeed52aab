"""Hypothesis strategies for training graphs of the engine, with backward pass and optimizer.

Hypothesis is imported here and nowhere else in the engine.

    from engine.autodiff.training_graphs import training_graphs

    @given(training_graphs())
    def test_my_planner(lowered):
        assert allocsim.verify_program(lowered.program, my_plan(lowered.program)).clean

A graph is a small network drawn layer by layer (a projection, then a norm, an activation, a
residual or nothing), a loss over classes, the derivative of every parameter, and an SGD step in the
same graph, as training runs it. Layers are drawn and nothing is filtered, so a failing graph
shrinks to few of them.

What this module does not see: planners.
"""

from typing import Any, Final

from hypothesis import strategies as st

from allocsim.model import Program
from engine.autodiff import backward
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered, lower

ACTIVATIONS: Final = ("none", "relu", "tanh", "silu", "gelu", "norm", "residual")
"""What may follow a projection."""


def layers(*, max_size: int = 4) -> st.SearchStrategy[list[tuple[int, str, bool]]]:
    """Draw layers: width, what follows the projection, whether its weights are trained."""
    layer = st.tuples(st.sampled_from((4, 2, 8)), st.sampled_from(ACTIVATIONS), st.booleans())
    return st.lists(layer, min_size=1, max_size=max_size)


@st.composite
def training_graphs(draw: Any, /, *, max_layers: int = 4) -> Lowered:
    """Draw a lowered network with loss, gradients and an SGD step; the host reads the loss."""
    rows, width = draw(st.sampled_from((2, 1, 3))), draw(st.sampled_from((4, 2, 8)))
    classes = draw(st.sampled_from((2, 3)))
    graph = Graph("training")
    x = graph.input("x", (rows, width))
    for number, (size, activation, trained) in enumerate(draw(layers(max_size=max_layers))):
        with graph.scope(f"layer.{number}", layer=number):
            x = _layer(graph, x, size, activation, trained=trained)
    head = graph.parameter("head", (classes, x.shape[-1]), trainable=True)
    loss = graph.op(
        "cross_entropy_loss",
        graph.op("mul_mat", head, x, name="logits"),
        graph.input("labels", (rows, classes)),
        name="loss",
    )
    gradients = backward(graph, loss, accumulate=draw(st.booleans()))
    hyper = graph.parameter("hyper", (2,))
    if draw(st.booleans()):
        with graph.scope("new", stage="update"):
            for parameter, gradient in gradients.items():
                graph.expand(graph.op("opt_step_sgd", parameter, gradient, hyper, name=parameter.name))
    reads = [gradient for gradient in gradients.values() if draw(st.booleans())]
    return lower(graph, (loss, *reads))


def training_programs() -> st.SearchStrategy[Program]:
    """Draw the programs of such graphs: what `allocsim fuzz --training` shows a planner."""
    return training_graphs().map(lambda lowered: lowered.program)


def _layer(graph: Graph, x: Tensor, size: int, activation: str, *, trained: bool) -> Tensor:
    width = x.shape[-1] if activation == "residual" else size
    weight = graph.parameter("weight", (width, x.shape[-1]), trainable=trained)
    y = graph.op("mul_mat", weight, x, name="projected")
    if activation == "none":
        return y
    if activation == "residual":
        return graph.op("add", x, y, name="residual")
    if activation == "norm":
        return graph.op("rms_norm", y, eps=1e-5, name="normed")
    return graph.op(activation, y, name=activation)
