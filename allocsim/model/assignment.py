"""The plan: the answer to a problem, a slot for each buffer of a program.

Offsets count bytes from the start of an arena. The constructor checks that every buffer has one
entry and that indices exist, and raises `ModelError` with the place as a document spells it.

What this module does not see: how a plan was made, and whether it is sound. `allocsim.judge`
decides that.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.html_table import table_of
from allocsim.model.belief import Problem
from allocsim.model.computation import Program
from allocsim.model.guards import first_bad, in_range, sizes
from allocsim.model.layout import LIMIT, Int64s
from allocsim.model.tables import Bools, Int32s, Meta, freeze

OWN: Final = -1
"""The arena of a buffer with memory of its own, outside all arenas."""

UNPLACED: Final = -2
"""The arena of a buffer to which the plan gives no slot."""


class Event(IntEnum):
    """What a planner did to a buffer at a step."""

    ALLOC = 0
    FREE = 1


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Plan:
    """The answer: a slot for each buffer of `program`."""

    program: Program
    problem: Problem | None = None
    """The belief from which the plan was made, if it is known."""
    source: str = ""
    """The planner's name, for people."""
    arena: Int32s
    """Index of each slot's arena, or `OWN`, or `UNPLACED`."""
    offset: Int64s
    nbytes: Int64s
    events: Int64s = field(default_factory=lambda: np.empty((0, 3), dtype=np.int64))
    """(n, 3): step, `Event`, buffer: the planner's allocations and frees, in order."""
    meta: Meta = field(default_factory=dict)
    slot_meta: Mapping[int, Meta] = field(default_factory=dict)
    """`meta` of the slots that carry one, by buffer."""

    def __post_init__(self) -> None:
        freeze(self)
        _check(self)

    def __repr__(self) -> str:
        return f"Plan({self.program!r}, {self.source!r}, {self.peak_bytes} bytes)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002, FBT001 - the protocol of pretty printers
        """Print the plan in one line, for IPython and Hypothesis."""
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        """Return a table of the first slots, which a notebook shows."""
        arenas = {OWN: "own memory", UNPLACED: "no slot"} | dict(enumerate(a.name for a in self.program.arenas))
        columns = (self.arena.tolist(), self.offset.tolist(), self.nbytes.tolist(), self.program.buffers.names)
        rows = (
            (buffer, name, arenas[arena], offset if arena >= 0 else None, nbytes)
            for buffer, (arena, offset, nbytes, name) in enumerate(zip(*columns, strict=True))
        )
        return table_of(repr(self), ("buffer", "name", "arena", "offset", "bytes"), rows, len(self.arena))

    @cached_property
    def placed(self) -> Bools:
        """Which buffers have a slot inside an arena."""
        return self.arena >= 0

    @cached_property
    def peak_bytes(self) -> int:
        """Highest end of any slot, summed over arenas."""
        return highest(self.program, self.arena, self.offset, self.nbytes)


def highest(program: Program, arena: Int32s | Int64s, offset: Int64s, nbytes: Int64s) -> int:
    """Return the highest end of any slot with an arena, summed over arenas. O(slots + arenas)."""
    return sum(ends_of(program, arena, offset, nbytes))


def ends_of(program: Program, arena: Int32s | Int64s, offset: Int64s, nbytes: Int64s) -> list[int]:
    """Return for each arena the highest end of its slots, at least 0, in bytes. O(slots +
    arenas).
    """
    last = offset + (nbytes - 1)  # the end itself may be 2^63, one too many for 64 bits
    found, placed = np.full(len(program.arenas), -1, dtype=np.int64), arena >= 0
    np.maximum.at(found, arena[placed], last[placed])
    return [end + 1 for end in found.tolist()]


def _check(plan: Plan) -> None:
    """Raise ModelError unless every buffer has one slot entry and indices exist."""
    count = len(plan.program.buffers)
    for name in ("arena", "offset", "nbytes"):
        if len(getattr(plan, name)) != count:
            raise ModelError("slots", f"has {len(getattr(plan, name))} entries; the program has {count} buffers")
    arenas = len(plan.program.arenas)
    first_bad(
        (plan.arena < UNPLACED) | (plan.arena >= arenas),
        "slots[{}].arena",
        lambda i: f"arena {plan.arena[i]} does not exist; there are {arenas}",
    )
    first_bad(np.abs(plan.offset) > LIMIT, "slots[{}].offset", lambda i: f"{plan.offset[i]} exceeds 2^62")
    sizes(plan.nbytes, "slots[{}].nbytes")
    if plan.events.ndim != 2 or plan.events.shape[1] != 3:
        raise ModelError("events", f"has shape {plan.events.shape}; rows of (step, event, buffer) are needed")
    first_bad(
        (plan.events[:, 0] < 0) | (plan.events[:, 0] > LIMIT),
        "events[{}][0]",
        lambda i: f"step {plan.events[i, 0]} is out of range",
    )
    in_range(plan.events[:, 1], 2, "events[{}][1]", "event")
    in_range(plan.events[:, 2], count, "events[{}][2]", "buffer")
    if plan.problem is not None and plan.problem.program is not plan.program:
        raise ModelError("problem", "was made for another program than the plan")
