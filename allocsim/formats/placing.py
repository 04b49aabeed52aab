"""A program and the slots of its buffers, built together, for importers of planned programs.

    growing = Placing("forward", arenas=(Arena(name="memory 1"),))
    x = growing.tensor("x", "f32", (8,), slot=(0, 64))
    growing.builder.op("host.write", (), (x,))
    plan = growing.plan("executorch")

A slot is an arena and an offset in bytes; `APART` stands for memory of the buffer's own. Two
buffers may get one slot: an importer that follows pointers needs this.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from allocsim.model import OWN, Arena, Plan, Problem, Program
from allocsim.programs.builder import ProgramBuilder

Slot = tuple[int, int]
"""Arena and offset of element 0 of a buffer."""

APART: Final[Slot] = (OWN, 0)


class Placing:
    """A builder that remembers a slot for each buffer, and where each value begins."""

    def __init__(self, name: str, arenas: Iterable[Arena], **builder: Any) -> None:
        self.builder = ProgramBuilder(name, arenas=tuple(arenas), **builder)
        self.slots: list[Slot] = []
        """The slot of each buffer."""
        self.nbytes: list[int] = []
        """The size of each buffer."""
        self.home: list[int] = []
        """The buffer of each value."""

    def buffer(self, name: str, nbytes: int, slot: Slot, **columns: Any) -> int:
        """Add a buffer of `nbytes` in a slot; return its number."""
        arena = max(slot[0], 0)
        self.slots.append(slot)
        self.nbytes.append(nbytes)
        return self.builder.buffer(name, nbytes, arena=arena, **columns)

    def value(self, name: str, buffer: int, dtype: str, shape: tuple[int, ...], **layout: Any) -> int:
        """Add a value in a buffer; return its number."""
        self.home.append(buffer)
        return self.builder.value(name, buffer, dtype, shape, **layout)

    def nbytes_of(self, value: int) -> int:
        """Return the size in bytes of the buffer that a value lies in."""
        return self.nbytes[self.home[value]]

    def slot_of(self, value: int) -> Slot:
        """Return the slot of the buffer that a value lies in."""
        return self.slots[self.home[value]]

    def plan(self, source: str, *, problem: Problem | None = None, meta: Any = None) -> Plan:
        """Build the program; return its plan, made of the slots. Raises ModelError as `build`."""
        return self.plan_for(self.builder.build(), source, problem=problem, meta=meta)

    def plan_for(self, program: Program, source: str, *, problem: Problem | None = None, meta: Any = None) -> Plan:
        """Return the slots as a plan for the program that `builder` built."""
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
