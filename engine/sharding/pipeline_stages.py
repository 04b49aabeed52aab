"""`pipeline`: from a recorded forward pass to a program for each stage of it.

    graph = Graph("m"); ...; loss = graph.op("cross_entropy_loss", logits, labels)
    step = pipeline(graph, loss, stages=4, microbatches=8, schedule="1f1b")
    plans = step.planned("best_fit")
    with Simulation(step, plans, parameters) as world:
        world.run(rows)[-1]["loss.mean"]              # a row of inputs for each microbatch

The graph is cut into stages of whole layers, and each runs its microbatches in the order of a
schedule (`engine.sharding.pipeline_tables`). Stage s is rank s. Its program has, for each
microbatch, the nodes of its layers; what they read of the stage before is received, what a later
stage reads is sent to the next one, which hands on what it does not keep. Backward begins at the
gradients received for what was sent, and sends those of what was received. Gradients of weights are
added up over the microbatches in their order, and the optimizer steps the weights of the stage. The
gradient of the loss of a microbatch is 1 / microbatches; `loss.mean` is the mean of all.

Inputs are written by the host of each stage that reads them: `data.m0`, `data.m1`, .. for `data`.
Frozen parameters may be held by several stages, trained ones by one.

Streams. `activations` carries what goes to later stages, `gradients` what goes to earlier ones: on
one stream a stage that sends forward would wait for one that sends backward, where a library lets
senders wait. Waits are those of `engine.sharding.schedule`; besides, the backward pass of a
microbatch waits until what its forward pass sent, and what the backward pass before it sent, is
gone, so that the memory of both is free then. Both were received long ago, or that pass could not
begin.

What this module does not see: memory, and how messages travel.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Plan, Problem, Role
from engine.autodiff import SEED, backward
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered, lower
from engine.kernels import MESSAGES
from engine.kernels.binding import Array
from engine.ops.collective import WORLD
from engine.ops.pullback import needing
from engine.ops.rule import Shape
from engine.runtime.entrance import admit
from engine.runtime.plan_memory import NUMPY_DTYPES
from engine.sharding.pipeline_tables import BALANCES, SCHEDULES, Pass, cuts
from engine.sharding.schedule import on_streams
from engine.sharding.sharded_step import MEAN, Sharded, believed_over_streams, hyper_of, states_of
from engine.training.optimizers import OPTIMIZERS, Hyper, Optimizer

STREAMS: Final = ("compute", "activations", "gradients")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Pipeline:
    """The step of every stage."""

    microbatches: int
    of_ranks: tuple[Lowered, ...]
    """The program of each stage, messages on streams of their own."""
    passes: tuple[tuple[Pass, ...], ...]
    """The order in which each stage runs its microbatches."""
    optimizer: Optimizer

    @property
    def groups(self) -> Mapping[str, tuple[tuple[int, ...], ...]]:
        """The group in which stages meet."""
        return {WORLD: (tuple(range(len(self.of_ranks))),)}

    def believed(self, planner: str) -> tuple[Problem, ...]:
        """Return what a planner believes of each stage, made to hold over streams."""
        return tuple(believed_over_streams(lowered, planner) for lowered in self.of_ranks)

    def planned(self, planner: str = "best_fit") -> tuple[Plan, ...]:
        """Return the plan of each stage by a planner.

        Raises PlannerError where it makes none or one that is not sound.
        """
        return tuple(admit(find(planner).place(problem), by=planner) for problem in self.believed(planner))

    def held(self, rank: int, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return what a stage holds of all parameters or moments, by name."""
        mine = {leaf.name for leaf in self.of_ranks[rank].graph.leafs}
        return {name: np.ascontiguousarray(array) for name, array in arrays.items() if name in mine}

    def joined(self, by_rank: Iterable[Mapping[str, Array]]) -> dict[str, Array]:
        """Return all arrays from what the stages hold."""
        return {name: array for one in by_rank for name, array in one.items()}

    def states(self) -> Iterator[tuple[str, Shape, str]]:
        """Yield name, shape and dtype of every state that a stage keeps."""
        return states_of(self._leafs(), {})

    def _leafs(self) -> Iterable[Tensor]:
        return chain.from_iterable(lowered.graph.leafs for lowered in self.of_ranks)

    def hyper(self, step: int, given: Hyper | None = None) -> dict[str, Array]:
        """Return the hyper-parameters of the step with this number from 1."""
        return hyper_of(self.optimizer, self._leafs(), step, given)

    def given(self, batches: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Return what the host of each stage writes, of the inputs of each microbatch.

        Raises EngineError unless there are as many rows as microbatches.
        """
        return [self.of_host(rank, batches) for rank in range(len(self.of_ranks))]

    def of_host(self, rank: int, batches: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Return what the host of one stage writes, as `given`."""
        if len(batches) != self.microbatches:
            raise EngineError(f"{len(batches)} rows of inputs for {self.microbatches} microbatches")
        rows = {_of(name, number): array for number, batch in enumerate(batches) for name, array in batch.items()}
        leafs = {leaf.name: leaf for leaf in self.of_ranks[rank].graph.leafs if leaf.role == Role.INPUT}
        found = {name: rows[name] for name in leafs if name in rows}
        if SEED in leafs:
            found[SEED] = np.full(1, 1 / self.microbatches, NUMPY_DTYPES[leafs[SEED].dtype])
        return found


RankedStep = Sharded | Pipeline
"""A step of several ranks: `of_ranks`, `groups`, `held`, `hyper`, `given`, `joined` are of both."""


def pipeline(
    graph: Graph,
    loss: Tensor,
    *,
    stages: int,
    microbatches: int,
    schedule: str = "1f1b",
    optimizer: str = "sgd",
    balance: str = "parameters",
    reads: Iterable[Tensor] = (),
) -> Pipeline:
    """Return the training step of each stage. O(nodes x microbatches^2).

    Args:
        graph: a forward pass, for the rows of one microbatch; its layers are marked
            (`Graph.scope(layer=...)`).
        loss: what to train, shape [1].
        stages: how many runs of layers; each is a rank.
        microbatches: how many a step runs.
        schedule: a name of `pipeline_tables.SCHEDULES`.
        optimizer: a name of `engine.training.optimizers.OPTIMIZERS`.
        balance: a name of `pipeline_tables.BALANCES`: what of the stages is made alike.
        reads: tensors of `graph` that the host reads besides the mean loss, of each microbatch
            (`NAME.m0`, ..).

    Raises:
        EngineError: the numbers do not fit; the graph has a backward pass already, keeps states,
            trains nothing, or cannot be cut so (see the module).
        UnknownNameError: no such schedule, optimizer or balance.
    """
    for what, name, table in (
        ("schedule", schedule, SCHEDULES),
        ("optimizer", optimizer, OPTIMIZERS),
        ("balance", balance, BALANCES),
    ):
        if name not in table:
            raise UnknownNameError(what, name, table)
    if stages < 1 or microbatches < 1:
        raise EngineError(f"{stages} stages and {microbatches} microbatches: there is at least one of each")
    if graph.passes:
        raise EngineError(f"graph {graph.name!r} has a backward pass already; pipeline takes the forward pass alone")
    if state := next(iter(graph.writes), None):
        raise EngineError(f"{state} is a state; the microbatches of a pipeline keep none")
    reads = tuple(reads)
    if leaf := next((read for read in reads if read.is_leaf), None):
        raise EngineError(f"{leaf} is made by no op of graph {graph.name!r}; the host has what it wrote")
    graph.expand(loss, *reads)
    cut = _Cut(graph, loss, cuts(graph.nodes, stages, balance))
    passes = tuple(SCHEDULES[schedule](stage, stages, microbatches) for stage in range(stages))
    made = tuple(
        _Stage(cut, stage, microbatches, OPTIMIZERS[optimizer]).lowered(passes[stage], reads) for stage in range(stages)
    )
    return Pipeline(microbatches=microbatches, of_ranks=made, passes=passes, optimizer=OPTIMIZERS[optimizer])


class _Cut:
    """A forward pass in stages: what crosses from each to the next, there and back."""

    def __init__(self, graph: Graph, loss: Tensor, nodes: list[list[Tensor]]) -> None:
        self.graph, self.loss, self.nodes = graph, loss, nodes
        self.stage_of = {node: stage for stage, row in enumerate(nodes) for node in row}
        last = dict(self.stage_of)
        holders: dict[Tensor, set[int]] = {}
        for node, stage in self.stage_of.items():
            for source in node.sources:
                holders.setdefault(source, set()).add(stage)
                last[source] = max(last.get(source, 0), stage)
        self._refuse(holders)
        if self.stage_of[loss] != len(nodes) - 1:
            raise EngineError(f"{loss} is made in stage {self.stage_of[loss]} of {len(nodes)}; the last makes the loss")
        self.sent = [
            [node for node in graph.nodes if self.stage_of[node] <= stage < last[node]] for stage in range(len(nodes))
        ]
        """Stage -> what it sends to the next, its own and what it hands on."""
        needed = needing(graph.nodes, graph.trainable)
        if loss not in needed:
            raise EngineError(f"{loss} depends on no trainable parameter of graph {graph.name!r}")
        reached = {loss}
        self.returned: list[list[Tensor]] = [[] for _ in nodes]
        """Stage -> that of what it sends whose gradients come back."""
        self.trained: list[list[Tensor]] = [[] for _ in nodes]
        for stage in reversed(range(len(nodes))):
            self.returned[stage] = [node for node in self.sent[stage] if node in reached and node in needed]
            for node in (node for node in reversed(nodes[stage]) if node in reached):
                arguments = zip(node.rule.arguments, node.sources, strict=False)
                reached.update(source for argument, source in arguments if argument not in node.rule.constant)
            self.trained[stage] = [leaf for leaf in graph.trainable if leaf in reached and stage in holders[leaf]]

    def _refuse(self, holders: Mapping[Tensor, set[int]]) -> None:
        for tensor, stages in holders.items():
            if tensor.role == Role.STATE:
                raise EngineError(f"{tensor} is a state; the microbatches of a pipeline keep none")
            if tensor.trainable and len(stages) > 1:
                raise EngineError(f"{tensor} is trained and read in stages {sorted(stages)}; a stage keeps its own")
            crosses = not tensor.is_leaf and stages != {self.stage_of[tensor]}
            if crosses and not tensor.contiguous:
                raise EngineError(f"{tensor} is read in another stage and is not contiguous; cut elsewhere")


class _Stage:
    """The program of one stage while it is recorded."""

    def __init__(self, cut: _Cut, stage: int, microbatches: int, optimizer: Optimizer) -> None:
        self.cut, self.stage, self.microbatches, self.optimizer = cut, stage, microbatches, optimizer
        self.graph = Graph(f"{cut.graph.name}.stage{stage}")
        self.last = stage == len(cut.nodes) - 1
        self.image: list[dict[Tensor, Tensor]] = [{} for _ in range(microbatches)]
        """Microbatch -> tensor of the forward pass -> what it is here."""
        self.made: dict[Pass, list[Tensor]] = {}
        self.total: dict[Tensor, Tensor] = {}
        """Weight -> its gradient, added up so far."""
        self.mean: Tensor | None = None
        self.seed: Tensor | None = None

    def lowered(self, passes: Sequence[Pass], reads: tuple[Tensor, ...]) -> Lowered:
        """Return the program, its passes in order, on its streams."""
        graph = self.graph
        for number in range(self.microbatches):
            start = len(graph.nodes)
            self._forward(number)
            self.made[Pass("forward", number)] = graph.nodes[start:]
        for number in range(self.microbatches):
            start = len(graph.nodes)
            self._backward(number)
            self.made[Pass("backward", number)] = graph.nodes[start:]
        start = len(graph.nodes)
        self._update()
        tail = graph.nodes[start:]
        graph.nodes[:] = [node for one in passes for node in self.made[one]] + tail
        mine = [image[read] for read in reads for image in self.image if self.cut.stage_of[read] == self.stage]
        lowered = lower(graph, (*(() if self.mean is None else (self.mean,)), *mine))
        return on_streams(
            lowered,
            ranks=len(self.cut.nodes),
            groups={WORLD: [tuple(range(len(self.cut.nodes)))]},
            streams=STREAMS,
            stream_of=lambda node: 1 + (node.stage == "backward"),
            also=self._sends_gone(lowered),
        )

    def _forward(self, number: int) -> None:
        graph, image, cut = self.graph, self.image[number], self.cut
        for tensor in cut.sent[self.stage - 1] if self.stage else ():
            image[tensor] = self._received(tensor, _boundary(tensor, number, self.stage), self.stage - 1)
        for node in cut.nodes[self.stage]:
            sources = [self._leaf(source, number) if source.is_leaf else image[source] for source in node.sources]
            with graph.scope(layer=node.layer):
                image[node] = graph.op(str(node.kind), *sources, name=_of(node.name, number), **node.params)
            graph.expand(image[node])
        for tensor in cut.sent[self.stage]:
            self._send(image[tensor], _boundary(tensor, number, self.stage + 1), self.stage + 1)
        if self.last:
            names = [_of("loss.share", number), _of("loss.sum", number)]
            if number == self.microbatches - 1:
                names[number > 0] = MEAN
            share = graph.op("scale", image[cut.loss], s=1 / self.microbatches, name=names[0])
            self.mean = share if self.mean is None else graph.op("add", self.mean, share, name=names[1])
            graph.expand(self.mean)

    def _leaf(self, leaf: Tensor, number: int) -> Tensor:
        image = self.image[number]
        if leaf not in image:
            if leaf.role == Role.INPUT:
                image[leaf] = self.graph.again(leaf, name=_of(leaf.name, number))
            else:
                image[leaf] = self.image[0][leaf] if number else self.graph.again(leaf)
        return image[leaf]

    def _backward(self, number: int) -> None:
        graph, image, cut = self.graph, self.image[number], self.cut
        back = cut.returned[self.stage - 1] if self.stage else []
        weights = {leaf: image[leaf] for leaf in cut.trained[self.stage]}
        wanted = [*weights.values(), *(image[tensor] for tensor in back)]
        if not wanted:
            return
        with graph.scope(stage="backward"):
            if self.last:
                self.seed = self.seed or graph.input(SEED, (1,), cut.loss.dtype)
                ends, seeds = [image[cut.loss]], {}
            else:
                ends = [image[tensor] for tensor in cut.returned[self.stage]]
                seeds = {
                    image[tensor]: self._received(
                        tensor, f"grad.{_boundary(tensor, number, self.stage + 1)}", self.stage + 1
                    )
                    for tensor in cut.returned[self.stage]
                }
            found = backward(graph, ends, parameters=wanted, seeds=seeds, seed=self.seed)
            for tensor in back:
                name = f"grad.{_boundary(tensor, number, self.stage)}"
                self._send(found[image[tensor]], name, self.stage - 1)
            for leaf, weight in weights.items():
                gradient = found[weight]
                if leaf in self.total:
                    with graph.scope(layer=leaf.layer):
                        gradient = graph.op("add", self.total[leaf], gradient, name=_of(f"total.{leaf.name}", number))
                self.total[leaf] = gradient
                graph.expand(gradient)

    def _update(self) -> None:
        graph, optimizer = self.graph, self.optimizer
        if not self.total:
            return
        leafs = {
            name: graph.parameter(name, (length,), self.cut.loss.dtype) for name, length in optimizer.leafs.items()
        }
        for leaf, gradient in self.total.items():
            weight = self.image[0][leaf]
            kept = {
                prefix: graph.state(f"{prefix}.{leaf.name}", weight.shape, weight.dtype) for prefix in optimizer.states
            }
            with graph.scope("new", layer=leaf.layer, stage="update"):
                graph.expand(optimizer.update(graph, weight, gradient, {**leafs, **kept}))

    def _received(self, tensor: Tensor, name: str, peer: int) -> Tensor:
        with self.graph.scope(layer=tensor.layer):
            node = self.graph.op("recv", shape=tensor.shape, dtype=tensor.dtype, name=name, **self._with(peer))
        self.graph.expand(node)
        return node

    def _send(self, tensor: Tensor, name: str, peer: int) -> None:
        with self.graph.scope(layer=tensor.layer):
            self.graph.expand(self.graph.op("send", tensor, name=name, **self._with(peer)))

    def _with(self, peer: int) -> dict[str, int | str]:
        return {"ranks": len(self.cut.nodes), "group": WORLD, "peer": peer}

    def _sends_gone(self, lowered: Lowered) -> dict[int, list[int]]:
        """Return which sends the first op of each backward pass waits for."""
        found: dict[int, list[int]] = {}
        for number in range(self.microbatches):
            here = [lowered.step_of[node] for node in self.made[Pass("backward", number)] if node.kind not in MESSAGES]
            first = next((step for step in here if lowered.kernels[step] is not None), None)
            before = self.made[Pass("forward", number)] + self.made.get(Pass("backward", number - 1), [])
            if first is not None:
                found[first] = [lowered.step_of[node] for node in before if node.kind == "send"]
        return found


def _of(name: str, number: int) -> str:
    return f"{name}.m{number}"


def _boundary(tensor: Tensor, number: int, stage: int) -> str:
    """Return the name of what crosses into a stage, or of what comes back from it."""
    return f"{_of(tensor.name, number)}.to{stage}"
