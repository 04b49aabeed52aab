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
from engine.ops.pullback import by_parts
from engine.ops.rule import REQUIRED, ResultLayout, Rule, Sources, Tensor
from engine.ops.shapes import checked_shape, floating, indices, like, real, repeats_into, whole
from engine.ops.views import contiguous

ROPE_MODES = ("normal", "neox")


def _get_rows(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    del params
    table, ids = sources
    indices(ids)
    if len(table.shape) != 2:
        raise EngineError(f"{table} must be a matrix")
    return ResultLayout(shape=(ids.shape[0], table.shape[1]), dtype=floating(table))


def _get_rows_back(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    dy, ids = sources
    if len(dy.shape) != 2:
        raise EngineError(f"{dy} must be a matrix")
    indices(ids, dy.shape[0])
    (rows,) = checked_shape((params["rows"],), "rows")
    params["rows"] = rows
    return ResultLayout(shape=(rows, dy.shape[1]), dtype=floating(dy))


def _set_rows(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    del params
    dst, x, ids = sources
    if len(dst.shape) != 2 or len(x.shape) != 2 or dst.shape[1] != x.shape[1]:
        raise EngineError(f"{dst} and {x} must be matrices with rows of one length")
    indices(ids, x.shape[0])
    return ResultLayout(shape=dst.shape, dtype=floating(dst, x))


def _rope(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    x, pos = sources
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


def _soft_max(sources: Sources, params: dict[str, Any]) -> ResultLayout:
    params["scale"] = real("scale", params["scale"])
    x = sources[0]
    if len(sources) > 1 and not (repeats_into(sources[1].shape, x.shape) and sources[1].shape[-1] == x.shape[-1]):
        raise EngineError(f"{sources[1]} does not repeat into {x}, row by row")
    return ResultLayout(shape=x.shape, dtype=floating(*sources))


def _get_rows_back_dy(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("get_rows", contiguous(grad), node.sources[1])


def _rope_back_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("rope", grad, node.sources[1], **node.params)


def _soft_max_back_dy(node: Tensor, grad: Tensor) -> Tensor:
    """The Jacobian diag(y) - y y^T is symmetric."""
    return node.graph.op("soft_max_back", grad, node.sources[1], scale=node.params["scale"])


def _soft_max_back_parts(node: Tensor, dy: Tensor, y: Tensor) -> Tensor:
    graph = node.graph
    dot = graph.op("sum_axes", graph.op("mul", dy, y), axes=-1, keepdims=True)
    return graph.op("scale", graph.op("mul", graph.op("sub", dy, dot), y), s=node.params["scale"])


def _get_rows_table(node: Tensor, grad: Tensor) -> Tensor:
    table, ids = node.sources
    return node.graph.op("get_rows_back", grad, ids, rows=table.shape[0])


def _rope_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("rope_back", grad, node.sources[1], **node.params)


def _soft_max_x(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("soft_max_back", grad, node, scale=node.params["scale"])


_ROPE_PARAMS = {"base": REQUIRED, "dims": None, "mode": "normal"}

RULES = (
    Rule(
        kind="get_rows",
        arguments=("table", "ids"),
        shape=_get_rows,
        derivatives={"table": _get_rows_table},
        constant=frozenset({"ids"}),
    ),
    Rule(
        kind="get_rows_back",
        arguments=("dy", "ids"),
        params={"rows": REQUIRED},
        shape=_get_rows_back,
        derivatives={"dy": _get_rows_back_dy},
        constant=frozenset({"ids"}),
    ),
    Rule(kind="set_rows", arguments=("dst", "x", "ids"), shape=_set_rows, mutates=0),
    Rule(
        kind="rope",
        arguments=("x", "pos"),
        params=_ROPE_PARAMS,
        shape=_rope,
        derivatives={"x": _rope_x},
        constant=frozenset({"pos"}),
    ),
    Rule(
        kind="rope_back",
        arguments=("x", "pos"),
        params=_ROPE_PARAMS,
        shape=_rope,
        derivatives={"x": _rope_back_x},
        constant=frozenset({"pos"}),
    ),
    Rule(
        kind="soft_max",
        arguments=("x", "mask"),
        optional=1,
        params={"scale": 1.0},
        shape=_soft_max,
        derivatives={"x": _soft_max_x},
        constant=frozenset({"mask"}),
    ),
    Rule(
        kind="soft_max_back",
        arguments=("dy", "y"),
        params={"scale": 1.0},
        shape=like("scale"),
        derivatives={"dy": _soft_max_back_dy, "y": by_parts("y", _soft_max_back_parts)},
    ),
)
