"""Losses, a table: how outputs become one number, in ops of the graph.

| name | loss over outputs of n elements | of a logical batch |
|---|---|---|
| mean | sum(outputs) / n | mean of its physical batches |
| sum | sum(outputs) | their sum |
| cross_entropy | mean over rows of -sum(labels * log_softmax(outputs)), or of -log_softmax(outputs)[class] | mean |
| mean_squared_error | sum((outputs - labels)^2) / n | mean |

These are ggml-opt's four. Over a logical batch of several physical ones the gradients add up; where
the loss is a mean, the seed of the backward pass is one over their number, so that the gradient is
that of one large batch.

What this module does not see: data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Final

from engine.graph import Graph, Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One row of the table."""

    name: str
    build: Callable[[Graph, Tensor, Tensor | None], Tensor]
    """(graph, outputs, labels) -> loss of shape [1]."""
    labels: bool
    """Whether it compares the outputs with labels of their shape."""
    mean: bool
    """Whether a logical batch is the mean of its physical ones, not their sum."""
    classes: bool = False
    """Whether outputs are rows of class scores, so that there is an accuracy and labels may be
    class numbers, one i32 a row."""


def _sum(graph: Graph, outputs: Tensor, labels: Tensor | None) -> Tensor:
    del labels
    return graph.op("sum", outputs, name="loss")


def _mean(graph: Graph, outputs: Tensor, labels: Tensor | None) -> Tensor:
    del labels
    return graph.op("scale", graph.op("sum", outputs, name="loss.sum"), s=_share(outputs), name="loss")


def _cross_entropy(graph: Graph, outputs: Tensor, labels: Tensor | None) -> Tensor:
    assert labels is not None
    kind = "cross_entropy_classes" if labels.dtype == "i32" else "cross_entropy_loss"
    rows = (prod(outputs.shape[:-1]), outputs.shape[-1])
    pair = [
        x if len(x.shape) == 1 or x.shape == rows else graph.op("reshape", x, shape=rows) for x in (outputs, labels)
    ]
    return graph.op(kind, *pair, name="loss")


def _mean_squared_error(graph: Graph, outputs: Tensor, labels: Tensor | None) -> Tensor:
    assert labels is not None
    squares = graph.op("sqr", graph.op("sub", outputs, labels, name="loss.error"), name="loss.squares")
    return graph.op("scale", graph.op("sum", squares, name="loss.sum"), s=_share(outputs), name="loss")


def _share(outputs: Tensor) -> float:
    return 1 / max(1, prod(outputs.shape))


LOSSES: Final[dict[str, Loss]] = {
    loss.name: loss
    for loss in (
        Loss(name="mean", build=_mean, labels=False, mean=True),
        Loss(name="sum", build=_sum, labels=False, mean=False),
        Loss(name="cross_entropy", build=_cross_entropy, labels=True, mean=True, classes=True),
        Loss(name="mean_squared_error", build=_mean_squared_error, labels=True, mean=True),
    )
}
"""Name -> loss."""
