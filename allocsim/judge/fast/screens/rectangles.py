"""Find the pairs of rectangles (time x address) that share a point, among many rectangles, by a
compiled sweep over time.

    met(start, stop, low, high, cap=...)    pairs of rows of `[start, stop) x [low, high)` that share a point, and whether there are more

Rows are processed in order of start. The rows that are alive at a time are leaves of a tree, in
order of `low`; a leaf without a live row is `FLOOR`. A node holds the highest `high` below it. A
new row overlaps each live row with a `low` below the new row's `high` and a `high` above the new
row's `low`. In the tree, these rows are all leaves before a certain position with a value above the
new row's `low`. Each such row is found in O(log rows). A row found after its end is removed, so it
is found at most once after its end. The end of a row costs nothing otherwise.

Rows are processed in batches of new rows. The tree of a batch holds the new rows and the rows that
are alive when the batch begins. Each batch but the last has at least as many new rows as carried
rows, so that carrying rows over costs O(1) for each new row. A batch has at most `STRETCH` new rows
if few rows are carried, so that the tree stays small enough for the processor's cache.

Complexity: O(n log n + pairs listed) time, O(n + cap) memory.

This module does not use buffers, ops or plans. `intervals.conflicts` does the same for few rows
without machine code.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from allocsim.judge.fast.screens.compiling import compiled
from allocsim.model.layout import Int64s

STRETCH: Final = 1 << 14
"""The smallest number of new rows in a batch, except the last batch."""

FAN: Final = 8
"""The number of children of a node; together they fill a line of the processor's cache."""

FLOOR: Final = -(1 << 63)
"""A number below the end of every rectangle."""


def met(start: Int64s, stop: Int64s, low: Int64s, high: Int64s, *, cap: int) -> tuple[Int64s, Int64s, bool]:
    """Return left and right rows of the pairs that share a point, in order of the start of the
    right row, and whether there are more than `cap` pairs.

    No rectangle may be empty. The left row is the row that starts first, or the lower row if both
    start together. At most `cap` pairs are listed.
    """
    count = len(start)
    order = np.arange(count) if np.all(start[1:] >= start[:-1]) else np.argsort(start, kind="stable")
    lefts, rights, room = [order[:0]], [order[:0]], cap
    carried, begin = order[:0], 0
    while begin < count:
        end = min(begin + max(STRETCH, len(carried)), count)
        rows = np.concatenate([carried, order[begin:end]])
        left, right, number = _stretch([column[rows] for column in (start, stop, low, high)], len(carried), room)
        lefts.append(rows[left])
        rights.append(rows[right])
        if number > room:
            return np.concatenate(lefts), np.concatenate(rights), True
        room -= number
        if end < count:
            carried = rows[stop[rows] > start[order[end]]]
        begin = end
    return np.concatenate(lefts), np.concatenate(rights), False


def _stretch(columns: Sequence[Int64s], carried: int, room: int) -> tuple[Int64s, Int64s, int]:
    """Return the pairs with a new row; the first `carried` rows were already compared.

    The third result is the number of pairs, or `room + 1` if there are more than `room`.
    """
    start, stop, low, high = columns
    by_low = np.argsort(low)
    rank, reach = np.empty_like(by_low), np.empty_like(by_low)
    rank[by_low] = np.arange(len(low))
    reach[by_low] = np.searchsorted(low[by_low], high[by_low])
    leaves = np.full(len(low), FLOOR)
    leaves[rank[:carried]] = high[:carried]
    tree, levels = _tree(leaves)
    newcomers = tuple(column[carried:] for column in (start, low, high, rank, reach))
    left, right = np.empty(min(room, len(low) ** 2), dtype=np.int64), np.empty(min(room, len(low) ** 2), dtype=np.int64)
    count = meetings(newcomers, stop[by_low], tree, levels, left, right)
    kept = min(count, room)
    return by_low[left[:kept]], right[:kept] + carried, count


def _tree(leaves: Int64s) -> tuple[Int64s, Int64s]:
    """Return the nodes of a tree, level by level from the leaves up to one root, and the start of
    each level. Each level is padded to a multiple of `FAN` nodes.
    """
    rows, nodes = [], leaves
    while True:
        padded = np.full(-(-len(nodes) // FAN) * FAN, FLOOR)
        padded[: len(nodes)] = nodes
        rows.append(padded)
        if len(nodes) <= 1:
            return np.concatenate(rows), np.cumsum([0, *map(len, rows[:-1])])
        nodes = padded.reshape(-1, FAN).max(axis=1)


@compiled
def last_above(tree: Int64s, levels: Int64s, end: int, bound: int) -> int:
    """Return the last leaf before `end` with a value above `bound`, or -1 if there is none."""
    level, node = 0, end
    while True:
        first = node - node % FAN
        while node > first:
            node -= 1
            if tree[levels[level] + node] > bound:
                while level > 0:
                    level -= 1
                    node = FAN * node + FAN - 1
                    while tree[levels[level] + node] <= bound:
                        node -= 1
                return node
        level += 1
        if level == len(levels):
            return -1
        node //= FAN


@compiled
def put(tree: Int64s, levels: Int64s, leaf: int, value: int) -> None:
    """Set an empty leaf to `value`, and update the nodes above it."""
    node = leaf
    for level in range(len(levels)):
        if tree[levels[level] + node] >= value:
            return
        tree[levels[level] + node] = value
        node //= FAN


@compiled
def take(tree: Int64s, levels: Int64s, leaf: int) -> None:
    """Set a leaf to `FLOOR`, and update the nodes above it."""
    tree[leaf] = FLOOR
    node = leaf
    for level in range(1, len(levels)):
        node //= FAN
        family = levels[level - 1] + FAN * node
        highest = FLOOR
        for child in range(family, family + FAN):
            highest = max(highest, tree[child])
        if tree[levels[level] + node] == highest:
            return
        tree[levels[level] + node] = highest


@compiled
def meetings(  # noqa: PLR0917 - columns
    newcomers: tuple[Int64s, ...],
    stop: Int64s,
    tree: Int64s,
    levels: Int64s,
    left: Int64s,
    right: Int64s,
) -> int:
    """Record the pairs of a new row and an overlapping row that is alive when the new row starts.

    Return the number of pairs, at most one more than fit into `left`.

    Args:
        newcomers: for each new row: start, low, high, leaf, and the number of leaves with a `low`
            below its `high`; sorted by start.
        stop: the stop of the row of each leaf.
        tree: nodes with the rows that are alive before the first new row.
        levels: the start of each level of the tree.
        left: filled with the leaf of each pair.
        right: filled with the new row of each pair.
    """
    starts, lows, highs, leaves, reach = newcomers
    count = 0
    for comer in range(len(starts)):
        leaf = last_above(tree, levels, reach[comer], lows[comer])
        while leaf >= 0:
            if stop[leaf] <= starts[comer]:
                take(tree, levels, leaf)
            elif count < len(left):
                left[count], right[count] = leaf, comer
                count += 1
            else:
                return count + 1
            leaf = last_above(tree, levels, leaf, lows[comer])
        put(tree, levels, leaves[comer], highs[comer])
    return count
