"""Greedy removal: it keeps the smallest thing so far for which a question has the answer yes: a
document (`allocsim.reduction`), or a few of some elements (`thinned`).

A list is thinned by leaving out chunks, from half of it down to single elements, as delta debugging
does (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002). That is
repeated until no single element can go. The search is deterministic; only a time limit makes the
result depend on the machine, and then the best document so far is kept.

What this module does not see: the meaning of the rows that it removes.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Generic, TypeVar

from allocsim.errors import AllocsimError
from allocsim.model import Document

T = TypeVar("T")
Thing = TypeVar("Thing")
Keep = Callable[[Document], bool]
"""Document -> whether it still shows the fault."""


class OutOfTime(Exception):  # noqa: N818 - control flow, not an error: the best so far stands
    """The time limit was reached."""


class Search(Generic[Thing]):
    """A search with its best document, or other thing, so far."""

    def __init__(self, begin: Thing, keep: Callable[[Thing], bool], *, seconds: float | None = None) -> None:
        self.best = begin
        self.trials = 0
        """Number of candidates that were judged."""
        self._keep = keep
        self._until = None if seconds is None else monotonic() + seconds

    def attempt(self, make: Callable[[Thing], Thing | None]) -> bool:
        """Make a candidate from the best so far, and take it if it shows the fault.

        Raises OutOfTime.
        """
        if self._until is not None and monotonic() >= self._until:
            raise OutOfTime
        try:
            candidate = make(self.best)
            if candidate is None or candidate is self.best:
                return False
            self.trials += 1
            if not self._keep(candidate):
                return False
        except AllocsimError:  # the candidate is not well-formed, or cannot be judged
            return False
        self.best = candidate
        return True

    def thin(self, rows: Callable[[Thing], Sequence[T]], only: Callable[[Thing, Sequence[T]], Thing | None]) -> bool:
        """Leave out as many rows as possible; return whether any went.

        `only(best, kept)` makes the candidate.

        Afterwards no single row can be left out. O(n^2) trials at worst, O(k log n) if only k rows
        matter.
        """
        thinned = False
        size = max(len(rows(self.best)), 1)
        while size:
            removed, position = False, 0
            size = min(size, max(len(rows(self.best)), 1))
            while position < len(current := rows(self.best)):
                kept = [*current[:position], *current[position + size :]]
                if self.attempt(lambda best, kept=kept: only(best, kept)):  # type: ignore[misc]
                    removed = True
                else:
                    position += size
            thinned |= removed
            if size > 1:
                size //= 2
            elif not removed:
                break
        return thinned


def thinned(elements: Sequence[T], holds: Callable[[tuple[T, ...]], bool]) -> tuple[T, ...]:
    """Return some of `elements`, one at least, for which `holds` and of which no single one can be
    left out; it must hold for all of them. Trials as for `Search.thin`.
    """
    search = Search(tuple(elements), holds)
    search.thin(lambda kept: kept, lambda _, kept: tuple(kept) or None)
    return search.best
