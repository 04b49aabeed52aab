"""What is done when numbers of a training run are no longer finite.

A batch whose loss is NaN or infinite spoils every weight it trains; so do gradients that are not
finite under a loss that is, which shows in the weights. The loss of every batch is looked at, and
the weights before each checkpoint and at the end of each epoch. What follows is
`Settings.nonfinite`:

    stop      NotFiniteError; the last checkpoint stays as it was, so that it can be gone on from
    warn      said once, and training goes on
    ignore    nothing

Of validation nothing worse than a warning comes: it changes no weight. What is said names the
place, and the datapoint of the batch that is not finite, where there is one. With `Settings.watch`
every result of every op is looked at while it is made (`engine.runtime.nonfinite`), which costs a
pass over each, and the op that made the first NaN is named; a NaN counts then wherever it is made,
not only where it reaches the loss. A run that stopped and is resumed with it comes to the same bits
and names it.

What this module does not see: graphs, plans.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Final, Literal, get_args

import numpy as np

from allocsim.errors import EngineError, UnknownNameError
from engine.kernels.binding import Array
from engine.training.trainer import BatchOutcome

Nonfinite = Literal["stop", "warn", "ignore"]
NONFINITE: Final[tuple[str, ...]] = get_args(Nonfinite)

UNSEEN: Final = "resume with watch = true, which names the op that makes the first"
APART: Final = "resume in one process, without ranks and with watch = true, which names the op that makes the first"
BEFORE: Final = "a weight or a state was not finite before"
ROUNDING: Final = 1e-5
"""Share of a loss by which sums of the same numbers in other orders may differ."""
ENOUGH: Final = 40
"""Batches below which a loss that does not fall may be chance, and nothing is said."""


class NotFiniteError(EngineError):
    """Training came to numbers that are not finite; says where, and what made them if known."""


class Lookout:
    """Looks at one run of training, and speaks once."""

    def __init__(
        self, nonfinite: Nonfinite, say: Callable[[str], object], *, watching: bool, ranks: bool = False
    ) -> None:
        if nonfinite not in NONFINITE:
            raise UnknownNameError("value of nonfinite", nonfinite, NONFINITE)
        self._nonfinite = nonfinite
        self._unknown = BEFORE if watching else APART if ranks else UNSEEN
        self._say = say
        self._said = False

    def batch(
        self, place: str, outcome: BatchOutcome, batch: Mapping[str, Array], rows: Array, *, training: bool
    ) -> None:
        """Look at what one physical batch came to; `rows` are the datapoints it was taken from."""
        made = outcome.made
        if self._nonfinite == "ignore" or (
            isfinite(outcome.loss) and not any(finding.what == "nan" for finding in made)
        ):
            return
        cause = "; ".join(map(str, made)) or _given(batch, rows) or self._unknown
        self._tell(f"{place}: the loss is {outcome.loss}: {cause}", stop=training)

    def weights(self, place: str, weights: Mapping[str, Array]) -> None:
        """Look at weights that are about to be kept."""
        if self._nonfinite == "ignore":
            return
        for name, array in weights.items():
            if bad := array.size - int(np.isfinite(array).sum()):
                self._tell(
                    f"{place}: {bad} of {array.size} numbers of {name} are not finite: {self._unknown}", stop=True
                )
                return

    def _tell(self, words: str, *, stop: bool) -> None:
        if stop and self._nonfinite == "stop":
            raise NotFiniteError(words)
        if not self._said:
            self._said = True
            self._say(words)


def tell_unless_falling(losses: Sequence[float], say: Callable[[str], object]) -> None:
    """Say in one line that the last quarter of a training's losses is on average no lower than the
    first, of a training of `ENOUGH` physical batches or more.
    """
    share = len(losses) // 4
    if len(losses) < ENOUGH:
        return
    first, last = (float(np.mean(part)) for part in (losses[:share], losses[-share:]))
    if last > first - ROUNDING * abs(first):
        say(
            f"the loss did not fall: {first:.4g} on average over the first {share} batches, {last:.4g} over the last; "
            "perhaps the rate alpha is too large or too small, or the labels do not belong to the data"
        )


def warn(words: str) -> None:
    """Say it as Python says warnings."""
    warnings.warn(words, RuntimeWarning, stacklevel=2)


def _given(batch: Mapping[str, Array], rows: Array) -> str:
    """Return the first datapoint of a batch that is not finite, by column; empty if none."""
    for name, column in batch.items():
        if column.dtype.kind in "iub":
            continue
        finite = np.isfinite(column.reshape(len(column), -1)).all(axis=1)
        if not finite.all():
            return f"column {name!r} of datapoint {int(rows[int(np.argmin(finite))])} is not finite"
    return ""
