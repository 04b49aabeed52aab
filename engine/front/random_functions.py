"""What is drawn: a function of a key, a salt and the place (`engine.front.randomness`).

At the prompt each function takes a `seed` and draws the same numbers for it in every run, which are
others than PyTorch's for the same seed; in a recorded model it needs none.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np

from engine.front.arguments import dtype_of
from engine.front.core_functions import node_of
from engine.front.randomness import key_and_salt, training
from engine.front.record import DTYPES, Eager, composed
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor
from engine.graph import composites
from engine.ops.shapes import counts, real


def dropout(x: EagerTensor, p: float, *, seed: int | None = None, salt: int = 0) -> EagerTensor:
    """Return x / (1 - p) where a random number is at least p, 0 elsewhere; x itself in evaluation.

    The mask is drawn again in backward, never stored. A recorded model draws another one in each
    step, and needs no seed (`engine.front.randomness`).
    """
    share = real("dropout", p)
    if not training() and 0 <= share <= 1:
        node_of(x)
        return x
    key, salt = key_and_salt(seed, salt)
    return EagerTensor(Eager.op("dropout", node_of(x), key, p=share, salt=salt), x.shape)


def uniform(shape: Sequence[int], *, seed: int | None = None, salt: int = 0, dtype: Any = np.float32) -> EagerTensor:
    """Return numbers in (0, 1) of a shape; another draw in each step of a recorded model."""
    key, salt = key_and_salt(seed, salt)
    wanted = counts("uniform", shape)
    return EagerTensor(Eager.op("uniform", key, shape=wanted or (1,), salt=salt, dtype=_named(dtype)), wanted)


def normal(shape: Sequence[int], *, seed: int | None = None, salt: int = 0, dtype: Any = np.float32) -> EagerTensor:
    """Return normal numbers of mean 0, variance 1 (Box and Muller 1958), drawn like `uniform`."""
    key, salt = key_and_salt(seed, salt)
    wanted = counts("normal", shape)
    turn, size = (
        EagerTensor(Eager.op("uniform", key, shape=wanted or (1,), salt=salt ^ part, dtype=_named(dtype)), wanted)
        for part in (0, 1)
    )
    return (size.log() * -2.0).sqrt() * (turn * (2 * pi)).cos()


@in_float32
def gumbel_softmax(
    x: EagerTensor, *, seed: int | None = None, temperature: float = 1.0, hard: bool = False, salt: int = 0
) -> EagerTensor:
    """Return a sample of the Gumbel-softmax distribution over the last axis.

    With `hard` one-hot, its gradient that of the soft sample. A recorded model draws another one in
    each step, in evaluation too.
    """
    warmth, (key, salt) = real("gumbel_softmax", temperature), key_and_salt(seed, salt)
    return EagerTensor(
        composed(composites.gumbel_softmax, node_of(x), key, temperature=warmth, hard=hard, salt=salt), x.shape
    )


def _named(dtype: Any) -> str:
    """Return the engine's name of a dtype; what is none of its own stays, for the op to refuse."""
    try:
        return DTYPES[dtype_of(dtype)]
    except (KeyError, TypeError):
        return str(dtype)


__all__ = [
    "dropout",
    "gumbel_softmax",
    "normal",
    "uniform",
]
