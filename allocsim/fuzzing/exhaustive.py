"""Exhaustive mode: every program of a small scope, so that nothing found is a proof for that scope.

The scope of N
--------------
Programs of 0 to N ops in one arena, in which an op is one of

* `host.write` of a new buffer of one unit or two (a unit is one f32);
* an op of one operand with its result in a new buffer: of the operand's size and declared in place,
  of its size and not declared, or of the other size;
* an op of two different operands with its result in a new buffer of the larger one's size, any of
  the operands of that size declared in place;
* a mutation: a new value exactly over an operand, declared;
* a view of the first or of the second unit of a value of two;
* a `host.read` of a value, which pins it.

Operands are values that can be read: written and not written over since; of a view, whatever lies
there. Programs that differ only in how buffers and values are numbered, or in the order of an op's
operands, are one: numbers follow the order of creation, operands the order of values. The tests
count the same programs in another way.

What this module does not see: planners.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.program_tables import ProgramTables
from allocsim.model import Arena

DEEPEST: Final = 8
"""Ops at most: programs of nine ops are too many to enumerate."""

ARENAS: Final = (Arena(name="cpu", alignment=4),)

SCOPE: Final = (
    "one arena without an end, everything aligned to 4 bytes, one stream, buffers of 4 or 8 bytes, "
    "host writes and reads, ops of one or two operands and one result with pairs declared exactly or "
    "not, mutations, halves as views"
)
"""What programs of the scope are, for the sentence that says what was proven."""

SIZE: Final = 2048
"""Programs in a batch."""


class Odometer:
    """Where the enumeration stands. It starts before the first program, or at given digits."""

    def __init__(self, ops: int, digits: tuple[int, ...] = ()) -> None:
        self.ops = ops
        self.digits = np.zeros(64, dtype=np.int64)
        self.radix = np.zeros(64, dtype=np.int64)
        self.cursor = np.array([0, len(digits), 0], dtype=np.int64)
        self.digits[: len(digits)] = digits
        self._tables = ProgramTables.room(1)

    @property
    def at(self) -> tuple[int, ...]:
        """The digits of the next program."""
        return tuple(self.digits[: self.cursor[1]].tolist())

    def skip(self, count: int) -> int:
        """Go past so many programs; return how many there were."""
        return self._go(count, keep=False)

    def batch(self, count: int) -> Batch | None:
        """Return the next programs, at most `count`, as a batch; None where there are no more."""
        if len(self._tables.starts) <= count:
            self._tables = ProgramTables.room(count, rows=self.ops + 1)
        found = self._go(count, keep=True)
        return self._tables.batch(found, arenas=ARENAS) if found else None

    def _go(self, count: int, *, keep: bool) -> int:
        from allocsim.fuzzing.program_steps import enumerate_programs  # noqa: PLC0415 - numba

        return int(enumerate_programs(self.ops, count, self.digits, self.radix, self.cursor, keep, *self._tables))


def total(ops: int) -> int:
    """Return how many programs the scope has. O(their number)."""
    odometer, found = Odometer(ops), 0
    while step := odometer.skip(1 << 20):
        found += step
    return found


def stretches(ops: int, size: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the scope in stretches of `size` programs, the last one of what is left: where each
    begins, and how many it has.
    """
    odometer = Odometer(ops)
    while True:
        begin = odometer.at
        count = odometer.skip(size)
        if not count:
            return
        yield begin, count


def batches(ops: int, begin: tuple[int, ...], count: int) -> Iterator[Batch]:
    """Yield `count` programs of the scope from where a stretch begins."""
    odometer = Odometer(ops, begin)
    while count > 0:
        batch = odometer.batch(min(SIZE, count))
        if batch is None:
            return
        yield batch
        count -= len(batch)
