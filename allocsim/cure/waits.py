"""Find few waits that order all given pairs of ops, and the price of these waits.

A wait (op, after) orders `after` and every op before it before `op` and every op after that. A pair
is the interval `[earlier, later]` of the list of ops. Between two streams, a wait covers each pair
with an interval that contains the interval of the wait. The pairs are processed in the order of
their later op. The first uncovered pair gets a wait of its later op. That op waits for the latest
`earlier` op of all uncovered pairs that precedes it. For two streams, the number of waits is
minimal. With more streams, a wait that other waits imply is dropped.

The price of waits is the number of pairs of ops that could overlap before and no longer can.

Complexity: O(pairs log pairs + pairs x waits) for the cover, and O(ops x streams) for each order.

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
"""The op that is later in the list, and the earlier op."""

PRUNED: Final = 64
"""The largest number of waits for which `pruned` tries to leave out each wait."""


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """The happens-before order of ops that streams and waits guarantee."""

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
        """Return the order with further waits, each an op and the earlier op to wait for."""
        added: dict[int, list[int]] = defaultdict(list)
        for op, after in more:
            added[op].append(after)
        waits = tuple((*row, *added[op]) if op in added else row for op, row in enumerate(self.waits))
        return replace(self, waits=waits) if added else self

    @cached_property
    def known(self) -> Int64s:
        """int64 (ops, streams): for each op and stream, the last op of that stream that happens
        before the op or is the op itself. -1 if there is no such op.
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
        """Whether op `first` happens before op `second`, or both are one op."""
        return bool(self.known[second, self.stream[first]] >= first)

    def overlapping(self) -> int:
        """Return the number of pairs of ops without an order. O(ops x streams x log ops)."""
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
    """Return few waits (op, after) that order all pairs; empty if all are already ordered."""
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
    """Return the waits without the waits that are not needed to order these pairs."""
    left = list(waits)
    for wait in waits if 1 < len(waits) <= PRUNED else ():
        fewer = [one for one in left if one != wait]
        mended = ordered.waiting(fewer)
        if all(mended.before(earlier, later) for later, earlier in pairs):
            left = fewer
    return tuple(left)
