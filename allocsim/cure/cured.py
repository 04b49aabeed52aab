"""What a cure is: the changes made, what they cost together, and what was verified.

What this module does not see: how it was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.cure.changes import Change
from allocsim.cure.patch import patch
from allocsim.model import Document

FEW_WAITS: Final = 4
"""Waits that are named one by one."""

SAID: Final = ("nbytes", "verified", "pin_all_bytes", "overlap", "planned_anew", "placement", "minimal")
"""What `--json` says of a cure as it is."""

SLOT: Final = ("plan", "buffer", "arena", "offset", "nbytes")
"""What is said of a slot that moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """Changes that cure, and what they cost."""

    changes: tuple[Change, ...]
    words: tuple[str, ...]
    """The changes in words."""
    nbytes: int
    """Growth of the peaks, summed over plans; negative where they shrink."""
    pin_all_bytes: int | None
    """The same with every buffer apart; None: does not fit, cures nothing, or untried (`cut`)."""
    overlap: int
    """Pairs of ops that can no longer run at once."""
    verified: bool
    """Whether the judge found the violations gone, and none new, in the mended document."""
    planned_anew: bool | None
    """The same of planning the mended beliefs anew; None where no planner is at hand."""
    placement: str
    """Who placed: `amended`, where only slots moved that had to; `apart`; or the planner."""
    minimal: bool
    trials: int
    """Documents judged."""
    moved: tuple[Change, ...]
    """The slots of the cured plans that are not as they were."""
    document: Document = field(repr=False)
    """The document mended."""
    before: Document = field(repr=False)
    """The document as it was."""
    alternative: "Cure | None" = None
    """Of a race over reuse: the same by placing apart."""
    cut: bool = False
    """Whether the steps for it were spent before the end: there may be a cheaper one."""

    @property
    def patch(self) -> tuple[dict[str, Any], ...]:
        """All that changes in the native document, as a JSON Patch (`allocsim.cure.patch`)."""
        return patch(self.before, self.document)

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return it as a JSON object, with its patch where that is asked for."""
        made = {
            "elements": [change.as_json(self.document) for change in self.changes],
            **{name: getattr(self, name) for name in SAID},
            "moved": [{name: getattr(slot, name) for name in SLOT} for slot in self.moved],
            **({"patch": list(self.patch)} if patched else {}),
            **({"cut": True} if self.cut else {}),
        }
        return made if self.alternative is None else {**made, "alternative": self.alternative.as_json(patched=patched)}


def words_of(changes: Sequence[Change], document: Document) -> tuple[str, ...]:
    """Return changes in words, each once. Of many waits only the first of each pair of kinds of op
    is said, and how many more there are.
    """
    waits = [change for change in changes if change.kind == "wait"]
    if len(waits) <= FEW_WAITS:
        return tuple(dict.fromkeys(change.describe(document) for change in changes))
    kinds: dict[tuple[str, ...], list[Change]] = {}
    for wait in waits:
        ops = document.programs[wait.program or 0].ops
        kinds.setdefault(tuple(ops.kinds[ops.kind[step or 0]] for step in (wait.op, wait.after)), []).append(wait)
    alike = ((names, len(those) - 1, min(those, key=lambda one: one.op or 0)) for names, those in sorted(kinds.items()))
    lines = [
        first.describe(document) + (f", and {more} more of {op} for {other}" if more else "")
        for (op, other), more, first in alike
    ]
    return (*(change.describe(document) for change in changes if change.kind != "wait"), *lines)
