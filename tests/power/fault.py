"""What a planted fault is: a document in words and what is changed in it, who must see that and who must not, and the verdict.

The unplanted twin is the same sketch without the change. `S` to `K` name the kinds (of `D` the kind of origin, of `K` `unsafe`) that each detector must
report, all of them and no other; a detector without any must be silent. `like` names the real bug the fault is modelled on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from allocsim.model import Document
from allocsim.verdict.evidence import Evidence
from repro.small.answers import DETECTORS
from repro.small.on_engine import evidence as asked
from repro.small.small_document import SmallDocument
from repro.small.small_document import document as sketched

PLACES = ("belief", "placement", "kernel", "schedule", "caller", "size", "format")
"""Where a fault is planted."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One row of the power suite."""

    name: str
    like: str
    """Real bugs, as project#number; empty where it is nobody's in particular."""
    planted_in: str
    verdict: str
    """Class and party: `C01 plan`; several, of faults that come together, in the order in which they strike."""
    sound: SmallDocument | None = None
    planted: Mapping[str, Any] = field(default_factory=dict)
    """What is changed in the sound sketch."""
    build: Callable[[bool], Document | Evidence] | None = None
    """Instead of a sketch: whether planted -> document, or all the evidence."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Detector -> kinds it must report."""
    scenario: str = ""
    """The scenario of the catalogue it stands for."""
    shows: bool | None = None
    """Of races: whether another legal order gives another number on the engine."""

    def evidence(self, *, planted: bool) -> Evidence:
        """Build the document and ask the detectors."""
        if self.build is not None:
            made = self.build(planted)
            return made if isinstance(made, Evidence) else Evidence(document=made)
        assert self.sound is not None
        return asked(replace(self.sound, **self.planted) if planted else self.sound)

    def document(self, *, planted: bool) -> Document:
        """Build the document alone."""
        if self.build is not None:
            made = self.build(planted)
            return made.document if isinstance(made, Evidence) else made
        assert self.sound is not None
        return sketched(replace(self.sound, **self.planted) if planted else self.sound)

    def fires(self, detector: str) -> frozenset[str]:
        """The kinds a detector must report."""
        return frozenset(self.kinds.get(detector, "").split())


def shelf(planted_in: str) -> tuple[list[Fault], Callable[..., None]]:
    """Return a list of faults and what adds one: `add(name, like, verdict, text, change, S=..., slots=..., ...)`."""
    faults: list[Fault] = []

    def add(
        name: str,
        like: str,
        verdict: str,
        text: str | Callable[[bool], Document | Evidence],
        change: Mapping[str, Any] | None = None,
        *,
        where: str = planted_in,
        scenario: str = "",
        shows: bool | None = None,
        **rest: Any,
    ) -> None:
        kinds = {letter: rest.pop(letter) for letter in DETECTORS if letter in rest}
        given: dict[str, Any] = (
            {"build": text}
            if callable(text)
            else {"sound": SmallDocument(text=text, **rest), "planted": dict(change or {})}
        )
        faults.append(
            Fault(
                name=name,
                like=like,
                planted_in=where,
                verdict=verdict,
                kinds=kinds,
                scenario=scenario,
                shows=shows,
                **given,
            )
        )

    return faults, add


TAKEN = {"S": "StaleRead Overlap", "P": "StaleRead", "D": "operand"}
"""What a plan shows that takes bytes too early."""

EARLY = {**TAKEN, "L": "LifetimeTooShort"}
"""The same, and the belief it was made from."""

IGNORED = {**TAKEN, "S": "StaleRead Overlap LifetimeIgnored"}
"""What a plan shows that takes bytes which its own belief says are taken."""

HISTORY = {"S": "StaleRead HistoryRead", "R": "StaleRead", "P": "StaleRead", "D": "operand"}
"""The reports where a later run reads what an earlier one left behind."""
PINNED = {"S": "StaleRead Overlap PinIgnored"}
"""The same where the belief has a pin."""
