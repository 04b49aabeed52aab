"""Attention as a bound kernel, by blocks of query rows.

Forward takes two products and a softmax for each head and block, backward five products and two
softmax passes.

The scratch is a block of rows x S elements (twice, back), taken when bound and shared by all heads;
a plan does not see it. Products are tiles (`engine.kernels.tiles`) where they fit and pay, else
numpy's BLAS, as for `mul_mat`; rows are those of `engine.kernels.compiled`. Sums over the heads of
a group go head by head, then block by block, so bits depend on shapes and the processor alone.
Operands without unit stride on a matrix axis are copied into scratch first.

Where several threads are allowed, each part of a large call (`engine.kernels.threads`) has scratch
of its own: forward is cut by heads and blocks, backward by the heads of keys, so that no sum is
cut.

With `causal` a block of queries meets no key beyond its last query's: of many blocks nearly half
the scores are left out. The mask is looked through and cut into blocks, in scratch, once for all
heads.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from engine.kernels import rowwise, tiles
from engine.kernels.binding import Array, Arrays, Call, dense_like, one_call, require, scratch
from engine.kernels.products import blas_ready
from engine.kernels.threads import cut, parts, together
from engine.kernels.vector_width import wide

BLOCK_ROWS = 64
"""Query rows whose weights exist at a time, at least; with `causal` no more, so that most keys
beyond a query are left out."""
BLOCK_WEIGHTS = 65536
"""Weights up to which a block has more rows: a product of few costs a BLAS its packing, and these
stay in the second cache until they are used."""


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


class Products(NamedTuple):
    """How matrices are multiplied: by tiles where they fit and pay, in one room; or by BLAS."""

    packed: Array | None

    def call(self, left: Array, right: Array, out: Array, *, add: bool = False) -> Call:
        """Return the call of `out = left @ right`, or with `add` (tiles alone) of `out += ..`."""
        if self.takes(left, right, out):
            return tiles.call(left, right, out, add=add, packed=self.packed)
        require(not add, "attention: only tiles add")
        return np.matmul, (left, right, out)

    def takes(self, left: Array, right: Array, out: Array) -> bool:
        """Return whether tiles do it."""
        return self.packed is not None and tiles.chosen(left, right, out)

    def added(self, left: Array, right: Array, out: Array, share: Array) -> tuple[Call, ...]:
        """Return the calls that add a product to `out`; `share` is of its layout."""
        if self.takes(left, right, out):
            return (self.call(left, right, out, add=True),)
        return self.call(left, right, share), (np.add, (out, share, out))


def _by_tiles(q: Array) -> bool:
    """Return whether tiles are quick here."""
    return bool(q.dtype == np.float32 and wide())


def _products(q: Array, k: Array, v: Array, rows: int) -> Products:
    """Return how the products of a call are made: `rows` is the most query rows of a block."""
    if not _by_tiles(q):
        return Products(None)
    sides = (rows, k.shape[-2], q.shape[-1], v.shape[-1])
    return Products(tiles.room(max(sides), max(sides)))


def _parts(out: Array, reads: Arrays, units: int, *, products: int) -> int:
    """Return into how many parts a call is cut that reads q, k, v and more."""
    q, k, v, *_ = reads
    by_blas = not _by_tiles(q) or min(q.shape[-1], v.shape[-1]) < tiles.COLUMNS
    return parts(q.size * k.shape[-2] * products, units, out=out, reads=reads, by_blas=by_blas)


def _blocks(rows: int, mask: Array, *, masked: bool, causal: bool) -> tuple[list[tuple[slice, int, Array]], list[Call]]:
    """Return (rows of q, keys they see, their mask) by block, with the calls that make masks."""
    keys = mask.shape[1]
    size = _block_rows(rows, keys, causal=causal)
    blocks: list[tuple[slice, int, Array]] = []
    calls: list[Call] = []
    for start in range(0, rows, size):
        block = slice(start, min(start + size, rows))
        seen = block.stop + keys - rows if causal else keys
        part = mask[block] if masked else mask
        if causal:
            part = scratch((block.stop - start, seen), mask.dtype)
            calls.append(rowwise.call("causal_mask", mask, start, keys - rows, part))
        blocks.append((block, seen, part))
    return blocks, calls


def _block_rows(rows: int, keys: int, *, causal: bool) -> int:
    """Return how many query rows a block has."""
    most = BLOCK_ROWS if causal else max(BLOCK_ROWS, BLOCK_WEIGHTS // max(keys, 1))
    return max(min(most, rows), 1)


def _part(held: Array, rows: int, columns: int) -> Array:
    """Return a dense matrix in the first bytes of scratch."""
    return held[: rows * columns].reshape(rows, columns)


def _weights(held: Array, block: slice, seen: int, mask: Array, scale: Any) -> tuple[Array, Call]:
    """Return where the weights of a block lie, and the softmax there, one for all heads."""
    weights = _part(held, block.stop - block.start, seen)
    return weights, rowwise.call("soft_max", weights, mask, scale, weights)


def _slopes(held: Array, slopes: Array, block: slice, seen: int, scale: Any) -> tuple[Array, Call]:
    """Return where the gradient of the scores of a block lies, and softmax's backward there."""
    weights, ds = (_part(each, block.stop - block.start, seen) for each in (held, slopes))
    return ds, rowwise.call("soft_max_back", ds, weights, scale, ds)


def bind_attention(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(q[.., T, d], k[.., S, d], v[.., S, e][, mask]) -> [.., T, e]; params scale, causal."""
    (q, k, v, *masks), (out,) = operands, results
    mask = _check("attention", q, k, v, masks)
    require(out.shape == (*q.shape[:-1], v.shape[-1]) and out.dtype == q.dtype, f"attention: result {list(out.shape)}")
    (q, k, v), copies = _ready(q, k, v)
    dense, target = dense_like(mask), dense_like(out)
    copies += () if dense is mask else ((np.copyto, (dense, mask)),)
    scale, rows = q.dtype.type(params["scale"]), q.shape[-2]
    blocks, calls = _blocks(rows, dense, masked=bool(masks), causal=params.get("causal", False))
    units = [(head, group, *block) for head, group in _heads(q, k) for block in blocks]
    most = blocks[0][0].stop if blocks else 0

    def done(kept: slice) -> Call:
        held, products = scratch((most * k.shape[-2],), q.dtype), _products(q, k, v, most)
        rated = {block.start: _weights(held, block, seen, part, scale) for block, seen, part in blocks}
        turns: list[Call] = []
        for head, group, block, seen, _ in units[kept]:
            weights, soft_max = rated[block.start]
            turns += [
                products.call(q[head][block], k[group][:seen].swapaxes(-1, -2), weights),
                soft_max,
                products.call(weights, v[group][:seen], target[head][block]),
            ]
        return one_call(*turns)

    count = _parts(target, (q, k, v, dense), len(units), products=2)
    calls.append(together([done(kept) for kept in cut(len(units), count)]))
    return one_call(*copies, *calls, *(() if target is out else ((np.copyto, (out, target)),)))


def bind_attention_back(params: Mapping[str, Any], operands: Arrays, results: Arrays) -> Call:
    """(grad, q, k, v[, mask]) -> the gradients of q, k and v, flat; params scale, causal."""
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
    most, nothing = blocks[0][0].stop if blocks else 0, np.zeros((), q.dtype)
    calls += [(np.copyto, (dk, nothing)), (np.copyto, (dv, nothing))]
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for head, group in _heads(q, k):
        groups.setdefault(group, []).append(head)
    units = list(groups.items())

    def done(kept: slice) -> Call:
        size, products = (most * k.shape[-2],), _products(q, k, v, most)
        held, slopes = scratch(size, q.dtype), scratch(size, q.dtype)
        shares = scratch(k.shape[-2:], q.dtype), scratch(v.shape[-2:], q.dtype)
        rated = [
            (block, seen, *_weights(held, block, seen, part, scale), *_slopes(held, slopes, block, seen, scale))
            for block, seen, part in blocks
        ]
        turns: list[Call] = []
        for group, head in ((group, head) for group, heads in units[kept] for head in heads):
            for block, seen, weights, soft_max, ds, soft_max_back in rated:
                share_k, share_v, dk_seen, dv_seen = (
                    shares[0][:seen],
                    shares[1][:seen],
                    dk[group][:seen],
                    dv[group][:seen],
                )
                turns += [
                    products.call(q[head][block], k[group][:seen].swapaxes(-1, -2), weights),
                    soft_max,
                    *products.added(weights.T, grad[head][block], dv_seen, share_v),
                    products.call(grad[head][block], v[group][:seen].swapaxes(-1, -2), ds),
                    soft_max_back,
                    products.call(ds, k[group][:seen], dq[head][block]),
                    *products.added(ds.T, q[head][block], dk_seen, share_k),
                ]
        return one_call(*turns)

    count = _parts(target, (q, k, v, grad, dense), len(units), products=5)
    calls.append(together([done(kept) for kept in cut(len(units), count)]))
    return one_call(*copies, *calls, *(() if target is out else ((np.copyto, (out, target)),)))
