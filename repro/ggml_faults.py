"""Run a fault of real ggml on the library itself and judge what ran.

`run(scenario, which)` asks a child process for the fault's `Finding`, makes the evidence of it (S
and L from the session that ran, D by the number the host read against the number it should have
read) and reaches the verdict. With `fixed` the same is done right, and must come out clean.

What this module does not see: how a fault is brought about (`allocsim.systems.ggml.faults`), the
terminal, files and figures.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocsim.systems.ggml.access.library import Library
from allocsim.systems.ggml.access.probe import open_library
from allocsim.systems.ggml.faults import FAULTS, evidence, repaired
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence
from repro.run_records import agree, library_entry
from repro.scenario import GgmlFault


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultResult:
    """What a fault looked like on one library."""

    scenario: GgmlFault
    which: str
    version: str
    fixed: bool
    found: float
    """The number the host read."""
    wanted: float
    """The number it reads where the same is done right."""
    detail: Mapping[str, Any]
    evidence: Evidence
    verdict: Verdict
    modes: Mapping[str, Any] = field(default_factory=dict)
    """None: nothing is trained."""

    @property
    def title(self) -> str:
        """The heading of what is printed."""
        done = " (done right)" if self.fixed else ""
        return f"{self.scenario.name}{done} on ggml {self.version} ({self.which}): {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """(class, fault) of what the verdict must name."""
        return () if self.fixed else self.scenario.expected

    @property
    def matches(self) -> bool:
        """Whether the verdict is the expected one and the numbers show the fault or its absence."""
        return agree(self.verdict, self.expected) and bool(self.evidence.diverges) is not self.fixed

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`."""
        return library_entry(
            f"{self.scenario.name} (fixed)" if self.fixed else self.scenario.name,
            (self.which, self.version),
            self.verdict,
            self.evidence,
            self.expected,
            matches=self.matches,
            numbers={"found": self.found, "wanted": self.wanted, **self.detail},
            modes={},
        )


def run(scenario: GgmlFault, which: str, *, fixed: bool = False) -> FaultResult:
    """Run a fault on the library `which`; raises EngineError where that is missing or refused."""
    with open_library(which) as child:
        version: str = child.call(version_of)
        finding = child.call(FAULTS[scenario.fault].task)
    seen = Evidence(document=repaired(finding) if fixed else evidence(finding), diverges=finding.wrong and not fixed)
    return FaultResult(
        scenario=scenario,
        which=which,
        version=version,
        fixed=fixed,
        found=finding.wanted if fixed else finding.found,
        wanted=finding.wanted,
        detail=finding.detail,
        evidence=seen,
        verdict=judge(seen),
    )


def version_of(library: Library) -> str:
    """Task: the version of a library."""
    return library.version
