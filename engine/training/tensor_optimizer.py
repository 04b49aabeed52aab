"""An optimizer of tensors that somebody holds: the rows of `engine.training.optimizers`, at the
front.

    step = engine.optimizer(net.parameters(), "adamw", alpha=0.01)
    loss.backward()
    step()                    # the weights, in place, by their .grad
    net.zero_grad()

It does what the trainer's program does, op by op: the same updates by the same kernels, to the same
bits. `hyper` may be changed between steps; `states` are the moments, by name, and may be looked at.
A parameter without a gradient is left as it is, with its moments.

What this module does not see: losses, graphs, plans.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError, UnknownNameError
from engine.front.record import Node, constant
from engine.front.tensors import EagerTensor
from engine.kernels import KERNELS
from engine.ops import OPS
from engine.training.optimizers import OPTIMIZERS

Array = NDArray[Any]


class TensorOptimizer:
    """Parameters, hyper-parameters and moments; calling it makes a step."""

    def __init__(self, parameters: Mapping[str, EagerTensor], name: str, hyper: Mapping[str, float]) -> None:
        """Start before the first step; errors as of `optimizer`."""
        if name not in OPTIMIZERS:
            raise UnknownNameError("optimizer", name, OPTIMIZERS)
        for key, parameter in parameters.items():
            if not isinstance(parameter, EagerTensor) or not (parameter.requires_grad and parameter.is_leaf):
                raise EngineError(f"{key!r} is no leaf that wants a gradient; an optimizer steps those")
        self.row = OPTIMIZERS[name]
        self.parameters = dict(parameters)
        self.hyper: dict[str, float] = self.row.checked(hyper)
        """Hyper-parameter -> value, for the next step."""
        self.steps = 0
        """Steps made."""
        self.states: dict[str, Array] = {
            f"{prefix}.{key}": np.zeros_like(parameter.data)
            for key, parameter in self.parameters.items()
            for prefix in self.row.states
        }
        """Moment -> its numbers; zeros at the start."""

    def __call__(self) -> tuple[str, ...]:
        """Change every parameter by its gradient; return the names of those that had none."""
        self.hyper = self.row.checked(self.hyper)
        self.steps += 1
        told = self.row.values(self.hyper, self.steps)
        left = []
        for key, parameter in self.parameters.items():
            if parameter.grad is None:
                left.append(key)
                continue
            node = parameter._present()  # noqa: SLF001 - as the methods that change a tensor
            given = {name: constant(np.array(values, node.array.dtype)) for name, values in told.items()}
            given |= {
                prefix: constant(self.states[f"{prefix}.{key}"].reshape(node.shape)) for prefix in self.row.states
            }
            update = cast("Callable[..., Node]", self.row.update)
            with np.errstate(all="ignore"):
                update(_Now, node, parameter.grad._present(), given)  # noqa: SLF001 - as above
            parameter._changed(f"a step of {self.row.name}")  # noqa: SLF001 - as above
            parameter._present()  # noqa: SLF001 - as above
        return tuple(left)


class _Now:
    """A graph whose ops are done when they are added: what an optimizer's row is told to build
    in.
    """

    @staticmethod
    def op(kind: str, *operands: Node, name: str = "", **params: Any) -> Node:
        """Do an op that writes over an operand, and return that."""
        del name
        place = OPS[kind].mutates
        assert place is not None
        arrays = tuple(operand.array for operand in operands)
        function, arguments = next(iter(KERNELS[kind].values())).bind(params, arrays, (arrays[place],))
        function(*arguments)
        return operands[place]


def optimizer(
    parameters: Mapping[str, EagerTensor] | Iterable[EagerTensor], name: str = "adamw", **hyper: float
) -> TensorOptimizer:
    """Return an optimizer of tensors; calling it makes a step.

    Args:
        parameters: leaves that want a gradient, by name (as `Module.parameters()`), or in an order.
        name: a name of `engine.training.optimizers.OPTIMIZERS`.
        hyper: hyper-parameters that differ from the row's defaults.

    Raises:
        EngineError: something else than a leaf that wants a gradient, a tensor given twice, or a
            hyper-parameter out of range.
        UnknownNameError: no such optimizer.
    """
    named = parameters if isinstance(parameters, Mapping) else {str(i): p for i, p in enumerate(parameters)}
    first: dict[int, str] = {}
    for key, parameter in named.items():
        if (known := first.setdefault(id(parameter), key)) != key:
            raise EngineError(f"parameters {known!r} and {key!r} are one tensor; a step would change it twice")
    return TensorOptimizer(named, name, hyper)


__all__ = ["TensorOptimizer", "optimizer"]
