"""What the rest of the program may ask of the judge beside `check`: small facts that two answers to
one question would only blur.

    exchanged_order(program, earlier, later)   the ops, from step `earlier` on, in a legal order in which `later` runs first

What this module does not see: plans and runs.
"""

from allocsim.checks.h_clocks import Order
from allocsim.checks.h_races import exchanged
from allocsim.model import Program

__all__ = ["exchanged_order"]


def exchanged_order(program: Program, earlier: int, later: int) -> tuple[int, ...]:
    """Return how ops run from step `earlier` on so that `later` runs before it: legal if nothing
    orders the two (`h_races.exchanged`).
    """
    return exchanged(Order.of(program.ops), earlier, later)
