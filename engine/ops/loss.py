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
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import floating, indices, like, same_shape


def _loss(_params: dict[str, Any], logits: Tensor, labels: Tensor) -> ResultLayout:
    same_shape(logits, labels)
    if len(logits.shape) != 2:
        raise EngineError(f"{logits} must be a matrix of rows of logits")
    return ResultLayout(shape=(1,), dtype=floating(logits, labels))


def _loss_back(params: dict[str, Any], grad: Tensor, *pair: Tensor) -> ResultLayout:
    if grad.shape != (1,):
        raise EngineError(f"{grad} must have shape (1,)")
    dtype = floating(grad, *pair)
    _loss(params, *pair)
    return ResultLayout(shape=pair[0].shape, dtype=dtype)


def _classes(_params: dict[str, Any], logits: Tensor, classes: Tensor) -> ResultLayout:
    if len(logits.shape) != 2:
        raise EngineError(f"{logits} must be a matrix of rows of logits")
    indices(classes, logits.shape[0])
    return ResultLayout(shape=(1,), dtype=floating(logits))


def _classes_back(params: dict[str, Any], grad: Tensor, logits: Tensor, classes: Tensor) -> ResultLayout:
    if grad.shape != (1,):
        raise EngineError(f"{grad} must have shape (1,)")
    _classes(params, logits, classes)
    return ResultLayout(shape=logits.shape, dtype=floating(grad, logits))


_SHARE = "share = scale(g, s=2.0 / max(prod(prediction.shape), 1));"

RULES = (
    row(
        "mean_squared_error(prediction, target)",
        like(to=(1,)),
        prediction=f"{_SHARE} mul(sub(prediction, target), share)",
        target=f"{_SHARE} neg(mul(sub(prediction, target), share))",
    ),
    row(
        "cross_entropy_loss(logits, labels)",
        _loss,
        logits="cross_entropy_loss_back(g, logits, labels)",
        labels="share = scale(g, s=-1.0 / max(logits.shape[0], 1)); mul(log_soft_max(logits), share)",
    ),
    row(
        "cross_entropy_loss_back(grad, logits, labels)",
        _loss_back,
        parts="weight = sum_axes(labels, axes=-1, keepdims=True); apart = sub(mul(soft_max(logits), weight), labels);"
        "mul(apart, scale(grad, s=1.0 / max(logits.shape[0], 1)))",
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
        classes=None,
        parts="ones = full(shape=(logits.shape[0], 1), value=1.0, dtype=logits.dtype);"
        "hot = scatter(ones, reshape(classes, shape=(logits.shape[0], 1)), length=logits.shape[1]);"
        "mul(sub(soft_max(logits), hot), scale(grad, s=1.0 / max(logits.shape[0], 1)))",
    ),
)
