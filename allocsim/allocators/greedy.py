"""Greedy by size: the largest buffer first, each into the smallest gap left by those that live at
the same time.

Buffers go by size, then start, then the problem's order. For each, the buffers already placed that
live while it lives are passed in order of offset; it takes the smallest gap between them that is
large enough (the lowest of equal ones), or the place on top of them all.

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled. Source:
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", arXiv:2001.03288
(greedy by size, offset calculation); TFLite's arena planner and ExecuTorch's greedy planner do the
same.
"""

import numpy as np

from allocsim.allocators.fitting import place_in_order
from allocsim.allocators.footprints import Footprints
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

NAME = "greedy_by_size"


def by_size(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by size, the largest first, then by first step."""
    return rows[np.lexsort((rows, placed.start[rows], -placed.nbytes[rows]))]


def place(problem: Problem) -> Plan:
    """Place the largest buffers first.

    Raises CapacityError where a buffer finds no room in its arena.
    """
    return place_in_order(NAME, problem, by_size, best=True)
