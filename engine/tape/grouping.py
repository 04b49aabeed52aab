"""Columns to groups: which rows are alike, without a Python object for any of them.

O(rows * columns) and a sort of one word a row. Exact: rows are put together by a 64-bit hash, and
each row is then compared with the first of its group.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from allocsim.model import Int32s
from allocsim.model.layout import Int64s


def padded(starts: Int64s, flat: Int32s | Int64s, rows: Int64s) -> list[Int64s]:
    """Return CSR rows as columns: position -> entry of each row, -1 beyond a row's end."""
    first, counts = starts[rows], starts[rows + 1] - starts[rows]
    columns = []
    for position in range(int(counts.max(initial=0))):
        has = counts > position
        column = np.full(len(rows), -1, np.int64)
        column[has] = flat[first[has] + position]
        columns.append(column)
    return columns


def groups(columns: Sequence[Any]) -> tuple[Int64s, Int64s]:
    """Return (first row of each group, group of each row) for rows equal in all columns."""
    rows = len(columns[0])
    key = np.zeros(rows, np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            key = (key ^ np.asarray(column).astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(29)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    if all(np.array_equal(np.asarray(column)[first][group], column) for column in columns):
        return first, group
    table = np.stack([np.asarray(column).astype(np.int64) for column in columns], axis=1)  # two keys met by chance
    _, first, group = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, group.reshape(-1)
