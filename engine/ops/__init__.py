"""The op table: one row for each kind, with its shape rule, its derivatives, and whether it is a view or a mutation.

To add an op, add its `Rule` to the file of its family and its kernel to `engine.kernels`; nothing else knows the list.
"""

from typing import Final

from engine.ops import attention, elementwise, functions, layout, loss, matmul, norm, optim
from engine.ops.rule import REQUIRED, Layout, Rule

OPS: Final[dict[str, Rule]] = {
    rule.kind: rule for family in (elementwise, functions, norm, matmul, layout, attention, loss, optim) for rule in family.RULES
}
"""Kind -> rule."""

NON_DIFFERENTIABLE: Final = frozenset(
    {
        "silu_back",
        "sgn",
        "step",
        "gelu_back",
        "gelu_erf_back",
        "clamp_back",
        "norm_back",
        "log_soft_max_back",
        "rms_norm_back",
        "out_prod",
        "cpy",
        "get_rows_back",
        "rope_back",
        "soft_max_back",
        "cross_entropy_loss_back",
        "add_inplace",
        "add_out_prod",
        "opt_step_sgd",
    }
)
"""Kinds without any derivative, listed so that silence is never a rule (a test compares the list with the table)."""

__all__ = ["NON_DIFFERENTIABLE", "OPS", "REQUIRED", "Layout", "Rule"]
