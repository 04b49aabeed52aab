"""Normalisation over the last dimension; gain and bias are an ordinary `mul` and `add`.

`rms_norm`: x / sqrt(mean(x^2) + eps). `norm` (layer norm): (x - mean) / sqrt(variance + eps), the variance being that of the row
(divided by n). `log_soft_max`: x - log(sum(exp(x))).
"""

from typing import TYPE_CHECKING

from engine.ops.rule import REQUIRED, Rule, like

if TYPE_CHECKING:
    from engine.graph import Tensor


def _rms_norm_x(node: "Tensor", grad: "Tensor") -> "Tensor":
    return node.graph.op("rms_norm_back", grad, node.sources[0], eps=node.params["eps"])


def _norm_x(node: "Tensor", grad: "Tensor") -> "Tensor":
    return node.graph.op("norm_back", grad, node.sources[0], eps=node.params["eps"])


def _log_soft_max_x(node: "Tensor", grad: "Tensor") -> "Tensor":
    return node.graph.op("log_soft_max_back", grad, node)


RULES = (
    Rule(kind="rms_norm", arguments=("x",), params={"eps": REQUIRED}, shape=like(), derivatives={"x": _rms_norm_x}),
    Rule(kind="rms_norm_back", arguments=("dy", "x"), params={"eps": REQUIRED}, shape=like()),
    Rule(kind="norm", arguments=("x",), params={"eps": REQUIRED}, shape=like(), derivatives={"x": _norm_x}),
    Rule(kind="norm_back", arguments=("dy", "x"), params={"eps": REQUIRED}, shape=like()),
    Rule(kind="log_soft_max", arguments=("x",), shape=like(), derivatives={"x": _log_soft_max_x}),
    Rule(kind="log_soft_max_back", arguments=("dy", "y"), shape=like()),
)
