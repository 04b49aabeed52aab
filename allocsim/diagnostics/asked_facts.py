"""Define the facts of a document that sentences use, looked up by index.

    document_facts.DocumentFacts(document)       for a document in memory
    plain_facts.PlainFacts(record)               for the records of the plain judge, without numpy

The code of a sentence passes a program to these methods; only the methods read its fields.

Complexity: O(1) for each method; `sides` is O(operands of the op).

This module does not examine violations and makes no words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlace:
    """The slot that a plan gives a buffer."""

    arena: int
    """The index of the arena; negative for a buffer in memory of its own or without a slot."""
    own: bool
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferBelief:
    """The belief that a problem states about one buffer."""

    start: int
    stop: int
    nbytes: int
    pinned: bool
    fixed: int | None
    gaps: Ranges


class AskedFacts(Protocol):
    """The facts that a sentence may use; all indices are indices of the document's tables."""

    def program(self, index: int) -> Any:
        """Return the program with the index `index`."""

    def ran(self, run: int) -> Any:
        """Return the program that a run executes."""

    def arena(self, program: Any, index: int) -> tuple[str, int | None]:
        """Return the name of an arena, and its capacity in bytes, or None if it is unbounded."""

    def op(self, program: Any, step: int) -> tuple[str, str, str]:
        """Return the name of an op, the name of its stream, and the kind of the op."""

    def steps(self, program: Any) -> int:
        """Return the number of ops of a program."""

    def sides(self, program: Any, step: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the values that are the operands and the results of an op."""

    def value(self, program: Any, index: int) -> tuple[str, int]:
        """Return the name and the buffer of a value."""

    def buffer(self, program: Any, index: int) -> tuple[str, int, int]:
        """Return the name, the alignment and the arena of a buffer."""

    def nbytes(self, program: Any, index: int, end: int | None) -> int:
        """Return a buffer's size in bytes; `end` 0 or 1 selects the low or high end of a range."""

    def slot(self, plan: int, buffer: int) -> BufferPlace:
        """Return the slot that a plan gives a buffer."""

    def belief(self, problem: int, buffer: int, end: int | None) -> BufferBelief:
        """Return the belief that a problem states about a buffer."""

    def stated(self, problem: int) -> frozenset[str]:
        """Return the names of the lists that the document states for a problem."""

    def problem_of(self, program: int, plan: int) -> int | None:
        """Return the problem used to judge a program without ops; None if the program has ops."""
