"""The branches and loops of a method, recovered from its jumps.

The emitter writes two patterns, and this module knows the same two. A branch is a jump taken if the
condition is false, the first side, an unconditional jump over the second side, the second side. A
loop is a body and behind it a jump back to its first instruction while the condition is false. An
unconditional jump names a value that is false in the file and that no instruction writes. Any other
jump is refused, since its ways are unknown.

Source: ExecuTorch `exir/emit/_emitter.py`, `_emit_cond`, `_emit_map`.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.errors import DocumentError
from allocsim.systems.executorch.pte_file import Call, Jump, Method, Move

MAX_DEPTH: Final = 64
"""The most branches and loops nested in each other."""

SIDES: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class Branch:
    """Two sides, one of which runs."""

    at: int
    """The jump at its beginning."""
    sides: tuple["Block", "Block"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A body that runs again while the condition of the jump at its end is false."""

    at: int
    """The jump back, at its end."""
    body: "Block"


Block = tuple["int | Branch | Loop", ...]
"""Instructions by position, branches and loops, in order."""


def blocks(method: Method, source: str) -> Block:
    """Return a method's instructions as branches and loops.

    Raises DocumentError at a jump that belongs to neither. O(instructions x depth).
    """
    return _Reading(method, source).block(0, len(method.instructions), 0)


class _Reading:
    """The state of reading a method's jumps."""

    def __init__(self, method: Method, source: str) -> None:
        self.source, self.rows = source, method.instructions
        written = {row.target for row in self.rows if isinstance(row, Move)}
        written |= {row.args[-1] for row in self.rows if isinstance(row, Call) and row.args}
        self.never = {index for index, held in enumerate(method.values) if held is False} - written
        self.back: dict[int, list[int]] = {}
        """Instruction -> the jumps back to it, last first."""
        for at, row in enumerate(self.rows):
            if isinstance(row, Jump) and row.target <= at:
                self.back.setdefault(row.target, []).insert(0, at)

    def block(self, low: int, high: int, depth: int, *, inside: int = -1) -> Block:
        """Return the instructions from `low` up to `high`; `inside` is the jump back of the loop
        whose body this is.
        """
        if depth > MAX_DEPTH:
            raise self.refuse(low, f"branches and loops are nested deeper than {MAX_DEPTH}")
        found: list[int | Branch | Loop] = []
        at = low
        while at < high:
            jump = next((j for j in self.back.get(at, ()) if j < high and (at > low or j < inside or inside < 0)), None)
            if jump is not None:
                found.append(Loop(jump, self.block(at, jump, depth + 1, inside=jump)))
                at = jump + 1
                continue
            row = self.rows[at]
            if not isinstance(row, Jump):
                found.append(at)
                at += 1
                continue
            branch, at = self.branch(at, row, high, depth)
            found.append(branch)
        return tuple(found)

    def branch(self, at: int, row: Jump, high: int, depth: int) -> tuple[Branch, int]:
        """Return the branch that a jump begins, and the instruction after it."""
        over = self.rows[row.target - 1] if at + 1 < row.target <= high else None
        if row.condition in self.never or not isinstance(over, Jump) or over.condition not in self.never:
            raise self.refuse(at, "is a jump that begins no branch with two sides and ends no loop")
        if not row.target <= over.target <= high:
            raise self.refuse(row.target - 1, f"jumps out of its branch to instruction {over.target}")
        first = self.block(at + 1, row.target - 1, depth + 1)
        second = self.block(row.target, over.target, depth + 1)
        return Branch(at, (first, second)), over.target

    def refuse(self, at: int, rule: str) -> DocumentError:
        """Return the error that names an instruction and the rule that it breaks."""
        return DocumentError(self.source, f"instructions[{at}]", rule)


__all__ = ["MAX_DEPTH", "SIDES", "Block", "Branch", "Loop", "blocks"]
