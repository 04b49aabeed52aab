"""Run a fault of real ggml on the library itself and judge the graphs that ran.

`run(scenario, which)` runs the fault's task in a child process. The task returns the number that
the host read, the right number, and the graphs that ran. S and L judge the session of these graphs,
and D compares the two numbers. With `fixed`, the same computation is judged without the fault, and
the verdict must be sound.

What this module does not see: how a fault is produced (`allocsim.systems.ggml.faults`), the
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
    """The result of running one fault on one library."""

    scenario: GgmlFault
    which: str
    version: str
    fixed: bool
    found: float
    """The number that the host read."""
    wanted: float
    """The number that the host reads if the same computation is done without the fault."""
    detail: Mapping[str, Any]
    evidence: Evidence
    verdict: Verdict
    modes: Mapping[str, Any] = field(default_factory=dict)
    """Always empty, because nothing is trained."""

    @property
    def title(self) -> str:
        """The first line of the printed result."""
        done = " (fixed)" if self.fixed else ""
        return f"{self.scenario.name}{done} on ggml {self.version} ({self.which}): {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """The (class, fault) pairs that the verdict must name; empty if `fixed`."""
        return () if self.fixed else self.scenario.expected

    @property
    def matches(self) -> bool:
        """Whether the verdict is the expected one and, unless `fixed`, the two numbers differ."""
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
    """Run a fault on the library `which`; raises EngineError if that library cannot be opened."""
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
    """Return the version of a library; a task for the child process."""
    return library.version
