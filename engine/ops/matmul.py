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
from engine.ops.rule import ResultLayout, Sources
from engine.ops.shapes import batch_divides, floating


def _check(sources: Sources, inner: int) -> None:
    a, b = sources
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise EngineError(f"{a} and {b} must be matrices or batches of them")
    if a.shape[inner] != b.shape[inner]:
        raise EngineError(f"{a} and {b} must agree in dimension {inner}")
    if not batch_divides(a.shape, b.shape):
        raise EngineError(f"the batch dimensions of {a} do not divide those of {b}")


def _mul_mat(sources: Sources, _params: dict[str, Any]) -> ResultLayout:
    _check(sources, -1)
    a, b = sources
    return ResultLayout(shape=(*b.shape[:-1], a.shape[-2]), dtype=floating(a, b))


def _out_prod(sources: Sources, _params: dict[str, Any]) -> ResultLayout:
    _check(sources, -2)
    a, b = sources
    return ResultLayout(shape=(*b.shape[:-2], b.shape[-1], a.shape[-1]), dtype=floating(a, b))


def _add_out_prod(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    acc, *product = sources
    layout = _out_prod(tuple(product), params)
    if layout.shape != acc.shape or len(acc.shape) != 2:
        raise EngineError(f"{acc} is not the matrix that the product of {product[0]} and {product[1]} adds to")
    return ResultLayout(shape=acc.shape, dtype=floating(*sources))


RULES = (
    row("mul_mat(a, b)", _mul_mat, a="grouped(out_prod(b, g), a)", b="out_prod(a, transpose(g))"),
    row("out_prod(a, b)", _out_prod, a="grouped(mul_mat(transpose(g), b), a)", b="transpose(mul_mat(a, g))"),
    row("add_out_prod(acc, a, b)", _add_out_prod, mutates=0),
)
