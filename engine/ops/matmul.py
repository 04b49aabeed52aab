"""Matrix products as ggml spells them, with the batch broadcast that grouped-query attention needs.

    mul_mat  a[.., n, k], b[.., m, k] -> [.., m, n]    b @ a.T
    out_prod a[.., k, n], b[.., k, m] -> [.., m, n]    b.T @ a
    add_out_prod acc[m, n], a[k, n], b[k, m] -> acc    acc + b.T @ a, in the bytes of acc

Batch dimensions of `a` divide those of `b`; batch index `i` of `b` meets batch index `i // ratio`
of `a`.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import batch_divides, floating


def _check(a: Tensor, b: Tensor, inner: int) -> None:
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise EngineError(f"{a} and {b} must be matrices or batches of them")
    if a.shape[inner] != b.shape[inner]:
        raise EngineError(f"{a} and {b} must agree in dimension {inner}")
    if not batch_divides(a.shape, b.shape):
        raise EngineError(f"the batch dimensions of {a} do not divide those of {b}")


def _mul_mat(_params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    _check(a, b, -1)
    return ResultLayout(shape=(*b.shape[:-1], a.shape[-2]), dtype=floating(a, b))


def _out_prod(_params: dict[str, Any], a: Tensor, b: Tensor) -> ResultLayout:
    _check(a, b, -2)
    return ResultLayout(shape=(*b.shape[:-2], b.shape[-1], a.shape[-1]), dtype=floating(a, b))


def _add_out_prod(params: dict[str, Any], acc: Tensor, a: Tensor, b: Tensor) -> ResultLayout:
    layout = _out_prod(params, a, b)
    if layout.shape != acc.shape or len(acc.shape) != 2:
        raise EngineError(f"{acc} is not the matrix that the product of {a} and {b} adds to")
    return ResultLayout(shape=acc.shape, dtype=floating(acc, a, b))


RULES = (
    row("mul_mat(a, b)", _mul_mat, a="grouped(out_prod(b, g), a)", b="out_prod(a, transpose(g))"),
    row("out_prod(a, b)", _out_prod, a="grouped(mul_mat(transpose(g), b), a)", b="transpose(mul_mat(a, g))"),
    row("add_out_prod(acc, a, b)", _add_out_prod, mutates=0),
)
