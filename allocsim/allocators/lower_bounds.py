"""Lower bounds: bytes below which no plan can be, whatever its planner does.

For each arena, the highest of three bounds; the bound of a problem is their sum, since each arena
has a peak of its own.

* **Live bytes.** At a step, the buffers that live there are apart. A pair (donor, recipient) that
  `may_share` offers and that meets there (the donor's last step is the recipient's first) counts
  once, as the larger; each buffer is in one pair, and the pairing that saves most is assumed, or
  where there are several donors and recipients no less than it.
* **Alignment.** Where the alignments of all that live at a step have a common divisor g, all
  offsets are multiples of g, so every buffer but the topmost takes its size rounded up to g: the
  sum of rounded sizes, less the padding of the one that has most. Tried for each g that occurs; a
  step counts for g if all that lives there is aligned to it.
* **Fixed offsets.** The highest end of a fixed buffer.

Pinned buffers live to the end. Buffers that are `own`, without bytes or without believed steps do
not count. `gaps` are granted (a step in a gap does not count) where the program has no ops. Sums
are exact beyond 64 bits.

O((n + gaps) log n) and O(pairs) where each step has one pair. What this module does not see: plans.
"""

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush
from math import gcd
from typing import Any

import numpy as np

from allocsim.allocators.footprints import FREE, Footprints
from allocsim.model import Problem
from allocsim.model.layout import LIMIT, Int64s

Pair = tuple[int, int]


def lower_bound(problem: Problem) -> int:
    """Return the bytes below which no sound plan of the problem goes, summed over arenas."""
    return sum(arena_bounds(problem))


def arena_bounds(problem: Problem) -> list[int]:
    """Return the lower bound of each arena."""
    bounds = []
    counted = (problem.nbytes > 0) & ~problem.own & (problem.stop > problem.start)
    for arena in range(len(problem.program.arenas)):
        rows = np.flatnonzero(counted & (problem.program.buffers.arena == arena))
        highest = max(
            (problem.fixed[b] + int(problem.nbytes[b]) for b in rows.tolist() if b in problem.fixed), default=0
        )
        bounds.append(max(highest, _live(problem, rows)))
    return bounds


def granule(placed: Footprints, rows: Int64s) -> int:
    """Return a divisor of the least peak: that of all sizes and fixed offsets, and of alignments as
    `common_granule` says.
    """
    fixed = placed.fixed[rows]
    return common_granule(np.concatenate([placed.nbytes[rows], fixed[fixed != FREE]]), placed.alignment[rows])


def common_granule(marks: Int64s, alignment: Int64s) -> int:
    """Return a divisor of the peak of every plan in which nothing can be lowered.

    It divides `marks`, the sizes and fixed offsets in bytes; each alignment divides it or is a
    multiple of it, so that what is rounded up to one stays a multiple. At least 1.
    """
    found, steps = gcd(*_distinct(marks)) or 1, _distinct(alignment)
    while odd := [step for step in steps if found % step and step % found]:
        found = gcd(found, odd[0])
    return found


def _distinct(column: Int64s) -> list[int]:
    found: list[int] = np.unique(column).tolist()
    return found


def _live(problem: Problem, rows: Int64s) -> int:
    if not len(rows):
        return 0
    nbytes, alignment = problem.nbytes[rows], problem.program.buffers.alignment[rows]
    piece, start, stop = _pieces(problem, rows)
    pairs = _meetings(problem, rows)
    steps = np.unique(np.concatenate([start, [step + 1 for step in pairs]])).astype(np.int64)
    best = 0
    for divisor in sorted({1, gcd(*_distinct(alignment)), *_distinct(alignment)}):
        padded = -(-nbytes // divisor) * divisor
        live = alive_at(steps, start, stop, padded[piece]) - _most(steps, start, stop, (padded - nbytes)[piece])
        for step, meetings in pairs.items():
            live[np.searchsorted(steps, step)] -= _saved({pair: int(padded[pair[1]]) for pair in meetings})
        aligned = alive_at(steps, start, stop, (alignment % divisor != 0).astype(np.int64)[piece]) == 0
        best = max(best, int(live[aligned].max(initial=0)))
    return best


def _pieces(problem: Problem, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return (position in `rows`, start, stop) of the stretches of steps in which the buffers need
    their bytes.
    """
    piece = np.arange(len(rows))
    start, stop = problem.start[rows], np.where(problem.pinned[rows], LIMIT, problem.stop[rows])
    gapped = {} if len(problem.program.ops) else {b: gaps for b, gaps in problem.gaps.items() if gaps}
    if not gapped:
        return piece, start, stop
    found: list[tuple[int, int, int]] = []
    for index, row in enumerate(rows.tolist()):
        found += ((index, low, high) for low, high in without(int(start[index]), int(stop[index]), gapped.get(row, ())))
    columns = np.array(found, dtype=np.int64).reshape(-1, 3)
    return columns[:, 0], columns[:, 1], columns[:, 2]


def without(start: int, stop: int, gaps: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return `[start, stop)` less the gaps, as sorted non-empty ranges."""
    left = []
    for low, high in sorted(gaps):
        if low < high and start < high:
            if start < low:
                left.append((start, min(low, stop)))
            start = max(start, high)
        if start >= stop:
            break
    return [*left, (start, stop)] if start < stop else left


def _meetings(problem: Problem, rows: Int64s) -> dict[int, list[Pair]]:
    """Return for each step the pairs that meet there, as positions in `rows`, the larger of the two
    first.
    """
    position = np.full(len(problem.nbytes), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    donor, recipient = problem.may_share[:, 0], problem.may_share[:, 1]
    fine = (position[donor] >= 0) & (position[recipient] >= 0) & (problem.stop[donor] == problem.start[recipient] + 1)
    met: dict[int, list[Pair]] = defaultdict(list)
    for one, other in problem.may_share[fine].tolist():
        pair = sorted((one, other), key=lambda buffer: -int(problem.nbytes[buffer]))
        met[int(problem.start[other])].append((int(position[pair[0]]), int(position[pair[1]])))
    return met


def _saved(weights: dict[Pair, int]) -> int:
    """Return no less than the largest weight of a pairing, exactly that where all pairs have a
    buffer in common.
    """
    most: dict[int, int] = defaultdict(int)
    for pair, weight in weights.items():
        for buffer in pair:
            most[buffer] = max(most[buffer], weight)
    if any(all(buffer in pair for pair in weights) for buffer in most):
        return max(weights.values())
    # a pairing gives each of its weights to two buffers, and no buffer more than its most
    return min(sum(weights.values()), sum(most.values()) // 2)


def alive_at(steps: Int64s, start: Int64s, stop: Int64s, amount: Int64s) -> Any:
    """Return for each step the sum of the amounts alive there."""
    wide = object if float(amount.sum(dtype=np.float64)) > LIMIT else np.int64
    change = np.zeros(len(steps) + 1, dtype=wide)
    np.add.at(change, np.searchsorted(steps, start), amount.astype(wide))
    np.add.at(change, np.searchsorted(steps, stop), -amount.astype(wide))
    return np.cumsum(change)[:-1]


def _most(steps: Int64s, start: Int64s, stop: Int64s, amount: Int64s) -> Int64s:
    """Return for each step the largest amount alive there, 0 for none."""
    most = np.zeros(len(steps), dtype=np.int64)
    rows = np.flatnonzero(amount)
    rows = rows[np.argsort(start[rows], kind="stable")]
    alive: list[tuple[int, int]] = []
    following = 0
    for place, step in enumerate(steps.tolist() if len(rows) else ()):
        while following < len(rows) and start[rows[following]] <= step:
            heappush(alive, (-int(amount[rows[following]]), int(stop[rows[following]])))
            following += 1
        while alive and alive[0][1] <= step:
            heappop(alive)
        most[place] = -alive[0][0] if alive else 0
    return most
