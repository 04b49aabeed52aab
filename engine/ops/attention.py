"""Rows by index, rotary positions and the masked soft maximum.

* `get_rows`: table[V, D], ids[T] -> [T, D].
* `get_rows_back`: dy[T, D], ids[T] -> [rows, D]; rows that no id names are zero.
* `set_rows`: dst[V, D], x[T, D], ids[T] -> dst, row ids[t] replaced by row t of x; over dst.
* `rope`: x[T, H, hd], pos[T] -> [T, H, hd]; pair `i` of the first `dims` elements of each head
  turns by pos * base^(-2i/dims).
* `soft_max`: x[.., n], mask -> softmax(x * scale + mask) over the last axis; the mask repeats into
  x, with rows as long as its.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import checked_shape, floating, indices, like, real, repeats_into, whole

ROPE_MODES = ("normal", "neox")


def _get_rows(_params: dict[str, Any], table: Tensor, ids: Tensor) -> ResultLayout:
    indices(ids)
    if len(table.shape) != 2:
        raise EngineError(f"{table} must be a matrix")
    return ResultLayout(shape=(ids.shape[0], table.shape[1]), dtype=floating(table))


def _get_rows_back(params: dict[str, Any], dy: Tensor, ids: Tensor) -> ResultLayout:
    if len(dy.shape) != 2:
        raise EngineError(f"{dy} must be a matrix")
    indices(ids, dy.shape[0])
    (rows,) = checked_shape((params["rows"],), "rows")
    params["rows"] = rows
    return ResultLayout(shape=(rows, dy.shape[1]), dtype=floating(dy))


def _set_rows(_params: dict[str, Any], dst: Tensor, x: Tensor, ids: Tensor) -> ResultLayout:
    if len(dst.shape) != 2 or len(x.shape) != 2 or dst.shape[1] != x.shape[1]:
        raise EngineError(f"{dst} and {x} must be matrices with rows of one length")
    indices(ids, x.shape[0])
    return ResultLayout(shape=dst.shape, dtype=floating(dst, x))


def _rope(params: dict[str, Any], x: Tensor, pos: Tensor) -> ResultLayout:
    if len(x.shape) != 3:
        raise EngineError(f"{x} must have the axes position, head and element")
    indices(pos, x.shape[0])
    dims = params["dims"] = x.shape[-1] if params["dims"] is None else whole("dims", params["dims"])
    params["base"] = real("base", params["base"])
    if dims % 2 or not 0 < dims <= x.shape[-1]:
        raise EngineError(f"dims {dims} is not an even number between 2 and the head size {x.shape[-1]}")
    if params["mode"] not in ROPE_MODES:
        raise EngineError(f"mode {params['mode']!r} is none of {', '.join(ROPE_MODES)}")
    return ResultLayout(shape=x.shape, dtype=floating(x))


def _soft_max(params: dict[str, Any], x: Tensor, *masks: Tensor) -> ResultLayout:
    params["scale"] = real("scale", params["scale"])
    for mask in masks:
        if not (repeats_into(mask.shape, x.shape) and mask.shape[-1] == x.shape[-1]):
            raise EngineError(f"{mask} does not repeat into {x}, row by row")
    return ResultLayout(shape=x.shape, dtype=floating(x, *masks))


RULES = (
    row("get_rows(table, ids)", _get_rows, table="get_rows_back(g, ids, rows=table.shape[0])", ids=None),
    row("get_rows_back(dy, ids, *, rows)", _get_rows_back, dy="get_rows(contiguous(g), ids)", ids=None),
    row("set_rows(dst, x, ids)", _set_rows, mutates=0),
    *(
        row(f"{kind}(x, pos, *, base, dims=None, mode='normal')", _rope, x=f"{other}(g, pos, **params)", pos=None)
        for kind, other in (("rope", "rope_back"), ("rope_back", "rope"))
    ),
    row("soft_max(x, mask=None, *, scale=1.0)", _soft_max, x="soft_max_back(g, r, scale=scale)", mask=None),
    row(  # the Jacobian diag(y) - y y^T is symmetric
        "soft_max_back(dy, y, *, scale=1.0)",
        like("scale"),
        dy="soft_max_back(g, y, scale=scale)",
        parts="scale(mul(sub(dy, sum_axes(mul(dy, y), axes=-1, keepdims=True)), y), s=scale)",
    ),
)
