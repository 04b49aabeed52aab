"""A trainer whose steps are made by many ranks.

    fit(model, dataset, settings, trained_by=partial(RankedTrainer, ranks=4, zero=3))

A batch is cut into as many equal parts as there are ranks; each makes its step on its part, and the
loss is the mean over ranks (`engine.sharding.sharded_step`). With `tensor=T` T neighbours share a
part; with `experts=E` each E have the experts between them. With `microbatches=M` each rank is a
stage of layers instead (`engine.sharding.pipeline_stages`), and a batch is M microbatches. Where
this process was started by an `mpiexec` it is one of the ranks (`mpi_ranks`), else all of them
(`simulation`). The weights after each step are, to the bit, those of one process whose logical
batch is the ranks' parts one after the other; where tensors are split or experts spread, to other
last digits.

Validation runs whole in each process, on whole weights; `gather` brings these and the moments
together. Of a checkpoint each rank writes its part, and any number of ranks goes on from it; rank 0
writes all else.

What this module does not see: epochs, files, and who holds what.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from allocsim.model import Document, Plan, Role
from allocsim.programs.fingerprints import fingerprint
from allocsim.programs.joined_ranks import joined
from engine.graph import Tensor
from engine.kernels.binding import Array
from engine.models.trainable import Model
from engine.sharding.mpi_ranks import MpiRank, agree, by_rank, launched, rank_here
from engine.sharding.pipeline_stages import RankedStep, pipeline
from engine.sharding.sharded_step import MEAN, Sharding, shard
from engine.sharding.simulation import Simulation
from engine.training.digests import digest
from engine.training.index_limits import index_limits
from engine.training.trainer import BatchOutcome, Build, Trainer


class RankedTrainer(Trainer):
    """Whole weights here, and the ranks that step them."""

    def __init__(
        self,
        model: Model,
        *,
        ranks: int,
        zero: int,
        tensor: int = 1,
        experts: int = 1,
        microbatches: int = 0,
        planner: str = "ggml",
        **settings: Any,
    ) -> None:
        """Take the arguments of `Trainer`, how many ranks of which stage of ZeRO, and over how many
        neighbours tensors are split or experts spread; or how many microbatches go through ranks
        that are stages of layers, 0 for none.

        Raises EngineError for what is not spread over ranks: logical batches of several physical
        ones, graphs that change, a loss that is a sum, and a look at every result.
        """
        super().__init__(model, planner=planner, **settings)
        Sharding(zero=zero, ranks=ranks, tensor=tensor, experts=experts)  # refuses what is none
        graphs = settings.get("graphs", "static")
        for wrong, said in (
            (graphs != "static", f"graphs are {graphs!r}; over ranks they are static"),
            (bool(self.rules.said), f"{', '.join(self.rules.said)}: a rule of the step that ranks do not have"),
            (bool(model.states), "the model keeps states, which each rank would write by its own rows"),
            (self.period > 1, f"a logical batch is {self.period} batches; over ranks it is one, of all ranks"),
            (not self.loss.mean, f"loss {self.loss.name!r} is a sum; over ranks a loss is a mean"),
            (
                bool(microbatches and (zero or max(tensor, experts) > 1)),
                f"a pipeline of {microbatches} microbatches has each layer whole on one rank: no ZeRO, tensors or experts",
            ),
            (bool(settings.get("watch")), "every result is to be watched; that is done in one process, without ranks"),
        ):
            if wrong:
                raise EngineError(said)
        self.ranks, self.zero, self.tensor, self.experts = ranks, zero, tensor, experts
        self.microbatches, self.parts = microbatches, microbatches or ranks
        self.mine = (rank_here(),) if launched() else range(ranks)
        self.writes = 0 in self.mine
        self._gathered = 0
        """The step of which whole weights and moments are here."""
        self._planner_name = planner
        self._step: _Step | None = None

    def run(self, build: Build, batch: Mapping[str, Array]) -> BatchOutcome:
        """Run one build on one batch: the step by all ranks, what trains nothing here."""
        if build != "optimizer":
            self.gather()
            return super().run(build, batch)
        if self._step is None:
            self._step = self._begun({name: tuple(part.shape) for name, part in self._part(batch, 0).items()})
        step = self._step
        offered = [
            self._inputs(
                step.inputs,
                step.constants,
                self._part(batch, rank),
                step.classes,
                step.limits,
                number=(self.steps * self.parts + rank) // self.tensor,
            )
            for rank in (range(self.microbatches) if self.microbatches else self.mine)
        ]
        loss, outputs = step.run(offered, self.hyper)
        self.steps += 1
        return BatchOutcome(loss=loss, outputs=np.concatenate(outputs[:: self.tensor]))

    def document(self) -> Document:
        """Return the step of a rank with its plan, or of all stages, and no program that ran on
        whole weights: there a parameter is another buffer than the part of it that a rank holds.
        """
        return super().document() if self._step is None else self._step.document()

    def agree(self, place: Mapping[str, Any]) -> None:
        """Raise EngineError where this process is one of several ranks that begin differently."""
        if launched():
            agree(self.ranks, digest({**self.weights, **self.states}, json.dumps(place, sort_keys=True, default=str)))

    def gather(self) -> None:
        """Bring whole weights and moments here from the parts of the ranks; every rank asks."""
        if self._step is None or self._gathered == self.steps:
            return
        self._gathered = self.steps
        for name, array in self._step.world.weights().items():
            held = self.weights if name in self.weights else self.states
            if name in held:
                held[name][...] = array

    def of_all(self, mine: list[str]) -> list[str]:
        """Return what each rank says, in their order; every rank asks."""
        return [name for row in by_rank(mine) for name in row] if launched() else mine

    def close(self) -> None:
        """Give memory and threads back."""
        if self._step is not None:
            self._step.world.close()
        super().close()

    def _part(self, batch: Mapping[str, Array], rank: int) -> dict[str, Array]:
        """Return the rows of one rank, or one microbatch."""
        rows, parts, place = {len(column) for column in batch.values()}, self.parts // self.tensor, rank // self.tensor
        if any(count % parts for count in rows):
            each = "each rank" if self.tensor == 1 else f"{self.tensor} ranks"
            each = "each microbatch" if self.microbatches else each
            raise EngineError(f"a batch of {max(rows)} rows is not {parts} equal parts, one for {each}")
        return {
            name: column[place * len(column) // parts : (place + 1) * len(column) // parts]
            for name, column in batch.items()
        }

    def _begun(self, shapes: Mapping[str, tuple[int, ...]]) -> "_Step":
        """Record and plan the step, and bind the ranks of this process."""
        graph, loss, outputs = self.forward("optimizer", shapes)
        leafs = {leaf.name: leaf for leaf in graph.leafs if leaf.role == Role.PARAMETER}
        limits = index_limits(graph)
        how: dict[str, Any] = {"optimizer": self.optimizer.name, "reads": (outputs,)}
        step: RankedStep
        if self.microbatches:
            step = pipeline(graph, loss, stages=self.ranks, microbatches=self.microbatches, **how)
        else:
            how |= {"zero": self.zero, "tensor": self.tensor, "experts": self.experts}
            step = shard(graph, loss, ranks=self.ranks, **how)
        planned = step.planned(self._planner_name)
        plans = (planned,) if isinstance(planned, Plan) else planned
        self.plans.update({fingerprint(plan.program): plan for plan in plans})
        self._lay(leafs, {}, trains=True)
        for name, shape, dtype in step.states():
            self._keep(name, shape, dtype)
        given = {name: {**self.model.parameters, **self.weights}[name] for name in leafs}
        bind = MpiRank if launched() else Simulation
        world = bind(step, planned, given, executor=self._executor, threads=self._threads)
        world.adopt(self.states, self.steps)
        inputs = {leaf.name: leaf for leaf in graph.leafs if leaf.role == Role.INPUT}
        return _Step(
            plans=plans,
            world=world,
            inputs=inputs,
            constants=self._constants("optimizer", shapes, loss, inputs),
            outputs=outputs.name,
            microbatches=self.microbatches,
            classes=outputs.shape[-1],
            limits=limits,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """The step of the ranks that this process runs."""

    plans: tuple[Plan, ...]
    """One of all ranks, or one of each stage."""
    world: MpiRank | Simulation
    inputs: Mapping[str, Tensor]
    constants: Mapping[str, Array]
    outputs: str
    microbatches: int
    classes: int
    limits: Mapping[str, tuple[int, str]]

    def run(self, offered: Sequence[Mapping[str, Array]], hyper: Mapping[str, float]) -> tuple[float, list[Array]]:
        """Make one step; return the mean loss, and the outputs of each part."""
        if isinstance(self.world, MpiRank):
            found = by_rank(self.world.run(offered if self.microbatches else offered[0], hyper))
        else:
            found = self.world.run(offered, hyper=hyper)
        told = {name: array for one in found for name, array in one.items()}
        outputs = [told[f"{self.outputs}.m{number}"] for number in range(self.microbatches)]
        return float(told[MEAN][0]), outputs or [one[self.outputs] for one in found]

    def document(self) -> Document:
        """Return the plan of a rank, or those of all stages."""
        return joined(self.plans, self.world.step.groups) if self.microbatches else Document.of(self.plans[0])
