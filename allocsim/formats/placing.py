"""Build a program together with the slots of its buffers, for importers of planned programs.

    growing = Placing("forward", arenas=(Arena(name="memory 1"),))
    x = growing.tensor("x", "f32", (8,), slot=(0, 64))
    growing.builder.op("host.write", (), (x,))
    plan = growing.plan("executorch")

A slot is an arena and an offset in bytes; `APART` means that a buffer has memory of its own. Two
buffers may have the same slot, because importers that follow pointers need that.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from allocsim.model import OWN, Arena, Plan, Problem, Program
from allocsim.programs.builder import ProgramBuilder

Slot = tuple[int, int]
"""The arena of a buffer, and the offset of the buffer's first byte."""

APART: Final[Slot] = (OWN, 0)


class Placing:
    """A program builder that records a slot for each buffer, and a buffer for each value."""

    def __init__(self, name: str, arenas: Iterable[Arena], **builder: Any) -> None:
        self.builder = ProgramBuilder(name, arenas=tuple(arenas), **builder)
        self.slots: list[Slot] = []
        """The slot of each buffer, by the buffer's number."""
        self.nbytes: list[int] = []
        """The size of each buffer in bytes."""
        self.home: list[int] = []
        """The buffer of each value, by the value's number."""

    def buffer(self, name: str, nbytes: int, slot: Slot, **columns: Any) -> int:
        """Add a buffer of `nbytes` bytes in a slot, and return the number of the buffer."""
        arena = max(slot[0], 0)
        self.slots.append(slot)
        self.nbytes.append(nbytes)
        return self.builder.buffer(name, nbytes, arena=arena, **columns)

    def value(self, name: str, buffer: int, dtype: str, shape: tuple[int, ...], **layout: Any) -> int:
        """Add a value in a buffer, and return the number of the value."""
        self.home.append(buffer)
        return self.builder.value(name, buffer, dtype, shape, **layout)

    def nbytes_of(self, value: int) -> int:
        """Return the size in bytes of the buffer that holds a value."""
        return self.nbytes[self.home[value]]

    def slot_of(self, value: int) -> Slot:
        """Return the slot of the buffer that holds a value."""
        return self.slots[self.home[value]]

    def plan(self, source: str, *, problem: Problem | None = None, meta: Any = None) -> Plan:
        """Build the program, and return its plan with the slots. Raise ModelError like `build`."""
        return self.plan_for(self.builder.build(), source, problem=problem, meta=meta)

    def plan_for(self, program: Program, source: str, *, problem: Problem | None = None, meta: Any = None) -> Plan:
        """Return a plan with the recorded slots, for the program that `builder` built."""
        arena = np.array([slot[0] for slot in self.slots], dtype=np.int32)
        return Plan(
            program=program,
            problem=problem,
            source=source,
            arena=arena,
            offset=np.array([slot[1] for slot in self.slots], dtype=np.int64) * (arena >= 0),
            nbytes=program.buffers.nbytes * (arena >= 0),
            meta=meta or {},
        )


__all__ = ["APART", "Placing", "Slot"]
