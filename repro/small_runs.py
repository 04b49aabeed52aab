"""Run a small scenario: every detector runs on the faulty document and on its sound twin.

`run(scenario)` returns the answer of every detector about both documents, and both verdicts. If any
answer differs from the expected answer, the result says so (`SmallResult.differs`), and the
scenario does not match.

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
    """One document of a scenario: its evidence, its verdict, and the answer of each detector."""

    evidence: Evidence
    verdict: Verdict
    said: Said


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallResult:
    """The results for the faulty document of a small scenario and for its twin."""

    scenario: SmallScenario
    faulty: Judged
    twin: Judged
    fixed: bool = False
    """Whether the printed verdict is that of the twin."""
    modes: Mapping[str, Any] = field(default_factory=dict)
    """Always empty, because nothing is trained."""

    @property
    def shown(self) -> Judged:
        """The document whose verdict is printed."""
        return self.twin if self.fixed else self.faulty

    @property
    def evidence(self) -> Evidence:
        """The evidence of the document whose verdict is printed."""
        return self.shown.evidence

    @property
    def verdict(self) -> Verdict:
        """The verdict that is printed."""
        return self.shown.verdict

    @property
    def title(self) -> str:
        """The first line of the printed result."""
        return f"{self.scenario.name}{' (fixed)' if self.fixed else ''}: {self.scenario.title}"

    @property
    def expected(self) -> tuple[tuple[str, str], ...]:
        """The (class, fault) pairs that the printed verdict must name; empty for the twin."""
        return () if self.fixed else self.scenario.expected

    @property
    def differs(self) -> tuple[str, ...]:
        """One line for each answer or verdict, of either document, that is not the expected one."""
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
            rows.append(f"twin: the verdict must be sound; it says: {self.twin.verdict.text}")
        return tuple(rows)

    @property
    def matches(self) -> bool:
        """Whether every answer to both documents is the expected one."""
        return not self.differs

    def as_json(self) -> dict[str, Any]:
        """Return the entry of `runs` in `repro run --json`; its `expected` is the first cause."""
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
    """Run every detector on both documents of a scenario.

    Raises ModelError if a document cannot be built, and names this document. The twin is built
    first.
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
    """Return an answer as text: the kinds, `nothing` for an empty set, `not run` for None."""
    return "not run" if kinds is None else " ".join(sorted(kinds)) or "nothing"


def _kinds(kinds: frozenset[str] | None) -> list[str] | None:
    return None if kinds is None else sorted(kinds)
