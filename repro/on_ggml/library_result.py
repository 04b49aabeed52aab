"""What a run on one library of ggml gives, and what a library of its version must show.

Versions are compared as numbers. Steps of training count from 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from allocsim.verdict import Verdict
from allocsim.verdict.evidence import Evidence
from repro.options import LibraryOptions
from repro.run_records import TrainingSummary, agree, library_entry
from repro.scenario import OnGgml, Scenario

LEARNS_AFTER: Final = 10
"""Steps from which on it can be said whether a run learns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One thing a library of this version must show, and whether it did."""

    text: str
    expected: bool
    found: bool

    @property
    def holds(self) -> bool:
        """Whether what was found is what was expected."""
        return self.expected is self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """One of the report's single-op smokes."""

    name: str
    agrees: bool | None
    """Default and memory of its own learn alike to the bit; None: it could not be run."""
    said: str
    """Why it cannot see the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryResult:
    """Everything a run on one library produced."""

    scenario: Scenario
    which: str
    version: str
    options: LibraryOptions
    evidence: Evidence
    verdict: Verdict
    partial: Verdict
    """Of the plan with only the backward nodes pinned."""
    modes: Mapping[str, TrainingSummary]
    claims: tuple[Claim, ...]
    smokes: tuple[Smoke, ...]

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """(class, fault) that a library of this version must get."""
        assert self.scenario.on_ggml is not None
        return self.scenario.expected if before(self.version, self.scenario.on_ggml.fixed) else ()

    @property
    def matches(self) -> bool:
        """Whether the verdict and every claim are as they must be for this version."""
        return agree(self.verdict, self.expected) and all(claim.holds for claim in self.claims)

    @property
    def title(self) -> str:
        """The heading of what is printed."""
        return f"{self.scenario.name} on ggml {self.version} ({self.which}): {self.scenario.title}"

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`."""
        return library_entry(
            self.scenario.name,
            (self.which, self.version),
            self.verdict,
            self.evidence,
            self.expected,
            matches=self.matches,
            partial_pins=self.partial.as_json(),
            claims=[{"claim": c.text, "expected": c.expected, "found": c.found} for c in self.claims],
            smokes=[{"name": s.name, "agrees": s.agrees, "said": s.said} for s in self.smokes],
            modes={
                name: {**mode.as_json(), "first_difference": mode.first_difference} for name, mode in self.modes.items()
            },
        )


def before(version: str, other: str) -> bool:
    """Whether one version of ggml comes before another."""
    one, two = (tuple(int(part) for part in v.split(".")) for v in (version, other))
    return one < two


def claims(known: OnGgml, version: str, modes: Mapping[str, TrainingSummary], partial: Verdict) -> tuple[Claim, ...]:
    """State what a library of this version must show, and whether it did."""
    sound, partly = not before(version, known.fixed), not before(version, known.partial_pins_fixed)
    equal = {name: mode.first_difference is None for name, mode in modes.items()}
    claims = [
        Claim(text="every node pinned equals the reference to the bit", expected=True, found=equal["pinned"]),
        Claim(text="the default plan equals the reference to the bit", expected=sound, found=equal["default"]),
        Claim(
            text="only backward nodes pinned equals the reference to the bit", expected=partly, found=equal["backward"]
        ),
        Claim(text="the verdict on that plan is sound", expected=partly, found=partial.sound),
    ]
    loss, right = modes["default"].loss, modes["reference"].loss
    if len(loss) >= LEARNS_AFTER:
        fall, fell = loss[0] - min(loss), right[0] - right[-1]
        claims.append(
            Claim(text="the default plan learns half as well as the reference", expected=sound, found=2 * fall >= fell)
        )
    return tuple(claims)
