"""What is on trial: a document, and what the checks derive from it more than once.

    place      where the buffers of a run lie: (space, first bit); a space is an arena, or, below 0, memory of one buffer's own
    contract   what the kernel of an op promises

What this module does not see: what is wrong.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final

from allocsim.judge.plain.document_records import DocumentRecord, OpRecord, PlanRecord, ProgramRecord
from allocsim.judge.plain.reads_and_writes import TouchedBytes, chunks
from allocsim.judge.plain.stretches import Liveness

Place = Callable[[int], tuple[int, int]]
"""Buffer -> (space, bit at which it begins)."""

UNKNOWN: Final = "unknown"
DENIED: Final = "denied"


class OnTrial:
    """A document, its runs, and what is derived from a program and the uploads left out."""

    def __init__(self, document: DocumentRecord) -> None:
        self.document = document
        self._live: dict[tuple[int, frozenset[int]], Liveness] = {}

    def program(self, run: int) -> ProgramRecord:
        """Return the program of a run."""
        return self.document.programs[self.document.runs[run].program]

    def plan(self, run: int) -> PlanRecord:
        """Return the plan of a run."""
        return self.document.plans[self.document.runs[run].plan]

    def liveness(self, program: int, skip: frozenset[int] = frozenset()) -> Liveness:
        """Return when the buffers of a program are live, uploads left out."""
        key = program, skip
        if key not in self._live:
            self._live[key] = Liveness(TouchedBytes(self.document.programs[program], skip))
        return self._live[key]

    def live(self, run: int) -> Liveness:
        """Return when the buffers of a run are live."""
        return self.liveness(self.document.runs[run].program, self.document.runs[run].skip)

    def place(self, run: int) -> Place:
        """Return where the buffers of a run lie."""
        slots, homes = self.plan(run).slots, self.document.homes[run]
        return lambda buffer: (
            (slots[buffer].arena, 8 * slots[buffer].offset) if slots[buffer].arena >= 0 else (-1 - homes[buffer], 0)
        )

    @cached_property
    def plans_in_use(self) -> dict[int, list[int]]:
        """Plan -> its runs, in order of plans."""
        found: dict[int, list[int]] = {}
        for index, run in enumerate(self.document.runs):
            found.setdefault(run.plan, []).append(index)
        return dict(sorted(found.items()))

    def contract(self, op: OpRecord, pair: tuple[int, int]) -> str:
        """Return what the kernel promises of (operand position, result position): a strength,
        `DENIED` or `UNKNOWN`.
        """
        if op.in_place is not None:
            return op.in_place.get(pair, DENIED)
        says, strength = self.document.kinds.get(op.kind, {}).get(pair, ("unknown", ""))
        return {"safe": strength, "unsafe": DENIED}.get(says, UNKNOWN)


def stays(program: ProgramRecord, op: OpRecord, position: int, place: Place) -> bool:
    """Return whether both sides of one pair of a `same` lie at one address, so that nothing
    moves.
    """
    source, target = (program.values[side[position]].buffer for side in (op.operands, op.results))
    (space, base), (other_space, other_base) = place(source), place(target)
    return space == other_space and all(base + low == other_base + to for low, to, _ in chunks(program, op, position))
