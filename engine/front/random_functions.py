"""What is drawn: a function of a key, a salt and the place (`engine.front.randomness`).

At the prompt each function takes a `seed` and draws the same numbers for it in every run, which are
others than PyTorch's for the same seed; in a recorded model it needs none.

What this module does not see: nodes' history, plans, kernels.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np

from allocsim.errors import EngineError
from engine.front.arguments import dtype_of
from engine.front.axis_functions import argsort, topk
from engine.front.core_functions import node_of
from engine.front.randomness import key_and_salt, training
from engine.front.record import DTYPES, Eager, composed, tracking
from engine.front.recording import Recording
from engine.front.rounding_once import in_float32
from engine.front.tensors import EagerTensor, tensor
from engine.graph import composites
from engine.ops.shapes import counts, real, whole

_BITS = 23
"""Random bits of a number that `uniform` draws."""


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


def randint(
    low: int, high: int, shape: Sequence[int], *, seed: int | None = None, salt: int = 0, dtype: Any = np.int32
) -> EagerTensor:
    """Return whole numbers from `low` to below `high`; at the prompt alone."""
    least, most = whole("randint", low), whole("randint", high)
    if least >= most:
        raise EngineError(f"randint: no whole number from {least} to below {most}")
    drawn = _fine(counts("randint", shape), seed, salt).data
    return tensor(least + np.minimum(np.floor(drawn * (most - least)), most - least - 1), dtype=dtype)


def _fine(shape: tuple[int, ...], seed: int | None, salt: int) -> EagerTensor:
    """Return numbers in (0, 1) of 46 random bits: two draws of 23, the second below the first."""
    high, low = uniform((2, *shape), seed=seed, salt=salt, dtype=np.float64)
    found: EagerTensor = high + (low - 0.5) * 2.0**-_BITS
    return found


def randperm(count: int, *, seed: int | None = None, salt: int = 0) -> EagerTensor:
    """Return the whole numbers below `count` in a random order; int32."""
    return argsort(_fine((whole("randperm", count),), seed, salt))


def multinomial(
    weights: EagerTensor, count: int, *, replacement: bool = False, seed: int | None = None, salt: int = 0
) -> EagerTensor:
    """Return `count` places along the last axis, drawn in proportion to weights[.., K]: int32 [..,
    count], no gradient.

    By the largest of logarithms with Gumbel noise (Efraimidis and Spirakis 2006), in their order. A
    place of weight 0 is drawn where all others are, which PyTorch refuses. Raises EngineError for
    weights that are negative or NaN and for rows of zeros; those of a recorded model are not looked
    at.
    """
    node_of(weights)
    count, chances = whole("multinomial", count), weights.detach().log()
    if replacement:
        chances = chances.reshape(*weights.shape[:-1], 1, weights.shape[-1])
    shape = (*weights.shape[:-1], count, weights.shape[-1]) if replacement else weights.shape
    noise = uniform(shape, seed=seed, salt=salt, dtype=weights.dtype)
    noisy = chances - (-noise.log()).log()
    found: EagerTensor = noisy.argmax(-1) if replacement else topk(noisy, count)[1]
    if not isinstance(tracking.get(), Recording):
        given = weights.data.astype(np.float64)
        if not (given >= 0).all() or not (given.sum(-1) > 0).all():
            raise EngineError(
                f"multinomial of {node_of(weights)}: weights are at least 0, and one of each row is above"
            )
    return found


__all__ = ["dropout", "gumbel_softmax", "multinomial", "normal", "randint", "randperm", "uniform"]
