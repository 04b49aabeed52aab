"""The only place where the judge asks what speeds it up: which rows a screen would have the plain
checks look at.

A screen may point at too many rows, never at too few; what is wrong with a row, and in which words,
the plain checks say. `PLAIN` has no screens: every row is looked at, and nothing but this folder
decides. Records are the same either way (a law in the tests).

Screens live in `allocsim.screens`, which needs numba. They are looked up by name when a large
document asks for one, so that this folder imports none of them and works where numba is not
installed.

What this module does not see: how a screen finds its rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from sys import modules
from typing import Any, Final

from allocsim.model.layout import Int64s

SCREENS: Final = "allocsim.screens"

RECTANGLES_FROM: Final = 50_000
"""Rectangles from which loading machine code pays."""

LATE_FROM: Final = 50_000
"""Accesses times streams from which loading numba pays; where it is loaded, its code is quicker for
any number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Which screens may be asked."""

    screens: bool

    def reads(self, runs: object) -> list[Int64s] | None:
        """Return, for each of the runs of one memory (`s_script.Runs`), the reads to look at; None
        for all.
        """
        found: list[Int64s] | None = self._asked("reads", lambda screen: screen.reads_to_look_at(runs))
        return found

    def rectangles(
        self, start: Int64s, stop: Int64s, low: Int64s, high: Int64s, cap: int
    ) -> tuple[Int64s, Int64s, bool] | None:
        """Return pairs of rectangles to compare, and whether there are more than `cap`.

        The answer is None for all pairs.
        """
        if len(start) < RECTANGLES_FROM:
            return None
        found: tuple[Int64s, Int64s, bool] | None = self._asked(
            "rectangles", lambda screen: screen.met(start, stop, low, high, cap=cap)
        )
        return found

    def late(self, work: int) -> Callable[..., int] | None:
        """Return what notes the accesses to look at for races, with the arguments of
        `h_clocks.sweep`; None for `sweep` itself.
        """
        if work < LATE_FROM and "numba" not in modules:
            return None
        found: Callable[..., int] | None = self._asked("late", lambda screen: screen.sweep)
        return found

    def _asked(self, module: str, ask: Callable[[Any], Any]) -> Any:
        """Return what a screen says; None where none may be asked, or numba is not installed."""
        if not self.screens:
            return None
        try:
            return ask(import_module(f"{SCREENS}.{module}"))
        except ModuleNotFoundError as error:
            if error.name != "numba":
                raise
            return None


PLAIN: Final = Selector(screens=False)
SCREENED: Final = Selector(screens=True)
