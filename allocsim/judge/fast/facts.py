"""Provide the judge's functions, besides `check`, that other packages may call, so that each fact
has one definition.

    exchanged_order(program, earlier, later)   returns the ops, from step `earlier` on, in a legal order in which `later` runs first
    read_twice(program, step)                  returns the operands of an op that share a byte with another operand
    rows_of(table), KindsTable                 returns the checked rows of a table of alias contracts by kind, and the type of such a table

From the judge, other packages import only this module, `allocsim.judge.violations` and names of
`allocsim.judge.fast` such as `check`. A test checks these imports.

This module does not examine plans or runs.
"""

from allocsim.judge.fast.accesses import Extents
from allocsim.judge.fast.contract import KindsTable, rows_of
from allocsim.judge.fast.h_clocks import Order
from allocsim.judge.fast.h_races import exchanged
from allocsim.judge.fast.owners import shared
from allocsim.model import Program

__all__ = ["KindsTable", "exchanged_order", "read_twice", "rows_of"]


def exchanged_order(program: Program, earlier: int, later: int) -> tuple[int, ...]:
    """Return an order of ops, from step `earlier` on, in which `later` runs before `earlier`. The
    order is legal if neither op happens before the other (`h_races.exchanged`).
    """
    return exchanged(Order.of(program.ops), earlier, later)


def read_twice(program: Program, step: int) -> frozenset[int]:
    """Return the positions of an op's operands that share a byte with another operand."""
    values, operands = program.values, program.ops[step].operands
    if len(set(values.buffer[list(operands)].tolist())) == len(operands):
        return frozenset()
    extents = Extents(program)
    lie = [(int(values.buffer[value]), extents.runs(value)) for value in operands]
    return frozenset(
        position
        for position, (buffer, runs) in enumerate(lie)
        if any(
            other != position and home == buffer and shared(runs, others) for other, (home, others) in enumerate(lie)
        )
    )
