"""Find intersections of half-open ranges and of rectangles, by output-sensitive, vectorised joins.

    join(a, b)           returns pairs of ranges, one from each side, with equal keys and a common point
    conflicts(r)         returns pairs of rectangles (time x address) that share a point

Both return every pair exactly once, list at most `cap` pairs, and report whether there are more. So
a million rectangles over one point need memory for only `cap` pairs. The caller must remove empty
ranges and rectangles, which intersect nothing.

Complexity: `join` O((n + m) log(n + m) + listed); `conflicts` O(n log^2 n + listed), by a join on
each level of a segment tree over time. A rectangle `i` covers the start of a later rectangle `j` in
exactly one node of its canonical decomposition. The pair is found in that node, so no pair is found
twice or missed. For many rectangles a screen selects the pairs to compare (`selector`).

This module does not use buffers, ops or plans.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt

import numpy as np

from allocsim.judge.fast.selector import Selector
from allocsim.model import Bools, Int32s
from allocsim.model.layout import Int64s

TOP = (1 << 63) - 1
"""Sums of the model's numbers saturate at this value, above every start, so no intersection
changes."""

SHORTER = 1024
"""A column with this many times fewer numbers is sorted in place of the other side (`among`). Both
ways take about as long at this ratio if the other side is in random order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """Half-open, non-empty ranges with a key, one row each; `low` and `high` may be any int64."""

    key: Int64s
    low: Int64s
    high: Int64s

    @classmethod
    def laid(cls, key: Int64s, base: Int64s, low: Int64s, high: Int64s) -> "Ranges":
        """Return the ranges `[base + low, base + high)`, for 0 <= low < high."""
        return cls(key=key, low=end_of(base, low), high=end_of(base, high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Pairs of a row of the left side and a row of the right side that intersect."""

    left: Int64s
    right: Int64s
    total: int
    """The number of pairs, unlisted pairs included; from `conflicts` at most `cap + 1`."""


def end_of(base: Int64s, length: Int64s) -> Int64s:
    """Return `base + length` for non-negative lengths, saturated at `TOP` instead of wrapping."""
    ends: Int64s = base + np.minimum(length, TOP - np.maximum(base, 0))
    return ends


def distinct(column: Int64s) -> Int64s:
    """Return the distinct numbers, sorted; ten times as fast as numpy if most are distinct."""
    ordered = np.sort(column)
    fresh = np.ones(len(ordered), dtype=np.bool_)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def by_number(column: Int64s | Int32s) -> Iterator[Int64s]:
    """Yield for each non-negative number of a column, in ascending order, the rows that have it."""
    rows = np.argsort(column, kind="stable")
    ordered = column[rows]
    cuts = np.flatnonzero(np.diff(ordered, prepend=-1) > 0)
    yield from (rows[low:high] for low, high in pairwise([*cuts.tolist(), len(rows)]) if ordered[low] >= 0)


def among(column: Int64s, others: Int64s) -> Bools:
    """Return which numbers of a column are among `others`, like `np.isin`, by bisection. A column
    that is `SHORTER` times shorter than `others` is sorted, otherwise `others` are: O(n log k) for
    the n numbers of both and the k sorted ones.
    """
    if not len(column) or not len(others):
        return np.zeros(len(column), dtype=np.bool_)
    if len(column) * SHORTER > len(others):
        ordered = np.sort(others)
        mask: Bools = ordered[np.minimum(np.searchsorted(ordered, column), len(ordered) - 1)] == column
        return mask
    asked, rows = np.unique(column, return_inverse=True)
    places = np.minimum(np.searchsorted(asked, others), len(asked) - 1)
    found = np.zeros(len(asked), dtype=np.bool_)
    found[places[asked[places] == others]] = True
    return found[rows]


def join(left: Ranges, right: Ranges, *, cap: int) -> Pairs:
    """Return at most `cap` pairs (row of `left`, row of `right`) with equal keys and a common
    point.
    """
    if not len(left.low) or not len(right.low):
        return Pairs(left=np.empty(0, dtype=np.int64), right=np.empty(0, dtype=np.int64), total=0)
    points = distinct(np.concatenate([left.low, left.high, right.low, right.high]))
    keys = distinct(np.concatenate([left.key, right.key]))
    ranked_left, ranked_right = (
        Ranges(
            key=np.searchsorted(keys, side.key),
            low=np.searchsorted(points, side.low),
            high=np.searchsorted(points, side.high),
        )
        for side in (left, right)
    )
    return _join_ranked(ranked_left, ranked_right, width=len(points) + 1, cap=cap)


def conflicts(start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int, selector: Selector) -> Pairs:
    """Return the pairs of rectangles `[start, stop) x [low, high)` that share a point.

    `left` is the rectangle that starts first, or the lower row if both start together.

    At most `cap` pairs are listed: the first ones in order of (start of `right`, `right`, start of
    `left`, `left`).
    """
    columns = start, stop, low, high
    order = np.argsort(start, kind="stable")
    pairs = _meeting(columns, order, cap, selector)
    if pairs.total <= cap:
        return pairs
    # too many pairs: list all pairs of as many first rows as fit, then the first pairs of the next
    # row; n rows have at most n (n - 1) / 2 pairs
    fits, over = min(max(isqrt(2 * cap), 1), len(order) - 1), len(order)
    while 2 * fits < over:
        if _meeting(columns, order[: 2 * fits], cap, selector).total > cap:
            over = 2 * fits
        else:
            fits *= 2
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (middle, over) if _meeting(columns, order[:middle], cap, selector).total <= cap else (fits, middle)
    pairs, last = _meeting(columns, order[:fits], cap, selector), order[fits]
    others = order[:fits]
    others = others[(stop[others] > start[last]) & (low[others] < high[last]) & (low[last] < high[others])]
    others = others[: cap - len(pairs.left)]
    right = np.concatenate([pairs.right, np.full(len(others), last)])
    return Pairs(left=np.concatenate([pairs.left, others]), right=right, total=cap + 1)


def conflicts_by(
    number: Int64s | Int32s,
    times: tuple[Int64s, Int64s],
    low: Int64s,
    length: Int64s,
    *,
    cap: int,
    selector: Selector,
) -> Pairs:
    """Return the conflicts among the rows with each non-negative number, in ascending order of the
    numbers, at most `cap` for each. `times` are start and stop; lengths must not be negative.
    """
    left, right, total = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
    for rows in by_number(number):
        if len(rows) > 1:
            start, stop, base = times[0][rows], times[1][rows], low[rows]
            found = conflicts(start, stop, base, end_of(base, length[rows]), cap=cap, selector=selector)
            left.append(rows[found.left])
            right.append(rows[found.right])
            total += found.total
    return Pairs(left=np.concatenate(left), right=np.concatenate(right), total=total)


def _meeting(columns: Sequence[Int64s], rows: Int64s, cap: int, selector: Selector) -> Pairs:
    """Return the conflicting pairs among `rows`, which must be sorted by start.

    If there are more than `cap` pairs, arbitrary `cap` pairs are listed.
    """
    start, stop, low, high = (column[rows] for column in columns)
    selected = selector.rectangles(start, stop, low, high, cap)
    if selected is None:
        found = _by_levels(start, stop, low, high, cap)
    else:
        left, right, more = selected
        met = (
            (start[left] < stop[right])
            & (start[right] < stop[left])
            & (low[left] < high[right])
            & (low[right] < high[left])
        )
        found = Pairs(left=left[met], right=right[met], total=int(met.sum()) + more)
    return Pairs(left=rows[found.left], right=rows[found.right], total=found.total)


def _by_levels(start: Int64s, stop: Int64s, low: Int64s, high: Int64s, cap: int) -> Pairs:
    """Return the pairs of rectangles that share a point, by a join on each level of a segment tree
    over time. The rectangles must be sorted by start.
    """
    count = len(start)
    points = distinct(np.concatenate([low, high]))
    width = len(points) + 1
    lows, highs = np.searchsorted(points, low), np.searchsorted(points, high)
    # row i is alive at the starts of the later rows in [node_low[i], node_high[i])
    node_low = np.arange(1, count + 1, dtype=np.int64)
    node_high = np.maximum(np.searchsorted(start, stop, side="left"), node_low)
    query = np.arange(count, dtype=np.int64)
    node_low += count
    node_high += count
    query += count
    empty = np.empty(0, dtype=np.int64)
    listed_left, listed_right, total, room = [empty], [empty], 0, cap
    while np.any(open_ := node_low < node_high):
        at_low, at_high = open_ & ((node_low & 1) == 1), open_ & ((node_high & 1) == 1)
        owners = np.concatenate([np.flatnonzero(at_low), np.flatnonzero(at_high)])
        nodes = np.concatenate([node_low[at_low], node_high[at_high] - 1])
        if len(owners):
            present = np.zeros(2 * count + 1, dtype=np.bool_)
            present[nodes] = True
            asked = np.flatnonzero(present[query])
            holders = Ranges(key=nodes, low=lows[owners], high=highs[owners])
            comers = Ranges(key=query[asked], low=lows[asked], high=highs[asked])
            found = _join_ranked(holders, comers, width=width, cap=room)
            listed_left.append(owners[found.left])
            listed_right.append(asked[found.right])
            room -= len(found.left)
            total += found.total
        node_low = (node_low + at_low) >> 1
        node_high = (node_high - at_high) >> 1
        query >>= 1
    return Pairs(left=np.concatenate(listed_left), right=np.concatenate(listed_right), total=total)


def _join_ranked(a: Ranges, b: Ranges, *, width: int, cap: int) -> Pairs:
    """Join ranges with ends that are ranks below `width`. For each range of b, find the ranges of a
    that begin in it; then for each range of a, find the ranges of b that begin in it.

    Both results are contiguous slices of the other side, sorted by (key, low), and are found by
    bisection. If two ranges begin together, the range of a counts as beginning in the range of b.
    """
    base_a, base_b = a.key * width, b.key * width
    low_a, high_a, low_b, high_b = base_a + a.low, base_a + a.high, base_b + b.low, base_b + b.high
    order_a, order_b = np.argsort(low_a, kind="stable"), np.argsort(low_b, kind="stable")
    sorted_a, sorted_b = low_a[order_a], low_b[order_b]
    first_b, last_b = np.searchsorted(sorted_a, low_b, side="left"), np.searchsorted(sorted_a, high_b, side="left")
    first_a, last_a = np.searchsorted(sorted_b, low_a, side="right"), np.searchsorted(sorted_b, high_a, side="left")
    last_a = np.maximum(last_a, first_a)
    total = int((last_b - first_b).sum()) + int((last_a - first_a).sum())
    b_rows, a_at = _expand(first_b, last_b, cap)
    a_rows, b_at = _expand(first_a, last_a, cap - len(b_rows))
    return Pairs(
        left=np.concatenate([order_a[a_at], a_rows]), right=np.concatenate([b_rows, order_b[b_at]]), total=total
    )


def _expand(first: Int64s, last: Int64s, cap: int) -> tuple[Int64s, Int64s]:
    """Return at most `cap` pairs (row, position) with positions in `[first[row], last[row])`."""
    rows = np.flatnonzero(last > first)
    lengths = (last - first)[rows]
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > cap:
        fit = int(np.searchsorted(ends, cap, side="left")) + 1
        rows, lengths = rows[:fit], lengths[:fit].copy()
        lengths[-1] -= ends[fit - 1] - cap
        ends = np.cumsum(lengths)
    repeated = np.repeat(rows, lengths)
    positions = np.arange(len(repeated)) - np.repeat(ends - lengths, lengths) + np.repeat(first[rows], lengths)
    return repeated, positions
