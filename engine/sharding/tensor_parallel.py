"""Tensor parallelism: a recorded forward pass with its tensors split over a group of T ranks.

    split = tensor_parallel(graph, loss, ranks=4)
    split.graph, split.loss, split.axes          # what each rank records, and which weights are split

`engine.sharding.split_rules` says which ways there are to do an op. Here one is taken for each, and
for each parameter an axis or none; where an op needs a tensor otherwise than it is, a collective
stands between: `all_gather` of parts, `all_reduce` of what adds up, `reduce_scatter` from what adds
up to parts. Nothing that is whole is cut again, only parameters, and those before the first step.
So a result never depends on the choice, to rounding; what is held and what is sent do.

The choice. Cost is what a rank holds of parameters and of results, and what it sends forward and
backward, in bytes. Ops are taken in their order; of two courses that leave the tensors still needed
in the same layouts the dearer is dropped, and of the others the `COURSES` cheapest are kept: the
cheapest of all, unless more are open at once. Weights before and behind an activation come out as
Megatron's columns and rows, with one all_reduce behind the rows; heads of attention stay on their
rank from q, k and v to the projection behind them.

Derivatives are those of the ops. The loss that is differentiated is the sum over all ranks
(`engine.ops.collective`), so no op marks where a split begins: the gradient of what is whole is
what the ranks' copies add up to, and it is summed behind the next `all_reduce` or with the
gradients of the weights. Ranks of a group read the same rows.

Source: Shoeybi et al. 2019 (Megatron-LM, arXiv:1909.08053).

Complexity: O(ops x COURSES x ways).

What this module does not see: who holds which part, data, the backward pass, streams.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.graph import Graph, Tensor
from engine.ops.row import contiguous
from engine.sharding.rank_parts import TENSOR
from engine.sharding.split_rules import PARTIAL, WHOLE, Layout, SplitWay, held, ways

COURSES: Final = 48
"""Courses that are kept at each op."""

Layouts = frozenset[Layout]
_WHOLE: Final[Layouts] = frozenset({WHOLE})
_NOWHERE: Final[Layouts] = frozenset()


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitGraph:
    """A forward pass as each rank of a group records it."""

    graph: Graph
    loss: Tensor
    reads: tuple[Tensor, ...]
    """What was asked for beside the loss, whole."""
    axes: Mapping[str, int]
    """Parameter of which a rank holds a part -> the axis along which it is split."""


def tensor_parallel(graph: Graph, loss: Tensor, *, ranks: int, reads: Iterable[Tensor] = ()) -> SplitGraph:
    """Return the forward pass of each rank of a group. O(nodes), see the module.

    Args:
        graph: a forward pass on whole tensors.
        loss: what is trained, whole on each rank.
        ranks: of the group, T.
        reads: further tensors of `graph` that are wanted whole.

    Raises:
        EngineError: an op sees bytes by strides that a split changes.
    """
    asked = (loss, *reads)
    recorded = _Recorder(graph, ranks)
    for node, way in zip(graph.nodes, _chosen(graph, asked, ranks), strict=True):
        recorded.add(node, way)
    whole = [recorded.given(tensor, WHOLE) for tensor in asked]
    recorded.graph.expand(*whole)
    axes = {tensor.name: layout for tensor, layout in recorded.made if tensor.is_leaf and layout >= 0}
    return SplitGraph(graph=recorded.graph, loss=whole[0], reads=tuple(whole[1:]), axes=axes)


@dataclass(frozen=True, slots=True, eq=False)
class _Course:
    """What was taken up to an op."""

    cost: float
    layouts: Mapping[Tensor, Layouts]
    """Tensors that are still needed -> the layouts in which they are there; those of parameters and
    of results that are whole alone are not told, unless a parameter is settled so."""
    last: "tuple[SplitWay, _Course] | None" = None


def _chosen(graph: Graph, asked: tuple[Tensor, ...], ranks: int) -> list[SplitWay]:
    """Return the way in which each node is done."""
    needed = {source: place for place, node in enumerate(graph.nodes) for source in node.sources}
    needed.update(dict.fromkeys(asked, len(graph.nodes)))
    courses = [_Course(0.0, {})]
    for place, node in enumerate(graph.nodes):
        kept: dict[frozenset[tuple[Tensor, Layouts]], _Course] = {}
        offered = ways(node, ranks)
        for course in courses:
            for way in offered:
                cost, layouts = _taken(course, node, way, ranks)
                live = {tensor: there for tensor, there in layouts.items() if needed.get(tensor, -1) > place}
                key = frozenset(live.items())
                if cost < (kept[key].cost if key in kept else inf):
                    kept[key] = _Course(cost, live, (way, course))
        courses = sorted(kept.values(), key=lambda course: course.cost)[:COURSES]
    return _way_back(min(courses, key=lambda course: course.cost + _ending(course, asked, ranks)))


def _way_back(course: _Course) -> list[SplitWay]:
    found = []
    while course.last is not None:
        way, course = course.last
        found.append(way)
    return found[::-1]


def _ending(course: _Course, asked: tuple[Tensor, ...], ranks: int) -> float:
    return sum(_cheapest(tensor, course.layouts.get(tensor, _WHOLE), WHOLE, ranks)[0] for tensor in asked)


def _taken(course: _Course, node: Tensor, way: SplitWay, ranks: int) -> tuple[float, dict[Tensor, Layouts]]:
    """Return the cost behind a node that is done in some way, and the layouts then."""
    cost, layouts = course.cost, dict(course.layouts)
    for source, want in zip(node.sources, way.sources, strict=True):
        there = layouts.get(source, _NOWHERE if source.role == Role.PARAMETER and source.is_leaf else _WHOLE)
        if want not in there:
            cost += _cheapest(source, there, want, ranks)[0]
            layouts[source] = there | {want}
    if way.result != WHOLE:
        layouts[node] = frozenset({way.result})
    return cost + (0 if node.rule.view else _bytes(node, way.result, ranks)), layouts


def _bytes(tensor: Tensor, layout: Layout, ranks: int) -> float:
    return tensor.nbytes / ranks if layout >= 0 else tensor.nbytes


def _cheapest(tensor: Tensor, there: Layouts, want: Layout, ranks: int) -> tuple[float, Layout | None]:
    """Return the bytes that it costs to have a tensor as wanted, and from which layout it is made.

    A parameter that is not there yet is laid as wanted. Infinite where there is no way.
    """
    if want in there:
        return 0, want
    held_there = _bytes(tensor, want, ranks)
    if not there:
        return (inf if want == PARTIAL else held_there), None
    sent = 2 * tensor.nbytes * (ranks - 1) / ranks  # forward and back: of a gather, or half of an all_reduce
    found = [(held_there + sent, layout) for layout in there if want == WHOLE and layout >= 0]
    if PARTIAL in there and want != PARTIAL:
        found.append((held_there + (2 * sent if want == WHOLE else sent), PARTIAL))
    return min(found, default=(inf, None))


class _Recorder:
    """The graph of a rank while it is recorded."""

    def __init__(self, source: Graph, ranks: int) -> None:
        self.ranks = ranks
        self.graph = Graph(f"{source.name}.tensor{ranks}")
        self.made: dict[tuple[Tensor, Layout], Tensor] = {}
        """Tensor of the source in a layout -> what a rank holds of it."""
        self._there: dict[Tensor, list[Layout]] = {}

    def add(self, node: Tensor, way: SplitWay) -> None:
        """Record a node in one way."""
        pairs = zip(node.sources, way.sources, strict=True)
        sources = [self.given(source, layout) for source, layout in pairs]
        if node.kind == "view":
            as_it_lay(node, sources[0])
        params = dict(node.params)
        if way.result >= 0 and "shape" in params:
            params["shape"] = held(node.shape, way.result, self.ranks)
        name = node.name if way.result == WHOLE else f"{node.name}.{'partial' if way.result == PARTIAL else 'split'}"
        with self.graph.scope(layer=node.layer, stage=node.stage):
            made = self.graph.op(str(node.kind), *sources, name=name, **params)
        self._keep(node, way.result, made)
        self.graph.expand(made)

    def given(self, tensor: Tensor, want: Layout) -> Tensor:
        """Return what a rank holds of a tensor in a layout, made of another if need be."""
        there = self._there.get(tensor, [])
        if want not in there:
            _, source = _cheapest(tensor, frozenset(there), want, self.ranks)
            with self.graph.scope(layer=tensor.layer, stage=tensor.stage):
                if source is None:
                    made = self.graph.again(tensor, held(tensor.shape, want, self.ranks))
                else:
                    made = self._turned(tensor, source, want)
            self._keep(tensor, want, made)
        return self.made[tensor, want]

    def _keep(self, tensor: Tensor, layout: Layout, made: Tensor) -> None:
        self.made[tensor, layout] = made
        self._there.setdefault(tensor, []).append(layout)

    def _turned(self, tensor: Tensor, source: Layout, want: Layout) -> Tensor:
        """Return a tensor in another layout, by one collective.

        Collectives cut and join along axis 0, so another axis is brought there and back. What is
        made on the way has names under `between`, which leave those of the source to its nodes.
        """
        graph, x, ranks, shape = self.graph, self.made[tensor, source], self.ranks, tensor.shape
        group: dict[str, Any] = {"ranks": ranks, "group": TENSOR}
        name = tensor.name if not tensor.is_leaf else f"{tensor.name}.joined"
        if source == PARTIAL and want == WHOLE:
            return graph.op("all_reduce", x, name=name, **group)
        axis = max(source, want)
        around = tuple(range(axis)), tuple(range(axis + 1, len(shape) + 1))
        with graph.scope(f"between.{tensor.name}"):
            if source == PARTIAL:
                cut = (*shape[:axis], ranks, shape[axis] // ranks, *shape[axis + 1 :])
                apart = graph.op("reshape", contiguous(x), shape=cut)
                turned = apart if not axis else graph.op("permute", apart, axes=(axis, *around[0], *around[1]))
                mine = graph.op("reduce_scatter", contiguous(turned), **group)
            else:
                apart = graph.op("reshape", contiguous(x), shape=(1, *x.shape))
                joined = graph.op("all_gather", apart, **group)
                axes = (*(n + 1 for n in around[0]), 0, *around[1])
                back = joined if not axis else graph.op("permute", joined, axes=axes)
        if source == PARTIAL:
            return graph.op("reshape", mine, shape=held(shape, want, ranks), name=graph.unused(f"{name}.split"))
        return graph.op("reshape" if not axis else "cont", back, shape=shape, name=name)


def as_it_lay(node: Tensor, x: Tensor) -> None:
    """Raise EngineError where a strided view would find other elements in its source's stand-in."""
    (source,) = node.sources
    if (x.strides, *x.place) != (source.strides, *source.place):
        raise EngineError(f"{node} sees {source} by strides, which lies otherwise where it is split over ranks")
