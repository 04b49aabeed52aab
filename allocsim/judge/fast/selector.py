"""Call the screens, which select the rows that the plain checks examine. No other module of the
judge calls screens.

A screen may select too many rows, but never too few. The plain checks decide whether a row has a
defect. `PLAIN` has no screens, so that every row is examined. The records are the same with and
without screens; a test compares them.

Screens import modules of the checks, so the checks cannot import the screens. `allocsim.judge.fast`
passes the screens in as `Screens`.

This module does not know how a screen finds its rows, or from where a screen is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from sys import modules
from typing import Any, Final, Protocol, TypeVar

from allocsim.model.layout import Int64s

Answer = TypeVar("Answer")

RECTANGLES_FROM: Final = 50_000
"""The number of rectangles from which loading machine code is worthwhile."""

LATE_FROM: Final = 50_000
"""The product of accesses and streams from which loading numba is worthwhile. Once numba is loaded,
its code is always faster."""


class Screens(Protocol):
    """The interface of the screens; without numba, each method raises ModuleNotFoundError."""

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return for each run over one memory the reads to examine, or None for all reads."""

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int
    ) -> tuple[Int64s, Int64s, bool]:
        """Return pairs of rectangles to compare, and whether there are more than `cap` pairs."""

    def late(self) -> Callable[..., int]:
        """Return a compiled function that finds late accesses like `h_clocks.sweep`."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Selects the rows that the checks examine: all rows, or only rows that a screen selects."""

    screens: Screens | None

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return for each run over one memory the reads to examine, or None for all reads."""
        return self._asked(lambda screens: screens.reads(runs))

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, cap: int
    ) -> tuple[Int64s, Int64s, bool] | None:
        """Return pairs of rectangles to compare, and whether there are more than `cap` pairs.

        Return None if all pairs must be compared.
        """
        if len(start) < RECTANGLES_FROM:
            return None
        return self._asked(lambda screens: screens.rectangles(start, stop, low, high, cap=cap))

    def late(self, work: int) -> Callable[..., int] | None:
        """Return a compiled function that finds late accesses, with the arguments of
        `h_clocks.sweep`. Return None if `sweep` itself must be called.
        """
        if work < LATE_FROM and modules.get("numba") is None:
            return None
        return self._asked(lambda screens: screens.late())

    def _asked(self, ask: Callable[[Screens], Answer | None]) -> Answer | None:
        """Return the result of a screen, or None if there are no screens or numba is missing."""
        if self.screens is None:
            return None
        try:
            return ask(self.screens)
        except ModuleNotFoundError as error:
            if error.name != "numba":
                raise
            return None


PLAIN: Final = Selector(None)
