"""What an epoch came to: loss and accuracy with their standard errors, as ggml-opt's results.

The loss of several physical batches is their mean (their sum for the loss `sum`), its uncertainty
the standard error of that mean; the accuracy is the share of rows whose largest output is the
labels' class, with the standard error of a share. NaN means: not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResult:
    """Losses and hits collected so far; immutable, `plus` returns the next."""

    losses: tuple[float, ...] = ()
    """One for each physical batch."""
    rows: int = 0
    """Rows classified."""
    hits: int = 0
    """Rows classified as their labels say."""
    summed: bool = False
    """Whether the loss of several batches is their sum."""
    found: tuple[NDArray[Any], ...] = field(default=(), repr=False, compare=False)
    """The class that each row of a batch got, i32, by batch, where they are kept."""

    def plus(
        self,
        loss: float,
        outputs: NDArray[Any] | None = None,
        labels: NDArray[Any] | None = None,
        *,
        keep: bool = False,
    ) -> Self:
        """Return the result with one more physical batch.

        `outputs` [.., classes] and `labels` class numbers or weights of each row; `keep` the
        classes found, 4 bytes a row.
        """
        rows, hits, kept = 0, 0, self.found
        if outputs is not None and labels is not None:
            found = outputs.argmax(-1).reshape(-1)
            wanted = labels if labels.dtype.kind in "iu" else labels.reshape(outputs.shape).argmax(-1)
            rows, hits = len(found), int(np.count_nonzero(found == wanted.reshape(-1)))
            kept = (*kept, found.astype(np.int32)) if keep else kept
        return type(self)(
            losses=(*self.losses, loss), rows=self.rows + rows, hits=self.hits + hits, summed=self.summed, found=kept
        )

    @property
    def predictions(self) -> NDArray[Any]:
        """The class that each row got, i32, in the order of the rows; empty where none are kept."""
        return np.concatenate(self.found) if self.found else np.empty(0, np.int32)

    @property
    def loss(self) -> float:
        """Loss over all batches."""
        if not self.losses:
            return nan
        total = float(np.sum(self.losses))
        return total if self.summed else total / len(self.losses)

    @property
    def loss_error(self) -> float:
        """Standard error of the loss."""
        count = len(self.losses)
        if count < 2:
            return nan
        spread = float(np.std(self.losses, ddof=1))
        return spread * sqrt(count) if self.summed else spread / sqrt(count)

    @property
    def accuracy(self) -> float:
        """Share of rows classified right."""
        return self.hits / self.rows if self.rows else nan

    @property
    def accuracy_error(self) -> float:
        """Standard error of the accuracy."""
        return sqrt(self.accuracy * (1 - self.accuracy) / (self.rows - 1)) if self.rows > 1 else nan

    def figures(self) -> Mapping[str, float | None]:
        """Return the four figures, printed and saved, by name; None where one is not known."""
        names = ("loss", "loss_error", "accuracy", "accuracy_error")
        return {name: None if np.isnan(value := getattr(self, name)) else value for name in names}
