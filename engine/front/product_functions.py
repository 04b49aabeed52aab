"""Products of vectors, matrices and tensors, by axes and by equations, with PyTorch's names.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Sequence
from math import prod as product

from allocsim.errors import EngineError
from engine.front.axis_functions import norm, roll, unsqueeze
from engine.front.core_functions import node_of
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, within
from engine.ops.shapes import whole


@in_float32
def dot(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return the sum of products of two vectors of one length."""
    if a.ndim != 1 or a.shape != b.shape:
        raise EngineError(f"dot of shapes {a.shape} and {b.shape}: two vectors of one length are needed")
    return (a * b).sum()


@in_float32
def outer(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return a[i] * b[j] of two vectors."""
    if a.ndim != 1 or b.ndim != 1:
        raise EngineError(f"outer of shapes {a.shape} and {b.shape}: two vectors are needed")
    return a.reshape(-1, 1) * b.reshape(1, -1)


@in_float32
def cross(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return the vector product along the last axis, of length 3."""
    if a.shape[-1:] != (3,) or b.shape[-1:] != (3,):
        raise EngineError(f"cross of shapes {a.shape} and {b.shape}: a last axis of length 3 is needed")
    return roll(roll(b, -1, -1) * a - roll(a, -1, -1) * b, -1, -1)


@in_float32
def cdist(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return the distances of the rows of a[.., P, D] and b[.., R, D]: [.., P, R]."""
    return norm(unsqueeze(a, -2) - unsqueeze(b, -3), 2, -1)


@in_float32
def einsum(equation: str, *tensors: EagerTensor) -> EagerTensor:
    """Return the sum of products that an equation names, `"bij,bjk->bik"`; without `->` labels that
    stand once, in the order of the alphabet.

    Tensors are taken in from left to right, each pair as one product of matrices. A label twice in
    one tensor and `...` are refused.
    """
    text = equation.replace(" ", "")
    left, arrow, wanted = text.partition("->")
    labels = left.split(",")
    if not arrow:
        wanted = "".join(sorted(label for label in {*left} - {","} if left.count(label) == 1))
    _fitting(equation, labels, wanted, tensors)
    x, known = tensors[0], labels[0]
    for place, (y, others) in enumerate(zip(tensors[1:], labels[1:], strict=True), start=1):
        later = {*wanted, *"".join(labels[place + 1 :])}
        x, known = _contracted((x, known), (y, others), later)
    gone = tuple(place for place, label in enumerate(known) if label not in wanted)
    if gone:
        x, known = x.sum(gone), "".join(label for label in known if label in wanted)
    return x.transpose(*(known.index(label) for label in wanted)) if wanted != known else x


def _fitting(equation: str, labels: Sequence[str], wanted: str, tensors: Sequence[EagerTensor]) -> None:
    if len(labels) != len(tensors):
        raise EngineError(f"einsum {equation!r}: {len(labels)} operands are named, {len(tensors)} given")
    if not ("".join(labels) + wanted).isalpha() and "".join(labels) + wanted:
        raise EngineError(f"einsum {equation!r}: labels are letters; ... is not taken")
    lengths: dict[str, int] = {}
    for x, names in zip(tensors, labels, strict=True):
        node_of(x)
        if len({*names}) != len(names):
            raise EngineError(f"einsum {equation!r}: {names!r} names an axis twice")
        if len(names) != x.ndim:
            raise EngineError(f"einsum {equation!r}: {names!r} names {len(names)} axes of a tensor of shape {x.shape}")
        for label, length in zip(names, x.shape, strict=True):
            if lengths.setdefault(label, length) != length:
                raise EngineError(f"einsum {equation!r}: {label} has length {lengths[label]} and {length}")
    if len({*wanted}) != len(wanted) or {*wanted} - lengths.keys():
        raise EngineError(f"einsum {equation!r}: the result names {wanted!r}")


def _contracted(
    one: tuple[EagerTensor, str], other: tuple[EagerTensor, str], later: set[str]
) -> tuple[EagerTensor, str]:
    """Return the product of two labelled tensors, summed over what nobody later names."""
    (x, mine), (y, theirs) = (_summed(*pair, later | {*beside}) for pair, beside in ((one, other[1]), (other, one[1])))
    both = [label for label in mine if label in theirs]
    batch, inner = [b for b in both if b in later], [b for b in both if b not in later]
    left, right = [b for b in mine if b not in both], [b for b in theirs if b not in both]
    length = dict(zip(mine + theirs, x.shape + y.shape, strict=True))
    shape = tuple(length[label] for label in batch)
    a = x.transpose(*(mine.index(b) for b in batch + left + inner)) if mine else x
    b = y.transpose(*(theirs.index(b) for b in batch + inner + right)) if theirs else y
    rows, middle, columns = (product(length[b] for b in part) for part in (left, inner, right))
    found = a.reshape(*shape, rows, middle) @ b.reshape(*shape, middle, columns)
    return found.reshape(*shape, *(length[b] for b in left + right)), "".join(batch + left + right)


def _summed(x: EagerTensor, labels: str, needed: set[str]) -> tuple[EagerTensor, str]:
    gone = tuple(place for place, label in enumerate(labels) if label not in needed)
    return (x.sum(gone), "".join(b for b in labels if b in needed)) if gone else (x, labels)


@in_float32
def tensordot(a: EagerTensor, b: EagerTensor, axes: int = 2) -> EagerTensor:
    """Return the sum of products over the last `axes` axes of a and the first of b."""
    shared = whole("tensordot", axes)
    if not 0 <= shared <= min(a.ndim, b.ndim) or a.shape[a.ndim - shared :] != b.shape[:shared]:
        raise EngineError(f"tensordot over {shared} axes: shapes {a.shape} and {b.shape} do not meet")
    size = product(b.shape[:shared])
    made: EagerTensor = a.reshape(-1, size) @ b.reshape(size, -1)
    return made.reshape(*a.shape[: a.ndim - shared], *b.shape[shared:])


def kron(a: EagerTensor, b: EagerTensor) -> EagerTensor:
    """Return the Kronecker product of two tensors of one rank."""
    for x in (a, b):
        node_of(x)
    if a.ndim != b.ndim:
        raise EngineError(f"kron of shapes {a.shape} and {b.shape}: one rank is needed")
    left, right = (n for m in a.shape for n in (m, 1)), (n for k in b.shape for n in (1, k))
    made: EagerTensor = a.reshape(*left) * b.reshape(*right)
    return made.reshape(*(m * k for m, k in zip(a.shape, b.shape, strict=True)))


@in_float32
def linear(x: EagerTensor, weight: EagerTensor, bias: EagerTensor | None = None) -> EagerTensor:
    """Return x[.., in] @ weight^T, plus `bias` [out], or what broadcasts to the product; weight
    [out, in], or [in] of one number.
    """
    if weight.ndim not in {1, 2} or x.shape[-1:] != weight.shape[-1:]:
        raise EngineError(f"linear of {x.shape} by {weight.shape}: [.., in] and [out, in] are needed")
    made: EagerTensor = x @ weight.T
    return made if bias is None else made + within("linear", bias, made)


@in_float32
def addmm(x: EagerTensor, a: EagerTensor, b: EagerTensor, *, beta: float = 1.0, alpha: float = 1.0) -> EagerTensor:
    """Return beta x + alpha a @ b of matrices; x broadcasts to their product."""
    made: EagerTensor = a @ b
    return within("addmm", x, made) * beta + made * alpha


__all__ = ["addmm", "cdist", "cross", "dot", "einsum", "kron", "linear", "outer", "tensordot"]
