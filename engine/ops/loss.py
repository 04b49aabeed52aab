"""Losses, result `[1]`.

* `cross_entropy_loss`: against soft labels, `mean over rows of -sum(labels * log_softmax(logits))`,
  both `[T, V]`.
* `cross_entropy_classes`: the same against one class number for each row, `[T]` i32, where labels
  would be `[T, V]` with a single 1 in each. A class out of range makes the loss, and its row of the
  gradient, NaN.
* `mean_squared_error`: `mean of (prediction - target)^2`, of any one shape.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.pullback import by_parts
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Sources, Tensor
from engine.ops.shapes import elements, floating, indices, same_shape


def _loss(sources: Sources, _params: dict[str, Any]) -> ResultLayout:
    logits, labels = sources
    same_shape(logits, labels)
    if len(logits.shape) != 2:
        raise EngineError(f"{logits} must be a matrix of rows of logits")
    return ResultLayout(shape=(1,), dtype=floating(logits, labels))


def _loss_back(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    grad, *pair = sources
    if grad.shape != (1,):
        raise EngineError(f"{grad} must have shape (1,)")
    dtype = floating(grad, *pair)
    _loss((pair[0], pair[1]), params)
    return ResultLayout(shape=pair[0].shape, dtype=dtype)


def _loss_labels(node: Tensor, grad: Tensor) -> Tensor:
    graph, logits = node.graph, node.sources[0]
    share = graph.op("scale", grad, s=-1.0 / max(logits.shape[0], 1))
    return graph.op("mul", graph.op("log_soft_max", logits), share)


def _loss_back_parts(node: Tensor, grad: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """Return (softmax(logits) * sum(labels) - labels) * grad / T."""
    op = node.graph.op
    weight = op("sum_axes", labels, axes=-1, keepdims=True)
    apart = op("sub", op("mul", op("soft_max", logits), weight), labels)
    return op("mul", apart, op("scale", grad, s=1.0 / max(logits.shape[0], 1)))


def _classes(sources: Sources, _params: dict[str, Any]) -> ResultLayout:
    logits, classes = sources
    if len(logits.shape) != 2:
        raise EngineError(f"{logits} must be a matrix of rows of logits")
    indices(classes, logits.shape[0])
    return ResultLayout(shape=(1,), dtype=floating(logits))


def _classes_back(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    grad, logits, classes = sources
    if grad.shape != (1,):
        raise EngineError(f"{grad} must have shape (1,)")
    _classes((logits, classes), params)
    return ResultLayout(shape=logits.shape, dtype=floating(grad, logits))


def _classes_back_parts(node: Tensor, grad: Tensor, logits: Tensor, classes: Tensor) -> Tensor:
    """Return (softmax(logits) - one_hot(classes)) * grad / T."""
    op, (rows, width) = node.graph.op, logits.shape
    ones = op("full", shape=(rows, 1), value=1.0, dtype=logits.dtype)
    hot = op("scatter", ones, op("reshape", classes, shape=(rows, 1)), length=width)
    return op("mul", op("sub", op("soft_max", logits), hot), op("scale", grad, s=1.0 / max(rows, 1)))


def _squared(sources: Sources, _params: dict[str, Any]) -> ResultLayout:
    prediction, target = sources
    same_shape(prediction, target)
    return ResultLayout(shape=(1,), dtype=floating(prediction, target))


def _squared_prediction(node: Tensor, grad: Tensor) -> Tensor:
    graph, (prediction, target) = node.graph, node.sources
    share = graph.op("scale", grad, s=2.0 / max(elements(prediction.shape), 1))
    return graph.op("mul", graph.op("sub", prediction, target), share)


RULES = (
    row(
        "mean_squared_error(prediction, target)",
        _squared,
        prediction=_squared_prediction,
        target=lambda node, grad: node.graph.op("neg", _squared_prediction(node, grad)),
    ),
    row(
        "cross_entropy_loss(logits, labels)",
        _loss,
        logits="cross_entropy_loss_back(g, logits, labels)",
        labels=_loss_labels,
    ),
    row(
        "cross_entropy_loss_back(grad, logits, labels)",
        _loss_back,
        grad=by_parts("grad", _loss_back_parts),
        logits=by_parts("logits", _loss_back_parts),
        labels=by_parts("labels", _loss_back_parts),
    ),
    row(
        "cross_entropy_classes(logits, classes)",
        _classes,
        logits="cross_entropy_classes_back(g, logits, classes)",
        classes=None,
    ),
    row(
        "cross_entropy_classes_back(grad, logits, classes)",
        _classes_back,
        grad=by_parts("grad", _classes_back_parts),
        logits=by_parts("logits", _classes_back_parts),
        classes=None,
    ),
)
