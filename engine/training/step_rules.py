"""From gradients to weights: what a step does beside its optimizer, as ops of the graph.

| rule | what is added | what is kept |
|---|---|---|
| `loss_scale` | the seed times a scale; gradients over it, or 0 and no step where one is infinite | value, good, skipped |
| `clip_value` | each gradient within -c and c | |
| `clip_norm` | all gradients times min(1, c / (their norm + 1e-6)) | |
| `groups` | rates and hyper-parameters of their own, by names of weights | |
| `average` | a moving average of every weight, which predicts and validates | one array a weight |
| `weights` | the model reads weights rounded to 16 bits; steps change the float32 ones | |
| `checkpoint` | forward values within so many layers are computed again by backward | |

That is their order, and PyTorch's: unscale, clip by value, clip by norm, step, average. The same
functions build nodes of a trainer's graph and do the ops at once at the front
(`engine.training.tensor_optimizer`), so both come to the same bits. The scale halves after a step
whose gradients are not all finite and doubles after `loss_scale_interval` that were; its numbers
are states, so that a resumed run goes on with them.

What this module does not see: plans, data, epochs.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from numbers import Real
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor
from engine.graph.mixed_precision import LossScale, guarded, stored, unscaled
from engine.training.optimizers import Hyper, Optimizer

SCALE: Final = "loss_scale.value"
GOOD: Final = "loss_scale.good"
SKIPPED: Final = "loss_scale.skipped"
AVERAGE: Final = "average."
"""What the name of a weight's moving average begins with."""
ACCUMULATED: Final = "acc."
BEST: Final = "best."
"""The same of its accumulator, and of what is kept of the lowest evaluation."""
_BETA: Final = "average.beta"
_BEHIND: Final = ".behind{}"
_NEUTRAL: Final = ".neutral"
_OWN: Final = (AVERAGE, ACCUMULATED, BEST, "loss_scale.")
TINY: Final = 1e-6
"""Added to a norm before it divides, as by PyTorch."""


class WeightGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Weights with hyper-parameters of their own: the first group whose pattern fits a name."""

    match: str
    """Pattern of names, with * and ?, say `*.bias`."""
    rate: float = 1.0
    """Times alpha, whatever a schedule makes of that."""
    hyper: Hyper = msgspec.field(default_factory=dict)
    """Hyper-parameters in the place of those of all."""


class StepRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How gradients become weights; EngineError for what cannot be."""

    clip_value: float | None = None
    """Most that an element of a gradient may be, positive or negative."""
    clip_norm: float | None = None
    """Most that the norm of all gradients together may be."""
    groups: tuple[WeightGroup, ...] = ()
    loss_scale: float | None = None
    """What the loss is multiplied by at the start."""
    loss_scale_interval: int = 2000
    """Steps without an overflow after which the scale doubles."""
    average: float | None = None
    """Share of a moving average that a step leaves of it."""
    weights: Literal["f32", "f16", "bf16"] = "f32"
    """What the model reads its weights as."""
    checkpoint: int = 0
    """Layers between forward values that are kept for backward; 0 keeps all."""

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("clip_value", "clip_norm", "loss_scale", "average", "loss_scale_interval", "checkpoint"):
            if not isinstance(value := getattr(self, name), Real | None):
                raise EngineError(f"{name} is {value!r}; it must be a number")
        if not isinstance(self.groups, tuple):
            raise EngineError(f"groups is {self.groups!r}; it must be a tuple of groups")
        if stranger := next((group for group in self.groups if not isinstance(group, WeightGroup)), None):
            raise EngineError(f"groups: {stranger!r} is no WeightGroup(match=...)")
        for name in ("clip_value", "clip_norm", "loss_scale"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise EngineError(f"{name} is {value}; it must be above 0")
        if self.average is not None and not 0 <= self.average < 1:
            raise EngineError(f"average is {self.average}; it must be at least 0 and below 1")
        if self.checkpoint < 0 or self.loss_scale_interval < 1:
            raise EngineError(
                f"checkpoint is {self.checkpoint}, at least 0; loss_scale_interval {self.loss_scale_interval}, at least 1"
            )
        for group in self.groups:
            if not 0 <= group.rate < float("inf"):
                raise EngineError(f"rate of group {group.match!r} is {group.rate}; it must be at least 0")
        if self.loss_scale is not None:
            self.scale  # noqa: B018 - refuses what is out of range

    @property
    def scale(self) -> LossScale:
        """How the scale of the loss moves."""
        assert self.loss_scale is not None
        return LossScale(value=self.loss_scale, interval=self.loss_scale_interval)

    @property
    def said(self) -> dict[str, Any]:
        """The rules that are not as they are by default, in plain values."""
        plain, usual = (msgspec.to_builtins(rules) for rules in (_only_rules(self), StepRules()))
        return {name: value for name, value in plain.items() if value != usual[name]}


def _only_rules(given: StepRules) -> StepRules:
    """Return the rules among the fields of what may have more, as settings."""
    return StepRules(**{name: getattr(given, name) for name in StepRules.__struct_fields__})


class NarrowGraph(Graph):
    """A graph of which the trained weights are read as 16-bit numbers, and stepped in float32."""

    def __init__(self, name: str, dtype: str) -> None:
        super().__init__(name)
        self._dtype = dtype

    def parameter(self, name: str, shape: tuple[int, ...], dtype: str = "f32", *, trainable: bool = False) -> Tensor:
        """Add a weight, and return what the model is to read of it."""
        leaf = super().parameter(name, shape, dtype, trainable=trainable)
        return stored(leaf, self._dtype) if trainable else leaf


class StepUpdate:
    """An optimizer with rules: what the host writes for a step, and the ops that make it."""

    def __init__(self, optimizer: Optimizer, rules: StepRules) -> None:
        """Check that the groups fit the optimizer; EngineError otherwise."""
        self.optimizer, self.rules = optimizer, _only_rules(rules)
        self.behind: dict[str, int] = {}
        """Weight -> how many steps it had no part in, where those may be some."""
        for group in rules.groups:
            optimizer.checked(group.hyper)

    @property
    def leafs(self) -> dict[str, int]:
        """Parameters of the graph that carry hyper-parameters -> number of entries."""
        ends = ["", *(f".{number}" for number in range(1, len(self.rules.groups) + 1))]
        found = {name + end: size for name, size in self.optimizer.leafs.items() for end in ends}
        if self.rules.loss_scale is not None:
            found |= {name + _NEUTRAL: size for name, size in self.optimizer.leafs.items()}
        return found | ({_BETA: 1} if self.rules.average is not None else {})

    def values(self, hyper: Hyper, step: int, skipped: int = 0) -> dict[str, tuple[float, ...]]:
        """Return the content of each leaf for the step with this number from 1, of which so many
        before it changed nothing.
        """
        found = self._of_steps(hyper, step - skipped, "")
        for late in {*self.behind.values()} - {0}:
            found |= self._of_steps(hyper, step - skipped - late, _BEHIND.format(late))
        if self.rules.loss_scale is not None:
            found |= {name + _NEUTRAL: row for name, row in self.optimizer.neutral.items()}
        if self.rules.average is not None:
            found[_BETA] = (0.0 if step - skipped == 1 else self.rules.average,)  # of one, the average is that one
        return found

    def _of_steps(self, hyper: Hyper, steps: int, end: str) -> dict[str, tuple[float, ...]]:
        """Return what a weight is told in the step with this number, of each group."""
        found = {name + end: row for name, row in self.optimizer.values(hyper, steps).items()}
        for number, group in enumerate(self.rules.groups, 1):
            own = {**hyper, **group.hyper}
            own["alpha"] *= group.rate
            found |= {f"{name}.{number}{end}": row for name, row in self.optimizer.values(own, steps).items()}
        return found

    def starts(self, weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the states that do not start as zeros, by name."""
        found = {} if self.rules.loss_scale is None else {SCALE: np.array([self.rules.loss_scale], np.float32)}
        averaged = weights.items() if self.rules.average is not None else ()
        return found | {AVERAGE + name: array for name, array in averaged}

    def check_groups(self, weights: Collection[str]) -> None:
        """Raise EngineError for a group whose pattern fits none of the weights."""
        for group in self.rules.groups:
            if not any(fnmatchcase(name, group.match) for name in weights):
                raise EngineError(f"groups: no weight is named as {group.match!r}; there are {', '.join(weights)}")

    def check_names(self, states: Iterable[str], weights: Collection[str]) -> None:
        """Raise EngineError for a state of a model that is named as training names its own."""
        for name in states:
            first, _, rest = name.partition(".")
            if name.startswith(_OWN) or (first in self.optimizer.states and rest in weights):
                raise EngineError(
                    f"state {name!r} is named as training names what it keeps of {rest!r} itself; give it another name"
                )

    def build(self, graph: Any, gradients: Mapping[str, tuple[Any, Any]], scale: Any = None) -> None:
        """Add all that comes after the gradients.

        Args:
            graph: where ops are added, or done at once.
            gradients: name of a weight -> the weight and its gradient.
            scale: the state of the loss's scale, where there is one.
        """
        if not gradients:
            return
        rules = self.rules
        found = {name: gradient for name, (_, gradient) in gradients.items()}
        finite = None
        if scale is not None:
            safe = unscaled(graph, dict(gradients.values()), scale)
            found, finite = {name: safe.gradients[weight] for name, (weight, _) in gradients.items()}, safe.finite
        with graph.scope("clipped", stage="update"):
            found = dict(self._clipped(graph, found))
        told = _Told(graph, self, finite)
        for name, (weight, _) in gradients.items():
            kept = {
                prefix: graph.state(f"{prefix}.{name}", weight.shape, weight.dtype) for prefix in self.optimizer.states
            }
            given = {leaf: told.of(leaf, name, weight.dtype) for leaf in self.optimizer.leafs} | kept
            held = beta = None
            if rules.average is not None:
                held = graph.state(AVERAGE + name, weight.shape, weight.dtype)
                beta = told.average(weight.dtype)
            with graph.scope("new", layer=getattr(weight, "layer", None), stage="update"):
                new = self.optimizer.update(graph, weight, found[name], given)
                graph.expand(new)
                if held is not None:
                    graph.expand(graph.op("adamw_m", held, new, beta, name=AVERAGE + name))
        if finite is not None:
            self._rescale(graph, scale, finite)

    def _clipped(self, graph: Any, gradients: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield each gradient within the bounds."""
        rules, found = self.rules, dict(gradients)
        if rules.clip_value is not None:
            found = {
                name: graph.op("clamp", g, low=-rules.clip_value, high=rules.clip_value, name=name)
                for name, g in found.items()
            }
        if rules.clip_norm is not None:
            total = None
            for g in found.values():
                squares = graph.op("sum", graph.op("sqr", g))
                total = squares if total is None else graph.op("add", total, squares)
            norm = graph.op("sqrt", total, name="norm")
            beyond = graph.op("add", norm, _full(graph, TINY, norm.dtype))
            share = graph.op("div", _full(graph, rules.clip_norm, norm.dtype), beyond)
            share = graph.op("minimum", share, _full(graph, 1.0, norm.dtype), name="share")
            found = {name: graph.op("mul", g, share, name=f"{name}.within") for name, g in found.items()}
        yield from found.items()

    def _rescale(self, graph: Any, scale: Any, finite: Any) -> None:
        """Add what the scale, and the steps it counts, are to be for the next step."""
        how, dtype = self.rules.scale, scale.dtype
        good, skipped = (graph.state(name, (1,), dtype) for name in (GOOD, SKIPPED))
        with graph.scope("new", stage="update"):
            one, none = _full(graph, 1.0, dtype), _full(graph, 0.0, dtype)
            more = graph.op("add", good, one)
            enough = graph.op("greater_equal", more, _full(graph, float(how.interval), dtype))
            up, down = (
                graph.op("clamp", graph.op("scale", scale, s=factor), low=how.least, high=how.most)
                for factor in (how.factor, 1 / how.factor)
            )
            graph.writes[scale] = graph.op("where", finite, graph.op("where", enough, up, scale), down)
            graph.writes[good] = graph.op("where", finite, graph.op("where", enough, none, more), none)
            graph.writes[skipped] = graph.op("add", skipped, graph.op("sub", one, finite))


class _Told:
    """The hyper-parameters of one graph: a leaf for each name and dtype that a weight asks for."""

    def __init__(self, graph: Any, update: StepUpdate, finite: Any) -> None:
        self._graph, self._update, self._finite = graph, update, finite
        self._sizes = update.leafs
        self._made: dict[tuple[str, str], Any] = {}

    def leaf(self, name: str, dtype: str) -> Any:
        """Return what the host writes."""
        if (name, dtype) not in self._made:
            size = self._sizes[name.partition(_BEHIND.format(""))[0]]
            self._made[name, dtype] = self._graph.parameter(name, (size,), dtype)
        return self._made[name, dtype]

    def of(self, leaf: str, weight: str, dtype: str) -> Any:
        """Return what steps a weight: what is told of its group, or what changes nothing where a
        gradient was not finite.
        """
        groups = enumerate(self._update.rules.groups, 1)
        name = leaf + next((f".{number}" for number, group in groups if fnmatchcase(weight, group.match)), "")
        if late := self._update.behind.get(weight):
            name += _BEHIND.format(late)
        hyper = self.leaf(name, dtype)
        return hyper if self._finite is None else self._guarded(name, hyper, self.leaf(leaf + _NEUTRAL, dtype))

    def average(self, dtype: str) -> Any:
        """Return the share left of an average: all of it where a gradient was not finite."""
        beta = self.leaf(_BETA, dtype)
        return beta if self._finite is None else self._guarded(_BETA, beta, _full(self._graph, 1.0, dtype))

    def _guarded(self, name: str, told: Any, neutral: Any) -> Any:
        key = (f"{name}.used", told.dtype)
        if key not in self._made:
            self._made[key] = guarded(told, neutral, self._finite)
        return self._made[key]


def _full(graph: Any, value: float, dtype: str) -> Any:
    return graph.op("full", shape=(1,), value=value, dtype=dtype)
