"""Best of several: the fast heuristics, then a bounded exact search between their best and the
lower bound.

The heuristics are those of `allocsim.allocators.portfolio`, the search that of
`allocsim.allocators.branch_and_bound` with `NODES` nodes, and only where an arena has few enough
footprints for it; it does for small instances what local search over orders does, and stops early
with a proof.

Sound; at most the bytes of `reference` where all alignments are equal. O(n^2), compiled, for the
heuristics; the search is counted in nodes, so answers repeat. Source: the planners it consists of.
"""

from typing import Final

from allocsim.allocators import branch_and_bound
from allocsim.model import Plan, Problem

NAME = "best"

NODES: Final = 60_000


def place(problem: Problem) -> Plan:
    """Return the lowest plan found. Raises CapacityError where nothing that fits is found."""
    return branch_and_bound.place(problem, nodes=NODES, name=NAME)
