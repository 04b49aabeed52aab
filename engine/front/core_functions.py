"""Functions of the front's tensors that are rows of `engine.ops`, or composites of the graph.

Shapes and broadcasting are numpy's. Operands that are no tensors become constants beside the first
one that is. `op` calls any row of the table that neither writes over an operand nor needs a graph.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from allocsim.errors import EngineError, UnknownNameError
from engine.front import indexing
from engine.front.arguments import one_axis
from engine.front.broadcasting import broadcast, meet
from engine.front.record import Eager, Node, composed, constant
from engine.front.recording import followed
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, binary, operand, tensor
from engine.graph import Tensor, composites
from engine.kernels.binding import Array
from engine.ops import OPS
from engine.ops.row import contiguous
from engine.ops.shapes import counts, real, whole


def op(kind: str, *tensors: EagerTensor, **params: Any) -> EagerTensor:
    """Return any row of the table of ops by its name (docs/ops.md), with the engine's shapes.

    At least one dimension, b repeating into a.

    Raises UnknownNameError for a name that is none, EngineError for what writes over an operand and
    for what the rule refuses.
    """
    rule = OPS.get(kind)
    if rule is None:
        raise UnknownNameError("op", kind, OPS)
    if rule.mutates is not None:
        raise EngineError(f"{kind} writes over an operand; the front has methods that end in _ for that")
    if not len(rule.arguments) - rule.optional <= len(tensors) <= len(rule.arguments):
        raise EngineError(f"{kind}: {len(tensors)} operands given; it takes {', '.join(rule.arguments)}")
    if unknown := sorted(set(params) - set(rule.params)):
        raise EngineError(f"{kind}: no parameter {', '.join(unknown)}; there are {', '.join(rule.params) or 'none'}")
    nodes = [node_of(x) for x in tensors]
    try:
        return _made(Eager.op(kind, *nodes, **params))
    except (TypeError, ValueError, OverflowError) as error:  # of a kernel that was given a parameter of another type
        raise EngineError(f"{kind}: {error}") from None


# choosing


def where(condition: Any, a: Any, b: Any) -> EagerTensor:
    """Return a where `condition` is not 0, else b, broadcast; no gradient for the condition."""
    first = _first("where", a, b)
    left, right = operand(a, first), operand(b, first)
    if follows(condition):
        chosen = condition.detach().astype(first.dtype)
    else:
        given = _array("where", condition)
        chosen = EagerTensor(constant(np.atleast_1d(given != 0).astype(first.dtype)), given.shape)
    shape = meet("where", chosen, left, right)
    return EagerTensor(Eager.op("where", *(broadcast(x, shape) for x in (chosen, left, right))), shape)


def maximum(a: Any, b: Any) -> EagerTensor:
    """Return the larger of a and b; a tie's gradient is a's."""
    first = _first("maximum", a, b)
    return binary("maximum", operand(a, first), b)


def minimum(a: Any, b: Any) -> EagerTensor:
    """Return the smaller of a and b; a tie's gradient is a's."""
    first = _first("minimum", a, b)
    return binary("minimum", operand(a, first), b)


def one_hot(classes: Any, count: int, *, dtype: Any = np.float32) -> EagerTensor:
    """Return a row of `count` for each class number: 1 in its place, 0 elsewhere."""
    if follows(classes):
        return embedding(tensor(np.eye(whole("one_hot", count)), dtype=dtype), classes)
    ids, count = numbers("one_hot", classes), whole("one_hot", count)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        raise EngineError(f"one_hot of {count}: class numbers run from {ids.min()} to {ids.max()}")
    return tensor(ids[..., None] == np.arange(count), dtype=dtype)


# moving


def concat(tensors: Sequence[EagerTensor], axis: int = 0) -> EagerTensor:
    """Return the tensors one after the other along `axis`."""
    if not tensors:
        raise EngineError("concat was given no tensors")
    nodes = [node_of(t) for t in tensors]
    if not all(t.ndim for t in tensors):
        raise EngineError(f"concat of {nodes[0]}: a scalar has no axis; stack makes one")
    return _made(composed(composites.concat, nodes, axis=one_axis(nodes[0], tensors[0].ndim, axis)))


def stack(tensors: Sequence[EagerTensor], axis: int = 0) -> EagerTensor:
    """Return tensors of one shape along a new axis."""
    if not tensors:
        raise EngineError("stack was given no tensors")
    _check(*tensors)
    rank, axis = tensors[0].ndim + 1, whole("stack", axis)
    if not -rank <= axis < rank:
        raise EngineError(f"axis {axis} is none of the {rank} axes of a stack")
    place = axis % rank
    return concat([t.reshape(*t.shape[:place], 1, *t.shape[place:]) for t in tensors], place)


def split(x: EagerTensor, sizes: int | Sequence[int], axis: int = 0) -> tuple[EagerTensor, ...]:
    """Return views along `axis`: of `sizes` elements each in turn, or that many equal ones."""
    lengths = counts("split", sizes) if isinstance(sizes, Iterable) else whole("split", sizes)
    return tuple(_made(part) for part in composed(composites.split, node_of(x), lengths, whole("split", axis)))


def pad(x: EagerTensor, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> EagerTensor:
    """Return x with new elements of `value`, so many before and after it on each axis."""
    return op("pad", x, before=counts("pad", before), after=counts("pad", after), value=real("pad", value))


def gather(x: EagerTensor, ids: Any, axis: int = -1) -> EagerTensor:
    """Return the elements of x at `ids`, shaped like x but for `axis`; refuse one out of range."""
    if follows(ids):
        return EagerTensor(Eager.op("gather", node_of(x), _places("gather", ids), axis=axis), ids.shape)
    return EagerTensor(Eager.op("gather", node_of(x), _ids("gather", x, ids, axis), axis=axis), np.shape(ids))


def scatter(values: EagerTensor, ids: Any, length: int, axis: int = -1) -> EagerTensor:
    """Return zeros of `length` along `axis`, each element of values added where its index points.

    What `gather` is transposed.
    """
    length, axis = whole("scatter", length), whole("scatter", axis)
    if follows(ids):
        return _made(Eager.op("scatter", node_of(values), _places("scatter", ids), length=length, axis=axis))
    places = numbers("scatter", ids)
    if places.size and not 0 <= int(places.min()) <= int(places.max()) < length:
        raise EngineError(f"scatter into {length}: indices run from {places.min()} to {places.max()}")
    return _made(Eager.op("scatter", node_of(values), constant(places), length=length, axis=axis))


def embedding(table: EagerTensor, ids: Any) -> EagerTensor:
    """Return the rows of table[V, D] that ids of any shape name: [*ids, D]."""
    _check(table)
    if table.ndim != 2:
        raise EngineError(f"embedding: {node_of(table)} is no matrix")
    if follows(ids):
        return EagerTensor(
            indexing.rows_at(node_of(table), _places("embedding", ids.reshape(-1)), ids.shape),
            (*ids.shape, table.shape[1]),
        )
    rows = numbers("embedding", ids)
    if rows.size and int(rows.min()) < 0:  # as a program would be refused it; table[ids] counts from the end
        raise EngineError(f"embedding of {table.shape[0]} rows: {int(rows.min())} names none")
    return _made(indexing.rows(node_of(table), rows))


# norms, windows, attention


@in_float32
def rms_norm(x: EagerTensor, gain: EagerTensor | None = None, *, eps: float = 1e-5) -> EagerTensor:
    """Return x / sqrt(mean(x^2) + eps) over the last axis, times `gain`."""
    y = row("rms_norm", x, eps=real("rms_norm", eps))
    return y if gain is None else y * _of_the_last(gain, y)


@in_float32
def layer_norm(
    x: EagerTensor, gain: EagerTensor | None = None, bias: EagerTensor | None = None, *, eps: float = 1e-5
) -> EagerTensor:
    """Return (x - mean) / sqrt(variance + eps) over the last axis, times `gain`, plus `bias`."""
    y = row("norm", x, eps=real("layer_norm", eps))
    y = y if gain is None else y * _of_the_last(gain, y)
    return y if bias is None else y + _of_the_last(bias, y)


def _of_the_last(given: Any, x: EagerTensor) -> EagerTensor:
    """Return numbers of the last axis, which alone is normed."""
    found = operand(given, x)
    if found.shape != x.shape[-1:]:
        raise EngineError(f"the last axis of {x.shape} is normed, which numbers of shape {found.shape} are not of")
    return found


def lifted(composite: Callable[..., Any]) -> Callable[..., EagerTensor]:
    """Return a function of `engine.graph.composites` for tensors of the front.

    Its signature and docstring stand there alone.
    """
    takes = signature(composite)
    operands = [name for name, parameter in takes.parameters.items() if parameter.annotation in {Tensor, Tensor | None}]

    @wraps(composite)
    def function(*given: Any, **params: Any) -> EagerTensor:
        bound = takes.bind(*given, **params)
        for name in operands:
            if bound.arguments.get(name) is not None:
                bound.arguments[name] = node_of(bound.arguments[name])
        return _made(composed(composite, *bound.args, **bound.kwargs))

    return function


conv2d = lifted(composites.conv2d)
conv1d = lifted(composites.conv1d)
max_pool2d = lifted(composites.max_pool2d)
avg_pool2d = lifted(composites.avg_pool2d)


@in_float32
def attention(
    q: EagerTensor, k: EagerTensor, v: EagerTensor, mask: Any = None, *, scale: float | None = None
) -> EagerTensor:
    """Return softmax(q k^T * scale + mask) v as one op.

    Scale is 1 / sqrt(d) by default, the mask [T, S] has no gradient. A mask of truth (numpy's bool)
    is True where a row may look (`np.tri(T, S, dtype=bool)`: not ahead), and a row that may look
    nowhere is 0. One of floating numbers, such as a comparison here gives, is added to the scores;
    a row of -inf is NaN. Whole numbers are neither and are refused. Batches of k and v are
    alike, and have the lengths of those of q, or 1.
    """
    _check(q, k, v)
    if not q.ndim:
        raise EngineError(f"attention of {node_of(q)}: [.., T, d] is needed")
    if any(mine not in {1, wanted} for mine, wanted in zip(k.shape[:-2], q.shape[:-2], strict=False)):
        raise EngineError(f"attention: the batches of {node_of(k)} do not broadcast to those of {node_of(q)}")
    laid = mask if mask is None or isinstance(mask, EagerTensor) else _array("attention", mask)
    if laid is not None and laid.dtype.kind in "iu":
        raise EngineError(
            f"attention: a mask of {laid.dtype} is neither of truth (bool) nor of numbers to add (floating)"
        )
    if isinstance(laid, np.ndarray) and laid.dtype.kind == "b":
        blind = ~laid.any(-1, keepdims=True)
        found = attention(q, k, v, np.where(laid | blind, 0.0, -np.inf).astype(q.dtype), scale=scale)
        return where(blind, 0.0, found) if blind.any() else found
    masks = () if mask is None else (node_of(operand(mask, q)),)
    factor = 1 / float(np.sqrt(q.shape[-1] or 1)) if scale is None else real("attention", scale)
    return _made(Eager.op("attention", node_of(q), node_of(k), node_of(v), *masks, scale=factor))


def rope(
    x: EagerTensor, positions: Any, *, base: float = 10000.0, dims: int | None = None, mode: str = "normal"
) -> EagerTensor:
    """Return x[T, H, hd] with the pairs of its heads rotated by position.

    Pairs are neighbours (`normal`) or halves (`neox`).
    """
    ids = _places("rope", positions) if follows(positions) else constant(numbers("rope", positions))
    return _made(Eager.op("rope", node_of(x), ids, base=real("rope", base), dims=dims, mode=mode))


# jumps


def straight_through(hard: EagerTensor, soft: EagerTensor) -> EagerTensor:
    """Return the value of `hard` with the gradient of `soft`."""
    return EagerTensor(Eager.op("straight_through", node_of(hard), node_of(soft)), hard.shape)


def count_equal(a: Any, b: Any) -> int:
    """Return in how many places two arrays of whole numbers agree; no gradient."""
    left, right = (constant(np.atleast_1d(numbers("count_equal", x))) for x in (a, b))
    return int(Eager.op("count_equal", left, right).array.item())


# losses


@in_float32
def mse_loss(prediction: EagerTensor, target: Any) -> EagerTensor:
    """Return the mean of (prediction - target)^2; one shape."""
    _check(prediction)
    goal = aimed("mse_loss", prediction, target)
    return EagerTensor(Eager.op("mean_squared_error", node_of(prediction), node_of(goal)), ())


def aimed(what: str, prediction: EagerTensor, target: Any) -> EagerTensor:
    """Return a target as a tensor; EngineError unless it has the shape of the prediction."""
    goal = operand(target, prediction)
    if goal.shape != prediction.shape:
        raise EngineError(f"{what}: the prediction has shape {prediction.shape}, the target {goal.shape}")
    return goal


def cross_entropy(logits: EagerTensor, labels: Any) -> EagerTensor:
    """Return the mean over rows of -sum(labels * log_softmax(logits)).

    Labels are distributions like logits, or class numbers for each row.
    """
    _check(logits)
    if not logits.ndim:
        raise EngineError(f"cross_entropy of {node_of(logits)}: rows of class scores are needed")
    count, rows = logits.shape[-1], prod(logits.shape[:-1])
    if not isinstance(labels, EagerTensor):
        given = _array("cross_entropy", labels)
        if given.dtype.kind == "f" and (given.size or given.shape == logits.shape):  # no numbers are floats to numpy
            labels = operand(labels, logits)
    if isinstance(labels, EagerTensor) and labels.dtype.kind == "f":
        if labels.shape != logits.shape:
            raise EngineError(f"cross_entropy: logits have shape {logits.shape}, labels {labels.shape}")
        pair = (node_of(x.reshape(rows, count)) for x in (logits, labels))
        return EagerTensor(Eager.op("cross_entropy_loss", *pair), ())
    if follows(labels):
        if labels.shape != logits.shape[:-1]:
            raise EngineError(f"cross_entropy: logits have shape {logits.shape}, class numbers {labels.shape}")
        known = _places("cross_entropy", labels.reshape(-1))
        return EagerTensor(Eager.op("cross_entropy_classes", node_of(logits.reshape(rows, count)), known), ())
    ids = numbers("cross_entropy", labels)
    if ids.shape != logits.shape[:-1]:
        raise EngineError(f"cross_entropy: logits have shape {logits.shape}, class numbers {ids.shape}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        raise EngineError(f"cross_entropy of {count} classes: class numbers run from {ids.min()} to {ids.max()}")
    return EagerTensor(
        Eager.op("cross_entropy_classes", node_of(logits.reshape(rows, count)), constant(ids.reshape(-1))), ()
    )


# helpers


def _check(*tensors: EagerTensor) -> None:
    """Raise EngineError unless all are tensors of the front."""
    for stranger in (x for x in tensors if not isinstance(x, EagerTensor)):
        raise EngineError(f"{type(stranger).__name__} given where a tensor is needed; tensor(...) makes one")


def node_of(x: EagerTensor) -> Node:
    _check(x)
    return x._present()  # noqa: SLF001 - what functions of the front are made of


def place_of(x: EagerTensor, axis: int) -> int:
    """Return where an axis is, counted from 0; EngineError where there is none."""
    return one_axis(node_of(x), x.ndim, axis)


def row(kind: str, x: EagerTensor, **params: Any) -> EagerTensor:
    """Return a row of the table that keeps the shape, () too."""
    return EagerTensor(Eager.op(kind, node_of(x), **params), x.shape)


def _made(node: Node) -> EagerTensor:
    return EagerTensor(node, node.shape)


def _first(what: str, *values: Any) -> EagerTensor:
    found = next((value for value in values if isinstance(value, EagerTensor)), None)
    if found is None:
        raise EngineError(f"{what} was given no tensor")
    return found


def _array(what: str, given: Any) -> Array:
    try:
        return given.data if isinstance(given, EagerTensor) else np.asarray(given)
    except ValueError as error:
        raise EngineError(f"{what}: {error}") from None


def numbers(what: str, given: Any) -> Array:
    found = _array(what, given)
    if found.size and (found.dtype.kind not in "iu" or not -(2**31) <= int(found.min()) <= int(found.max()) < 2**31):
        raise EngineError(f"{what}: whole numbers of 32 bits are needed, not {found.dtype}")
    return np.array(found, np.int32, order="C")  # a copy: what the caller does to his own later is not our history


def follows(given: Any) -> bool:
    """Whether a model is recorded and what is given follows from its columns or parameters."""
    return isinstance(given, EagerTensor) and followed(given._node)  # noqa: SLF001


def _places(what: str, given: EagerTensor) -> Node:
    """Return the node of whole numbers that are known when the program runs."""
    node = node_of(given)
    if node.dtype != "i32":
        raise EngineError(
            f"{what}: whole numbers of 32 bits are needed, not {given.dtype}; state the dtype of the column"
        )
    found: Node = composed(contiguous, node)
    return found


def _ids(what: str, x: EagerTensor, given: Any, axis: int) -> Node:
    _check(x)
    ids, axis = numbers(what, given), whole(what, axis)
    if not -x.ndim <= axis < x.ndim:
        raise EngineError(f"{what}: axis {axis} is none of the {x.ndim} axes of {node_of(x)}")
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < x.shape[axis]:
        raise EngineError(
            f"{what}: indices run from {ids.min()} to {ids.max()}; axis {axis} of {node_of(x)} has {x.shape[axis]}"
        )
    return constant(np.atleast_1d(ids))


__all__ = [
    "attention", "avg_pool2d", "concat", "conv1d", "conv2d", "count_equal", "cross_entropy", "embedding",
    "gather", "layer_norm", "max_pool2d", "maximum", "minimum", "mse_loss", "one_hot", "op", "pad",
    "rms_norm", "rope", "scatter", "split", "stack", "straight_through", "where",
]  # fmt: skip
