"""What a cure is: what was asked for, what was changed, what it costs, and what was verified.

What this module does not see: how it was found.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from allocsim.cure.elements import Element, Wait, as_json
from allocsim.cure.mends import Mend
from allocsim.cure.patch import patch
from allocsim.judge.violations import Violation
from allocsim.model import Document

FEW_WAITS: Final = 4
"""Waits that are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A mend that is to be made, and what must vanish."""

    mend: Mend
    violations: tuple[Violation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A slot of the cured plan that is not where it was."""

    plan: int
    buffer: int
    arena: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cure:
    """Changes that cure, and what they cost."""

    elements: tuple[Element, ...]
    words: tuple[str, ...]
    """The elements in words."""
    nbytes: int
    """Growth of the peaks, summed over plans; negative where they shrink."""
    pin_all_bytes: int | None
    """The same with every buffer apart; None where that does not fit, or is known to be no cure."""
    overlap: int
    """Pairs of ops that can no longer run at once."""
    verified: bool
    """Whether the judge said of the mended document that the violations are gone and none is
    new.
    """
    planned_anew: bool | None
    """The same of planning the mended beliefs anew; None where no planner is at hand."""
    placement: str
    """Who placed: `amended`, where only slots moved that had to; `apart`; or the planner."""
    minimal: bool
    trials: int
    """Documents judged."""
    moved: tuple[Moved, ...]
    document: Document = field(repr=False)
    """The document mended."""
    before: Document = field(repr=False)
    """The document as it was."""
    alternative: "Cure | None" = None
    """Of a race over reuse: the same by placing apart."""

    @property
    def patch(self) -> tuple[dict[str, Any], ...]:
        """All that changes in the native document, as a JSON Patch (`allocsim.cure.patch`)."""
        return patch(self.before, self.document)

    def as_json(self, *, patched: bool = False) -> dict[str, Any]:
        """Return it as a JSON object, with its patch where that is asked for."""
        made = {
            "elements": [as_json(element, self.document) for element in self.elements],
            "nbytes": self.nbytes,
            "verified": self.verified,
            "pin_all_bytes": self.pin_all_bytes,
            "overlap": self.overlap,
            "planned_anew": self.planned_anew,
            "placement": self.placement,
            "minimal": self.minimal,
            "moved": [{name: getattr(slot, name) for name in slot.__slots__} for slot in self.moved],
            **({"patch": list(self.patch)} if patched else {}),
        }
        return made if self.alternative is None else {**made, "alternative": self.alternative.as_json(patched=patched)}


def words_of(elements: Sequence[Element], document: Document) -> tuple[str, ...]:
    """Return elements in words; of many waits, one line for each pair of kinds of op.

    What is said alike of several plans is said once.
    """
    waits = [element for element in elements if isinstance(element, Wait)]
    if len(waits) <= FEW_WAITS:
        return tuple(dict.fromkeys(element.describe(document) for element in elements))
    said = [element.describe(document) for element in elements if not isinstance(element, Wait)]
    kinds: dict[tuple[str, str], int] = defaultdict(int)
    for wait in waits:
        ops = document.programs[wait.program].ops
        kinds[ops.kinds[ops.kind[wait.op]], ops.kinds[ops.kind[wait.after]]] += 1
    lines = [
        f"let {op} wait for {other} ({count} wait{'s'[: count != 1]})" for (op, other), count in sorted(kinds.items())
    ]
    return (*said, *lines)


__all__ = ["Cure", "Demand", "Moved", "words_of"]
