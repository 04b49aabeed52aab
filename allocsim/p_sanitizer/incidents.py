"""Incidents: the kinds, and the record of one with its witnesses.

Conventions: `run` counts from 0, `op` is a step of the program; values and buffers are indices;
`bytes` are half-open ranges within `buffer`, or within the arena where the bytes are no buffer's (a
gap or a red zone: `buffer` is None, `arena` and `address` say where).
"""

from dataclasses import dataclass
from typing import Final, Literal

KINDS: Final[dict[str, str]] = {
    "UninitialisedRead": "an operand has bytes nobody wrote",
    "OverwrittenRead": "an operand was overwritten within its own buffer by another value",
    "StaleRead": "an operand's bytes are another value's by now",
    "PoisonRead": "a result holds poison that no operand held: the kernel read bytes it does not declare",
    "UndeclaredRead": "the kernel read bytes it does not declare",
    "ResultUnwritten": "a kernel left bytes of its result as they were",
    "Overrun": "a kernel wrote outside its results",
    "OperandWritten": "a kernel wrote into an operand it may not write",
    "ReadOnlyWritten": "a read-only buffer, or a parameter nobody writes, changed",
    "Changed": "bytes changed that none of several ops may write; one of these did it",
    "Crash": "the process ended within an op",
}
"""Every kind, in the order in which those of one step are listed."""

WRITES: Final = frozenset({"Overrun", "OperandWritten", "ReadOnlyWritten", "Changed"})
"""Kinds that say that bytes changed which the op may not write."""

BY_KERNEL: Final = WRITES | {"PoisonRead", "UndeclaredRead", "ResultUnwritten", "Crash"}
"""Kinds that a plan alone cannot bring about: what a kernel did against its declaration."""


Kind = Literal[
    "UninitialisedRead", "OverwrittenRead", "StaleRead", "PoisonRead", "UndeclaredRead", "ResultUnwritten",
    "Overrun", "OperandWritten", "ReadOnlyWritten", "Changed", "Crash",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One thing that happened and should not have."""

    kind: Kind
    run: int
    op: int | None = None
    """The late reader, or the op whose kernel did it; None where one of `suspects` did."""
    suspects: tuple[int, int] | None = None
    """Half-open range of steps, where it is not known which of them did it."""
    value: int | None = None
    """The operand that was read, the result that holds poison, or the value whose bytes were
    written.
    """
    buffer: int | None = None
    bytes: tuple[tuple[int, int], ...] = ()
    arena: int | None = None
    """None for memory outside the arenas."""
    address: int | None = None
    """Of the first byte, in its arena; without one, in its buffer."""
    held_run: int | None = None
    """Run of the write that was found there, or that was there before."""
    held_op: int | None = None
    held_value: int | None = None
    want_run: int | None = None
    """Run of the write a reader should have found."""
    want_op: int | None = None
    released_op: int | None = None
    """The op after which these bytes were released."""
    witness: str = ""
    """Of a fault at a guarded page: the byte, the instruction, and the thread where it is not the
    op's.
    """
    during: int | None = None
    """The op that ran, where a thread did it that `op` had left behind."""
    message: str = ""

    @property
    def step(self) -> int:
        """Where it stands in its run: at its op, or at the first of its suspects; -1 at neither."""
        return self.op if self.op is not None else self.suspects[0] if self.suspects else -1
