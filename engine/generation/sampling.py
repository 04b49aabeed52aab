"""How the next token is chosen: greedily, or drawn by a seed.

A draw is a function of seed, number of the sequence and position (numpy's Philox and SeedSequence),
so that neither the order of sequences nor what else a step holds changes it.

What this module does not see: where logits come from.
"""

from math import inf
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allocsim.errors import EngineError

Array = NDArray[Any]


class Sampling(Struct, frozen=True, kw_only=True):
    """What is kept of the logits, and how one of it is drawn."""

    temperature: float = 0.0
    """Logits are divided by it; 0 takes the largest."""
    top_k: int = 0
    """Only so many of the largest; 0: all."""
    top_p: float = 1.0
    """Only the fewest of the largest whose probabilities sum to at least this."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise EngineError for numbers that keep nothing."""
        if not 0 <= self.temperature < inf or self.top_k < 0 or not 0 < self.top_p <= 1 or self.seed < 0:
            said = f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}, seed {self.seed}"
            raise EngineError(f"{said}: temperature, top_k and seed are at least 0, top_p is above 0 and at most 1")


def chosen(logits: Array, sampling: Sampling, *, sequence: int, position: int) -> int:
    """Return the token that follows; of equal logits the first is the larger. O(V log V).

    Args:
        logits: [V].
        sampling: how.
        sequence: number of the sequence.
        position: of the token that is chosen.

    Raises EngineError where a logit is NaN, or none is above -inf.
    """
    best = int(logits.argmax())  # the place of a NaN where there is one
    if not logits[best] > -inf:
        raise EngineError(f"the logits of position {position} of sequence {sequence} are not finite: {logits[best]}")
    if not sampling.temperature or not logits[best] < inf:
        return best
    order = np.argsort(-logits, kind="stable")[: sampling.top_k or None]
    with np.errstate(over="ignore"):  # a temperature near 0 leaves the largest alone
        scaled = (logits[order].astype(np.float64) - float(logits[best])) / sampling.temperature
    mass = np.cumsum(np.exp(scaled))
    mass = mass[: int(np.searchsorted(mass, sampling.top_p * mass[-1])) + 1]
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([sampling.seed, sequence, position])))
    return int(order[np.searchsorted(mass[:-1], generator.random() * mass[-1], side="right")])
