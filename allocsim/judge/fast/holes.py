"""Compute the byte runs of many strided values at once, as columns.

For each value the result equals `allocsim.model.layout.byte_runs`: the smallest list of disjoint,
sorted, non-adjacent ranges. All pieces of a value have the same length, so sorting the pieces by
start is enough to join them.

Complexity: O(values x rank + pieces x dimensions that are not nested), plus a sort if strides
interleave. There are at most `MAX_PIECES` pieces in all, to bound memory (about 1 GiB during the
computation), and at most `allocsim.model.layout.MAX_RUNS` pieces for one value.

This module does not choose the values that the checks need (`accesses` does).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import Values
from allocsim.model.layout import MAX_RUNS, Int64s

MAX_PIECES: Final = 1 << 24
"""The largest number of unjoined byte runs of all strided values of a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holes:
    """The byte runs of some values within their buffers, in CSR form."""

    row: Int64s
    """int64 (values of the program,): the row of each value here, or -1 if it has no row."""
    starts: Int64s
    low: Int64s
    high: Int64s

    def of(self, value: int) -> slice:
        """Return the slice of `low` and `high` with the runs of a value."""
        row = self.row[value]
        return slice(int(self.starts[row]), int(self.starts[row + 1]))


def holes_of(values: Values, chosen: Int64s, low: Int64s, high: Int64s) -> Holes:
    """Return the runs of the values in `chosen`, each cut to `[low, high)` of the value. `low` and
    `high` are columns over all values.

    Raises ModelError if one value, or all values together, have more runs than are supported.
    """
    stride, count, length = _nested(values, chosen)
    many = np.flatnonzero(
        np.prod(count, axis=1, dtype=np.float64) > MAX_RUNS
    )  # in floats, because the product may exceed int64
    if len(many):
        rule = f"the layout has {prod(count[many[0]].tolist())} byte runs; at most {MAX_RUNS} are supported"
        raise ModelError(f"values[{chosen[many[0]]}]", rule)
    numbers = np.prod(count, axis=1)
    if int(numbers.sum()) > MAX_PIECES:
        rule = f"the values with holes have {int(numbers.sum())} byte runs in all; at most {MAX_PIECES} are supported"
        raise ModelError("values", rule)
    owner = np.repeat(np.arange(len(chosen)), numbers)
    begins = np.cumsum(numbers) - numbers
    left = np.arange(len(owner)) - begins[owner]
    start = values.hulls[chosen, 0][owner]
    for axis in range(count.shape[1]):
        turns = count[owner, axis]
        start += left % turns * stride[owner, axis]
        left //= turns
    same = owner[1:] == owner[:-1]
    if np.any(same & (start[1:] < start[:-1])):
        start = start[np.lexsort((start, owner))]
    fresh = np.ones(len(owner), dtype=np.bool_)
    fresh[1:] = ~same | (start[1:] > start[:-1] + length[owner[1:]])
    last = np.ones(len(owner), dtype=np.bool_)
    last[:-1] = fresh[1:]
    owner, ends = owner[fresh], (start + length[owner])[last]
    begin = np.maximum(start[fresh], low[chosen][owner])
    ends = np.minimum(ends, high[chosen][owner])
    kept = begin < ends
    row = np.full(len(values), -1, dtype=np.int64)
    row[chosen] = np.arange(len(chosen))
    starts = np.searchsorted(owner[kept], np.arange(len(chosen) + 1)).astype(np.int64)
    return Holes(row=row, starts=starts, low=begin[kept], high=ends[kept])


def holes_one_by_one(runs: Sequence[Int64s], chosen: Int64s, low: Int64s, high: Int64s) -> Holes:
    """Return the same as `holes_of`, from given runs of each value, for bits and packed values."""
    row = np.full(len(low), -1, dtype=np.int64)
    row[chosen] = np.arange(len(chosen))
    cut = [np.clip(mine, low[value], high[value]) for mine, value in zip(runs, chosen.tolist(), strict=True)]
    cut = [mine[mine[:, 0] < mine[:, 1]] for mine in cut]
    if sum(map(len, cut)) > MAX_PIECES:
        raise ModelError(
            "values", f"the values with holes have more than {MAX_PIECES} runs in all, which is not supported"
        )
    flat = np.concatenate([*cut, np.empty((0, 2), dtype=np.int64)])
    return Holes(
        row=row, starts=np.cumsum([0, *map(len, cut)], dtype=np.int64), low=flat[:, 0].copy(), high=flat[:, 1].copy()
    )


def _nested(values: Values, chosen: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the strides and counts, (chosen, dimensions), of the dimensions that leave holes,
    small strides first. Also return the length of a run of each value.
    """
    ranks = np.diff(values.dim_starts)[chosen]
    rank = int(ranks.max(initial=0))
    inside = np.arange(rank) < ranks[:, None]
    dims = (values.dim_starts[chosen][:, None] + np.arange(rank))[inside]
    stride, count = np.zeros((len(chosen), rank), dtype=np.int64), np.ones((len(chosen), rank), dtype=np.int64)
    stride[inside], count[inside] = np.abs(values.strides[dims]), values.shape[dims]
    matters = (count > 1) & (stride > 0)
    stride[~matters], count[~matters] = 0, 1
    order = np.argsort(stride, axis=1, kind="stable")
    stride, count = np.take_along_axis(stride, order, axis=1), np.take_along_axis(count, order, axis=1)
    length = values.itemsize[chosen].copy()
    whole = np.ones(len(chosen), dtype=np.bool_)
    for axis in range(rank):
        # neighbouring copies touch or overlap, so their union is one longer run
        whole &= stride[:, axis] <= length
        length += np.where(whole, stride[:, axis] * (count[:, axis] - 1), 0)
        count[whole, axis] = 1
    used = np.flatnonzero(np.any(count > 1, axis=0))
    return stride[:, used], count[:, used], length
