"""Optimiser steps: mutations of a weight.

`opt_step_sgd(w, g, hp)` with `hp = (alpha, wd)` writes `w * (1 - alpha * wd) - alpha * g` over `w`.
"""

from typing import Any

from allocsim.errors import EngineError
from engine.ops.rule import Layout, Rule, Sources, floating, same_shape


def _sgd(sources: Sources, params: dict[str, Any]) -> Layout:
    del params
    w, g, hp = sources
    same_shape(w, g)
    if hp.shape != (2,):
        raise EngineError(f"{hp} must have shape (2,): learning rate and weight decay")
    return Layout(shape=w.shape, dtype=floating(w, g, hp))


RULES = (Rule(kind="opt_step_sgd", arguments=("w", "g", "hp"), shape=_sgd, mutates=0),)
