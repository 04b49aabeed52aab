"""The key of a violation: equal for the same defect in a document and in its mended copy.

A mend moves slots, lengthens lifetimes and adds waits, but never changes an index. So the key has
the kind, the run, and the op, value or buffers of the violation. It leaves out what a mend may
change: the writer that a read found, the bytes, the plan of a run. `LifetimeTooShort` and
`MissingPin` of one buffer are one defect; an op is unsafe in place once, whatever its pairs.

This module does not examine the mends themselves.
"""

from collections.abc import Iterable
from typing import Protocol

from allocsim.judge.fast import Report, Violation, check
from allocsim.model import Document

Key = tuple[object, ...]


class RuledJudge(Protocol):
    """The judge with fixed rules: a function from a document to its report."""

    def __call__(self, document: Document, *, sizes: bool = True) -> Report:
        """Return the report on a document; with `sizes`, it has the sizes of the document too."""


READS = frozenset({"StaleRead", "OverwrittenRead", "UninitialisedRead", "WriteToReadOnly"})
OPS = frozenset({"UnsafeInPlace", "AssumedInPlace", "ResultsOverlap"})


def listed(document: Document, *, sizes: bool = True) -> Report:
    """Judge a document by the usual rules; the limit of the list holds for each kind by itself."""
    return check(document, of_each_kind=True, sizes=sizes)


def key_of(v: Violation) -> Key:
    """Return the key of a violation (see the module)."""
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
    """Return the keys of violations."""
    return frozenset(map(key_of, violations))
