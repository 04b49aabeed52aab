"""The result of a run on one library of ggml, and the claims about a library of its version.

Versions are compared number by number. Training steps count from 1.
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
"""The smallest number of training steps after which a claim about learning is made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A statement about a library: whether it must be true for its version, and whether it is."""

    text: str
    expected: bool
    found: bool

    @property
    def holds(self) -> bool:
        """Whether `found` equals `expected`."""
        return self.expected is self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoke:
    """The result of one single-op smoke test from the report of the issue."""

    name: str
    agrees: bool | None
    """Whether training gives the same bits under the default plan and with memory of its own for
    each tensor; None if the test could not be run."""
    said: str
    """The reason why the test cannot see the bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryResult:
    """The evidence, the verdicts and the training runs of one scenario on one library."""

    scenario: Scenario
    which: str
    version: str
    options: LibraryOptions
    evidence: Evidence
    verdict: Verdict
    partial: Verdict
    """The verdict on the plan with only the backward nodes pinned."""
    modes: Mapping[str, TrainingSummary]
    claims: tuple[Claim, ...]
    smokes: tuple[Smoke, ...]

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """The (class, fault) pairs that the verdict on a library of this version must name."""
        assert self.scenario.on_ggml is not None
        return self.scenario.expected if before(self.version, self.scenario.on_ggml.fixed) else ()

    @property
    def matches(self) -> bool:
        """Whether the verdict names the expected causes and every claim holds."""
        return agree(self.verdict, self.expected) and all(claim.holds for claim in self.claims)

    @property
    def title(self) -> str:
        """The first line of the printed result."""
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
    """Return whether `version` of ggml is older than `other`."""
    one, two = (tuple(int(part) for part in v.split(".")) for v in (version, other))
    return one < two


def claims(known: OnGgml, version: str, modes: Mapping[str, TrainingSummary], partial: Verdict) -> tuple[Claim, ...]:
    """Return the claims about a library of this version, each with what was expected and found."""
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
