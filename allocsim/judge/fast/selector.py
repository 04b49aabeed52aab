"""The only place where the judge asks what speeds it up: which rows a screen would have the plain
checks look at.

A screen may point at too many rows, never at too few; what is wrong with a row, and in which words,
the plain checks say. `PLAIN` has no screens: every row is looked at, and nothing but this folder
decides. Records are the same either way (a law in the tests).

Screens live in the folder `screens` beside this file, which needs numba. They are imported when a
large document asks for one, so that the judge works where numba is not installed.

What this module does not see: how a screen finds its rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from sys import modules
from typing import TYPE_CHECKING, Final, TypeVar

from allocsim.model.layout import Int64s

if TYPE_CHECKING:
    from allocsim.judge.fast.s_script import Runs

Answer = TypeVar("Answer")

RECTANGLES_FROM: Final = 50_000
"""Rectangles from which loading machine code pays."""

LATE_FROM: Final = 50_000
"""Accesses times streams from which loading numba pays; where it is loaded, its code is quicker for
any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which screens may be asked."""

    screens: bool

    def reads(self, runs: "Runs") -> list[Int64s] | None:
        """Return, for each of the runs of one memory, the reads to look at; None for all."""

        def ask() -> list[Int64s] | None:
            from allocsim.judge.fast.screens.reads import reads_to_look_at

            return reads_to_look_at(runs)

        return self._asked(ask)

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, cap: int
    ) -> tuple[Int64s, Int64s, bool] | None:
        """Return pairs of rectangles to compare, and whether there are more than `cap`.

        The answer is None for all pairs.
        """
        if len(start) < RECTANGLES_FROM:
            return None

        def ask() -> tuple[Int64s, Int64s, bool]:
            from allocsim.judge.fast.screens.rectangles import met

            return met(start, stop, low, high, cap=cap)

        return self._asked(ask)

    def late(self, work: int) -> Callable[..., int] | None:
        """Return what notes the accesses to look at for races, with the arguments of
        `h_clocks.sweep`; None for `sweep` itself.
        """
        if work < LATE_FROM and "numba" not in modules:
            return None

        def ask() -> Callable[..., int]:
            from allocsim.judge.fast.screens.late import sweep

            return sweep

        return self._asked(ask)

    def _asked(self, ask: Callable[[], Answer | None]) -> Answer | None:
        """Return what a screen says; None where none may be asked, or numba is not installed."""
        if not self.screens:
            return None
        try:
            return ask()
        except ModuleNotFoundError as error:
            if error.name != "numba":
                raise
            return None


PLAIN: Final = Selector(screens=False)
SCREENED: Final = Selector(screens=True)
