"""Linear-scan first fit: buffers in the order in which they are born, each in the lowest gap
between those alive.

What an online allocator that scans its free list from the bottom does; the name is that of register
allocation, whose active list is the same thing. Ties go by the problem's order.

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled. Source:
first fit, Knuth, The Art of Computer Programming 1, 2.5 (algorithm A); Poletto and Sarkar, "Linear
scan register allocation", ACM TOPLAS 21(5), 1999.
"""

import numpy as np

from allocsim.allocators.fitting import place_in_order
from allocsim.allocators.footprints import Footprints
from allocsim.model import Plan, Problem
from allocsim.model.layout import Int64s

NAME = "linear_scan"


def by_birth(placed: Footprints, rows: Int64s) -> Int64s:
    """Return the rows by first step."""
    return rows[np.argsort(placed.start[rows], kind="stable")]


def place(problem: Problem) -> Plan:
    """Place in order of birth by first fit. Raises CapacityError where a buffer finds no room."""
    return place_in_order(NAME, problem, by_birth, best=False)
