"""Define the key of a violation, equal for the same defect in a document and its mended copy.

A mend moves slots, lengthens lifetimes and adds waits, but never changes an index. So the key has
the kind, the run, and the op, value or buffers of the violation. The key omits the parts that a
mend may change: the writer that a read found, the bytes, the plan of a run. `LifetimeTooShort` and
`MissingPin` of one buffer are one defect. An op that is unsafe in place is one defect, whatever its
pairs are.

This module does not make or examine mends.
"""

from collections.abc import Iterable
from typing import Protocol

from allocsim.judge.fast import Report, Violation, check
from allocsim.model import Document

Key = tuple[object, ...]


class RuledJudge(Protocol):
    """A judge with fixed rules: a function from a document to the report on that document."""

    def __call__(self, document: Document, *, sizes: bool = True) -> Report:
        """Return the report on a document; if `sizes` is set, the report has its `stats`."""


READS = frozenset({"StaleRead", "OverwrittenRead", "UninitialisedRead", "WriteToReadOnly"})
OPS = frozenset({"UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"})


def listed(document: Document, *, sizes: bool = True) -> Report:
    """Judge a document by the usual rules; the list of violations is limited for each kind
    separately.
    """
    return check(document, of_each_kind=True, sizes=sizes)


def key_of(v: Violation) -> Key:
    """Return the key of a violation, as defined in the module docstring."""
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
    """Return the set of the keys of some violations."""
    return frozenset(map(key_of, violations))
