"""`shard`: from a recorded forward pass to the training step of each rank.

    graph = Graph("m"); ...; loss = graph.op("cross_entropy_loss", logits, labels)
    step = shard(graph, loss, zero=3, ranks=4, prefetch=1)

The forward pass is recorded once more, op by op, with its parameters replaced:

| zero | parameters | gradients | optimizer's states |
|---|---|---|---|
| 0 | whole | summed by all_reduce, a bucket at a time (DDP) | whole |
| 1 | whole | whole until backward ends, then reduce_scatter | parts |
| 2 | whole | reduce_scatter as each is made | parts |
| 3 | parts, all_gather before use | reduce_scatter as each is made | parts |

Stage 3 is nothing but the chain rule: a parameter is `all_gather` of the leaf that holds this
rank's part, whose derivative is `reduce_scatter`. `reshard` is gradient checkpointing that keeps
all but what was gathered, so backward gathers again. Stages 1 and 2 step the part that a rank owns
and gather it over the whole. Parameters that are not trained are parts in stage 3, too.

With `weights="bf16"` a rank keeps its trained weights in their own dtype, and reads them rounded:
of parts what is gathered is of 16 bits, in stages 1 and 2 for the whole step. Gradients are rounded
and travel alike, and are widened where the optimizer reads them (mixed precision: Micikevicius et
al. 2018, arXiv:1710.03740).

With `hybrid=(copies, parts)` parameters are cut over `parts` ranks, and `copies` of them are kept;
gradients of a part are then summed over the copies.

With `tensor=T` the forward pass is split over T neighbouring ranks first
(`engine.sharding.tensor_parallel`); these read the same rows. With `experts=E` batches of matrices
are spread over E neighbours (`engine.sharding.expert_parallel`), which read rows of their own. What
is whole is held, summed and cut over all ranks as above, what is split over those that hold the
same slice.

All ranks have one program: what differs is what they hold. Each rank reads rows of its own; the
gradient of the loss is 1 / ranks, written by the host, so that the mean over all rows is what is
stepped. `loss.mean` is the mean of the losses of all ranks.

Source: Rajbhandari et al. 2020 (ZeRO, arXiv:1910.02054); Zhao et al. 2023 (FSDP, arXiv:2304.11277);
Li et al. 2020 (DDP, arXiv:2006.15704).

What this module does not see: the order of collectives among other ops and their waits
(`engine.sharding.schedule`), data, and how ranks talk.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Final

import numpy as np

from allocsim.allocators import find
from allocsim.allocators.over_streams import over_streams
from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Plan, Problem, Role
from engine.autodiff import SEED, backward
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered, lower
from engine.kernels.binding import Array
from engine.ops.collective import WORLD
from engine.ops.rule import Shape
from engine.ops.shapes import HALVES
from engine.ops.views import reshaped
from engine.runtime.entrance import admit
from engine.runtime.plan_memory import NUMPY_DTYPES
from engine.sharding.expert_parallel import expert_parallel
from engine.sharding.rank_parts import DATA, EXPERTS, REPLICAS, SHARDS, TENSOR, Ranks, Spread, groups_of
from engine.sharding.schedule import on_streams, scheduled
from engine.sharding.tensor_parallel import tensor_parallel
from engine.training.optimizers import OPTIMIZERS, Hyper, Optimizer

MEAN: Final = "loss.mean"
"""The loss that the host reads: the mean over ranks."""

BUCKET: Final = 25 << 20
"""Bytes of gradients that stage 0 sums together, as DDP's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How a step is spread over ranks."""

    zero: int
    ranks: int
    prefetch: int = 1
    """Units (layers) ahead of its use at which a unit's parameters are asked for."""
    reshard: bool = True
    """Whether what was gathered for forward is given back and gathered again for backward."""
    hybrid: tuple[int, int] | None = None
    """Copies of the parameters, and ranks that share one copy."""
    bucket_nbytes: int = BUCKET
    tensor: int = 1
    """Neighbouring ranks over which tensors are split."""
    experts: int = 1
    """Neighbouring ranks over which experts are spread."""
    weights: str | None = None
    """Dtype of 16 bits in which trained weights are read and their gradients travel."""

    def __post_init__(self) -> None:
        """Raise EngineError unless the numbers make sense."""
        if self.zero not in range(4):
            raise EngineError(f"zero is {self.zero}; the stages are 0, 1, 2 and 3")
        if self.ranks < 1 or self.prefetch < 0 or self.bucket_nbytes < 1:
            raise EngineError(f"{self}: at least one rank, no negative prefetch, buckets of at least a byte")
        if self.hybrid is not None and (
            len(self.hybrid) != 2 or min(self.hybrid) < 1 or prod(self.hybrid) != self.ranks
        ):
            raise EngineError(f"hybrid {self.hybrid}: copies times parts must be the {self.ranks} ranks")
        if self.hybrid is not None and not self.zero:
            raise EngineError("hybrid says how parts are kept; stage 0 keeps none")
        for said, over in (("tensors split", self.tensor), ("experts spread", self.experts)):
            if over < 1 or self.ranks % over:
                raise EngineError(f"{said} over {over} ranks: that must divide the {self.ranks} ranks")
        if self.weights is not None and self.weights not in HALVES:
            raise EngineError(f"weights in {self.weights!r}; the dtypes of 16 bits are {' and '.join(HALVES)}")
        if sum((self.tensor > 1, self.experts > 1, self.hybrid is not None)) > 1:
            raise EngineError("hybrid copies, tensors and experts that are split over ranks are not done together")

    @property
    def parts(self) -> int:
        """Ranks that share one copy of what is whole in the forward pass."""
        return self.ranks if self.hybrid is None else self.hybrid[1]

    @property
    def slices(self) -> int:
        """Neighbouring ranks that hold a slice each of what is split."""
        return max(self.tensor, self.experts)

    @property
    def groups(self) -> dict[str, tuple[Ranks, ...]]:
        """The groups in which ranks meet."""
        return groups_of(self.ranks, self.hybrid, self.slices, EXPERTS if self.experts > 1 else TENSOR)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sharded:
    """The step of every rank."""

    sharding: Sharding
    lowered: Lowered
    """The program, its collectives on a stream of their own."""
    spreads: Mapping[str, Spread]
    """Leaf that holds a part -> how all ranks hold the whole: parameters and moments."""
    optimizer: Optimizer

    @property
    def groups(self) -> Mapping[str, tuple[Ranks, ...]]:
        """The groups in which ranks meet."""
        return self.sharding.groups

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Leaf that holds a part -> shape of the whole."""
        return {name: spread.shape for name, spread in self.spreads.items()}

    @property
    def of_ranks(self) -> tuple[Lowered, ...]:
        """The program of each rank: one for all."""
        return (self.lowered,) * self.sharding.ranks

    def given(self, batches: Iterable[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Return what the host of each rank writes, with the gradient of its loss.

        Raises EngineError unless there are rows for each rank, those of a group of `tensor` the
        same.
        """
        rows, how = list(batches), self.sharding
        if len(rows) != how.ranks:
            raise EngineError(f"rows for {len(rows)} ranks are given to {how.ranks}")
        for rank, row in enumerate(rows):
            first = rows[rank - rank % how.tensor]
            if row is not first and not _alike(row, first):
                raise EngineError(
                    f"rank {rank} reads other rows than rank {rank - rank % how.tensor}, which splits its tensors with it"
                )
        return [self.of_host(rank, row) for rank, row in enumerate(rows)]

    def of_host(self, rank: int, row: Mapping[str, Array]) -> dict[str, Array]:
        """Return what the host of a rank writes, with the gradient of its loss."""
        del rank
        return {**self.seed, **row}

    @cached_property
    def problem(self) -> Problem:
        """Lifetimes that hold in every order of the streams."""
        return self.believed("best_fit")

    def believed(self, planner: str) -> Problem:
        """Return what a planner believes, made to hold over streams."""
        return believed_over_streams(self.lowered, planner)

    def planned(self, planner: str = "best_fit") -> Plan:
        """Return the plan of a rank by a planner; PlannerError without one, or an unsound one."""
        return admit(find(planner).place(self.problem), by=planner)

    def held(self, rank: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return what a rank holds of whole parameters or moments, by name."""
        return {
            name: self.spreads[name].held(array, rank) if name in self.spreads else np.ascontiguousarray(array)
            for name, array in arrays.items()
        }

    def joined(self, by_rank: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
        """Return whole arrays from what the ranks of one copy hold, in their order."""
        held = list(by_rank)[: self.sharding.parts]
        return {
            name: self.spreads[name].joined([one[name] for one in held]) if name in self.spreads else array
            for name, array in held[0].items()
        }

    def hyper(self, step: int, given: Hyper | None = None) -> dict[str, Array]:
        """Return the hyper-parameters of the step with this number from 1."""
        return hyper_of(self.optimizer, self.lowered.graph.leafs, step, given)

    @property
    def seed(self) -> dict[str, Array]:
        """The gradient of the loss of each rank."""
        (leaf,) = (leaf for leaf in self.lowered.graph.leafs if leaf.name == SEED)
        return {SEED: np.full(1, 1 / self.sharding.ranks, NUMPY_DTYPES[leaf.dtype])}

    def states(self) -> Iterator[tuple[str, Shape, str]]:
        """Yield name, shape of the whole and dtype of every state that a rank keeps."""
        return states_of(self.lowered.graph.leafs, self.shapes)


def _alike(row: Mapping[str, Array], other: Mapping[str, Array]) -> bool:
    """Return whether two ranks read the same bytes."""
    return row.keys() == other.keys() and all(
        array is other[name] or np.asarray(array).tobytes() == np.asarray(other[name]).tobytes()
        for name, array in row.items()
    )


def believed_over_streams(lowered: Lowered, planner: str) -> Problem:
    """Return what a planner believes of a program, made to hold over its streams."""
    asked = find(planner)
    return over_streams(asked.believe(lowered.program))  # type: ignore[attr-defined]


def hyper_of(optimizer: Optimizer, leafs: Iterable[Tensor], step: int, given: Hyper | None) -> dict[str, Array]:
    """Return the hyper-parameters of the step with this number from 1, those that leafs hold."""
    dtypes = {leaf.name: NUMPY_DTYPES[leaf.dtype] for leaf in leafs}
    values = optimizer.values(optimizer.checked(given or {}), step)
    return {name: np.array(row, dtypes[name]) for name, row in values.items() if name in dtypes}


def states_of(leafs: Iterable[Tensor], shapes: Mapping[str, Shape]) -> Iterator[tuple[str, Shape, str]]:
    """Yield name, shape (that of `shapes` where it has one) and dtype of every state."""
    return ((x.name, shapes.get(x.name, x.shape), x.dtype) for x in leafs if x.role == Role.STATE)


def shard(
    graph: Graph,
    loss: Tensor,
    *,
    zero: int,
    ranks: int,
    optimizer: str = "sgd",
    prefetch: int = 1,
    reshard: bool = True,
    hybrid: tuple[int, int] | None = None,
    bucket_nbytes: int = BUCKET,
    tensor: int = 1,
    experts: int = 1,
    weights: str | None = None,
    reads: Iterable[Tensor] = (),
) -> Sharded:
    """Return the training step of each rank. O(nodes x (1 + prefetch)).

    Args:
        graph: a forward pass, for the rows of one rank.
        loss: what to train, shape [1].
        zero: the stage: what is cut into parts (see the module).
        ranks: how many.
        optimizer: a name of `engine.training.optimizers.OPTIMIZERS`.
        prefetch: units ahead at which parameters are gathered.
        reshard: gather again for backward.
        hybrid: (copies, parts), with copies x parts = ranks.
        bucket_nbytes: gradients that stage 0 sums together.
        tensor: neighbouring ranks over which tensors are split, a divisor of `ranks`; they are to
            read the same rows.
        experts: neighbouring ranks over which experts are spread, a divisor of `ranks`.
        weights: "bf16" or "f16": mixed precision (see the module); the loss is not scaled.
        reads: tensors of `graph` that the host reads besides the mean loss.

    Raises:
        EngineError: the numbers do not fit; the graph has a backward pass already, writes states, or
            trains nothing.
        UnknownNameError: no such optimizer.
    """
    how = Sharding(
        zero=zero,
        ranks=ranks,
        prefetch=prefetch,
        reshard=reshard,
        hybrid=hybrid,
        bucket_nbytes=bucket_nbytes,
        tensor=tensor,
        experts=experts,
        weights=weights,
    )
    if optimizer not in OPTIMIZERS:
        raise UnknownNameError("optimizer", optimizer, OPTIMIZERS)
    if graph.passes:
        raise EngineError(f"graph {graph.name!r} has a backward pass already; shard takes the forward pass alone")
    if state := next(iter(graph.writes), None):
        raise EngineError(f"{state} is a state that the graph writes; each rank would write it by its own rows")
    reads = tuple(reads)
    graph.expand(loss, *reads)
    if how.slices == 1:
        return _Sharder(graph, loss, how, OPTIMIZERS[optimizer], {}).made(reads)
    split = (tensor_parallel if tensor > 1 else expert_parallel)(graph, loss, ranks=how.slices, reads=reads)
    return _Sharder(split.graph, split.loss, how, OPTIMIZERS[optimizer], split.axes).made(split.reads)


class _Sharder:
    """A step while it is recorded."""

    def __init__(
        self, source: Graph, loss: Tensor, how: Sharding, optimizer: Optimizer, axes: Mapping[str, int]
    ) -> None:
        self.source, self.loss, self.how, self.optimizer = source, loss, how, optimizer
        self.axes = axes
        """Parameter that is split over ranks -> along which axis."""
        self.graph = Graph(f"{source.name}.zero{how.zero}")
        self.spreads: dict[str, Spread] = {}
        self.parts: dict[str, Spread] = {}
        """Parameter -> the flat parts in which stages cut it, or the slice of one rank alone."""
        self.image: dict[Tensor, Tensor] = {}
        self.again: set[Tensor] = set()
        """What backward makes again: gathers, views of them, and weights widened from 16 bits."""

    def made(self, reads: tuple[Tensor, ...]) -> Sharded:
        graph, how = self.graph, self.how
        for node in self.source.nodes:
            graph.expand(self._node(node))
        loss = self.image[self.loss]
        stays = [node for node in graph.nodes if node not in self.again] if self.again else None
        gradients = backward(graph, loss, checkpoints=stays)
        if how.weights:
            early = set(gradients.values())  # they are widened where the optimizer reads them: till then two bytes live
            graph.nodes[:] = [node for node in graph.nodes if node not in early]
            gradients = {weight: gradient.sources[0] for weight, gradient in gradients.items()}
        reduced = {weight: self._reduced(weight, gradient) for weight, gradient in gradients.items()}
        leafs = {name: graph.parameter(name, (n,), loss.dtype) for name, n in self.optimizer.leafs.items()}
        for weight, gradient in reduced.items():
            kept = self._states(weight, gradient)
            with graph.scope("new", layer=weight.layer, stage="update"):
                wide = graph.op("cast", gradient, dtype=weight.dtype) if how.weights else gradient
                graph.expand(self._updated(weight, wide, {**leafs, **kept}))
        mean = graph.op("scale", loss, s=1 / how.ranks, name="loss.share")
        mean = graph.op("all_reduce", mean, ranks=how.ranks, name=MEAN)
        graph.expand(mean)
        graph.nodes[:] = scheduled(graph.nodes, how.prefetch, how.bucket_nbytes, late=how.zero == 1)
        lowered = lower(graph, (mean, *(self.image[read] for read in reads)))
        streamed = on_streams(lowered, ranks=how.ranks, groups=how.groups)
        return Sharded(sharding=how, lowered=streamed, spreads=self.spreads, optimizer=self.optimizer)

    def _node(self, node: Tensor) -> Tensor:
        """Return a node of the forward pass, on what its sources became."""
        sources = [self._leaf(source) if source.is_leaf else self.image[source] for source in node.sources]
        with self.graph.scope(layer=node.layer, stage=node.stage):
            self.image[node] = self.graph.op(str(node.kind), *sources, name=node.name, **node.params)
        return self.image[node]

    def _leaf(self, leaf: Tensor) -> Tensor:
        if leaf not in self.image:
            with self.graph.scope(layer=leaf.layer):
                self.image[leaf] = self._parameter(leaf) if leaf.role == Role.PARAMETER else self.graph.again(leaf)
        return self.image[leaf]

    def _parameter(self, leaf: Tensor) -> Tensor:
        """Return a parameter, or the slice of it that this rank has in the forward pass."""
        axis, how = self.axes.get(leaf.name), self.how
        slices = 1 if axis is None else how.slices
        shape = tuple(n * slices if place == axis else n for place, n in enumerate(leaf.shape))
        parts = how.parts // slices
        spread = Spread(shape=shape, axis=axis, slices=slices, parts=parts, flat=axis is None or parts > 1)
        self.parts[leaf.name] = spread
        if self._stage(leaf) == 3:
            self.spreads[leaf.name] = spread
            return self._gathered(leaf)
        if axis is not None:
            self.spreads[leaf.name] = replace(spread, flat=False)
        made = self.graph.parameter(leaf.name, leaf.shape, leaf.dtype, trainable=leaf.trainable)
        return self._wide(self._narrow(made), leaf)

    def _narrow(self, mine: Tensor) -> Tensor:
        """Return a trained weight in 16 bits, where it is read so."""
        narrow = self.how.weights if mine.trainable else None
        return mine if narrow is None else self.graph.op("cast", mine, dtype=narrow, name=f"{mine.name}.{narrow}")

    def _wide(self, read: Tensor, leaf: Tensor) -> Tensor:
        """Return a weight in its own dtype again; backward makes that anew."""
        if read.dtype == leaf.dtype:
            return read
        self.again.add(wide := self.graph.op("cast", read, dtype=leaf.dtype, name=f"{leaf.name}.read"))
        return wide

    def _stage(self, weight: Tensor) -> int:
        """Return the stage by which a weight is held: 0 where no other rank holds the same, 3 where
        what is whole is of 16 bits alone.
        """
        if not self.parts[weight.name].flat or not self.how.zero:
            return 0
        return 3 if self.how.weights and weight.trainable else self.how.zero

    def _group(self, weight: Tensor) -> dict[str, Any]:
        """Return the group of ranks that hold parts of the same."""
        spread = self.parts[weight.name]
        alike = SHARDS if self.how.zero else WORLD
        return {"ranks": spread.parts, "group": alike if spread.axis is None else DATA}

    def _gathered(self, leaf: Tensor) -> Tensor:
        """Return a parameter made of the parts of all ranks."""
        graph, size = self.graph, prod(leaf.shape)
        group = self._group(leaf)
        length = -(-size // group["ranks"])
        mine = graph.parameter(leaf.name, (length,), leaf.dtype, trainable=leaf.trainable)
        full = graph.op("all_gather", self._narrow(mine), name=f"{leaf.name}.gathered", **group)
        views = [self._wide(full, leaf)]
        if full.shape != (size,):
            unpadded = {"shape": (size,), "strides": (1,), "offset": 0}
            views.append(graph.op("view", views[-1], name=f"{leaf.name}.unpadded", **unpadded))
        if leaf.shape != (size,):
            views.append(graph.op("reshape", views[-1], shape=leaf.shape, name=f"{leaf.name}.whole"))
        if self.how.zero == 3 and self.how.reshard:
            self.again.update((full, *views))
        elif views[0] is not full:
            self.again.update(views)
        return views[-1]

    def _reduced(self, weight: Tensor, gradient: Tensor) -> Tensor:
        """Return the gradient of the part of a weight that this rank steps, summed over ranks."""
        graph, how, stage, group = self.graph, self.how, self._stage(weight), self._group(weight)
        if not self.parts[weight.name].flat:
            return gradient  # nobody else holds this slice
        with graph.scope("reduced", layer=weight.layer, stage="backward"):
            if not stage:
                return graph.op("all_reduce", gradient, name=weight.name, **group)
            mine = gradient if stage == 3 else self._scattered(weight, gradient)
            if how.hybrid is None:
                return mine
            return graph.op("all_reduce", mine, ranks=how.hybrid[0], group=REPLICAS, name=f"{weight.name}.copies")

    def _scattered(self, weight: Tensor, gradient: Tensor) -> Tensor:
        graph, size, group = self.graph, prod(weight.shape), self._group(weight)
        flat = reshaped(gradient, (size,))
        if missing := -size % group["ranks"]:
            flat = graph.op("pad", flat, before=(0,), after=(missing,), name=f"{weight.name}.padded")
        return graph.op("reduce_scatter", flat, name=weight.name, **group)

    def _states(self, weight: Tensor, gradient: Tensor) -> dict[str, Tensor]:
        found, spread, stage = {}, self.parts[weight.name], self._stage(weight)
        for prefix in self.optimizer.states:
            name = f"{prefix}.{weight.name}"
            found[prefix] = self.graph.state(name, gradient.shape, weight.dtype)
            if stage or spread.axis is not None:
                self.spreads[name] = spread if stage else replace(spread, flat=False)
        return found

    def _updated(self, weight: Tensor, gradient: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        graph, group = self.graph, self._group(weight)
        if self._stage(weight) not in (1, 2):
            return self.optimizer.update(graph, weight, gradient, given)
        mine = graph.op("own_part", weight, name=f"{weight.name}.part", **group)
        mine = self.optimizer.update(graph, mine, gradient, given)
        return graph.op("all_gather_over", mine, weight, name=f"{weight.name}.whole", **group)
