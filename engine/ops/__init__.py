"""The op table: for each kind its shape rule, its derivatives, and what it writes over.

To add an op, add its `Rule` to the file of its family, its kernel to the table of `engine.kernels`,
what it computes to `engine.ops.op_reference`, and what it means to the oracle of the tests.
"""

from typing import Final

from engine.ops import (
    attention,
    collective,
    convolution,
    element_functions,
    elementwise,
    fused,
    loss,
    matmul,
    moving,
    noise,
    norm,
    optim,
    precision,
    reduce,
    views,
    windows,
)
from engine.ops.rule import REQUIRED, ResultLayout, Rule

OPS: Final[dict[str, Rule]] = {
    rule.kind: rule
    for family in (
        elementwise,
        element_functions,
        norm,
        matmul,
        views,
        moving,
        reduce,
        windows,
        convolution,
        attention,
        fused,
        noise,
        precision,
        loss,
        optim,
        collective,
    )
    for rule in family.RULES
}
"""Kind -> rule."""

NON_DIFFERENTIABLE: Final = frozenset(
    {
        "sgn",
        "step",
        *element_functions.COMPARISONS,
        "full",
        "stop_gradient",
        "floor",
        "round",
        "argmax",
        "argsort",
        "count_equal",
        "pool_index",
        "uniform",
        "all_finite",
        "unscale",
        "set_rows",
        "add_inplace",
        "add_out_prod",
        "opt_step_sgd",
        "adamw_m",
        "adamw_v",
        "opt_step_adamw",
        "own_part",
        "all_gather_over",
        "send",
        "recv",
    }
)
"""Kinds without any derivative, listed so that silence is never a rule (a test compares the list
with the table)."""

__all__ = ["NON_DIFFERENTIABLE", "OPS", "REQUIRED", "ResultLayout", "Rule"]
