"""An optimizer of tensors that somebody holds: the rows of `engine.training.optimizers`, at the
front.

    step = engine.optimizer(net.parameters(), "adamw", alpha=0.01)
    loss.backward()
    step()                    # the weights, in place, by their .grad
    net.zero_grad()

It does what the trainer's program does, op by op: the same updates by the same kernels, to the same
bits. `hyper` may be changed between steps; `states` are the moments, by name, and may be looked at.
A parameter without a gradient is left as it is, with its moments, and that step is none of its own:
Adam's corrections count for each parameter, as PyTorch's. One of 16 bits has a master in
float32, which is stepped and rounded; what is laid into the parameter between steps replaces it.

What this module does not see: losses, graphs, plans.
"""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError, UnknownNameError
from engine.front.record import Eager, Node, constant, tracking
from engine.front.tensors import EagerTensor
from engine.kernels import KERNELS
from engine.kernels.binding import Array
from engine.ops import OPS
from engine.runtime.plan_memory import NUMPY_DTYPES
from engine.training.optimizers import OPTIMIZERS
from engine.training.step_rules import AVERAGE, SCALE, SKIPPED, StepRules, StepUpdate


class TensorOptimizer:
    """Parameters, hyper-parameters and moments; calling it makes a step."""

    def __init__(
        self, parameters: Mapping[str, EagerTensor], name: str, hyper: Mapping[str, float], rules: StepRules
    ) -> None:
        """Start before the first step; errors as of `optimizer`."""
        if name not in OPTIMIZERS:
            raise UnknownNameError("optimizer", name, OPTIMIZERS)
        for key, parameter in parameters.items():
            if not isinstance(parameter, EagerTensor) or not (parameter.requires_grad and parameter.is_leaf):
                raise EngineError(f"{key!r} is no leaf that wants a gradient; an optimizer steps those")
        self.row = OPTIMIZERS[name]
        self.update = StepUpdate(self.row, rules)
        self.update.check_groups(parameters)
        wide = {_wide(parameter.dtype) for parameter in parameters.values()}
        if len(wide) > 1 and (rules.clip_norm is not None or rules.loss_scale is not None):
            raise EngineError(
                "parameters of float32 and of float64: clip_norm and loss_scale take all gradients together"
            )
        self.parameters = dict(parameters)
        self.hyper: dict[str, float] = self.row.checked(hyper)
        """Hyper-parameter -> value, for the next step."""
        self.steps = 0
        """Steps made."""
        self.states: dict[str, Array] = {
            f"{prefix}.{key}": np.zeros(parameter.shape, _wide(parameter.dtype))
            for key, parameter in self.parameters.items()
            for prefix in self.row.states
        }
        """State -> its numbers: moments, which start as zeros, averages, float32 masters of 16-bit
        parameters, the scale of the loss."""
        masters = {key: p.data.astype(_wide(p.dtype)) for key, p in self.parameters.items()}
        self.states |= {
            _MASTER + key: array for key, array in masters.items() if self.parameters[key].dtype.itemsize < 4
        }
        self.states |= {name: np.array(array) for name, array in self.update.starts(masters).items()}
        if SCALE in self.states and wide:
            self.states[SCALE] = self.states[SCALE].astype(next(iter(wide)))

    @property
    def loss_scale(self) -> float:
        """What the loss is to be multiplied by before `backward`; 1 without that rule."""
        return float(self.states[SCALE][0]) if SCALE in self.states else 1.0

    @property
    def averages(self) -> dict[str, Array]:
        """Parameter -> its moving average, where the rules want one."""
        found = {name.removeprefix(AVERAGE): array for name, array in self.states.items() if name.startswith(AVERAGE)}
        return {name: array.copy() for name, array in found.items()}

    def __call__(self) -> tuple[str, ...]:
        """Change every parameter by its gradient; return the names of those that had none."""
        self.hyper = self.row.checked(self.hyper)
        self.steps += 1
        skipped = self._skipped
        now = _Now(self.update.values(self.hyper, self.steps, skipped), self.states)
        given = {key: p for key, p in self.parameters.items() if p.grad is not None}
        token = tracking.set(False)
        try:
            with np.errstate(all="ignore"):
                pairs = {key: self._pair(key, parameter) for key, parameter in given.items()}
                self.update.build(now, pairs, now.state(SCALE, (1,), "f32") if SCALE in self.states else None)
        finally:
            tracking.reset(token)
        for state, value in now.writes.items():
            state.array[...] = value.array
        for key, parameter in given.items():
            node = parameter._present()  # noqa: SLF001 - as the methods that change a tensor
            if _MASTER + key in self.states:
                node.array[...] = self.states[_MASTER + key].reshape(node.shape)
            parameter._changed(f"a step of {self.row.name}")  # noqa: SLF001 - as above
            parameter._present()  # noqa: SLF001 - as above
        without = tuple(key for key in self.parameters if key not in given)
        if self._skipped == skipped:
            self.update.behind |= {key: self.update.behind.get(key, 0) + 1 for key in without}
        return without

    @property
    def _skipped(self) -> int:
        """How many steps changed nothing, since a gradient was not finite."""
        return int(self.states[SKIPPED][0]) if SKIPPED in self.states else 0

    def _pair(self, key: str, parameter: EagerTensor) -> tuple[Node, Node]:
        """Return what is stepped, a master where the parameter is of 16 bits, and its gradient.

        What somebody laid into the parameter since it was rounded is laid into the master.
        """
        node, gradient = parameter._present(), parameter.grad  # noqa: SLF001 - as above
        assert gradient is not None
        if _MASTER + key not in self.states:
            return node, gradient._present()  # noqa: SLF001 - as above
        master = self.states[_MASTER + key].reshape(node.shape)
        np.copyto(master, node.array.astype(np.float32), where=master.astype(node.array.dtype) != node.array)
        return constant(master), gradient.astype(np.float32)._present()  # noqa: SLF001 - as above


_MASTER: Final = "master."


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)


class _Now:
    """A graph whose ops are done when they are added, with states in the memory of an optimizer."""

    def __init__(self, told: Mapping[str, tuple[float, ...]], states: dict[str, Array]) -> None:
        self._told, self._states = told, states
        self._held: dict[str, Node] = {}
        self.writes: dict[Node, Node] = {}
        """State -> what it is to hold when the step is over."""

    def op(self, kind: str, *operands: Node, name: str = "", **params: Any) -> Node:
        """Do an op; one that writes over an operand returns that."""
        del name
        place = OPS[kind].mutates
        if place is None:
            return Eager.op(kind, *operands, **params)
        arrays = tuple(operand.array for operand in operands)
        function, arguments = next(iter(KERNELS[kind].values())).bind(params, arrays, (arrays[place],))
        function(*arguments)
        return operands[place]

    def parameter(self, name: str, shape: tuple[int, ...], dtype: str) -> Node:
        """Return what the host says of a step."""
        return constant(np.array(self._told[name], NUMPY_DTYPES[dtype]).reshape(shape))

    def state(self, name: str, shape: tuple[int, ...], dtype: str) -> Node:
        """Return a state, zeros where there was none; one node for each."""
        if name not in self._held:
            array = self._states.setdefault(name, np.zeros(shape, NUMPY_DTYPES[dtype]))
            self._held[name] = constant(array.reshape(shape))
        return self._held[name]

    def scope(self, prefix: str = "", **_: Any) -> AbstractContextManager[None]:
        """Return a context: nothing has a name here."""
        del prefix
        return nullcontext()

    def expand(self, *_: Node) -> None:
        """Do nothing: all is done."""


def optimizer(
    parameters: Mapping[str, EagerTensor] | Iterable[EagerTensor], name: str = "adamw", **given: Any
) -> TensorOptimizer:
    """Return an optimizer of tensors; calling it makes a step.

    Args:
        parameters: leaves that want a gradient, by name (as `Module.parameters()`), or in an order.
        name: a name of `engine.training.optimizers.OPTIMIZERS`.
        given: hyper-parameters that differ from the row's defaults, and rules of the step
            (`engine.training.step_rules.StepRules`) by name: `clip_norm=1.0`,
            `groups=[WeightGroup(match="*.bias", hyper={"wd": 0.0})]`, `average=0.999`, `loss_scale=2.0**16`.

    Raises:
        EngineError: something else than a leaf that wants a gradient, a tensor given twice, a
            hyper-parameter or rule out of range, or one that a step at the front does not have.
        UnknownNameError: no such optimizer.
    """
    named = parameters if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    first: dict[int, str] = {}
    for key, parameter in named.items():
        if (known := first.setdefault(id(parameter), key)) != key:
            raise EngineError(f"parameters {known!r} and {key!r} are one tensor; a step would change it twice")
    rules: dict[str, Any] = {
        key: tuple(value) if key == "groups" and isinstance(value, Iterable) else value
        for key, value in given.items()
        if key in _RULES
    }
    if unfit := sorted({"weights", "checkpoint"} & given.keys()):
        raise EngineError(f"{', '.join(unfit)}: a rule of recorded models; at the front 16-bit leaves keep a master")
    hyper = {key: value for key, value in given.items() if key not in _RULES}
    return TensorOptimizer(named, name, hyper, StepRules(**rules))


_RULES: Final = frozenset(StepRules.__struct_fields__)
