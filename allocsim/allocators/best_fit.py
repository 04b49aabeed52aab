"""Best fit: buffers in the order in which they are born, each in the smallest gap between those
alive that holds it.

The room above all that live counts as the largest gap. Ties go by the problem's order, of equal
gaps the lowest is taken.

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled. Source:
Knuth, The Art of Computer Programming 1, 2.5.
"""

from allocsim.allocators.fitting import place_in_order
from allocsim.allocators.linear_scan import by_birth
from allocsim.model import Plan, Problem

NAME = "best_fit"


def place(problem: Problem) -> Plan:
    """Place in order of birth by best fit. Raises CapacityError where a buffer finds no room."""
    return place_in_order(NAME, problem, by_birth, best=True)
