"""The record of a cure: the changes made, their price together, and what the judge verified.

This module does not examine how a cure is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.cure.changes import Change
from allocsim.cure.patch import patch
from allocsim.model import Document

FEW_WAITS: Final = 4
"""The most waits that are listed one by one in words."""

SAID: Final = ("nbytes", "verified", "pin_all_bytes", "overlap", "planned_anew", "placement", "minimal")
"""Fields of a cure that `--json` has unchanged."""

SLOT: Final = ("plan", "buffer", "arena", "offset", "nbytes")
"""Fields of a moved slot that `--json` has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """Changes whose mended document the judge confirmed, and their price."""

    changes: tuple[Change, ...]
    words: tuple[str, ...]
    """The changes in words."""
    nbytes: int
    """Growth of the peaks, summed over plans; negative where they shrink."""
    pin_all_bytes: int | None
    """Growth with every buffer apart; None: it does not fit, cures nothing, or was not tried."""
    overlap: int
    """Pairs of ops that can no longer run at once."""
    verified: bool
    """Whether the judge found the violations gone, and none new, in the mended document."""
    planned_anew: bool | None
    """Whether the judge found the same after planning anew; None if no planner is at hand."""
    placement: str
    """`amended` if only the slots moved that had to, `apart`, or the name of the planner."""
    minimal: bool
    trials: int
    """Documents judged."""
    moved: tuple[Change, ...]
    """The slots of the cured plans that have changed."""
    document: Document = field(repr=False)
    """The mended document."""
    before: Document = field(repr=False)
    """The document before the cure."""
    alternative: "Cure | None" = None
    """For a race over reuse: the cure that places the buffers apart instead of adding waits."""
    cut: bool = False
    """Whether the steps were spent before the search ended, so that a cheaper cure may exist."""

    @property
    def patch(self) -> tuple[dict[str, Any], ...]:
        """All changes of the native document, as a JSON Patch (`allocsim.cure.patch`)."""
        return patch(self.before, self.document)

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return the cure as a JSON object, with its JSON Patch if `patched`."""
        made = {
            "elements": [change.as_json(self.document) for change in self.changes],
            **{name: getattr(self, name) for name in SAID},
            "moved": [{name: getattr(slot, name) for name in SLOT} for slot in self.moved],
            **({"patch": list(self.patch)} if patched else {}),
            **({"cut": True} if self.cut else {}),
        }
        return made if self.alternative is None else {**made, "alternative": self.alternative.as_json(patched=patched)}


def words_of(changes: Sequence[Change], document: Document) -> tuple[str, ...]:
    """Return changes in words, each once. With more than `FEW_WAITS` waits, only the first wait
    between two kinds of op is described, with the number of further ones.
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
