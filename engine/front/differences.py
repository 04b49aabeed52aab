"""Derivatives against central differences, in float64.

    gradcheck(lambda x, w: (x @ w).tanh(), x, w)       # a report, or an EngineError that shows the worst entry

An output of several elements is reduced by fixed weights, different for each element, so that
errors do not cancel. Cost: one backward pass and two calls of the function for each element of each
input; `directioncheck` compares along a few random directions of all inputs at once, for two calls
each. The function must be deterministic, and smooth within `step` of the inputs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.tensors import EagerTensor, no_grad, tensor
from engine.kernels.binding import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class GradCheck:
    """How far derivatives are from differences, at the entry where that is worst."""

    ok: bool
    entries: int
    """How many derivatives were compared."""
    excess: float
    """|derivative - difference| / (atol + rtol |difference|) at the worst entry; up to 1 is within
    tolerance."""
    argument: int
    """Position of the input of the worst entry."""
    index: tuple[int, ...]
    """The entry within that input."""
    derivative: float
    difference: float

    def __str__(self) -> str:
        return (
            f"{'within' if self.ok else 'out of'} tolerance: {self.entries} entries, worst is input "
            f"{self.argument} at {list(self.index)}: "
            f"derivative {self.derivative:.9g}, finite difference {self.difference:.9g}, {self.excess:.3g} "
            "times the tolerance"
        )


def gradcheck(
    function: Callable[..., EagerTensor],
    *inputs: Any,
    step: float = 1e-6,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    fail: bool = True,
) -> GradCheck:
    """Compare the gradient of `function(*inputs)` by each input with central differences.

    Args:
        function: tensors -> a tensor of any shape.
        inputs: tensors or arrays; copies in float64 are used.
        step: of the differences, relative to max(1, |x|).
        rtol: tolerance relative to the difference.
        atol: absolute tolerance.
        fail: raise if an entry is out of tolerance; else only report it.

    Raises:
        EngineError: an entry is out of tolerance, the output depends on no input, or there is no
            entry.
    """
    leaves = _leaves(inputs)
    if not sum(leaf.size for leaf in leaves):
        raise EngineError("gradcheck was given no entries to differentiate by")
    out = function(*leaves)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, out.shape)
    slopes = out.slopes(weights, leaves)
    worst: GradCheck | None = None
    for argument, (leaf, found) in enumerate(zip(leaves, slopes, strict=True)):
        for index in np.ndindex(leaf.shape):
            derivative = float(found[index])
            difference = _difference(lambda *x: _weighted(function(*x), weights), leaves, (argument, index), step)
            error = abs(derivative - difference) / (atol + rtol * abs(difference))
            excess = error if np.isfinite(error) else np.inf
            if worst is None or excess > worst.excess:
                worst = GradCheck(
                    ok=bool(excess <= 1),
                    entries=sum(leaf.size for leaf in leaves),
                    excess=float(excess),
                    argument=argument,
                    index=index,
                    derivative=derivative,
                    difference=difference,
                )
    assert worst is not None
    if fail and not worst.ok:
        raise EngineError(f"gradcheck: {worst}")
    return worst


def directioncheck(function: Callable[..., EagerTensor], *inputs: Any) -> None:
    """Compare derivatives of `function(*inputs)` along random directions with central differences.

    Two directions, with entries in [0.5, 1.5] times a random sign: an error in some entries is seen
    in nearly each. Tolerances are those of `gradcheck`, relative to the sum of what the entries
    contribute, as absolute values. One backward pass, and two calls a direction.

    Raises EngineError where a derivative is out of tolerance.
    """
    leaves, step = _leaves(inputs), 1e-6
    out = function(*leaves)
    draw = np.random.default_rng(0)
    weights = draw.uniform(0.5, 1.5, out.shape)
    if not out.requires_grad:
        return
    slopes = out.slopes(weights, leaves)
    for number in range(2):
        along = [draw.uniform(0.5, 1.5, leaf.shape) * draw.choice([-1.0, 1.0], leaf.shape) for leaf in leaves]
        parts = [slope * way for slope, way in zip(slopes, along, strict=True)]
        derivative, scale = (float(sum(np.sum(size(part)) for part in parts)) for size in (np.asarray, np.abs))
        with no_grad():
            above, below = (
                function(*(tensor(leaf.numpy() + sign * way) for leaf, way in zip(leaves, along, strict=True))).data
                for sign in (step, -step)
            )
        difference = float(np.sum((above - below) * weights)) / (2 * step)
        if not abs(derivative - difference) <= 1e-7 + 1e-5 * scale:
            raise EngineError(
                f"along random direction {number} the derivative is {derivative:.9g}, the finite difference "
                f"{difference:.9g}, out of tolerance"
            )


def _leaves(inputs: Sequence[Any]) -> list[EagerTensor]:
    return [tensor(np.asarray(x), True, dtype=np.float64, name=f"input {i}") for i, x in enumerate(inputs)]


def _weighted(out: EagerTensor, weights: Array) -> float:
    return float(np.sum(out.data * weights))


def _difference(
    function: Callable[..., float], leaves: list[EagerTensor], entry: tuple[int, tuple[int, ...]], step: float
) -> float:
    arrays = [leaf.numpy() for leaf in leaves]
    argument, index = entry
    centre = float(arrays[argument][index])
    ends = []
    with no_grad():
        for sign in (1.0, -1.0):
            arrays[argument][index] = place = centre + sign * step * max(1.0, abs(centre))
            ends.append((place, function(*map(tensor, arrays))))
    (high, above), (low, below) = ends
    return (above - below) / (high - low)
