"""Expert parallelism: a recorded forward pass with its experts spread over a group of E ranks.

    split = expert_parallel(graph, loss, ranks=4)
    split.graph, split.loss, split.axes          # what each rank records, and which weights are spread

Experts are a batch of matrices that is a parameter, [experts, out, in], and the product that reads
it with as many batches of rows, [experts, slots, in] (`engine.models.experts` records such). Each
rank of the group holds a part of the experts, and has rows of its own.

A tensor is *at home*, as recorded: all experts, the slots of this rank. Or it is *with its
experts*: an axis (experts) is divided by E, another (slots) is E times as long, for the slots of
all ranks in their order. An `all_to_all` carries it from one to the other; its derivative is one,
too.

The path. A product with experts is done where they are, and what it reads is carried there. An op
on what is there is done there, if all it reads is there or a parameter, and if it can be done on
parts of the experts and on parts of the slots: the table `engine.sharding.split_rules` says that,
and what is done on parts of the slots is done on those of several ranks one after the other. So no
op has a row of its own here: activations, products, biases and adapters of experts stay with them.
All other ops are done at home, and what they read is carried back. Each tensor is carried once each
way at most. A parameter is split along the axis of its experts wherever it is read.

Counts are those of the slots, the same for every rank and step: which rows they hold is for the
router, and rows that find no slot are dropped at home.

Derivatives are those of the ops. The loss that is differentiated is the sum over all ranks: the
gradient of experts is whole on the rank that holds them, of all ranks' rows, and is summed over
those ranks alone that hold the same (group `data`), everything else over all.

Source: Lepikhin et al. 2020 (GShard, arXiv:2006.16668); Rajbhandari et al. 2022 (DeepSpeed-MoE,
arXiv:2201.05596): groups of experts within those of data.

Complexity: O(ops x ways^2).

What this module does not see: who chooses slots, data, the backward pass, streams.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from operator import or_
from typing import Any, Final, NamedTuple

from allocsim.errors import EngineError
from allocsim.model import Role
from engine.graph import Graph, Tensor
from engine.ops.row import contiguous
from engine.ops.rule import Shape
from engine.ops.views import reshaped
from engine.sharding.rank_parts import EXPERTS
from engine.sharding.split_rules import WHOLE, Layout, held, ways
from engine.sharding.tensor_parallel import SplitGraph, as_it_lay

_PRODUCTS: Final = ("mul_mat", "out_prod")


class _Axes(NamedTuple):
    """Where a tensor that is with its experts has them, and their slots."""

    experts: Layout
    slots: Layout


_HOME: Final = _Axes(WHOLE, WHOLE)


def expert_parallel(graph: Graph, loss: Tensor, *, ranks: int, reads: Iterable[Tensor] = ()) -> SplitGraph:
    """Return the forward pass of each rank of a group. O(nodes), see the module.

    Args:
        graph: a forward pass on the rows of one rank.
        loss: what is trained.
        ranks: of the group, E.
        reads: further tensors of `graph` that are wanted as recorded.

    Raises:
        EngineError: nothing is read as experts whose number E divides, or what is one is read in
            another way, too.
    """
    asked, recorded = (loss, *reads), _Recorder(graph, ranks)
    for node in graph.nodes:
        recorded.add(node)
    if not recorded.axes:
        raise EngineError(f"graph {graph.name!r} has no product with a batch of weights that {ranks} ranks divide")
    home = [recorded.home(tensor) for tensor in asked]
    recorded.graph.expand(*home)
    return SplitGraph(graph=recorded.graph, loss=home[0], reads=tuple(home[1:]), axes=recorded.axes)


class _Recorder:
    """The graph of a rank while it is recorded."""

    def __init__(self, source: Graph, ranks: int) -> None:
        self.ranks = ranks
        self.graph = Graph(f"{source.name}.experts{ranks}")
        self.axes: dict[str, int] = {}
        """Parameter that is spread -> the axis of its experts."""
        self._home: dict[Tensor, Tensor] = {}
        self._there: dict[Tensor, tuple[Tensor, _Axes]] = {}
        """Tensor of the source -> what stands for it with its experts."""

    def add(self, node: Tensor) -> None:
        """Record a node, where it is done."""
        axes, wanted = next(self._ways(node), (_HOME, [_HOME] * len(node.sources)))
        sources = [self._given(source, want) for source, want in zip(node.sources, wanted, strict=True)]
        params, home = dict(node.params), axes == _HOME
        if node.kind == "view":
            as_it_lay(node, sources[0])
        if not home and "shape" in params:
            params["shape"] = self._shape(node.shape, axes)
        with self.graph.scope(layer=node.layer, stage=node.stage):
            made = self.graph.op(str(node.kind), *sources, name=node.name if home else f"{node.name}.there", **params)
        if home:
            self._home[node] = made
        else:
            self._there[node] = (made, axes)
        self.graph.expand(made)

    def home(self, tensor: Tensor) -> Tensor:
        """Return a tensor as it was recorded."""
        if tensor not in self._home:
            if tensor.name in self.axes:
                raise EngineError(f"{tensor} is read as experts over {self.ranks} ranks, and whole, too")
            self._home[tensor] = self.graph.again(tensor) if tensor.is_leaf else self._carried(tensor)
        return self._home[tensor]

    def _ways(self, node: Tensor) -> Iterator[tuple[_Axes, list[_Axes]]]:
        """Yield the axes of a node that is done with experts, and those of what it reads."""
        there, weights = ([test(source) for source in node.sources] for test in (self._there.__contains__, _is_weight))
        stays = any(there) and all(map(or_, there, weights))
        if not stays and (node.kind not in _PRODUCTS or sum(weights) != 1):
            return
        for by_experts, by_slots in product(ways(node, self.ranks), ways(node, 1)):
            found = _Axes(by_experts.result, by_slots.result)
            sources = list(map(_axes, node.sources, by_experts.sources, by_slots.sources))
            batches = WHOLE not in by_experts.sources and found.experts < len(node.shape) - 2
            apart = min(found) >= 0 and found.experts != found.slots
            if apart and (stays or batches) and all(map(self._fits, node.sources, sources)):
                yield found, sources

    def _fits(self, source: Tensor, axes: _Axes) -> bool:
        """Whether a source is with these axes, or may be."""
        if source in self._there:
            return self._there[source][1] == axes
        return axes.slots == WHOLE if _is_weight(source) else min(axes) >= 0

    def _given(self, source: Tensor, axes: _Axes) -> Tensor:
        """Return a source with these axes."""
        if axes == _HOME:
            return self.home(source)
        if source not in self._there:
            if not _is_weight(source):
                made = self._carried(source, axes)
            elif source in self._home:
                raise EngineError(f"{source} is read whole, and as experts over {self.ranks} ranks, too")
            else:
                self.axes[source.name] = axes.experts
                made = self.graph.again(source, self._shape(source.shape, axes))
            self._there[source] = (made, axes)
        return self._there[source][0]

    def _shape(self, shape: Shape, axes: _Axes) -> Shape:
        """Return what a shape is with these axes."""
        wide = tuple(n * self.ranks if axis == axes.slots else n for axis, n in enumerate(shape))
        return held(wide, axes.experts, self.ranks)

    def _carried(self, tensor: Tensor, to: _Axes | None = None) -> Tensor:
        """Return a tensor that is at home with its experts, or one that is there at home, by one
        `all_to_all`.

        That cuts and joins along the first axis, where experts are brought, with slots behind them.
        """
        graph, ranks, op = self.graph, self.ranks, self.graph.op
        x, axes = (self.home(tensor), to) if to is not None else self._there[tensor]
        every = range(len(tensor.shape))
        first = (*axes, *(axis for axis in every if axis not in axes))
        experts, slots, *more = (tensor.shape[axis] for axis in first)
        group: dict[str, Any] = {"ranks": ranks, "group": EXPERTS}
        turn = (1, 0, *range(2, 3 + len(more)))
        with graph.scope(layer=tensor.layer, stage=tensor.stage), graph.scope(f"between.{tensor.name}"):
            front = contiguous(x if first == (*every,) else op("permute", x, axes=first))
            if to is not None:
                apart = op("reshape", op("all_to_all", front, **group), shape=(ranks, experts // ranks, slots, *more))
                made = reshaped(op("permute", apart, axes=turn), (experts // ranks, ranks * slots, *more))
            else:
                apart = op("reshape", front, shape=(experts // ranks, ranks, slots, *more))
                made = op("all_to_all", reshaped(op("permute", apart, axes=turn), (experts, slots, *more)), **group)
            back = tuple(sorted(every, key=first.__getitem__))
            return made if first == (*every,) else contiguous(op("permute", made, axes=back))


def _axes(source: Tensor, experts: Layout, slots: Layout) -> _Axes:
    """Return the axes of a source: what a weight has once is for all slots."""
    repeated = slots >= 0 and _is_weight(source) and source.shape[slots] == 1
    return _Axes(experts, WHOLE if repeated else slots)


def _is_weight(tensor: Tensor) -> bool:
    return tensor.is_leaf and tensor.role == Role.PARAMETER
