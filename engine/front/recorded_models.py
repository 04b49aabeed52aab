"""A model typed at the front, as a graph: recorded once for each shape of a batch.

    def classifier(p, data):
        return (data @ p["hidden.weight"] + p["hidden.bias"]).tanh() @ p["out.weight"]

    net = model(classifier, {"hidden.weight": ..., "hidden.bias": ..., "out.weight": ...})
    fit(net, dataset, settings)          # or Trainer, engine.diagnose, `allocsim diagnose my_module:net`

What comes back is an `engine.models.trainable.Model` like any other. The first argument of the
function is its parameters by name, the others are columns of the dataset by name; it returns the
outputs that a loss of `engine.training.losses` takes, or (with a column `labels` of its own and the
loss `mean` or `sum`) the loss.

To record is to compute: the function is called with columns of zeros, its ops are computed and kept
(`engine.front.recording`), and each becomes the same op of the graph. Whatever it computes with
that follows from neither columns nor parameters is a constant of the program. Numbers that
follow from them cannot be read (`item`, `numpy`, `data`, an `if`), since the program would always
do what was done this time; a tensor that wants a gradient and is no parameter is refused as well.
What `fn.dropout` and the like draw is another in each step (`engine.front.randomness`), and in
evaluation dropout keeps everything: a model is recorded as it is trained and as it is used. The
first recording is made twice; where the second differs, say by numpy's random numbers, the model is
refused.

What this module does not see: losses, optimizers, plans.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from typing import Any

import numpy as np

from allocsim.errors import EngineError, UnknownNameError
from engine.front.arguments import dtype_of
from engine.front.modules import Module
from engine.front.randomness import evaluation
from engine.front.record import DTYPES, Node, constant, history, tracking
from engine.front.recording import Recording
from engine.front.states import state
from engine.front.tensors import EagerTensor, tensor
from engine.graph import Graph, Tensor
from engine.kernels.binding import Array
from engine.models.trainable import KEY, Model, Shapes

Forward = Callable[..., EagerTensor]
"""(parameters and states by name, *columns) -> outputs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Recorded:
    """What a function computed from a batch of some shapes."""

    recording: Recording
    outputs: Node
    columns: Mapping[str, Node]
    parameters: Mapping[str, Node]
    states: Mapping[str, Node]
    writes: Mapping[str, Node]
    """State -> what it holds after a run, of those that are written."""
    constants: Mapping[Node, str]

    @property
    def order(self) -> list[Node]:
        """All that the outputs and the states to come depend on, in the order of creation."""
        return history(self.outputs, *self.writes.values())


def model(
    function: Forward | Module,
    parameters: Mapping[str, Any] | None = None,
    *,
    name: str = "",
    dtypes: Mapping[str, Any] | None = None,
    frozen: Iterable[str] = (),
    states: Mapping[str, Any] | None = None,
    example: Mapping[str, Any] | None = None,
) -> Model:
    """Return a function of tensors as a model that is trained, planned and judged like any other.

    Args:
        function: parameters by name and columns -> outputs; or a module, whose `forward` takes the
            columns.
        parameters: name -> array or tensor to start from; copied. Float32 or float64. Of a module
            its own.
        name: of the model; that of the function by default.
        dtypes: column -> dtype, where that is not float32; int32 for class numbers and tokens.
        frozen: parameters that are not trained.
        states: name -> array that it starts from: what the function is given beside its parameters
            and may write (`engine.front.states`). Of a module its own.
        example: columns of one batch, `labels` among them if the loss takes some: what the model is
            diagnosed with where no other batch is given.

    Raises:
        EngineError: the function takes no parameters; a parameter is no array of numbers. While a
            graph is built: the function reads numbers, a column is missing, or the result is no
            tensor that follows from a parameter.
        UnknownNameError: `dtypes` or `frozen` name what is not there.
    """
    named = name or str(getattr(function, "__name__", type(function).__name__.lower()))
    if isinstance(function, Module):
        if parameters is not None:
            raise EngineError(f"{named} is a module and has its own parameters; none are given")
        if states is not None:
            raise EngineError(f"{named} is a module and has its own states; none are given")
        parameters, states = function.parameters(), function.states()
        columns = _names(named, list(signature(function.forward).parameters.values()))
        net = function

        def forward(p: Mapping[str, EagerTensor], **given: EagerTensor) -> EagerTensor:
            made: EagerTensor = net.using(p)(**given)
            return made

    else:
        forward, columns = function, _columns(named, function)
    if parameters is None:
        raise EngineError(f"{named} is a function; its parameters are to be given by name")
    arrays = {key: _array(f"parameter {key!r} of {named}", value) for key, value in parameters.items()}
    kept = {key: _array(f"state {key!r} of {named}", value) for key, value in (states or {}).items()}
    if twice := sorted(arrays.keys() & kept.keys()):
        raise EngineError(f"{named}: {', '.join(twice)} is given as a parameter and as a state")
    kinds = dict(dtypes or {})
    still = frozenset(frozen)
    for what, given, known in (("column", kinds, columns), ("parameter", still, arrays)):
        if stranger := next((key for key in given if key not in known), None):
            raise UnknownNameError(f"{what} of {named}", stranger, known)
    recordings = [
        _Recordings(
            named=named,
            forward=forward,
            columns=columns,
            arrays=arrays,
            states=kept,
            frozen=still,
            dtypes=kinds,
            used=used,
        )
        for used in (True, False)
    ]
    shown = {key: np.asarray(rows) for key, rows in (example or {}).items()}
    as_used, as_trained = (
        Model(name=named, build=made.build, constants=made.constants_of, parameters=arrays, states=kept, example=shown)
        for made in recordings
    )
    return replace(as_trained, evaluation=as_used)


@dataclass(slots=True, kw_only=True)
class _Recordings:
    """A function as a program for each shape of its columns, in one mode."""

    named: str
    forward: Forward
    columns: tuple[str, ...]
    arrays: Mapping[str, Array]
    states: Mapping[str, Array]
    frozen: frozenset[str]
    dtypes: Mapping[str, Any]
    used: bool
    """Whether it is recorded as it is used; else as it is trained."""
    seen: dict[tuple[tuple[str, tuple[int, ...]], ...], _Recorded] = field(default_factory=dict)

    def build(self, graph: Graph, shapes: Shapes) -> Tensor:
        """Add the ops to a graph and return the outputs."""
        return _built(graph, self._of(shapes), self.frozen)

    def constants_of(self, shapes: Shapes) -> Mapping[str, Array]:
        """Return the arrays of the inputs that are no columns."""
        return {key: node.array for node, key in self._of(shapes).constants.items()}

    def _of(self, shapes: Shapes) -> _Recorded:
        if missing := next((column for column in self.columns if column not in shapes), None):
            had = ", ".join(shapes) or "none"
            raise EngineError(f"{self.named} takes the column {missing!r}; the batch has {had}")
        key = tuple((column, tuple(shapes[column])) for column in self.columns)
        if key not in self.seen:
            made = self._made(key)
            if not self.seen:
                _check_repeats(self.named, made, self._made(key))
            self.seen.clear()  # one shape after another: a recording holds a batch
            self.seen[key] = made
        return self.seen[key]

    def _made(self, key: tuple[tuple[str, tuple[int, ...]], ...]) -> _Recorded:
        blank = {column: np.zeros(shape, dtype_of(self.dtypes.get(column, np.float32))) for column, shape in key}
        with evaluation(self.used):
            return _recorded(self, blank)


def _check_repeats(named: str, first: _Recorded, second: _Recorded) -> None:
    """Raise EngineError where two recordings of one function are not the same program.

    Their difference comes from outside: from numpy's random numbers, a clock, a counter. It would
    be a constant of the program, the same in every step.
    """
    ops, again = ([(node.kind, node.recipe.params) for node in made.order if node.recipe is not None] for made in (first, second))  # fmt: skip
    values, others = ({key: node.array.tobytes() for node, key in made.constants.items()} for made in (first, second))
    if ops != again or values != others:
        what = "other ops" if ops != again else "other numbers in a constant"
        raise EngineError(
            f"{named} was recorded twice, and the second time it has {what}: what it draws outside of the program "
            "would be the same in every step; fn.dropout, fn.uniform and fn.normal draw within it"
        )


def _columns(named: str, function: Forward) -> tuple[str, ...]:
    takes = list(signature(function).parameters.values())
    if not takes:
        raise EngineError(f"{named}: a model is a function of its parameters and of columns, each by its name")
    return _names(named, takes[1:])


def _names(named: str, takes: list[Parameter]) -> tuple[str, ...]:
    """Return the columns that must be given, by name."""
    needed = [p for p in takes if p.default is Parameter.empty]
    if any(p.kind in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD} for p in needed):
        raise EngineError(f"{named}: a model is a function of its parameters and of columns, each by its name")
    return tuple(p.name for p in needed)


def _array(what: str, value: Any) -> Array:
    array = np.array(value.data if isinstance(value, EagerTensor) else value, order="C")
    if array.dtype.kind != "f" or array.dtype not in DTYPES:
        raise EngineError(f"{what} is {array.dtype}; floating numbers are needed")
    return array if array.ndim else array.reshape(1)


def _recorded(asked: _Recordings, blank: Mapping[str, Array]) -> _Recorded:
    named = asked.named
    parameters = {key: tensor(array, key not in asked.frozen, name=key) for key, array in asked.arrays.items()}
    states = {key: state(array, name=key) for key, array in asked.states.items()}
    columns = {key: tensor(array, dtype=array.dtype, name=key) for key, array in blank.items()}
    key = constant(np.zeros(1, np.int32))
    started = {name: value._node for name, value in states.items()}  # noqa: SLF001 - of ours
    given = {value._node: name for name, value in (*parameters.items(), *columns.items())} | {key: KEY}  # noqa: SLF001 - of ours
    given |= {node: name for name, node in started.items()}
    recording = Recording(given, key, frozenset(started.values()))
    token = tracking.set(recording)
    try:
        outputs = asked.forward({**parameters, **states}, **columns)
        ended = {name: value._present() for name, value in states.items()}  # noqa: SLF001 - of ours
    finally:
        tracking.reset(token)
    if not isinstance(outputs, EagerTensor):
        raise EngineError(f"{named} returned {type(outputs).__name__}; a tensor is needed")
    end = outputs._node  # noqa: SLF001 - of ours
    if end not in recording.known or end in given:
        raise EngineError(f"{named} returned {end}, which no op makes of its columns and parameters")
    constants: dict[Node, str] = {}
    names: dict[tuple[Any, ...], str] = {}
    changed = {name: node for name, node in ended.items() if node is not started[name]}
    writes = {} if asked.used else changed  # what is only used leaves no trace
    for node in history(end, *writes.values()):
        if node.recipe is None and node not in given:
            if node.stale:
                raise EngineError(f"{named}: {node.storage.changes.by} changed {node} in place after it was used")
            same = (node.dtype, node.shape, node.array.tobytes())
            constants[node] = names.setdefault(same, f"constant_{len(names)}")
    return _Recorded(
        recording=recording,
        outputs=end,
        columns={name: value._node for name, value in columns.items()} | {KEY: key},  # noqa: SLF001 - of ours
        parameters={key: value._node for key, value in parameters.items()},  # noqa: SLF001 - of ours
        states=started,
        writes=writes,
        constants=constants,
    )


def _built(graph: Graph, found: _Recorded, frozen: frozenset[str]) -> Tensor:
    """Add what was recorded to a graph, op by op."""
    recording, order = found.recording, found.order
    layers: dict[Node, int | None] = {}
    for node in order:
        for source in node.sources:
            layers.setdefault(source, recording.scopes[node][1])
    made: dict[Node, Tensor] = {}
    used = set(order)
    for key, node in found.columns.items():
        if node in used:
            made[node] = graph.input(key, node.shape, node.dtype)
    for key, node in found.parameters.items():
        with graph.scope(layer=layers.get(node)):
            made[node] = graph.parameter(key, node.shape, node.dtype, trainable=key not in frozen)
    for key, node in found.states.items():
        made[node] = graph.state(key, node.shape, node.dtype)
    shared: dict[str, Tensor] = {}
    for node, key in found.constants.items():
        if key not in shared:
            shared[key] = graph.input(key, node.shape, node.dtype)
        made[node] = shared[key]
    for node in order:
        if node.recipe is None:
            continue
        prefix, layer = recording.scopes[node]
        with graph.scope(prefix, layer=layer):
            sources = [made[source] for source in node.sources]
            stem = graph.unused(node.name) if node.name and node.name != node.kind else ""
            added = graph.op(node.recipe.kind, *sources, name=stem, **node.recipe.params)
            flows = zip(node.sources, node.recipe.flows, strict=False)
            if not node.needs_grad and any(source.needs_grad and flowing for source, flowing in flows):
                added = graph.op("stop_gradient", added)
        made[node] = added
        graph.expand(added)  # in the order of what was typed, which is that in which gradients add up
    graph.writes.update({made[found.states[key]]: made[node] for key, node in found.writes.items()})
    return made[found.outputs]
