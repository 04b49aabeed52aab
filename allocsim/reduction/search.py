"""Greedy removal: the best list so far for which a question is answered with yes.

A list is thinned by leaving out chunks, from half of it down to single elements, as delta debugging
does (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002), and again
from chunks to single ones until no single element can go. Everything is deterministic; only a time
limit makes results depend on the machine, and then the best so far is kept.

What this module does not see: what is being made smaller.
"""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from allocsim.errors import AllocsimError
from allocsim.model import Document

T = TypeVar("T")
Keep = Callable[[Document], bool]
"""Whether a document still shows what is being looked for."""


class OutOfTime(Exception):  # noqa: N818 - control flow, not an error: the best so far stands
    """The time limit was reached."""


class Search:
    """The best document so far."""

    def __init__(self, document: Document, keep: Keep, *, seconds: float | None = None) -> None:
        self.best = document
        self.trials = 0
        """Documents that were judged."""
        self._keep = keep
        self._until = None if seconds is None else monotonic() + seconds

    def attempt(self, make: Callable[[Document], Document | None]) -> bool:
        """Make a candidate out of the best so far; take it if it still shows the fault.

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
        except AllocsimError:  # what is left is not well-formed, or cannot be judged
            return False
        self.best = candidate
        return True

    def thin(
        self, rows: Callable[[Document], Sequence[T]], only: Callable[[Document, Sequence[T]], Document | None]
    ) -> bool:
        """Leave out as many rows as possible; return whether any went.

        `only(best, kept)` makes the candidate.

        Afterwards no single row can be left out. O(n^2) trials at worst, O(k log n) where few (k)
        rows matter.
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
