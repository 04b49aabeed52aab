"""Define the record of a cure: its changes, their joint price, and the result of the judge.

This module does not examine how a cure is found.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.cure.changes import Change
from allocsim.cure.patch import patch
from allocsim.model import Document

FEW_WAITS: Final = 4
"""The largest number of waits that are listed one by one in words."""

SAID: Final = ("nbytes", "verified", "pin_all_bytes", "overlap", "planned_anew", "placement", "minimal")
"""The fields of a cure that `--json` prints unchanged."""

SLOT: Final = ("plan", "buffer", "arena", "offset", "nbytes")
"""The fields of a moved slot that `--json` prints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """Changes that the judge confirmed by checking the mended document, and their price."""

    changes: tuple[Change, ...]
    words: tuple[str, ...]
    """The changes in words."""
    nbytes: int
    """The growth of the peaks in bytes, summed over the plans; negative if the sum shrinks."""
    pin_all_bytes: int | None
    """The growth with all buffers apart; None if that does not fit or cure, or was not tried."""
    overlap: int
    """The number of pairs of ops that can no longer run at once."""
    verified: bool
    """Whether the judge found the violations gone, and no new violation, in the mended document."""
    planned_anew: bool | None
    """Whether the judge also confirmed the newly planned document; None if no planner is known."""
    placement: str
    """`amended` if only needed slots moved, `apart` if all buffers moved, or a planner's name."""
    minimal: bool
    trials: int
    """The number of documents judged."""
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
        """The changes of the native document as a JSON Patch (`allocsim.cure.patch`)."""
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
    """Return changes in words, equal words once. If there are more than `FEW_WAITS` waits, only the
    first wait between two op kinds is described, with the number of further waits.
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
