"""Greedy by breadth: the steps at which most bytes live go first, and at each the largest buffer
first.

The breadth of a step is the sum of the bytes that live there. Steps are taken by breadth, the
broadest first, the earlier of equal ones; at each, the buffers that live there and have no place
yet are placed by size, each as in greedy by size. A buffer's turn is thus the broadest step of its
life.

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled. Source:
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv:2001.03288
(greedy by breadth, offset calculation).
"""

from typing import Any

import numpy as np

from allocsim.allocators.fitting import place_in_order
from allocsim.allocators.footprints import Footprints
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

NAME = "greedy_by_breadth"


def by_breadth(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by the breadth of the broadest step of their lives, then by that step, then
    by size.
    """
    start, stop, nbytes = placed.start[rows], placed.stop[rows], placed.nbytes[rows]
    breadth, step = broadest(start, stop, nbytes)
    return rows[np.lexsort((rows, -nbytes, step, -breadth))]


def broadest(start: Int64s, stop: Int64s, nbytes: Int64s) -> tuple[Any, Int64s]:
    """Return, for each of n rectangles, the most bytes that live at a step of its life, and the
    first such step. O(n log n).

    Lives have steps. Only where a rectangle starts can breadth rise, so only those steps are looked
    at.
    """
    if not len(start):
        return nbytes, start
    steps = np.unique(start)
    change = np.zeros(len(steps) + 1, dtype=np.float64)  # a sum of sizes may leave 64 bits; order is all that matters
    np.add.at(change, np.searchsorted(steps, start), nbytes)
    np.add.at(change, np.searchsorted(steps, stop), -nbytes)
    live = np.cumsum(change)[:-1]
    # a table of the best step of each run of 2^k steps answers every range with two look-ups
    best = [np.arange(len(steps))]
    while 1 << len(best) <= len(steps):
        half = 1 << (len(best) - 1)
        left, right = best[-1][:-half], best[-1][half:]
        best.append(np.where(live[left] >= live[right], left, right))
    first, last = np.searchsorted(steps, start), np.searchsorted(steps, stop)
    level = np.frexp(last - first)[1] - 1
    left = np.array([best[k][i] for k, i in zip(level.tolist(), first.tolist(), strict=True)], dtype=np.int64)
    right = np.array(
        [best[k][i - (1 << k)] for k, i in zip(level.tolist(), last.tolist(), strict=True)], dtype=np.int64
    )
    found = np.where(live[left] >= live[right], left, right)
    return live[found], steps[found]


def place(problem: Problem) -> Plan:
    """Place the buffers of the broadest steps first.

    Raises CapacityError where a buffer finds no room in its arena.
    """
    return place_in_order(NAME, problem, by_breadth, best=True)
