"""The op table: for each kind its shape rule, its derivatives, and what it writes over.

To add an op, add its row to the file of its family (`engine.ops.row`), its kernel to the table of
`engine.kernels`, what it computes to `engine.ops.op_reference`, and what it means to the oracle of
the tests.
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
        *(elementwise, element_functions, norm, matmul, views, moving, reduce, windows, convolution),
        *(attention, fused, noise, precision, loss, optim, collective),
    )
    for rule in family.RULES
}
"""Kind -> rule."""

__all__ = ["OPS", "REQUIRED", "ResultLayout", "Rule"]
