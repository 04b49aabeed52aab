"""Hyper-parameters over time: functions of the position in training.

A *schedule* is `(Position) -> {hyper-parameter: value}`; whatever it leaves out keeps its value.
`SCHEDULES` holds those a configuration can name, each made from the peak learning rate; any
function of a position will do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import cos, pi
from typing import Final

from allocsim.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where training is when an optimizer step is about to be made."""

    epoch: int
    """From 0."""
    epochs: int
    step: int
    """Optimizer steps made so far."""
    steps: int
    """Optimizer steps in all."""


Schedule = Callable[[Position], Mapping[str, float]]


def constant(alpha: float) -> Schedule:
    """Return `alpha` always."""
    return lambda position: {"alpha": alpha}  # noqa: ARG005 - the signature of a schedule


def linear(alpha: float, *, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Rise to `alpha` over `warmup` steps, then fall linearly to `floor * alpha` at the end."""
    return _warmed(alpha, warmup, lambda share: 1 - share * (1 - floor))


def cosine(alpha: float, *, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Rise to `alpha` over `warmup` steps, then fall along a cosine to `floor * alpha`.

    Source: Loshchilov and Hutter, SGDR, 2017.
    """
    return _warmed(alpha, warmup, lambda share: floor + (1 - floor) * (1 + cos(pi * share)) / 2)


def _warmed(alpha: float, warmup: int, fall: Callable[[float], float]) -> Schedule:
    if warmup < 0:
        raise EngineError(f"warmup is {warmup}; it must be at least 0")

    def schedule(position: Position) -> Mapping[str, float]:
        if position.step < warmup:
            return {"alpha": alpha * (position.step + 1) / warmup}
        share = (position.step - warmup) / max(1, position.steps - warmup - 1)
        return {"alpha": alpha * fall(min(1.0, share))}

    return schedule


SCHEDULES: Final[Mapping[str, Callable[..., Schedule]]] = {"constant": constant, "linear": linear, "cosine": cosine}
"""Name -> maker of a schedule."""
