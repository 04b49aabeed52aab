"""What a model draws, and in which mode it runs.

    with engine.evaluation():
        y = net(x)                    # as it is used: dropout is the identity

What is random is a function of a key, a salt and the place of the element, by counter (Philox, as
JAX's keys). At the prompt the key is the seed that is given: the same again in every run. In a
recorded model (`engine.front.recorded_models`) it is the model's own input `KEY`, which the trainer
draws anew for each physical batch from its seed and the number of the batch. So a run that is
resumed, pinned or executed by a reference draws the same numbers. A seed given inside a recorded
model is a salt: what has the same seed draws the same numbers in one step, and others in the next.

What this module does not see: kernels, and who writes the key (`engine.training.trainer`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from engine.front.record import Node, constant, tracking
from engine.front.recording import Recording
from engine.ops.shapes import whole

_evaluating: Final[ContextVar[bool]] = ContextVar("evaluating", default=False)


@contextmanager
def evaluation(on: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002 - a switch is what it is
    """Have models run as they are used, not as they are trained: `dropout` keeps everything."""
    token = _evaluating.set(on)
    try:
        yield
    finally:
        _evaluating.reset(token)


def training() -> bool:
    """Return whether a model runs as it is trained: what a layer of one's own may ask."""
    return not _evaluating.get()


def key_and_salt(seed: int | None, salt: int) -> tuple[Node, int]:
    """Return the key that a random op reads, i32 [1], and the salt that tells it from the others.

    Raises EngineError where a seed is needed and not given, or a number does not fit 64 bits.
    """
    salt, given = bits("salt", salt), None if seed is None else bits("seed", seed)
    now = tracking.get()
    if isinstance(now, Recording):
        if now.key is None:
            raise EngineError("this recording has no key: its function is no model")
        return now.key, _mixed(*((0, next(now.drawn)) if given is None else (1, given)), salt)
    if given is None:
        raise EngineError("a seed is needed: only in a model that is recorded is there a key of the step")
    return constant(np.array([given], np.int64).astype(np.int32)), salt


def bits(what: str, value: object) -> int:
    """Return a whole number of 64 bits; EngineError, which calls it `what`, for what is none."""
    number = whole(what, value)
    if not -(2**63) <= number < 2**63:
        raise EngineError(f"{what} is {number}; it must fit 64 bits")
    return number


def _mixed(*numbers: int) -> int:
    """Return 63 bits that differ, but for chance, for different numbers."""
    mixed = np.random.SeedSequence([number & 2**64 - 1 for number in numbers]).generate_state(1, np.uint64)
    return int(mixed[0]) >> 1
