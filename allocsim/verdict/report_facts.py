"""What a report and the runs of a document say before anything is charged: which kinds are beliefs,
what only later runs show, which runs overlap in time.

What this module does not see: causes.
"""

from collections.abc import Sequence
from typing import Final

from allocsim.judge.fast import Report, Violation
from allocsim.model import Document, Run, waited_for

BELIEF_KINDS: Final = frozenset({"LifetimeTooShort", "MissingPin", "BadSize", "BadShare", "LifetimeTooLong"})
"""What L says; `Race` is H's, everything else a report lists is S's."""


def only_later(report: Report) -> int:
    """Count the violations of S and H that one run alone would not have: those in later runs that
    the first run, of the same program, does not show, and what a later run did to the first.
    """

    def place(v: Violation) -> tuple[object, ...]:
        return v.kind, v.program, v.op, v.value, v.buffer, v.other_buffer if v.kind == "Overlap" else None

    static = [v for v in report.violations if v.kind not in BELIEF_KINDS]
    first = {place(v) for v in static if v.run == 0}
    of_later = (v.other_run is not None and v.run is not None and v.other_run > v.run for v in static)
    return sum(later or (bool(v.run) and place(v) not in first) for v, later in zip(static, of_later, strict=True))


def goes_on(document: Document) -> bool:
    """Return whether a run comes after another over its memory, as those of a session alone do."""
    return document.session is not None and len(document.session) > 1


def at_once(runs: Sequence[Run]) -> int:
    """Count the runs that overlap another one in time: neither waits for the other.

    O(runs^2 / 64), O(runs) where each waits for all before it.
    """
    if all(run.after is None for run in runs):
        return 0
    overlapping = 0
    for number, waits in enumerate(waited_for(runs)):
        apart = (1 << number) - 1 & ~waits
        overlapping |= apart | (1 << number if apart else 0)
    return overlapping.bit_count()
