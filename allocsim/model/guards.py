"""Guards, of which the rules of a well-formed model consist: each raises `ModelError` at the first
row of a column that breaks it.

A place or a rule is a string with one hole for the row, or a function of the row. All guards are
vectorised, O(rows).

What this module does not see: which rule of the format a column breaks.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import ModelError
from allocsim.model.layout import LIMIT

Column = NDArray[Any]


def first_bad(bad: Column, place: Any, rule: Any) -> None:
    """Raise at the first place where `bad` holds.

    `place` and `rule` are strings or functions of the index.
    """
    if bad.any():
        index = int(np.flatnonzero(bad)[0])
        raise ModelError(
            place.format(index) if isinstance(place, str) else place(index),
            rule if isinstance(rule, str) else rule(index),
        )


def in_range(column: Column, count: int, place: Any, what: str) -> None:
    """Raise at the first entry that is no index into `count` rows; `what` is the word for a row."""
    if column.size and (column.min() < 0 or column.max() >= count):
        first_bad(
            (column < 0) | (column >= count), place, lambda k: f"{what} {column[k]} does not exist; there are {count}"
        )


def sizes(column: Column, place: str) -> None:
    """Raise at the first entry that is no size in bytes."""
    first_bad((column < 0) | (column > LIMIT), place, lambda i: f"{column[i]} is not between 0 and 2^62")


def row_starts(starts: Column, rows: int, flat: int, what: str) -> None:
    """Raise unless `starts` cuts a flat column of `flat` entries into `rows` lists (CSR)."""
    if len(starts) != rows + 1 or starts[0] != 0 or starts[-1] != flat or (starts[1:] < starts[:-1]).any():
        raise ModelError(what, "row starts do not fit the flat column")


def counts(starts: Column) -> Column:
    """Return the length of each list of a CSR column; quicker than `numpy.diff`."""
    return starts[1:] - starts[:-1]


def same_length(count: int, what: str, *columns: Any) -> None:
    """Raise unless all columns have `count` rows."""
    for column in columns:
        if len(column) != count:
            raise ModelError(what, f"columns of {count} and {len(column)} rows do not fit together")
