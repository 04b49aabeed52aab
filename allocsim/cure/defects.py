"""When a violation of a document and one of its mended twin are the same defect.

A mend moves bytes, lengthens lives and adds waits; it renumbers nothing. So a defect is its kind,
its run and what it is about, without what a mend may change of it: who wrote what was found, which
bytes, which plan a run follows. A lifetime too short is one defect, whether or not only the host is
missed; an op is unsafe in place, or has results on each other, once.

What this module does not see: what a mend changes.
"""

from collections.abc import Iterable
from typing import Protocol

from allocsim.judge.fast import Report, Violation, check
from allocsim.model import Document

Key = tuple[object, ...]


class RuledJudge(Protocol):
    """The judge, with the rules by which it is asked."""

    def __call__(self, document: Document, *, sizes: bool = True) -> Report:
        """Return what it says of a document, with its sizes where they are asked for."""


READS = frozenset({"StaleRead", "OverwrittenRead", "UninitialisedRead", "WriteToReadOnly"})
OPS = frozenset({"UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"})


def listed(document: Document, *, sizes: bool = True) -> Report:
    """Judge a document by the usual rules, every kind of violation listed."""
    return check(document, of_each_kind=True, sizes=sizes)


def key_of(v: Violation) -> Key:
    """Return what a violation is about."""
    if v.kind in {"LifetimeTooShort", "MissingPin"}:
        return "lifetime", v.problem, v.buffer
    if v.kind in READS:
        return v.kind, v.run, v.program, v.op, v.value
    if v.kind in OPS:
        return v.kind, v.run, v.program, v.op
    if v.kind == "Race":
        return v.kind, v.run, v.program, v.op, v.other_op, v.buffer, v.other_buffer
    return v.kind, v.run, v.plan if v.run is None else None, v.problem, v.value, v.buffer, v.other_buffer


def keys_of(violations: Iterable[Violation]) -> frozenset[Key]:
    """Return the keys of violations: the defects they are."""
    return frozenset(map(key_of, violations))
