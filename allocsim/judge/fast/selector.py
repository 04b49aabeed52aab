"""The only module of the judge that calls the screens: they select the rows that the plain checks
examine.

A screen may select too many rows, never too few; the plain checks decide whether a row has a
defect. `PLAIN` has no screens: every row is examined, and only this folder decides. Records are the
same either way (a test compares them).

Screens import modules of the checks, so they stand above them; `allocsim.judge.fast` hands them in
as `Screens`.

This module does not examine how a screen finds its rows, and where it is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from sys import modules
from typing import Any, Final, Protocol, TypeVar

from allocsim.model.layout import Int64s

Answer = TypeVar("Answer")

RECTANGLES_FROM: Final = 50_000
"""Number of rectangles from which loading machine code pays."""

LATE_FROM: Final = 50_000
"""Accesses times streams from which loading numba pays; once it is loaded, its code is always
quicker."""


class Screens(Protocol):
    """The screens; each method raises ModuleNotFoundError if numba is not installed."""

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return, for each of the runs of one memory, the reads to examine; None for all reads."""

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int
    ) -> tuple[Int64s, Int64s, bool]:
        """Return pairs of rectangles to compare, and whether there are more than `cap`."""

    def late(self) -> Callable[..., int]:
        """Return a compiled function that finds late accesses, as `h_clocks.sweep` does."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects the rows that the checks examine: all rows, or those that a screen selects."""

    screens: Screens | None

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return, for each of the runs of one memory, the reads to examine; None for all reads."""
        return self._asked(lambda screens: screens.reads(runs))

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, cap: int
    ) -> tuple[Int64s, Int64s, bool] | None:
        """Return pairs of rectangles to compare, and whether there are more than `cap`.

        The answer is None for all pairs.
        """
        if len(start) < RECTANGLES_FROM:
            return None
        return self._asked(lambda screens: screens.rectangles(start, stop, low, high, cap=cap))

    def late(self, work: int) -> Callable[..., int] | None:
        """Return a compiled function that finds late accesses, with the arguments of
        `h_clocks.sweep`; None if `sweep` itself is to be called.
        """
        if work < LATE_FROM and modules.get("numba") is None:
            return None
        return self._asked(lambda screens: screens.late())

    def _asked(self, ask: Callable[[Screens], Answer | None]) -> Answer | None:
        """Return the answer of a screen; None without screens, or if numba is not installed."""
        if self.screens is None:
            return None
        try:
            return ask(self.screens)
        except ModuleNotFoundError as error:
            if error.name != "numba":
                raise
            return None


PLAIN: Final = Selector(None)
