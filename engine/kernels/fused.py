"""Attention as a bound kernel, by blocks of query rows.

Forward takes two products and a softmax for each head and block, backward five products and two
softmax passes.

The scratch is `BLOCK_ROWS` x S elements (twice, back), taken when bound and shared by all heads; a
plan does not see it. Products are numpy's BLAS, rows are those of `engine.kernels.compiled`. Sums
over the heads of a group go head by head, then block by block, so bits depend on shapes alone.
Operands without unit stride on a matrix axis are copied into scratch first.

With `causal` a block of queries meets no key beyond its last query's: of many blocks nearly half
the scores are left out. The mask is looked through and cut into blocks, in scratch, once for all
heads.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from engine.kernels import rowwise
from engine.kernels.binding import Array, Arrays, Call, dense_like, require, scratch
from engine.kernels.moving import in_turn
from engine.kernels.products import blas_ready

BLOCK_ROWS = 64
"""Query rows whose weights exist at a time."""


def _heads(q: Array, k: Array) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield (batch index of q, batch index of k and v that it meets)."""
    ratios = tuple(n // m if m else 1 for n, m in zip(q.shape[:-2], k.shape[:-2], strict=True))
    for index in np.ndindex(q.shape[:-2]):
        yield index, tuple(i // ratio for i, ratio in zip(index, ratios, strict=True))


def _ready(*arrays: Array) -> tuple[Arrays, tuple[Call, ...]]:
    """Return the arrays as BLAS takes them, and the copies that make them so."""
    ready = tuple(x if blas_ready(x) else scratch(x.shape, x.dtype) for x in arrays)
    return ready, tuple((np.copyto, (y, x)) for x, y in zip(arrays, ready, strict=True) if x is not y)


def _check(kind: str, q: Array, k: Array, v: Array, masks: list[Array]) -> Array:
    fits = q.ndim == k.ndim == v.ndim >= 2 and q.shape[-1] == k.shape[-1] and k.shape[:-1] == v.shape[:-1]
    require(fits and all(n % m == 0 for n, m in zip(q.shape[:-2], k.shape[:-2], strict=True) if m),
            f"{kind}: {list(q.shape)}, {list(k.shape)} and {list(v.shape)} do not fit")  # fmt: skip
    mask = masks[0] if masks else np.empty((0, k.shape[-2]), q.dtype)
    require(not masks or mask.shape == (q.shape[-2], k.shape[-2]), f"{kind}: mask {list(mask.shape)}")
    require(
        q.dtype == k.dtype == v.dtype == mask.dtype,
        f"{kind}: {q.dtype}, {k.dtype}, {v.dtype} and {mask.dtype} must agree",
    )
    return mask


def _scores(q: Array, k: Array, mask: Array, scale: Any, into: Array) -> tuple[Call, Call]:
    return (np.matmul, (q, k.swapaxes(-1, -2), into)), rowwise.call("soft_max", into, mask, scale, into)


def _causal_mask(mask: Array, start: int, ahead: int, into: Array) -> Call:
    from engine.kernels import compiled  # noqa: PLC0415 - numba loads with the first kernel bound, not before

    args = mask, start, ahead, into
    return compiled.find("causal_mask", args), args


def _blocks(rows: int, mask: Array, *, masked: bool, causal: bool) -> tuple[list[tuple[slice, int, Array]], list[Call]]:
    """Return (rows of q, number of keys they see, their mask) for each block.

    The calls that make the masks come with them.
    """
    keys = mask.shape[1]
    blocks: list[tuple[slice, int, Array]] = []
    calls: list[Call] = []
    for start in range(0, rows, BLOCK_ROWS):
        block = slice(start, min(start + BLOCK_ROWS, rows))
        seen = block.stop + keys - rows if causal else keys
        part = mask[block] if masked else mask
        if causal:
            part = scratch((block.stop - start, seen), mask.dtype)
            calls.append(_causal_mask(mask, start, keys - rows, part))
        blocks.append((block, seen, part))
    return blocks, calls


def _part(held: Array, rows: int, columns: int) -> Array:
    """Return a dense matrix in the first bytes of scratch."""
    return held[: rows * columns].reshape(rows, columns)


def bind_attention(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(q[.., T, d], k[.., S, d], v[.., S, e][, mask[T, S]]) -> [.., T, e].

    Params scale, causal (default no).
    """
    (q, k, v, *masks), (out,) = operands, results
    mask = _check("attention", q, k, v, masks)
    require(out.shape == (*q.shape[:-1], v.shape[-1]) and out.dtype == q.dtype, f"attention: result {list(out.shape)}")
    (q, k, v), copies = _ready(q, k, v)
    dense, target = dense_like(mask), dense_like(out)
    copies += () if dense is mask else ((np.copyto, (dense, mask)),)
    scale, rows = q.dtype.type(params["scale"]), q.shape[-2]
    blocks, calls = _blocks(rows, dense, masked=bool(masks), causal=params.get("causal", False))
    held = scratch((min(BLOCK_ROWS, rows) * k.shape[-2],), q.dtype)
    for head, group in _heads(q, k):
        for block, seen, part in blocks:
            weights = _part(held, block.stop - block.start, seen)
            calls += _scores(q[head][block], k[group][:seen], part, scale, weights)
            calls.append((np.matmul, (weights, v[group][:seen], target[head][block])))
    return in_turn(*copies, *calls, *(() if target is out else ((np.copyto, (out, target)),)))


def bind_attention_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(grad, q, k, v[, mask]) -> the gradients of q, k and v, flat, one after the other.

    Params scale, causal (default no).
    """
    (grad, q, k, v, *masks), (out,) = operands, results
    mask = _check("attention_back", q, k, v, masks)
    sizes = [x.size for x in (q, k, v)]
    require(
        grad.shape == (*q.shape[:-1], v.shape[-1]) and out.shape == (sum(sizes),),
        f"attention_back: result {list(out.shape)}",
    )
    (grad, q, k, v), copies = _ready(grad, q, k, v)
    dense, target = dense_like(mask), dense_like(out)
    copies += () if dense is mask else ((np.copyto, (dense, mask)),)
    flat = np.split(target, np.cumsum(sizes)[:-1])
    dq, dk, dv = (part.reshape(x.shape) for part, x in zip(flat, (q, k, v), strict=True))
    scale, rows = q.dtype.type(params["scale"]), q.shape[-2]
    blocks, calls = _blocks(rows, dense, masked=bool(masks), causal=params.get("causal", False))
    size = (min(BLOCK_ROWS, rows) * k.shape[-2],)
    held, slopes = scratch(size, q.dtype), scratch(size, q.dtype)
    shares = scratch(k.shape[-2:], q.dtype), scratch(v.shape[-2:], q.dtype)
    nothing = np.zeros((), q.dtype)
    calls += [(np.copyto, (dk, nothing)), (np.copyto, (dv, nothing))]
    for head, group in _heads(q, k):
        for block, seen, part in blocks:
            weights, ds = (_part(each, block.stop - block.start, seen) for each in (held, slopes))
            share_k, share_v, dk_seen, dv_seen = shares[0][:seen], shares[1][:seen], dk[group][:seen], dv[group][:seen]
            calls += _scores(q[head][block], k[group][:seen], part, scale, weights)
            calls += [
                (np.matmul, (weights.T, grad[head][block], share_v)),
                (np.add, (dv_seen, share_v, dv_seen)),
                (np.matmul, (grad[head][block], v[group][:seen].swapaxes(-1, -2), ds)),
                rowwise.call("soft_max_back", ds, weights, scale, ds),
                (np.matmul, (ds, k[group][:seen], dq[head][block])),
                (np.matmul, (ds.T, q[head][block], share_k)),
                (np.add, (dk_seen, share_k, dk_seen)),
            ]
    return in_turn(*copies, *calls, *(() if target is out else ((np.copyto, (out, target)),)))
