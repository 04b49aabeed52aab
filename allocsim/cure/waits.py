"""Waits that order pairs of ops: as few as cover all pairs, and what they cost.

A wait (op, after) puts every op that happens before `after`, and `after`, before `op` and all that
comes after it. Between two streams the pairs are intervals of the list, `[earlier, later]`, and a
wait covers those that it stabs: taken by their ends, each first one uncovered gets a wait of its
later op on the latest earlier op needed by then. That is the least number for two streams. Between
several, a wait may be implied by others; those are left out again.

The price of waits is the number of pairs of ops that could overlap and can no more.

Complexity: O(pairs log pairs) for the cover; O(ops x streams) for each order.

What this module does not see: bytes, and how long ops take.
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
"""The later op of the list, and the earlier one."""

PRUNED: Final = 64
"""Waits of which each is tried to be left out; of more, none is."""


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """What happens before what, by the streams of ops and their waits."""

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
        """Return the order with more waits, pairs of an op and an earlier one."""
        added: dict[int, list[int]] = defaultdict(list)
        for op, after in more:
            added[op].append(after)
        waits = tuple((*row, *added[op]) if op in added else row for op, row in enumerate(self.waits))
        return replace(self, waits=waits) if added else self

    @cached_property
    def known(self) -> Int64s:
        """int64 (ops, streams): how far each op knows each stream, the last op of it that happens
        before the op or is it, -1 if none does.
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
        """How many pairs of ops have no order: O(ops x streams)."""
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
    """Return waits (op, after) that order every pair, as few as found; None where all are."""
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
    """Return the waits without those that the others imply for these pairs."""
    left = list(waits)
    for wait in waits if 1 < len(waits) <= PRUNED else ():
        fewer = [one for one in left if one != wait]
        mended = ordered.waiting(fewer)
        if all(mended.before(earlier, later) for later, earlier in pairs):
            left = fewer
    return tuple(left)
