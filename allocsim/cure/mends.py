"""What would make violations vanish: the smallest mend of one thing, before it is known what it
costs.

A mend names one wrong thing of a document; equal mends are one. Indices are those of the document.
A belief is named by its problem or, where a plan states none, by the plan; a mend of a program's
own has no cure here and says so by its kind.

What this module does not see: violations, classes and parties (`allocsim.verdict`), and what a mend
costs (`allocsim.cure`).
"""

from dataclasses import dataclass
from typing import Final

MENDS: Final[dict[str, str]] = {
    # kind: what is wrong, in one clause
    "lifetime": "the believed lifetime of a buffer leaves out an access",
    "pair": "a pair is believed to share that may not",
    "pin": "nobody told the planner that the host reads a buffer",
    "size": "the believed size of a buffer is too small",
    "slot": "a slot lies where the belief does not allow it, or does not fit",
    "address": "a buffer that lasts lies elsewhere than its content",
    "stale": "the plan was made for another program",
    "events": "the planner's own book contradicts itself",
    "upload": "the host leaves out an upload that is needed",
    "state": "a buffer is counted on from run to run that nobody keeps",
    "late": "the host looks at an output after a later run",
    "wait": "an op does not wait for another",
    "runs": "a run does not wait for another whose memory it shares",
    "unwritten": "the program reads bytes that nobody wrote",
    "mutation": "the program reads a value after writing over it",
    "in place": "the program mutates through a kernel that does not declare it",
    "results": "the program gives two results of one op the same bytes",
    "read only": "the program writes into a read-only buffer",
    "bounds": "a value of the program reaches outside its buffer",
    "kernel": "a kernel is wrong under an alias that it has to bear",
    "promise": "the plan takes a kernel to be safe in place that nobody vouches for",
    "twice": "a kernel is wrong where one buffer is given twice",
    "misdeed": "a kernel reads or writes what it may not",
    "unknown": "something was measured that nothing accounts for",
}
"""Kinds of mend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """One wrong thing."""

    kind: str
    problem: int | None = None
    plan: int | None = None
    program: int | None = None
    buffer: int | None = None
    """Of a pair, the donor."""
    other: int | None = None
    """Of a pair, the recipient."""
    op: int | None = None
    after: int | None = None
    """Of a wait, the op waited for."""
    op_kind: str | None = None
    operand: int | None = None
    result: int | None = None


__all__ = ["MENDS", "Mend"]
