"""Run a small scenario: both documents, faulty and sound, shown to every detector and judged.

`run(scenario)` gives a cell of the matrix for each detector: what it said of the document with the
defect and of the twin without, and whether that is what the scenario expects. Where a wanted answer
and the one found differ in anything, the scenario is not as expected.

What this module does not see: the terminal and files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocsim.errors import ModelError
from allocsim.outcomes import verdict_entry
from allocsim.verdict import Verdict, judge
from allocsim.verdict.evidence import Evidence
from repro.run_records import agree, causes_in_words
from repro.scenario import SmallScenario
from repro.small.answers import Said, said
from repro.small.on_engine import evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One document of a scenario, with what everybody said of it."""

    evidence: Evidence
    verdict: Verdict
    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallResult:
    """What a small scenario and its twin looked like."""

    scenario: SmallScenario
    faulty: Judged
    twin: Judged
    fixed: bool = False
    """Whether the twin is what is shown."""
    modes: Mapping[str, Any] = field(default_factory=dict)
    """None: nothing is trained."""

    @property
    def shown(self) -> Judged:
        """The document whose verdict is printed."""
        return self.twin if self.fixed else self.faulty

    @property
    def evidence(self) -> Evidence:
        """The evidence of the document shown."""
        return self.shown.evidence

    @property
    def verdict(self) -> Verdict:
        """The verdict of the document shown."""
        return self.shown.verdict

    @property
    def title(self) -> str:
        """The heading of what is printed."""
        return f"{self.scenario.name}{' (fixed)' if self.fixed else ''}: {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """(class, fault) of what the verdict shown must name."""
        return () if self.fixed else self.scenario.expected

    @property
    def differs(self) -> tuple[str, ...]:
        """Say each answer that is not the one expected, of either document."""
        scenario = self.scenario
        rows = [
            f"faulty: {letter} says {in_words(self.faulty.said[letter])}, expected {in_words(wanted)}"
            for letter, wanted in scenario.answers.items()
            if self.faulty.said[letter] != wanted
        ]
        rows += [
            f"twin: {letter} says {in_words(self.twin.said[letter])}, expected nothing"
            for letter, wanted in scenario.answers.items()
            if self.twin.said[letter] or (self.twin.said[letter] is None and wanted is not None)
        ]
        names = tuple((cause.class_, cause.party) for cause in self.faulty.verdict.joint)
        if names != scenario.expected:
            rows.append(
                f"faulty: the verdict names {causes_in_words(names)}, expected {causes_in_words(scenario.expected)}"
            )
        if not agree(self.twin.verdict, ()) or not self.twin.verdict.sound:
            rows.append(f"twin: the verdict is not that nothing is wrong: {self.twin.verdict.text}")
        return tuple(rows)

    @property
    def matches(self) -> bool:
        """Whether every answer to both documents is the expected one."""
        return not self.differs

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`; `expected` is the first cause."""
        class_, fault = self.expected[0] if self.expected else (None, None)
        return {
            "scenario": f"{self.scenario.name} (fixed)" if self.fixed else self.scenario.name,
            "runtime": "small",
            "matches": self.matches,
            "expected": {"class": class_, "fault": fault},
            "differs": list(self.differs),
            "answers": {
                letter: {
                    "faulty": _kinds(self.faulty.said[letter]),
                    "twin": _kinds(self.twin.said[letter]),
                    "expected": _kinds(wanted),
                }
                for letter, wanted in self.scenario.answers.items()
            },
            **verdict_entry(self.verdict, self.evidence),
            "modes": {},
        }


def run(scenario: SmallScenario, *, fixed: bool = False) -> SmallResult:
    """Show both documents of a scenario to every detector.

    Raises ModelError where one cannot be built, and says which; the twin comes first.
    """
    return SmallResult(
        scenario=scenario, twin=_judged(scenario, fixed=True), faulty=_judged(scenario, fixed=False), fixed=fixed
    )


def _judged(scenario: SmallScenario, *, fixed: bool) -> Judged:
    try:
        seen = evidence(scenario.sound if fixed else scenario.faulty)
    except ModelError as error:
        raise error.within(f"{scenario.name}, {'twin' if fixed else 'faulty'}") from error
    verdict = judge(seen)
    return Judged(evidence=seen, verdict=verdict, said=said(seen, verdict))


def in_words(kinds: frozenset[str] | None) -> str:
    """Say what a detector said."""
    return "not run" if kinds is None else " ".join(sorted(kinds)) or "nothing"


def _kinds(kinds: frozenset[str] | None) -> list[str] | None:
    return None if kinds is None else sorted(kinds)
