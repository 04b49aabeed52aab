"""What the rest of the program may ask of the judge beside `check`: small facts that two answers to
one question would only blur.

    share_a_byte(program, one, other)          whether two values of one buffer have a byte in common, inside it
    exchanged_order(program, earlier, later)   the ops, from step `earlier` on, in a legal order in which `later` runs first

What this module does not see: plans and runs.
"""

from allocsim.checks.accesses import Extents
from allocsim.checks.h_clocks import Order
from allocsim.checks.h_races import exchanged
from allocsim.checks.owners import shared
from allocsim.model import Program

__all__ = ["exchanged_order", "share_a_byte"]


def share_a_byte(program: Program, one: int, other: int) -> bool:
    """Return whether two values that some op touches lie in one buffer and have a byte in common
    there. O(byte runs of the program).
    """
    if program.values.buffer[one] != program.values.buffer[other]:
        return False
    extents = Extents(program)
    return bool(shared(extents.runs(one), extents.runs(other)))


def exchanged_order(program: Program, earlier: int, later: int) -> tuple[int, ...]:
    """Return how ops run from step `earlier` on so that `later` runs before it: legal if nothing
    orders the two (`h_races.exchanged`).
    """
    return exchanged(Order.of(program.ops), earlier, later)
