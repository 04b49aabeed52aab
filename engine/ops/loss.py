"""Cross entropy against soft labels: `mean over rows of -sum(labels * log_softmax(logits))`, both `[T, V]`, result `[1]`."""

from typing import TYPE_CHECKING, Any

from allocsim.errors import EngineError
from engine.ops.rule import Layout, Rule, Sources, floating, same_shape

if TYPE_CHECKING:
    from engine.graph import Tensor


def _loss(sources: Sources, params: dict[str, Any]) -> Layout:
    del params
    logits, labels = sources
    same_shape(logits, labels)
    if len(logits.shape) != 2:
        raise EngineError(f"{logits} must be a matrix of rows of logits")
    return Layout(shape=(1,), dtype=floating(logits, labels))


def _loss_back(sources: Sources, params: dict[str, Any]) -> Layout:
    grad, *pair = sources
    if grad.shape != (1,):
        raise EngineError(f"{grad} must have shape (1,)")
    dtype = floating(grad, *pair)
    _loss((pair[0], pair[1]), params)
    return Layout(shape=pair[0].shape, dtype=dtype)


def _loss_logits(node: "Tensor", grad: "Tensor") -> "Tensor":
    return node.graph.op("cross_entropy_loss_back", grad, *node.sources)


RULES = (
    Rule(kind="cross_entropy_loss", arguments=("logits", "labels"), shape=_loss, derivatives={"logits": _loss_logits}),
    Rule(kind="cross_entropy_loss_back", arguments=("grad", "logits", "labels"), shape=_loss_back),
)
