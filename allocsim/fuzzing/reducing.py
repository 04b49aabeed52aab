"""Reducing a finding: the smallest program that breaks the same property for the same cause.

The reducer is that of documents (`allocsim.reduction`); what it is asked here is the target itself:
each candidate is planned anew, in the worker, and judged. A candidate must be honest: clean without
reuse, so that what is wrong with its plan is the planner's doing.

What this module does not see: how candidates are made, and pictures.
"""

from dataclasses import replace
from typing import Final

from allocsim.allocators import ALLOCATORS
from allocsim.errors import AllocsimError
from allocsim.fuzzing.broken_property import BrokenProperty
from allocsim.fuzzing.examination import Examiner
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.judge.fast import defects
from allocsim.model import Document, Program
from allocsim.reduction import reduce

SECONDS: Final = 30.0
"""How long a finding is reduced at most."""


def smallest(finding: BrokenProperty, examiner: Examiner, *, seconds: float = SECONDS) -> BrokenProperty:
    """Return the finding with the smallest case found, or itself where it is not broken again."""

    def again(document: Document) -> BrokenProperty | None:
        case = replace(FuzzCase.of(document), free=finding.case.free)
        if not honest(case.program):
            return None
        found = examiner.find(case, finding.breaks)
        return found if found is not None and alike(found.cause, finding.cause) else None

    try:
        if again(finding.case.document()) is None:
            return finding
        reduced = reduce(finding.case.document(), keep=lambda document: again(document) is not None, seconds=seconds)
        small = again(reduced.document)
    except AllocsimError:  # a moody target answers otherwise each time; what was seen stands
        return finding
    return finding if small is None else replace(small, origin=finding.origin, reduced=reduced.complete)


def alike(cause: str, found: str) -> bool:
    """Return whether a cause is the one that was found, or says more of it."""
    return cause == found or cause.startswith(f"{found} ")


def honest(program: Program) -> bool:
    """Return whether a program is clean with every buffer in bytes of its own."""
    unbounded = replace(program, arenas=tuple(replace(arena, capacity=None) for arena in program.arenas))
    return defects(Document.of(ALLOCATORS["reference"].plan(unbounded)), limit=1, plain=True).clean
