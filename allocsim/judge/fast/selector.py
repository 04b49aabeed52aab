"""The only place where the judge asks what speeds it up: which rows a screen would have the plain
checks look at.

A screen may point at too many rows, never at too few; what is wrong with a row, the plain checks
say. `PLAIN` has no screens: every row is looked at, and nothing but this folder decides. Records
are the same either way (a law in the tests).

Screens know facts of the checks, so they stand above them and are handed in from there
(`allocsim.judge.fast`), as `Screens`.

What this module does not see: how a screen finds its rows, and where it is loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass
from sys import modules
from typing import Any, Final, Protocol, TypeVar

from allocsim.model.layout import Int64s

Answer = TypeVar("Answer")

RECTANGLES_FROM: Final = 50_000
"""Rectangles from which loading machine code pays."""

LATE_FROM: Final = 50_000
"""Accesses times streams from which loading numba pays; where it is loaded, its code is quicker for
any number."""


class Screens(Protocol):
    """What may be asked; each raises ModuleNotFoundError where numba is not installed."""

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return, for each of the runs of one memory, the reads to look at; None for all."""

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int
    ) -> tuple[Int64s, Int64s, bool]:
        """Return pairs of rectangles to compare, and whether there are more than `cap`."""

    def late(self) -> Callable[..., int]:
        """Return what notes the accesses to look at for races, as `h_clocks.sweep` does."""


@dataclass(frozen=True, slots=True)
class Selector:
    """Where the checks have to look: everywhere, or where screens say."""

    screens: Screens | None

    def reads(self, runs: Any) -> list[Int64s] | None:
        """Return, for each of the runs of one memory, the reads to look at; None for all."""
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
        """Return what notes the accesses to look at for races, with the arguments of
        `h_clocks.sweep`; None for `sweep` itself.
        """
        if work < LATE_FROM and modules.get("numba") is None:
            return None
        return self._asked(lambda screens: screens.late())

    def _asked(self, ask: Callable[[Screens], Answer | None]) -> Answer | None:
        """Return what a screen says; None where none may be asked, or numba is not installed."""
        if self.screens is None:
            return None
        try:
            return ask(self.screens)
        except ModuleNotFoundError as error:
            if error.name != "numba":
                raise
            return None


PLAIN: Final = Selector(None)
