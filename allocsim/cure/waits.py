"""Waits that order pairs of ops: few waits that cover all pairs, and their price.

A wait (op, after) orders `after`, and every op before it, before `op` and every op behind it. A
pair is the interval `[earlier, later]` of the list of ops. Between two streams, a wait covers the
pairs whose interval contains that of the wait. The pairs are taken by their later op: the first
pair not covered gets a wait of its later op on the latest earlier op of any pair begun by then.
That is the least number for two streams. With more streams, others may imply a wait; it is dropped.

The price of waits is the number of pairs of ops that could overlap before and no longer can.

Complexity: O(pairs log pairs) for the cover; O(ops x streams) for each order.

This module does not examine bytes, and how long ops take.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from allocsim.model import Program
from allocsim.model.layout import Int64s

Pair = tuple[int, int]
"""The op that is later in the list, and the earlier one."""

PRUNED: Final = 64
"""The most waits for which `pruned` tries to leave out each one; beyond, it drops none."""


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """The happens-before order of ops, by their streams and waits."""

    stream: Int64s
    waits: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, program: Program) -> "Ordered":
        """Return the order of a program."""
        ops = program.ops
        bounds, after = ops.after_starts.tolist(), ops.after.tolist()
        _, stream = np.unique(ops.stream, return_inverse=True)
        return cls(stream=stream.astype(np.int64), waits=tuple(tuple(after[a:b]) for a, b in pairwise(bounds)))

    def waiting(self, more: Iterable[Pair]) -> "Ordered":
        """Return the order with more waits; a wait is an op and the earlier op it waits for."""
        added: dict[int, list[int]] = defaultdict(list)
        for op, after in more:
            added[op].append(after)
        waits = tuple((*row, *added[op]) if op in added else row for op, row in enumerate(self.waits))
        return replace(self, waits=waits) if added else self

    @cached_property
    def known(self) -> Int64s:
        """int64 (ops, streams): for each op and stream, the last op of that stream that happens
        before the op or is the op; -1 if none does.
        """
        count = int(self.stream.max(initial=0)) + 1
        known = np.full((len(self.stream), count), -1, dtype=np.int64)
        last = [-1] * count
        for op, (mine, row) in enumerate(zip(self.stream.tolist(), self.waits, strict=True)):
            if last[mine] >= 0:
                known[op] = known[last[mine]]
            for after in row:
                known[op] = np.maximum(known[op], known[after])
            known[op, mine] = last[mine] = op
        return known

    def before(self, first: int, second: int) -> bool:
        """Whether one op happens before another."""
        return bool(self.known[second, self.stream[first]] >= first)

    def overlapping(self) -> int:
        """The number of pairs of ops without an order: O(ops x streams)."""
        ops = np.arange(len(self.stream))
        total = 0
        for stream in range(self.known.shape[1]):
            mine = np.flatnonzero(self.stream == stream)
            others = self.stream != stream
            earlier = np.searchsorted(mine, ops[others])
            known = np.searchsorted(mine, self.known[others, stream], side="right")
            total += int((earlier - known).sum())
        return total


def covering(ordered: Ordered, pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Return few waits (op, after) that order every pair; no wait if all pairs are ordered."""
    between: dict[tuple[int, int], set[Pair]] = defaultdict(set)
    for later, earlier in pairs:
        if not ordered.before(earlier, later):
            between[int(ordered.stream[earlier]), int(ordered.stream[later])].add((later, earlier))
    waits: list[Pair] = []
    for rows in between.values():
        left = sorted(rows)
        while left:
            op = left[0][0]
            taken = [earlier for _, earlier in left if earlier < op]
            after = max(taken)
            waits.append((op, after))
            left = [row for row in left if row[1] >= op]
    return pruned(ordered, sorted(waits), [row for rows in between.values() for row in rows])


def pruned(ordered: Ordered, waits: Sequence[Pair], pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the waits without those that are not needed to order these pairs."""
    left = list(waits)
    for wait in waits if 1 < len(waits) <= PRUNED else ():
        fewer = [one for one in left if one != wait]
        mended = ordered.waiting(fewer)
        if all(mended.before(earlier, later) for later, earlier in pairs):
            left = fewer
    return tuple(left)
