"""Bound kernels whose arithmetic numba compiles.

Binding checks shapes, flattens rows, casts constants and chooses the compiled version.

Each `bind_*` follows `engine.kernels.binding`; the arithmetic and its alias behaviour are in
`engine.kernels.compiled`, which is imported at the first bind (that is when numba loads), never at
import.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from engine.kernels.binding import (
    Array,
    Arrays,
    Bind,
    Call,
    flat,
    in_turn,
    on_dense,
    overlaps,
    require,
    rows,
    same_place,
    same_shapes,
    strided,
    tiled,
)
from engine.kernels.threads import cut, parts, together

ROPE_MODES = {"normal": False, "neox": True}
"""Which elements of a head are a pair: (2i, 2i + 1), or (i, i + dims / 2)."""

_ROPE_TABLE = 1024

COSTLY: Final = 32
"""Multiplications that an element costs as much as. What costs less is not cut: half of its
operands would have to come from another processor's cache."""

WHOLE: Final = 1024
"""Elements of a flat array that no cut divides: a multiple of what kernels compute at a time, so
that each element is computed as in the whole."""


def call(name: str, *args: Any) -> Call:
    """Return the kernel of `engine.kernels.compiled` of that name, compiled for `args`, with them.

    Arrays must be C-contiguous.
    """
    from engine.kernels import compiled  # noqa: PLC0415 - numba loads with the first kernel bound, not before

    return compiled.find(name, args), args


def shared(name: str, *args: Any, unit: int = 1) -> Call:
    """Return the same call in parts that may be done at once, if it is long enough.

    Args:
        name: a kernel that computes each row (of a flat array each element) of its result, the last
            argument, from the same row of its operands, and from arguments of another length.
        args: its arguments.
        unit: rows to a piece; parts are made of whole pieces.
    """
    out = args[-1]
    arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
    whole = tuple(arg for arg in arrays if len(arg) != len(out))
    count = parts(out.size * COSTLY, len(out) // unit, out=out, reads=whole)
    if count == 1 or overlaps(out, *(arg for arg in arrays if len(arg) == len(out))):
        return call(name, *args)
    return together([
        call(name, *(arg[piece] if isinstance(arg, np.ndarray) and len(arg) == len(out) else arg for arg in args))
        for piece in cut(len(out), count, unit)
    ])  # fmt: skip


def _indices(kind: str, ids: Array, count: int) -> Array:
    require(
        ids.dtype == np.int32 and ids.size == count,
        f"{kind}: needs {count} int32 indices, got {ids.dtype}{list(ids.shape)}",
    )
    return flat(ids)


def _take_turns(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Return whether row r of what repeats is its row r modulo their number: behind its first axis
    that is longer than 1 none is repeated.
    """
    aligned = (*(1,) * (len(large) - len(small)), *small)
    first = next((axis for axis, n in enumerate(aligned) if n > 1), len(aligned))
    return aligned[first + 1 :] == large[first + 1 :]


@on_dense
def bind_soft_max(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(x[.., n][, mask[.., n]]) -> [.., n].

    Params scale (default 1). The mask repeats over x; where its rows do not take turns in that, as
    with one for all heads of each batch, it is laid out first.
    """
    (x, *masks), (y,) = operands, results
    same_shapes("soft_max", x, y)
    if masks and x.size and not _take_turns(masks[0].shape[:-1], x.shape[:-1]):
        wide = np.empty_like(x)
        target, mask, _ = tiled("soft_max", wide, masks[0])
        return in_turn, ((np.copyto, (target, mask)), bind_soft_max(params, (x, wide), results))
    mask = rows(masks[0]) if masks else np.empty((0, x.shape[-1]), x.dtype)
    source = rows(x)
    repeats = len(source) % len(mask) == 0 if len(mask) else not masks or not len(source)
    fits = mask.dtype == x.dtype and mask.shape[1] == source.shape[1] and repeats
    require(fits, f"soft_max: mask {mask.dtype}{list(mask.shape)} does not repeat over {x.dtype}{list(x.shape)}")
    unit = len(mask) if 0 < len(mask) < len(source) else 1
    return shared("soft_max", source, mask, x.dtype.type(params.get("scale", 1.0)), rows(y), unit=unit)


def bind_elements(name: str) -> Bind:
    """Operands of one shape -> that shape, flat, by the compiled kernel `name`; no params."""

    @on_dense
    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        same_shapes(name, *operands, *results)
        return shared(name, *map(flat, operands), *map(flat, results), unit=WHOLE)

    return bind


def bind_rows(name: str, *params_of: str, **usual: float) -> Bind:
    """Operands of one shape [.., n] -> that, by rows; parameters go before the result, some with
    `usual`.
    """

    @on_dense
    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        same_shapes(name, *operands, *results)
        told = {**usual, **params}
        cast = (results[0].dtype.type(told[param]) for param in (*params_of, *usual))
        return shared(name, *map(rows, operands), *cast, *map(rows, results))

    return bind


@on_dense
def bind_clamp_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(dy, x) -> dy where params low <= x <= high, 0 elsewhere."""
    same_shapes("clamp_back", *operands, *results)
    low, high = (results[0].dtype.type(params[name]) for name in ("low", "high"))
    return call("clamp_back", *map(flat, operands), low, high, flat(results[0]))


@lru_cache(maxsize=16)
def _rotations(base: float, dims: int, positions: int, dtype: str) -> tuple[Array, Array, Array]:
    """Return (freq[dims/2] f64, cos[positions, dims/2], sin) of position * base ** (-2i / dims)."""
    freq = base ** (-2.0 * np.arange(dims // 2) / dims)
    angles = np.arange(positions)[:, None] * freq
    return freq, np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def forward(x: Array) -> bool:
    """Whether no stride of x is negative, or a fraction of an element."""
    return all(step >= 0 and step % x.itemsize == 0 for step in x.strides)


def has_heads(x: Array) -> bool:
    """Whether x[T, H, n] is rows of n adjacent elements, in whatever order they lie."""
    return x.ndim == 3 and x.strides[2] == x.itemsize and forward(x)


def heads(x: Array) -> tuple[Array, Array]:
    """Return such an x as one axis over all it reaches, with two strides in elements.

    They are those from one x[t], and from one x[t, h], to the next.
    """
    return reached(x), np.array(x.strides[:2], np.int64) // x.itemsize


def reached(x: Array) -> Array:
    """Return all elements from the first to the last of a `forward` x as one axis, without gaps."""
    reach = sum((n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)) // x.itemsize + 1 if x.size else 0
    return strided(x, (reach,), (x.itemsize,))


def bind_rope(sign: float) -> Bind:
    """(x[T, H, hd], pos[T]) -> [T, H, hd]; params base, dims, mode. `sign` -1 is the transpose."""

    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        (x, pos), (y,) = operands, results
        same_shapes("rope", x, y)
        require(x.ndim == 3, f"rope: needs [T, H, hd], got {list(x.shape)}")
        dims = int(params.get("dims", x.shape[2]))
        require(dims % 2 == 0 and 0 < dims <= x.shape[2], f"rope: dims {dims} must be even and at most {x.shape[2]}")
        mode = params.get("mode", "normal")
        if mode not in ROPE_MODES:
            raise EngineError(f"rope: mode {mode!r} is not one of {', '.join(ROPE_MODES)}")
        positions = max(_ROPE_TABLE, 1 << (len(x) - 1).bit_length()) if len(x) else _ROPE_TABLE
        freq, cos, sin = _rotations(float(params["base"]), dims, positions, x.dtype.str)
        where, tables = _indices("rope", pos, len(x)), (freq, cos, sin)
        count = parts(y.size * COSTLY, len(x), out=y, reads=(pos, *tables))
        return together([
            call("rope", *heads(x[some]), where[some], *tables, x.dtype.type(sign), ROPE_MODES[mode], y[some])
            for some in cut(len(x), 1 if overlaps(y, x) else count)
        ])  # fmt: skip

    dense = on_dense(bind)

    def bound(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
        x, *others = operands
        fits = has_heads(x) and all(a.flags.c_contiguous for a in (*others, *results))
        return (bind if fits else dense)(params, operands, results)

    return bound


@on_dense
def bind_cross_entropy_loss(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam
    """(logits, labels)[.., V] -> mean over rows of -sum(labels * log_softmax(logits))."""
    (logits, labels), (loss,) = operands, results
    same_shapes("cross_entropy_loss", logits, labels)
    require(
        loss.size == 1 and loss.dtype == logits.dtype,
        f"cross_entropy_loss: result {loss.dtype}{list(loss.shape)} is no scalar",
    )
    return call("cross_entropy_loss", rows(logits), rows(labels), flat(loss))


@on_dense
def bind_cross_entropy_loss_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam
    """(grad[1], logits, labels) -> [.., V]: (softmax * sum(labels) - labels) * grad / T.

    Ggml's where labels sum to 1.
    """
    (grad, logits, labels), (out,) = operands, results
    same_shapes("cross_entropy_loss_back", logits, labels, out)
    require(
        grad.size == 1 and grad.dtype == logits.dtype, f"cross_entropy_loss_back: grad {grad.dtype}{list(grad.shape)}"
    )
    scores = rows(logits)
    return shared("cross_entropy_loss_back", flat(grad), scores, rows(labels), len(scores), rows(out))


@on_dense
def bind_cross_entropy_classes(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam
    """(logits[T, V], classes[T]) -> one element.

    Mean over rows of log(sum(e ** logits)) - logits[class]; NaN for a class out of range.
    """
    (logits, classes), (loss,) = operands, results
    require(
        logits.ndim == 2 and loss.size == 1 and loss.dtype == logits.dtype,
        f"cross_entropy_classes: {logits.dtype}{list(logits.shape)} gives no {loss.dtype}{list(loss.shape)}",
    )
    return call("cross_entropy_classes", logits, _indices("cross_entropy_classes", classes, len(logits)), flat(loss))


@on_dense
def bind_cross_entropy_classes_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam
    """(grad[1], logits[T, V], classes[T]) -> [T, V]: (softmax - one_hot) * grad / T."""
    (grad, logits, classes), (out,) = operands, results
    kind = "cross_entropy_classes_back"
    same_shapes(kind, logits, out)
    require(
        logits.ndim == 2 and grad.size == 1 and grad.dtype == logits.dtype,
        f"{kind}: grad {grad.dtype}{list(grad.shape)}",
    )
    return shared(kind, flat(grad), logits, _indices(kind, classes, len(logits)), len(logits), out)


@on_dense
def bind_get_rows(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """(table[V, D], ids[T]) -> [T, D]; a row whose index is out of range is NaN."""
    (table, ids), (out,) = operands, results
    fits = table.ndim == 2 and out.dtype == table.dtype and out.shape[-1:] == table.shape[1:]
    require(fits, f"get_rows: table {table.dtype}{list(table.shape)} gives no {out.dtype}{list(out.shape)}")
    target = out.reshape((prod(out.shape[:-1]), out.shape[-1]))  # rows of no elements are rows too
    return call("get_rows", table, _indices("get_rows", ids, len(target)), target)


@on_dense
def bind_get_rows_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(dy[T, D], ids[T]) -> [rows, D], params rows: each row of dy added at its index."""
    (dy, ids), (out,) = operands, results
    source = dy.reshape((prod(dy.shape[:-1]), dy.shape[-1]))
    fits = out.ndim == 2 and out.dtype == dy.dtype and out.shape == (params.get("rows", len(out)), source.shape[1])
    require(fits, f"get_rows_back: {dy.dtype}{list(dy.shape)} gives no {out.dtype}{list(out.shape)}")
    return call("get_rows_back", source, _indices("get_rows_back", ids, len(source)), out)


@on_dense
def bind_set_rows(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
    """(dst[V, D], x[T, D], ids[T]) -> dst with rows of x at ids.

    In dst's own bytes, as a mutation has it, other rows are not touched.
    """
    (dst, x, ids), (out,) = operands, results
    fits = dst.ndim == x.ndim == 2 and dst.shape == out.shape and dst.dtype == x.dtype == out.dtype
    require(
        fits and x.shape[1] == dst.shape[1],
        f"set_rows: {dst.dtype}{list(dst.shape)} takes no rows of {x.dtype}{list(x.shape)}",
    )
    written = call("set_rows", x, _indices("set_rows", ids, len(x)), out)
    return written if same_place(dst, out) else (in_turn, ((np.copyto, (out, dst)), written))


def bind_step(name: str, hyper: int) -> Bind:
    """(target, others.., hp) -> the target's shape by kernel `name`; hp has `hyper` entries."""

    @on_dense
    def bind(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:  # noqa: ARG001 - the seam's signature
        *arrays, hp = operands
        (out,) = results
        same_shapes(name, *arrays, out)
        require(
            hp.size == hyper and hp.dtype == out.dtype,
            f"{name}: hp must be {out.dtype}[{hyper}], got {hp.dtype}{list(hp.shape)}",
        )
        return call(name, *map(flat, arrays), flat(hp), flat(out))

    return bind
