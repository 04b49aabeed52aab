"""RMS normalisation over the last dimension: `y = x / sqrt(mean(x^2) + eps)`; the gain is an ordinary `mul`."""

from typing import TYPE_CHECKING

from engine.ops.rule import REQUIRED, Rule, like

if TYPE_CHECKING:
    from engine.graph import Tensor


def _rms_norm_x(node: "Tensor", grad: "Tensor") -> "Tensor":
    return node.graph.op("rms_norm_back", grad, node.sources[0], eps=node.params["eps"])


RULES = (
    Rule(kind="rms_norm", arguments=("x",), params={"eps": REQUIRED}, shape=like(), derivatives={"x": _rms_norm_x}),
    Rule(kind="rms_norm_back", arguments=("dy", "x"), params={"eps": REQUIRED}, shape=like()),
)
