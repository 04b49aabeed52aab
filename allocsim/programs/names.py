"""Finds buffers or values of a program by name.

Names are for people and may repeat; a name that several rows have is refused, and no row is
guessed.

What this module does not see: the meaning of the rows.
"""

import operator
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from allocsim.errors import ModelError


def whole(number: Any) -> int | None:
    """Return a whole number of Python or numpy as an int; None for anything else (a bool, too)."""
    try:
        return None if isinstance(number, bool) else operator.index(number)
    except TypeError:
        return None


class Names:
    """Finds things among the rows of a list that may grow; the name of a row is its first entry."""

    def __init__(self, what: str, rows: Sequence[tuple[Any, ...]]) -> None:
        self._what = what
        self._rows = rows
        self._places: dict[str, list[int]] = {}
        self._seen = 0

    def index(self, place: str, which: Any, *, exists: bool = False) -> int:
        """Return the index of a row given by index or name.

        O(1), and O(rows) once for names that are new.

        An index is returned as it is; with `exists`, its row must exist by now. Raises ModelError,
        at `place`, for a name that no row or several rows have, and for anything that is neither an
        index nor a name.
        """
        if isinstance(which, str):
            return self._named(place, which)
        number = whole(which)
        if number is None:
            raise ModelError(place, f"{which!r} is neither the index nor the name of a {self._what}")
        if exists and not 0 <= number < len(self._rows):
            raise ModelError(place, f"{self._what} {number} does not exist; there are {len(self._rows)}")
        return number

    def _named(self, place: str, name: str) -> int:
        for row in range(self._seen, len(self._rows)):
            self._places.setdefault(self._rows[row][0], []).append(row)
        self._seen = len(self._rows)
        found = self._places.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(map(str, found[:3])) + (", ..." if len(found) > 3 else "")
            raise ModelError(place, f"{name!r} is the name of {len(found)} {self._what}s ({shown}); give the index")
        near = get_close_matches(name, self._places, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {len(self._rows)}"
        raise ModelError(place, f"no {self._what} is named {name!r}; {hint}")


__all__ = ["Names", "whole"]
