"""One step of training at a time: the graphs, their plans, and the memory they share.

What is asked for is one of four *builds*: `outputs` (predictions, without labels), and ggml-opt's
three, `forward` (outputs and loss), `gradient` (also the gradients, added to accumulators) and
`optimizer` (also the step of every weight). The first two run the model as it is used
(`Model.evaluation`) and write no state, the others as it is trained. Each is a graph of its own;
all work on the same weights, moments and accumulators, which lie outside the arenas, and take turns
in one block of memory for everything else.

    static    one set of graphs, for the shapes of the first batch; another shape is an error
    shapes    one set of graphs for each shape of a batch
    dynamic   the graph is built anew for every batch, for models whose structure changes

A plan is made for a fingerprint of program and pins (`allocsim.programs.fingerprints`) and never
used for a program with another one; a graph that comes out as an earlier one takes that one's plan.
Every new plan is judged before it is used (`engine.runtime.entrance`).

A logical batch is `period` physical ones. Accumulators are set to zero before the first of them,
whatever graph runs it.

What this module does not see: datasets, epochs, files.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Literal, Self, get_args

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError, UnknownNameError
from allocsim.model import Document, Plan, Role
from engine.autodiff import SEED, backward
from engine.autodiff.recomputation import crossing
from engine.graph import Graph, Tensor
from engine.graph.lowering import Lowered, lower
from engine.kernels.binding import Array
from engine.models.labels import check_classes, one_hot
from engine.models.trainable import KEY, Model, Shapes
from engine.runtime import EXECUTORS, Observer, Runtime
from engine.runtime.entrance import planned_once
from engine.runtime.nonfinite import FiniteWatch, NonfiniteOrigin
from engine.runtime.plan_memory import NUMPY_DTYPES, SharedBlock, block
from engine.training.dataset import LABELS
from engine.training.index_limits import index_limits
from engine.training.losses import LOSSES, Loss
from engine.training.measured_memory import MemoryOfRun, MemoryProbe
from engine.training.optimizers import OPTIMIZERS, Hyper, Optimizer
from engine.training.step_rules import ACCUMULATED, AVERAGE, SCALE, SKIPPED, NarrowGraph, StepRules, StepUpdate

Build = Literal["outputs", "forward", "gradient", "optimizer"]
EVALUATING: Final[frozenset[Build]] = frozenset({"outputs", "forward"})
"""Builds that run the model as it is used, not as it is trained."""
Graphs = Literal["static", "shapes", "dynamic"]
GRAPHS: Final[tuple[str, ...]] = get_args(Graphs)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BatchOutcome:
    """What one run gave."""

    loss: float
    """NaN of the build `outputs`, which has none."""
    outputs: Array
    made: tuple[NonfiniteOrigin, ...] = ()
    """The first NaN and infinity, and who made them; only looked for by a trainer that watches."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundBuild:
    """A build, ready to run."""

    lowered: Lowered
    plan: Plan
    runtime: Runtime
    inputs: Mapping[str, Tensor]
    """Leafs the host writes before each run."""
    constants: Mapping[str, Array]
    loss: str
    outputs: str
    """Names of what the host reads."""
    classes: int
    """Numbers in a row of the outputs."""
    limits: Mapping[str, tuple[int, str]]
    """Column of indices -> how many things there are to name, and the node that reads them."""
    accumulators: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnplannedBuild:
    """A build as a graph with all that its runs take but a plan."""

    graph: Graph
    loss: Tensor
    outputs: Tensor
    parameters: Mapping[str, Array]
    """Weights and states to start from, and the hyper-parameters of the first step."""
    inputs: Mapping[str, Array]
    """What the host offers in each run: a batch, constants and the seed of the loss."""

    @property
    def gradients(self) -> Mapping[Tensor, Tensor]:
        """Parameter -> its gradient, before the optimizer takes it."""
        return self.graph.gradients


class Trainer:
    """Weights in memory, and the graphs that work on them."""

    def __init__(
        self,
        model: Model,
        *,
        loss: str = "cross_entropy",
        optimizer: str = "adamw",
        hyper: Hyper | None = None,
        period: int = 1,
        graphs: Graphs = "static",
        planner: str = "ggml",
        executor: str = "calls",
        threads: int | None = 1,
        seed: int = 0,
        watch: bool = False,
        measure: bool = False,
        rules: StepRules | None = None,
    ) -> None:
        """Lay the weights and start from step 0.

        Args:
            model: what to train.
            loss: a name of `LOSSES`.
            optimizer: a name of `OPTIMIZERS`.
            hyper: hyper-parameters that differ from the optimizer's defaults.
            period: physical batches in a logical one.
            graphs: whether graphs are made once, for each shape, or for each batch.
            planner: who plans the memory; a name or `package.module:function`.
            executor: a name of `engine.runtime.EXECUTORS`; the numbers are the same to the bit.
            threads: threads of a step, None for as many as numpy's BLAS may use.
            seed: of what a model draws (`engine.models.trainable.KEY`), with the number of the
                physical batch.
            watch: look at every result of every op for NaN and infinity
                (`engine.runtime.nonfinite`).
            measure: measure the memory of the first run of each build (`memory`), to the same
                numbers.
            rules: what a step does beside its optimizer (`engine.training.step_rules`).

        Raises:
            EngineError: a rule, a hyper-parameter or the period is out of range; a weight is missing or of
                another shape; a state is named as what training keeps.
            UnknownNameError: no such loss, optimizer, planner or executor.
        """
        for what, name, table in (
            ("loss", loss, LOSSES),
            ("optimizer", optimizer, OPTIMIZERS),
            ("kind of graphs", graphs, GRAPHS),
            ("executor", executor, EXECUTORS),
        ):
            if name not in table:
                raise UnknownNameError(what, name, table)
        if period < 1:
            raise EngineError(f"period is {period}; a logical batch is at least one physical batch")
        self.model = model
        self.loss: Loss = LOSSES[loss]
        self.optimizer: Optimizer = OPTIMIZERS[optimizer]
        self.rules = rules or StepRules()
        self.update = StepUpdate(self.optimizer, self.rules)
        self.hyper = self.optimizer.checked(hyper or {})
        self.update.check_names(model.states, model.parameters)
        self.update.check_groups(model.parameters)
        self.period = period
        self.steps = 0
        """Optimizer steps made."""
        self.pending = 0
        """Physical batches already in the accumulators."""
        self.weights: dict[str, Array] = {}
        """Trained weight -> its memory, as it is now."""
        self.states: dict[str, Array] = {}
        """Moments, accumulators and states of the model -> their memory."""
        self.plans: dict[str, Plan] = {}
        """Fingerprint -> plan; as many as were ever made."""
        self.memory: dict[str, MemoryOfRun] = {}
        """Build -> what its first run held; only of a trainer that measures."""
        self.ranks = 1
        """How many make a step together."""
        self.mine: Sequence[int] = (0,)
        """Those of this process."""
        self.writes = True
        """Whether this process is the one that writes results."""
        self._graphs = graphs
        self._randomness = seed
        self._planner = find(planner)
        self._executor, self._threads, self._watch = executor, threads, watch
        self._measure = measure
        self._hyper: dict[str, Array] = {}
        self._made: dict[tuple[Build, tuple[tuple[str, tuple[int, ...]], ...]], BoundBuild] = {}
        self._memory = SharedBlock()

    def run(self, build: Build, batch: Mapping[str, Array]) -> BatchOutcome:
        """Run one build on one physical batch.

        Raises EngineError if the batch does not fit the model, or `optimizer` comes before the
        logical batch is complete.
        """
        if build == "optimizer" and self.pending != self.period - 1:
            raise EngineError(
                f"{self.pending} of {self.period - 1} physical batches are accumulated; the step would come too early"
            )
        if build == "gradient" and self.period > 1 and self.pending >= self.period - 1:
            raise EngineError(
                f"{self.pending} physical batches are accumulated; the last of {self.period} is to make the step"
            )
        bound = self.bound(build, batch)
        self._tell(self.steps + 1)
        first = self.pending == 0
        watch = FiniteWatch(bound.runtime) if self._watch else None
        offered = self._inputs(bound.inputs, bound.constants, batch, bound.classes, bound.limits, number=self._number())
        probe = MemoryProbe(bound.runtime) if self._measure and build not in self.memory else None
        observers = [observer for observer in (watch, probe) if observer is not None]
        given = bound.runtime.run(offered, skip=() if first else bound.accumulators, observer=_all_of(observers))
        if probe is not None:
            self.memory[build] = probe.measured()
        if build == "optimizer":
            self.steps, self.pending = self.steps + 1, 0
        elif build == "gradient":
            self.pending = (self.pending + 1) % self.period if self.period > 1 else 0
        return BatchOutcome(
            loss=float("nan") if build == "outputs" else float(given[bound.loss][0]),
            outputs=given[bound.outputs],
            made=() if watch is None else tuple(watch.findings),
        )

    def step(self, batch: Mapping[str, Array]) -> BatchOutcome:
        """Run the build whose turn it is: `gradient`, or `optimizer` on a complete batch."""
        return self.run("optimizer" if self.pending == self.period - 1 else "gradient", batch)

    def predict(self, batch: Mapping[str, Array]) -> Array:
        """Return the outputs of the model for a batch, which needs no labels."""
        return self.run("outputs", batch).outputs

    def bound(self, build: Build, batch: Mapping[str, Array]) -> BoundBuild:
        """Return the build for a batch of these shapes, made now if there is none yet."""
        shapes = {name: tuple(column.shape) for name, column in batch.items()}
        key = (build, tuple(sorted(shapes.items())))
        if self._graphs != "dynamic" and key in self._made:
            return self._made[key]
        trained = (k for k in self._made if k[0] != "outputs" and k[1] != key[1])
        if self._graphs == "static" and build != "outputs" and (other := next(trained, None)):
            raise EngineError(f"the graphs are static, for columns {dict(other[1])}; this batch has {shapes}")
        found = self._make(build, shapes)
        if self._graphs != "dynamic":
            self._made[key] = found
        return found

    def unplanned(self, build: Build, batch: Mapping[str, Array]) -> UnplannedBuild:
        """Return a build for a batch as it is before anybody plans it; nothing runs.

        Raises EngineError if the batch does not fit the model.
        """
        shapes = {name: tuple(column.shape) for name, column in batch.items()}
        graph, loss, outputs = self.graph(build, shapes)
        leafs = {leaf.name: leaf for leaf in graph.leafs}
        parameters = {name: leaf for name, leaf in leafs.items() if leaf.role == Role.PARAMETER}
        self._lay(parameters, {}, trains=build not in EVALUATING)
        self._tell(1)
        given, starts = {**self.model.parameters, **self._hyper, **self.weights}, self._starts()
        inputs = {name: leaf for name, leaf in leafs.items() if leaf.role == Role.INPUT}
        constants = self._constants(build, shapes, loss, inputs)
        return UnplannedBuild(
            graph=graph,
            loss=loss,
            outputs=outputs,
            parameters={name: given[name].copy() for name in parameters}
            | {
                leaf.name: np.array(starts[leaf.name], NUMPY_DTYPES[leaf.dtype])
                for leaf in graph.leafs
                if leaf.role == Role.STATE and leaf.name in starts
            },
            inputs=self._inputs(
                inputs, constants, batch, outputs.shape[-1], index_limits(graph), number=self._number()
            ),
        )

    @property
    def averages(self) -> dict[str, Array]:
        """Weight -> its moving average, where the rules want one."""
        return {name.removeprefix(AVERAGE): array for name, array in self.states.items() if name.startswith(AVERAGE)}

    def gradients(self) -> dict[str, Array]:
        """Return weight -> what its accumulator holds now.

        There are accumulators in `gradient` builds and in logical batches of several physical ones.
        """
        found = {name: array for name, array in self.states.items() if name.startswith(ACCUMULATED)}
        return {name.removeprefix(ACCUMULATED): array for name, array in found.items()}

    def adopt(self, weights: Mapping[str, Array], states: Mapping[str, Array]) -> None:
        """Go on, before the first run, from these weights and states, copied for later graphs."""
        if self._made or self.plans:
            raise EngineError(f"model {self.model.name!r} has run already; weights are adopted before the first run")
        for table, given in ((self.weights, weights), (self.states, states)):
            for name, array in given.items():
                table[name] = _aligned(array.shape, array.dtype)
                table[name][...] = array

    def document(self) -> Document:
        """Return every program that ran, with its plan."""
        return Document.of(*self.plans.values())

    def agree(self, place: Mapping[str, Any]) -> None:
        """Raise EngineError where other processes of this training begin elsewhere."""

    def gather(self) -> None:
        """Bring `weights` and `states` up to date, where they lie elsewhere; here they do not."""

    def of_all(self, mine: list[str]) -> list[str]:
        """Return what each rank says, in their order, of which `mine` are those of this process."""
        return mine

    def close(self) -> None:
        """Give the threads back."""
        for bound in reversed(self._made.values()):  # the first gives back what was there before all of them
            bound.runtime.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def graph(self, build: Build, shapes: Shapes) -> tuple[Graph, Tensor, Tensor]:
        """Return a new graph of a build with its loss and outputs, in the order it runs.

        The build `outputs` has no loss; the outputs stand in its place. States are written by
        those that train.
        """
        graph, loss, outputs = self.forward(build, shapes)
        kept = (leaf.name for leaf in graph.leafs if leaf.role == Role.STATE)
        self.update.check_names(kept, self.model.parameters)
        if build not in EVALUATING:
            self._backward(graph, loss, build)
            graph.write_states()
        return graph, loss, outputs

    def _backward(self, graph: Graph, loss: Tensor, build: Build) -> None:
        """Append the backward pass of a build that trains, and what steps the weights."""
        scaled = self.rules.loss_scale is not None
        scale = graph.state(SCALE, (1,), loss.dtype) if scaled else None
        seed = None
        if scale is not None:
            seed = graph.op("mul", graph.input(SEED, (1,), loss.dtype), scale, name="loss_grad.scaled")
        adds, kept = build == "gradient" or self.period > 1, self._checkpoints(graph)
        gradients = backward(graph, loss, seed=seed, accumulate=adds, checkpoints=kept)
        if build == "optimizer":
            self.update.build(graph, {w.name: (w, gradient) for w, gradient in gradients.items()}, scale)

    def _checkpoints(self, graph: Graph) -> tuple[Tensor, ...] | None:
        """Return the forward values that backward may read, None for all."""
        if not self.rules.checkpoint:
            return None
        found = crossing(graph, self.rules.checkpoint)
        if not found:
            raise EngineError(
                f"checkpoint is {self.rules.checkpoint}, and nothing that leaves a layer of model {self.model.name!r} "
                "could be kept: engine.scope(layer=...) marks layers"
            )
        return found

    def forward(self, build: Build, shapes: Shapes) -> tuple[Graph, Tensor, Tensor]:
        """Return a build as `graph` does, less its backward pass and what steps the weights."""
        name, narrow = f"{self.model.name}.{build}", self.rules.weights
        graph = Graph(name) if narrow == "f32" else NarrowGraph(name, narrow)
        outputs = self._as_it_runs(build).build(graph, shapes)
        if build == "outputs":
            graph.expand(outputs)
            return graph, outputs, outputs
        if self.loss.labels and any(leaf.name == LABELS for leaf in graph.leafs):
            raise EngineError(
                f"model {self.model.name!r} reads the column {LABELS!r} itself, and so does the loss {self.loss.name!r}; "
                "a model that returns its loss is trained with loss 'mean'"
            )
        labels = self._labels(graph, shapes, outputs) if self.loss.labels else None
        loss = self.loss.build(graph, outputs, labels)
        if build not in EVALUATING:
            loss = graph.penalized(loss)
        graph.expand(outputs, loss)
        return graph, loss, outputs

    def _labels(self, graph: Graph, shapes: Shapes, outputs: Tensor) -> Tensor:
        """Return the leaf of the labels: shaped like the outputs, or a class number a row."""
        *rows, classes = outputs.shape
        if self.loss.classes and classes > 1 and prod(shapes.get(LABELS, ())) == prod(rows):
            return graph.input(LABELS, (prod(rows),), "i32")
        return graph.input(LABELS, outputs.shape, outputs.dtype)

    def _make(self, build: Build, shapes: Shapes) -> BoundBuild:
        graph, loss, outputs = self.graph(build, shapes)
        lowered = lower(graph, dict.fromkeys((loss, outputs)))
        leafs = {leaf.name: leaf for leaf in graph.leafs}
        parameters = {name: leaf for name, leaf in leafs.items() if leaf.role == Role.PARAMETER}
        states = {name: leaf for name, leaf in leafs.items() if leaf.role == Role.STATE}
        self._lay(parameters, states, trains=build not in EVALUATING)
        frozen = {name: array for name, array in {**self.model.parameters, **self._hyper}.items() if name in parameters}
        held = {**self.weights, **self.states, **(self.averages if build in EVALUATING else {})}
        kept = {name: array for name, array in held.items() if name in parameters or name in states}
        runtime = self._runtime(lowered, frozen | {name: kept[name] for name in kept if name in parameters}, kept)
        inputs = {name: leaf for name, leaf in leafs.items() if leaf.role == Role.INPUT}
        return BoundBuild(
            lowered=lowered,
            plan=runtime.plan,
            runtime=runtime,
            inputs=inputs,
            constants=self._constants(build, shapes, loss, inputs),
            loss=loss.name,
            outputs=outputs.name,
            classes=outputs.shape[-1],
            limits=index_limits(graph),
            accumulators=tuple(name for name, leaf in states.items() if leaf.reset),
        )

    def _runtime(self, lowered: Lowered, parameters: dict[str, Array], resident: dict[str, Array]) -> Runtime:
        """Return what runs a build: planned here, on weights and states used where they lie."""
        return Runtime(
            lowered,
            planned_once(self.plans, self._planner, lowered.program),
            parameters=parameters,
            resident=resident,
            threads=self._threads,
            allocate=self._memory.taken_once(),
            executor=self._executor,
        )

    def _as_it_runs(self, build: Build) -> Model:
        """Return the model as it is trained or, where a build trains nothing, as it is used."""
        return self.model.evaluation or self.model if build in EVALUATING else self.model

    def _constants(self, build: Build, shapes: Shapes, loss: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Array]:
        """Return the inputs that are the same in every run of these shapes."""
        constants = {
            **self._as_it_runs(build).constants(shapes),
            SEED: np.full(1, 1 / self.period if self.loss.mean else 1.0, NUMPY_DTYPES[loss.dtype]),
        }
        return {name: array for name, array in constants.items() if name in inputs}

    def _lay(self, parameters: Mapping[str, Tensor], states: Mapping[str, Tensor], *, trains: bool) -> None:
        """Take memory for weights and states without any; states start as told, or as zeros."""
        for name, leaf in parameters.items():
            if name in self.update.leafs:
                self._hyper.setdefault(name, np.zeros(leaf.shape, NUMPY_DTYPES[leaf.dtype]))
                continue
            if name not in self.model.parameters:
                raise EngineError(f"parameter {leaf} of model {self.model.name!r} is not given")
            if leaf.trainable and name not in self.weights:
                array = np.asarray(self.model.parameters[name])
                if array.shape != leaf.shape or array.dtype != NUMPY_DTYPES[leaf.dtype]:
                    raise EngineError(f"{name!r} is {array.dtype}{list(array.shape)}; {leaf} is needed")
                self.weights[name] = _aligned(leaf.shape, array.dtype)
                self.weights[name][...] = array
        averaged = parameters.items() if self.rules.average is not None else ()
        for name, leaf in averaged:
            if name in self.weights:
                self._keep(AVERAGE + name, leaf.shape, leaf.dtype)
        for name, leaf in states.items():
            self._keep(name, leaf.shape, leaf.dtype)
        for name in sorted(set(self.model.parameters) - set(parameters) - set(self.weights)) if trains else ():
            self.weights[name] = np.array(self.model.parameters[name])
            tell = f"the outputs of model {self.model.name!r} do not depend on parameter {name!r}; it stays as it is"
            warnings.warn(tell, UnreachedParameterWarning, stacklevel=2)

    def _keep(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        """Take memory for a state that has none yet."""
        if name not in self.states:
            self.states[name] = _aligned(shape, NUMPY_DTYPES[dtype])
            self.states[name][...] = self._starts().get(name, 0)

    def _starts(self) -> dict[str, Array]:
        """Return what states begin with that do not begin with zeros."""
        return {**self.model.states, **self.update.starts(self.weights)}

    def _number(self) -> int:
        """Return how many physical batches have been trained on."""
        return self.steps * self.period + self.pending

    def _tell(self, step: int) -> None:
        skipped = int(self.states[SKIPPED][0]) if SKIPPED in self.states else 0
        for name, values in self.update.values(self.hyper, step, skipped).items():
            if name in self._hyper:
                self._hyper[name][...] = values

    def _inputs(
        self,
        inputs: Mapping[str, Tensor],
        constants: Mapping[str, Array],
        batch: Mapping[str, Array],
        classes: int,
        limits: Mapping[str, tuple[int, str]],
        *,
        number: int,
    ) -> dict[str, Array]:
        """Return what the host offers to the physical batch with this number."""
        given: dict[str, Array] = dict(constants)
        if KEY in inputs:
            given[KEY] = _drawn(self._randomness, number)
        for name, leaf in inputs.items():
            if name in given:
                continue
            if name not in batch:
                raise EngineError(
                    f"input {leaf} of model {self.model.name!r} is no column of the batch ({', '.join(batch)})"
                )
            given[name] = self._fed(name, batch[name], leaf, classes)
            if name in limits and given[name].size:
                _check_indices(name, given[name], *limits[name])
        return given

    def _fed(self, name: str, column: Array, leaf: Tensor, classes: int) -> Array:
        dtype = NUMPY_DTYPES[leaf.dtype]
        if column.dtype.kind not in "fiub":
            raise EngineError(f"column {name!r} is of {column.dtype} in this batch; numbers are needed")
        if name == LABELS and self.loss.classes and column.dtype.kind in "iu":
            check_classes(column, classes)
            column = column if dtype.kind == "i" else one_hot(column, classes, dtype)
        if column.size != int(np.prod(leaf.shape)) or (dtype.kind == "i" and column.dtype.kind == "f"):
            raise EngineError(f"column {name!r} is {column.dtype}{list(column.shape)} in this batch; {leaf} is needed")
        if dtype.kind == "i" and column.size and not -(2**31) <= int(column.min()) <= int(column.max()) < 2**31:
            raise EngineError(
                f"column {name!r} holds {column.min()} to {column.max()} in this batch; {leaf} holds 32 bits"
            )
        return np.ascontiguousarray(column.reshape(leaf.shape), dtype=dtype)


class UnreachedParameterWarning(UserWarning):
    """A parameter is given that nothing of the model reads: perhaps its name is misspelt."""


def _check_indices(name: str, numbers: Array, count: int, reader: str) -> None:
    """Raise EngineError unless all numbers of a column name one of `count` things."""
    low, high = int(numbers.min()), int(numbers.max())
    if not 0 <= low <= high < count:
        raise EngineError(f"column {name!r} holds {low} to {high} in this batch; {reader!r} reads {count} rows, from 0")


def _drawn(seed: int, batch: int) -> Array:
    """Return the key of a physical batch, i32 [1]: `SeedSequence` of seed and number."""
    words = np.random.SeedSequence([seed & 2**64 - 1, batch]).generate_state(1, np.uint32)
    return words.astype(np.uint32).view(np.int32)


def _all_of(observers: Sequence[Observer]) -> Observer | None:
    """Return an observer that tells all of these."""
    if len(observers) < 2:
        return observers[0] if observers else None

    def told(step: int, operands: tuple[Array, ...], results: tuple[Array, ...]) -> None:
        for observer in observers:
            observer(step, operands, results)

    return told


def _aligned(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros that begin as a runtime's block does: results do not depend on the place."""
    wanted = np.dtype(dtype)
    made: Array = block(int(np.prod(shape)) * wanted.itemsize).view(wanted).reshape(shape)
    return made
