"""Normalisation over the last dimension; gain and bias are an ordinary `mul` and `add`.

`rms_norm`: x / sqrt(mean(x^2) + eps). `norm` (layer norm): (x - mean) / sqrt(variance + eps), the
variance being that of the row (divided by n). `log_soft_max`: x - log(sum(exp(x))).
"""

from engine.ops.row import row
from engine.ops.rule import Tensor
from engine.ops.shapes import like


def _rms_norm_back_parts(node: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    """Return r (dy - x r^2 mean(x dy)) with r = (mean(x^2) + eps)^(-1/2)."""
    op = node.graph.op
    if 0 in x.shape:
        return op("mul", dy, x)  # nothing, of the right shape; there is no mean to take
    r = _inverse_root(node, op("mean", op("sqr", x), axes=-1, keepdims=True))
    along = op("mul", op("mean", op("mul", x, dy), axes=-1, keepdims=True), op("sqr", r))
    return op("mul", op("sub", dy, op("mul", x, along)), r)


def _inverse_root(node: Tensor, square: Tensor) -> Tensor:
    eps = node.graph.op("full", shape=(1,), value=node.params["eps"], dtype=square.dtype)
    return node.graph.op("pow", node.graph.op("add", square, eps), p=-0.5)


def _norm_back_parts(node: Tensor, dy: Tensor, x: Tensor) -> Tensor:
    """Return r (dy - mean(dy) - c r^2 mean(dy c)) with c = x - mean(x), r = (mean(c^2) +
    eps)^(-1/2).
    """
    op = node.graph.op
    if 0 in x.shape:
        return op("mul", dy, x)
    c = op("sub", x, op("mean", x, axes=-1, keepdims=True))
    r = _inverse_root(node, op("mean", op("sqr", c), axes=-1, keepdims=True))
    level = op("sub", dy, op("mean", dy, axes=-1, keepdims=True))
    along = op("mul", op("mean", op("mul", dy, c), axes=-1, keepdims=True), op("sqr", r))
    return op("mul", op("sub", level, op("mul", c, along)), r)


RULES = (
    row("rms_norm(x, *, eps)", like("eps"), x="rms_norm_back(g, x, eps=eps)"),
    row(  # the Jacobian r I - r^3 / n x x^T is symmetric
        "rms_norm_back(dy, x, *, eps)",
        like("eps"),
        dy="rms_norm_back(g, x, eps=eps)",
        parts=_rms_norm_back_parts,
    ),
    row("norm(x, *, eps)", like("eps"), x="norm_back(g, x, eps=eps)"),
    row(  # r (I - 1/n - z z^T / n), z the result of norm, is too
        "norm_back(dy, x, *, eps)", like("eps"), dy="norm_back(g, x, eps=eps)", parts=_norm_back_parts
    ),
    row("log_soft_max(x)", like(), x="log_soft_max_back(g, r)"),
    row("log_soft_max_back(dy, y)", like(), parts="sub(dy, mul(exp(y), sum_axes(dy, axes=-1, keepdims=True)))"),
)
