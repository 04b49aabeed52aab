"""Finds the branches and loops of a method by its jumps.

The emitter writes two patterns of jumps, and this module accepts only these two. A branch has four
parts: a jump that is taken if the condition is false, the first side, an unconditional jump over
the second side, and the second side. A loop is a body and a jump after it, which goes back to the
first instruction of the body while the condition is false. The condition of an unconditional jump
is a value that is false in the file and that no instruction writes. Any other jump is refused,
because the ways through the method are then unknown.

Source: ExecuTorch `exir/emit/_emitter.py`, `_emit_cond`, `_emit_map`.
"""

from dataclasses import dataclass
from typing import Final

from allocsim.errors import DocumentError
from allocsim.systems.executorch.pte_file import Call, Jump, Method, Move

MAX_DEPTH: Final = 64
"""The largest depth of nested branches and loops."""

SIDES: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class Branch:
    """A branch: one of its two sides runs."""

    at: int
    """The instruction that jumps to the second side; it is the first of the branch."""
    sides: tuple["Block", "Block"]


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its body runs again while the condition of the jump at its end is false."""

    at: int
    """The instruction that jumps back to the body; it is the last of the loop."""
    body: "Block"


Block = tuple["int | Branch | Loop", ...]
"""Instructions by position, branches and loops, in order."""


def blocks(method: Method, source: str) -> Block:
    """Return a method's instructions as branches and loops.

    Raises DocumentError at any other jump, and at more than `MAX_DEPTH` nested branches and loops.
    O(instructions x depth).
    """
    return _Reading(method, source).block(0, len(method.instructions), 0)


class _Reading:
    """Reads the jumps of a method."""

    def __init__(self, method: Method, source: str) -> None:
        self.source, self.rows = source, method.instructions
        written = {row.target for row in self.rows if isinstance(row, Move)}
        written |= {row.args[-1] for row in self.rows if isinstance(row, Call) and row.args}
        self.never = {index for index, held in enumerate(method.values) if held is False} - written
        self.back: dict[int, list[int]] = {}
        """Instruction -> the jumps back to this instruction, last first."""
        for at, row in enumerate(self.rows):
            if isinstance(row, Jump) and row.target <= at:
                self.back.setdefault(row.target, []).insert(0, at)

    def block(self, low: int, high: int, depth: int, *, inside: int = -1) -> Block:
        """Return the instructions `[low, high)` as a block. If the block is the body of a loop,
        `inside` is the jump at the end of this loop.
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
        """Return the branch that begins with a jump, and the instruction after the branch."""
        over = self.rows[row.target - 1] if at + 1 < row.target <= high else None
        if row.condition in self.never or not isinstance(over, Jump) or over.condition not in self.never:
            raise self.refuse(at, "is a jump that neither begins a branch with two sides nor ends a loop")
        if not row.target <= over.target <= high:
            raise self.refuse(row.target - 1, f"jumps out of its branch to instruction {over.target}")
        first = self.block(at + 1, row.target - 1, depth + 1)
        second = self.block(row.target, over.target, depth + 1)
        return Branch(at, (first, second)), over.target

    def refuse(self, at: int, rule: str) -> DocumentError:
        """Return an error that names an instruction and the rule that it breaks."""
        return DocumentError(self.source, f"instructions[{at}]", rule)


__all__ = ["MAX_DEPTH", "SIDES", "Block", "Branch", "Loop", "blocks"]
