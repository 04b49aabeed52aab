"""Optimiser steps: mutations of a weight and of its moments.

| kind | writes | over |
|---|---|---|
| opt_step_sgd(w, g, hp) | w (1 - alpha wd) - alpha g | w |
| adamw_m(m, g, beta) | m beta + g (1 - beta) | m |
| adamw_v(v, g, beta) | v beta + g g (1 - beta) | v |
| opt_step_adamw(w, m, v, hp) | w (1 - alpha wd) - alpha (m beta1h) / (sqrt(v beta2h) + eps) | w |

`hp` is (alpha, wd) for SGD and (alpha, eps, wd, beta1h, beta2h) for AdamW, with beta1h = 1 / (1 -
beta1 ** t) and beta2h likewise for the t-th step, t from 1; `beta` has one entry. ggml's
`opt_step_adamw` is one op that also writes two of its sources, by the same formulas; here each
write is an op of its own, so that a planner and a detector see it. Source: Loshchilov and Hutter,
Decoupled Weight Decay Regularization, 2019, as ggml computes it
(`ggml_compute_forward_opt_step_adamw_f32`).
"""

from typing import Any, Final

from allocsim.errors import EngineError
from engine.ops.row import row
from engine.ops.rule import ResultLayout, Tensor
from engine.ops.shapes import floating, same_shape

SGD_HYPER: Final = ("alpha", "wd")
ADAMW_HYPER: Final = ("alpha", "eps", "wd", "beta1h", "beta2h")
MOMENT_HYPER: Final = ("beta",)
"""What the entries of `hp` are, in order."""


def _step(names: tuple[str, ...]) -> Any:
    """Return the shape rule of (target, others.., hp): the target's, hp an entry a name."""

    def rule(_params: dict[str, Any], *sources: Tensor) -> ResultLayout:
        target, *others, hp = sources
        for other in others:
            same_shape(target, other)
        if hp.shape != (len(names),):
            raise EngineError(f"{hp} must have shape ({len(names)},): {', '.join(names)}")
        return ResultLayout(shape=target.shape, dtype=floating(*sources))

    return rule


RULES = (
    row("opt_step_sgd(w, g, hp)", _step(SGD_HYPER), mutates=0),
    row("adamw_m(m, g, beta)", _step(MOMENT_HYPER), mutates=0),
    row("adamw_v(v, g, beta)", _step(MOMENT_HYPER), mutates=0),
    row("opt_step_adamw(w, m, v, hp)", _step(ADAMW_HYPER), mutates=0),
)
