"""Attention as one op, with its backward.

`engine.graph.composites.attention_by_parts` builds the same of several ops.

    attention(q[.., T, d], k[.., S, d], v[.., S, e], mask[T, S]) -> [.., T, e]     softmax(q k^T * scale + mask) v

With `causal` the mask is -inf where a key lies beyond its query (s > t + S - T), and most of those
scores are not computed. A row whose mask lets it see further is NaN.

Batch dimensions of k and v divide those of q: batch i of q meets batch i // ratio (grouped heads),
as in `mul_mat`. The weights, T x S for each head, exist a block of rows at a time, and backward
computes them again (Dao et al. 2022, arXiv:2205.14135, without its streaming over S): that is the
memory it saves.

`attention_back(grad, q, k, v, mask)` is one vector, the gradients of q, k and v one after the
other; what a rule returns is a view of its part. The three are computed together, since they share
the weights.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.row import contiguous, grouped, row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import batch_divides, elements, floating, real


def _attention(params: dict[str, Any], q: Tensor, k: Tensor, v: Tensor, *masks: Tensor) -> ResultLayout:
    params["scale"], params["causal"] = real("scale", params["scale"]), bool(params["causal"])
    if min(len(x.shape) for x in (q, k, v)) < 2 or q.shape[-1] != k.shape[-1] or k.shape[:-1] != v.shape[:-1]:
        raise EngineError(f"{q}, {k} and {v} must be [.., T, d], [.., S, d] and [.., S, e]")
    if not batch_divides(k.shape, q.shape) or len(k.shape) != len(q.shape):
        raise EngineError(f"the batch dimensions of {k} do not divide those of {q}")
    wanted = (q.shape[-2], k.shape[-2])
    for mask in masks:
        if mask.shape != wanted:
            raise EngineError(f"mask {mask} must have shape {wanted}")
    if params["causal"] and (not masks or q.shape[-2] > k.shape[-2]):
        raise EngineError(f"causal attention of {q} and {k}: it needs a mask, and at least as many keys as queries")
    return ResultLayout(shape=(*q.shape[:-1], v.shape[-1]), dtype=floating(q, k, v, *masks))


def _attention_back(params: dict[str, Any], grad: Tensor, *rest: Tensor) -> ResultLayout:
    layout = _attention(params, *rest)
    if grad.shape != layout.shape:
        raise EngineError(f"{grad} must have shape {layout.shape}")
    return ResultLayout(shape=(sum(elements(x.shape) for x in rest[:3]),), dtype=floating(grad, *rest))


def _packed(node: Tensor, grad: Tensor) -> Tensor:
    return node.graph.op("attention_back", grad, *node.sources, **node.params)


def _part(position: int) -> Any:
    """Return the rule of q, k or v, which gets the packed vector in place of the gradient."""

    def rule(node: Tensor, packed: Tensor) -> Tensor:
        sizes = [elements(x.shape) for x in node.sources[:3]]
        part = node.graph.op("slice", packed, starts=(sum(sizes[:position]),), lengths=(sizes[position],))
        return node.graph.op("reshape", part, shape=node.sources[position].shape)

    return rule


def _attention_back_parts(node: Tensor, *sources: Tensor) -> Tensor:
    op, scale = node.graph.op, node.params["scale"]
    grad, q, k, v, *masks = sources
    weights = op("soft_max", op("mul_mat", k, q), *masks, scale=scale)
    scores = op("soft_max_back", op("mul_mat", v, grad), weights, scale=scale)
    found = [op("out_prod", k, op("transpose", scores)), op("out_prod", q, scores), op("out_prod", grad, weights)]
    shaped = [grouped(y, x) for y, x in zip(found, (q, k, v), strict=True)]
    flat = [op("reshape", contiguous(y), shape=(elements(y.shape),)) for y in shaped]
    return op("concat", op("concat", flat[0], flat[1]), flat[2])


RULES = (
    row(
        "attention(q, k, v, mask=None, *, scale, causal=False)",
        _attention,
        prepare=_packed,
        mask=None,
        q=_part(0),
        k=_part(1),
        v=_part(2),
    ),
    row(
        "attention_back(grad, q, k, v, mask=None, *, scale, causal=False)",
        _attention_back,
        mask=None,
        parts=_attention_back_parts,
    ),
)
