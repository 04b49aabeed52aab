"""Mixed precision: 16-bit storage, float32 sums and weights, and a scaled loss.

Scaling keeps small gradients representable.

    h = precision.stored(h, "bf16")                        # the value a 16-bit tensor can hold, and the gradient rounded alike
    grads = backward(graph, loss)                          # the host writes the scale into `loss_grad`
    scale = graph.input("scale", (1,))
    safe = precision.unscaled(graph, grads, scale)         # gradients of the unscaled loss, and one flag for all
    hyper = precision.guarded(hyper, neutral, safe.finite) # a step with an infinity changes nothing
    scaler = scaler.after(finite=bool(out[safe.finite.name][0]))

The master copy of a weight is the trainable float32 parameter itself; what the forward pass uses is
`stored(w, dtype)`, a 16-bit tensor and its cast back. Casts are explicit nodes: their memory is
planned like any other, and the chain rule goes through them (Micikevicius et al. 2018,
arXiv:1710.03740). What backward keeps of a forward value is what its rules read, the float32 side
of the cast; to keep the 16-bit side alone, make it a checkpoint (`engine.autodiff.backward`,
`checkpoints`): then the cast back is done again where it is needed.

What this module does not see: kernels, data, optimisers beyond their hyper-parameters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from allocsim.errors import EngineError
from engine.graph import Graph, Tensor


def stored(x: Tensor, dtype: str) -> Tensor:
    """Return `x` rounded to what `dtype` (16 or 8 bits) holds, made of a tensor of that dtype."""
    return x.graph.op("cast", x.graph.op("cast", x, dtype=dtype), dtype=x.dtype)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Unscaled:
    """Gradients of the loss itself, and whether they are fit for use."""

    gradients: Mapping[Tensor, Tensor]
    """Parameter -> gradient / scale; all are 0 where an element of any is not finite."""
    finite: Tensor
    """[1]: 1 if every element of every gradient was finite, else 0."""


def unscaled(graph: Graph, gradients: Mapping[Tensor, Tensor], scale: Tensor) -> Unscaled:
    """Append the division of all gradients by `scale` [1], and one flag for all of them.

    Raises EngineError if there are none.
    """
    if not gradients:
        raise EngineError(f"graph {graph.name!r} has no gradients to unscale")
    with graph.scope("unscaled", stage="update"):
        flags = [graph.op("all_finite", g) for g in dict.fromkeys(gradients.values())]
        finite = flags[0]
        for flag in flags[1:]:
            finite = graph.op("mul", finite, flag)
        by = graph.op("div", scale, finite, name="by")  # infinity where one is not finite, over which all are 0
        found = {p: graph.op("unscale", g, by, name=p.name) for p, g in gradients.items()}
    graph.expand(finite, *found.values())
    return Unscaled(gradients=found, finite=finite)


def guarded(hyper: Tensor, neutral: Tensor, finite: Tensor) -> Tensor:
    """Return `hyper` where `finite` is 1 and `neutral` where it is 0, as one tensor.

    `neutral` holds the hyper-parameters with which the step changes nothing when all gradients are
    0: (0, 0) for `opt_step_sgd`; for momenta, decay rates of 1.
    """
    choice = hyper.graph.op("repeat", finite, shape=hyper.shape)
    return hyper.graph.op("where", choice, hyper, neutral)


@dataclass(frozen=True, slots=True, kw_only=True)
class LossScale:
    """The scale of the loss: halved after an overflow, doubled after `interval` steps without."""

    value: float = 2.0**16
    factor: float = 2.0
    interval: int = 2000
    """Steps without an overflow before the scale grows."""
    good: int = 0
    """Steps without an overflow since it last changed."""
    least: float = 1.0
    most: float = 2.0**24

    def __post_init__(self) -> None:
        """Raise EngineError unless the numbers make sense."""
        if not 0 < self.least <= self.value <= self.most or self.factor <= 1 or self.interval < 1:
            raise EngineError(
                f"loss scale {self.value:g} within {self.least:g} and {self.most:g}, by {self.factor:g} after "
                f"{self.interval} steps: 0 < least <= value <= most, factor > 1 and interval >= 1 are needed"
            )

    def after(self, *, finite: bool) -> "LossScale":
        """Return the scale for the step after one whose gradients were finite, or were not."""
        if not finite:
            return replace(self, value=max(self.value / self.factor, self.least), good=0)
        if self.good + 1 < self.interval:
            return replace(self, good=self.good + 1)
        return replace(self, value=min(self.value * self.factor, self.most), good=0)
