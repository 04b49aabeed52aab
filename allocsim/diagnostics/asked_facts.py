"""The facts of a document that sentences ask for, by index.

    document_facts.DocumentFacts(document)       for a document in memory
    plain_facts.PlainFacts(record)               for the records of the plain judge, without numpy

A sentence passes a program to these methods unread; only the methods know its fields.

Complexity: O(1) for each method; `sides` is O(operands of the op).

This module does not examine violations and words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Ranges = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlace:
    """Where a plan puts a buffer."""

    arena: int
    """Index of the arena; below 0 for a buffer in memory of its own, or without a slot."""
    own: bool
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferBelief:
    """What a problem states of one buffer."""

    start: int
    stop: int
    nbytes: int
    pinned: bool
    fixed: int | None
    gaps: Ranges


class AskedFacts(Protocol):
    """The facts that a sentence may ask for; indices are those of the document."""

    def program(self, index: int) -> Any:
        """Return a program."""

    def ran(self, run: int) -> Any:
        """Return the program of a run."""

    def arena(self, program: Any, index: int) -> tuple[str, int | None]:
        """Return name, and capacity in bytes or None, of an arena."""

    def op(self, program: Any, step: int) -> tuple[str, str, str]:
        """Return name of an op, name of its stream, and its kind."""

    def steps(self, program: Any) -> int:
        """Return the number of ops of a program."""

    def sides(self, program: Any, step: int) -> tuple[Sequence[int], Sequence[int]]:
        """Return the operands and the results of an op."""

    def value(self, program: Any, index: int) -> tuple[str, int]:
        """Return name and buffer of a value."""

    def buffer(self, program: Any, index: int) -> tuple[str, int, int]:
        """Return name, alignment and arena of a buffer."""

    def nbytes(self, program: Any, index: int, end: int | None) -> int:
        """Return the size of a buffer in bytes; `end` 0 or 1: the low or high end of its range."""

    def slot(self, plan: int, buffer: int) -> BufferPlace:
        """Return where a plan puts a buffer."""

    def belief(self, problem: int, buffer: int, end: int | None) -> BufferBelief:
        """Return what a problem states of a buffer."""

    def stated(self, problem: int) -> frozenset[str]:
        """Return the names of the lists that the document gives for a problem."""

    def problem_of(self, program: int, plan: int) -> int | None:
        """Return the problem by which a program without ops is judged; None if it has ops."""
