"""How a tensor that is split over ranks travels through each op: a table of the ways to do an op.

A *layout* says what each of T ranks holds of a tensor: `WHOLE` all of it, an axis the t-th of T
equal parts along it, `PARTIAL` a tensor of its shape that adds up to it over the ranks. A *way* to
do an op names the layouts of what it reads, and the layout of what the same op, done by each rank
on what it holds, then makes of it.

| ops | ways beside the one on whole tensors |
|---|---|
| element by element | one axis of all; an operand without that axis is whole |
| row by row (norms, soft maxima) | any axis but the last |
| reshape, cont | an axis that begins at the same element count; permute, transpose: any |
| mul_mat of weights and rows | columns: outputs of the weights; rows: the summed axis, partial; a batch axis of both |
| out_prod | the same, by its axes |
| rope, attention | heads |
| get_rows | the width of the table |
| sums, scalings, products with what is whole | partial |

What has no row is done whole. The rules are exact: no op is done on a part of a row that it needs.

Source: Shoeybi et al. 2019 (Megatron-LM, arXiv:1909.08053): columns, then rows.

What this module does not see: which way is taken, what is sent, graphs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Final

from engine.ops.element_functions import COMPARISONS
from engine.ops.rule import Shape, Tensor

Layout = int
"""The axis along which a tensor is split, or one of the next two."""
WHOLE: Final = -1
PARTIAL: Final = -2


@dataclass(frozen=True, slots=True)
class SplitWay:
    """One way to do an op."""

    sources: tuple[Layout, ...]
    result: Layout


Ways = Callable[[Tensor], Iterator[SplitWay]]


def ways(node: Tensor, ranks: int) -> list[SplitWay]:
    """Return the ways to do an op over so many ranks, that on whole tensors first. O(axes)."""
    found = [SplitWay((WHOLE,) * len(node.sources), WHOLE)]
    for rule in RULES.get(str(node.kind), ()):
        found += [way for way in rule(node) if _fits(node, way, ranks)]
    return found


def held(shape: Shape, layout: Layout, ranks: int) -> Shape:
    """Return the shape of what a rank holds."""
    return tuple(n // ranks if axis == layout else n for axis, n in enumerate(shape))


def _fits(node: Tensor, way: SplitWay, ranks: int) -> bool:
    """Return whether each split axis is as many equal parts, none of them empty."""
    rows = zip((*node.sources, node), (*way.sources, way.result), strict=True)
    return all(layout < 0 or (x.shape[layout] and x.shape[layout] % ranks == 0) for x, layout in rows)


def _along(node: Tensor, axes: range) -> Iterator[SplitWay]:
    """Yield the ways that split one of the axes, aligned at the last."""
    for axis in axes:
        places = [_aligned(source, node, axis) for source in node.sources]
        if None not in places:
            yield SplitWay(tuple(place for place in places if place is not None), axis)


def _aligned(source: Tensor, node: Tensor, axis: int) -> Layout | None:
    """Return the axis of a source that meets one of the result; None where it is repeated."""
    place = axis - len(node.shape) + len(source.shape)
    if place >= 0 and source.shape[place] == node.shape[axis]:
        return place
    return WHOLE if place < 0 or source.shape[place] == 1 else None


def _elements(node: Tensor) -> Iterator[SplitWay]:
    yield from _along(node, range(len(node.shape)))


def _rows(node: Tensor) -> Iterator[SplitWay]:
    yield from _along(node, range(len(node.shape) - 1))


def _moved(node: Tensor) -> Iterator[SplitWay]:
    axes = node.params["axes"]
    yield from (SplitWay((source,), axis) for axis, source in enumerate(axes))


def _turned(node: Tensor) -> Iterator[SplitWay]:
    *batch, row, column = range(len(node.shape))
    yield from (SplitWay((source,), axis) for axis, source in enumerate((*batch, column, row)))


def _regrouped(node: Tensor) -> Iterator[SplitWay]:
    """Yield the axes of both before which there are as many elements, so that parts are the same.

    Axes of length 1 are never split.
    """
    starts = {count: axis for axis, count in _starts(node.shape)}
    yield from (SplitWay((axis,), starts[count]) for axis, count in _starts(node.sources[0].shape) if count in starts)


def _starts(shape: Shape) -> Iterator[tuple[int, int]]:
    """Yield the axes longer than 1, and how many indices those before have."""
    counts = accumulate(shape, mul, initial=1)
    yield from ((axis, count) for axis, (n, count) in enumerate(zip(shape, counts, strict=False)) if n > 1)


def _product(summed: int) -> Ways:
    """Return the ways of a product of a and b that sums over an axis of both, counted from the
    last: the other of the last two of each is one of the result.
    """

    def rule(node: Tensor) -> Iterator[SplitWay]:
        a, b = node.sources
        kept, rank = -3 - summed, len(node.shape)
        in_a, in_b = len(a.shape), len(b.shape)
        yield SplitWay((in_a + summed, in_b + summed), PARTIAL)
        yield SplitWay((in_a + kept, WHOLE), rank - 1)
        yield SplitWay((WHOLE, in_b + kept), rank - 2)
        for axis in range(rank - 2):
            place = axis - rank + in_a
            whole = place < 0 or a.shape[place] == 1
            yield SplitWay((WHOLE if whole else place, axis), axis)

    return rule


def _heads(node: Tensor) -> Iterator[SplitWay]:
    masks = (WHOLE,) * (len(node.sources) - 3)
    yield from (SplitWay((axis, axis, axis, *masks), axis) for axis in range(len(node.shape) - 2))


def _fixed(*found: SplitWay) -> Ways:
    """Return the ways that are the same for all shapes."""

    def rule(node: Tensor) -> Iterator[SplitWay]:
        yield from (way for way in found if len(way.sources) == len(node.sources))

    return rule


_SECOND: Final = _fixed(SplitWay((1, WHOLE), 1))
_OF_ONE: Final = _fixed(SplitWay((PARTIAL,), PARTIAL))
_OF_BOTH: Final = _fixed(SplitWay((PARTIAL, PARTIAL), PARTIAL))
_OF_FIRST: Final = _fixed(SplitWay((PARTIAL, WHOLE), PARTIAL))
_OF_EITHER: Final = _fixed(SplitWay((PARTIAL, WHOLE), PARTIAL), SplitWay((WHOLE, PARTIAL), PARTIAL))
"""What is linear in parts of a sum makes parts of a sum."""

_ELEMENTWISE: Final = (
    *("silu", "abs", "sgn", "step", "relu", "floor", "round", "exp", "expm1", "log", "log1p", "sqrt", "sqr", "sin"),
    *("cos", "atan", "tanh", "sigmoid", "softplus", "erf", "gelu", "gelu_erf", "clamp", "pow", "power", "maximum"),
    *("minimum", "where", "swiglu", "cast", "stop_gradient", "straight_through", *COMPARISONS),
)

RULES: Final[Mapping[str, tuple[Ways, ...]]] = {
    **dict.fromkeys(_ELEMENTWISE, (_elements,)),
    **dict.fromkeys(("scale", "neg"), (_elements, _OF_ONE)),
    **dict.fromkeys(("add", "sub"), (_elements, _OF_BOTH)),
    "mul": (_elements, _OF_EITHER),
    "div": (_elements, _OF_FIRST),
    **dict.fromkeys(("rms_norm", "norm", "log_soft_max", "soft_max"), (_rows,)),
    **dict.fromkeys(("reshape", "cont"), (_regrouped, _OF_ONE)),
    "permute": (_moved, _OF_ONE),
    "transpose": (_turned, _OF_ONE),
    "mul_mat": (_product(-1), _OF_EITHER),
    "out_prod": (_product(-2), _OF_EITHER),
    "rope": (_SECOND,),
    "attention": (_heads,),
    "get_rows": (_SECOND,),
}
"""Kind -> the rules that together give its ways."""
