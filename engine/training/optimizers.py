"""The table of optimizers.

A row says which nodes step a weight, which states they keep, and what the host writes before each
step.

Hyper-parameters of `sgd` and `adamw` are ggml's (`ggml_opt_optimizer_params`), with its defaults:
`alpha` the learning rate, `wd` the decoupled weight decay, for AdamW also `beta1`, `beta2` and
`eps`. `momentum`, `nesterov` and `adam` are PyTorch's SGD and Adam: their decay is added to the
gradient. They are built of other ops, and keep `b = momentum b + gradient`. They reach the
graph as parameters that are read where they are, so that a schedule changes them without a new
graph.

What this module does not see: schedules, data, plans.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor
from engine.ops.optim import ADAMW_HYPER, SGD_HYPER

Hyper = Mapping[str, float]
"""Hyper-parameter -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """One row of the table."""

    name: str
    hyper: Hyper
    """Every hyper-parameter with its default."""
    leafs: Mapping[str, int]
    """Parameters of the graph that carry them: name -> number of entries."""
    states: tuple[str, ...]
    """Prefixes of the states kept for each weight."""
    update: Callable[[Graph, Tensor, Tensor, Mapping[str, Tensor]], Tensor]
    """(graph, weight, gradient, leafs and states by name) -> the weight after the step."""
    values: Callable[[Hyper, int], Mapping[str, tuple[float, ...]]]
    """(hyper-parameters, number of the step from 1) -> content of each leaf."""
    neutral: Mapping[str, tuple[float, ...]]
    """Content of each leaf with which a step of gradients of 0 changes nothing, states neither."""

    def checked(self, given: Mapping[str, Any]) -> dict[str, float]:
        """Return the defaults with `given` over them.

        Raises EngineError for an unknown name or a value out of range.
        """
        for name, value in given.items():
            if name not in self.hyper:
                raise EngineError(f"{self.name} has no hyper-parameter {name!r}; there are {', '.join(self.hyper)}")
            low, high = _RANGES[name]
            if not isinstance(value, int | float | np.number):
                raise EngineError(f"{name} is {value!r}; it must be a number")
            if not low <= value <= high:
                raise EngineError(f"{name} is {value}; it must be between {low:g} and {high:g}")
        return {**self.hyper, **given}


_RANGES: Final = {
    "alpha": (0.0, float("inf")),
    "wd": (0.0, 1.0),
    "beta1": (0.0, 1.0),
    "beta2": (0.0, 1.0),
    "eps": (0.0, 1.0),
    "momentum": (0.0, 1.0),
}


def _sgd(graph: Graph, weight: Tensor, gradient: Tensor, given: Mapping[str, Tensor]) -> Tensor:
    return graph.op("opt_step_sgd", weight, gradient, given["sgd.hp"], name=weight.name)


def _adamw(graph: Graph, weight: Tensor, gradient: Tensor, given: Mapping[str, Tensor]) -> Tensor:
    m = graph.op("adamw_m", given["m"], gradient, given["adamw.beta1"], name=f"m.{weight.name}")
    v = graph.op("adamw_v", given["v"], gradient, given["adamw.beta2"], name=f"v.{weight.name}")
    return graph.op("opt_step_adamw", weight, m, v, given["adamw.hp"], name=weight.name)


def _decayed(graph: Graph, weight: Tensor, gradient: Tensor, wd: Tensor) -> Tensor:
    """Return the gradient of the loss and of wd / 2 times the square of the weight."""
    return graph.op("add", gradient, graph.op("mul", weight, wd), name=f"{weight.name}.decayed")


def _momentum(*, ahead: bool) -> Callable[[Graph, Tensor, Tensor, Mapping[str, Tensor]], Tensor]:
    def update(graph: Graph, weight: Tensor, gradient: Tensor, given: Mapping[str, Tensor]) -> Tensor:
        keep = given["momentum.beta"]
        gradient = _decayed(graph, weight, gradient, given["momentum.wd"])
        moved = graph.op("add", graph.op("mul", given["b"], keep), gradient)
        buffer = graph.op("cpy", moved, given["b"], name=f"b.{weight.name}")
        way = graph.op("add", gradient, graph.op("mul", buffer, keep)) if ahead else buffer
        return graph.op("opt_step_sgd", weight, way, given["momentum.hp"], name=weight.name)

    return update


def _adam(graph: Graph, weight: Tensor, gradient: Tensor, given: Mapping[str, Tensor]) -> Tensor:
    return _adamw(graph, weight, _decayed(graph, weight, gradient, given["adam.wd"]), given)


def _momentum_values(hyper: Hyper, step: int) -> Mapping[str, tuple[float, ...]]:
    del step
    return {"momentum.beta": (hyper["momentum"],), "momentum.wd": (hyper["wd"],), "momentum.hp": (hyper["alpha"], 0.0)}


def _adam_values(hyper: Hyper, step: int) -> Mapping[str, tuple[float, ...]]:
    return {"adam.wd": (hyper["wd"],), **_adamw_values({**hyper, "wd": 0.0}, step)}


def _sgd_values(hyper: Hyper, step: int) -> Mapping[str, tuple[float, ...]]:
    del step
    return {"sgd.hp": tuple(hyper[name] for name in SGD_HYPER)}


def _adamw_values(hyper: Hyper, step: int) -> Mapping[str, tuple[float, ...]]:
    known = {
        **hyper,
        **{f"{beta}h": 1 / (1 - hyper[beta] ** step) if hyper[beta] < 1 else 1.0 for beta in ("beta1", "beta2")},
    }
    return {
        "adamw.beta1": (hyper["beta1"],),
        "adamw.beta2": (hyper["beta2"],),
        "adamw.hp": tuple(known[name] for name in ADAMW_HYPER),
    }


_ADAMW_LEAFS: Final = {"adamw.beta1": 1, "adamw.beta2": 1, "adamw.hp": len(ADAMW_HYPER)}
_ADAMW_NEUTRAL: Final = {"adamw.beta1": (1.0,), "adamw.beta2": (1.0,), "adamw.hp": (0.0, 1.0, 0.0, 1.0, 1.0)}
_MOMENTUM: Final = {
    name: Optimizer(
        name=name,
        hyper={"alpha": 1e-3, "momentum": 0.9, "wd": 0.0},
        leafs={"momentum.beta": 1, "momentum.wd": 1, "momentum.hp": len(SGD_HYPER)},
        states=("b",),
        update=_momentum(ahead=ahead),
        values=_momentum_values,
        neutral={"momentum.beta": (1.0,), "momentum.wd": (0.0,), "momentum.hp": (0.0, 0.0)},
    )
    for name, ahead in (("momentum", False), ("nesterov", True))
}
OPTIMIZERS: Final[dict[str, Optimizer]] = {
    "sgd": Optimizer(
        name="sgd",
        hyper={"alpha": 1e-3, "wd": 0.0},
        leafs={"sgd.hp": len(SGD_HYPER)},
        states=(),
        update=_sgd,
        values=_sgd_values,
        neutral={"sgd.hp": (0.0, 0.0)},
    ),
    **_MOMENTUM,
    "adam": Optimizer(
        name="adam",
        hyper={"alpha": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "wd": 0.0},
        leafs={"adam.wd": 1, **_ADAMW_LEAFS},
        states=("m", "v"),
        update=_adam,
        values=_adam_values,
        neutral={"adam.wd": (0.0,), **_ADAMW_NEUTRAL},
    ),
    "adamw": Optimizer(
        name="adamw",
        hyper={"alpha": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "wd": 0.0},
        leafs=_ADAMW_LEAFS,
        states=("m", "v"),
        update=_adamw,
        values=_adamw_values,
        neutral=_ADAMW_NEUTRAL,
    ),
}
"""Name -> optimizer."""
