"""The words of a scenario of any kind, shared by `repro show`, the gallery and docs/scenarios.md.

What this module does not see: how a scenario is run, and how its words are laid out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from allocsim.verdict import CLASSES
from repro.scenario import GgmlFault, SmallScenario
from repro.scenarios import AnyScenario

DETECTOR_NAMES: Final[Mapping[str, str]] = {
    "S": "static replay",
    "L": "lifetimes believed",
    "H": "happens-before",
    "R": "later runs",
    "P": "sanitized run",
    "D": "differential run",
    "K": "kernel audit",
}
"""Detector -> what it does, in two words; in the order of the columns."""

MARKS: Final = "● must report, · must run and find nothing, a blank cannot run"


def defects(scenario: AnyScenario) -> Iterator[str]:
    """Yield where the defect stands, each switch in a line."""
    if isinstance(scenario, SmallScenario):
        yield f"in the {scenario.place} ({', '.join(scenario.change)} of the document)"
        return
    if isinstance(scenario, GgmlFault):
        yield f"real ggml, as it is: {scenario.fault}"
        return
    for kind, variant in scenario.kernels.items():
        yield f"the kernel of {kind} in its {variant} form"
    if scenario.belief is not None:
        yield f"a wrong belief: {' '.join((scenario.belief.__doc__ or '').split()).rstrip('.')}"
    for name in scenario.write_once:
        yield f"{name} is written before the first run only"
    if not scenario.reuse_waits:
        yield f"{scenario.streams} streams run what was planned for one"


def answers(scenario: AnyScenario) -> Mapping[str, str | None]:
    """Return what each detector must say: kinds, or `something` where only that is known; empty:
    nothing; None: it cannot run. Of a model of one's own nobody has said.
    """
    if isinstance(scenario, SmallScenario):
        return {letter: None if said is None else " ".join(sorted(said)) for letter, said in scenario.answers.items()}
    reports, idle = scenario.reports.split(), scenario.not_run.split()
    if not reports:
        return {}
    return {letter: None if letter in idle else "something" if letter in reports else "" for letter in DETECTOR_NAMES}


def marks(scenario: AnyScenario) -> dict[str, str]:
    """Return the sign of each detector's answer (`MARKS`)."""
    said = answers(scenario)
    return {letter: " " if (kinds := said.get(letter)) is None else "●" if kinds else "·" for letter in DETECTOR_NAMES}


def notes(scenario: AnyScenario) -> Iterator[str]:
    """Yield what is said below a story: the defect, its reports, and what would have caught it."""
    yield f"The defect: {'; '.join(defects(scenario)) or 'none'}."
    said = {letter: answer for letter, answer in answers(scenario).items() if answer}
    known = isinstance(scenario, SmallScenario)
    must = "; ".join(f"{letter} {answer}" for letter, answer in said.items()) if known else ", ".join(said)
    if must:
        yield f"Must report: {must}."
    yield from (f"{line}." for line in otherwise(scenario))
    if scenario.caught:
        yield f"What would have caught it: {scenario.caught[0].lower()}{scenario.caught[1:]}"


def otherwise(scenario: AnyScenario) -> Iterator[str]:
    """Yield where the catalogue of bugs expected otherwise, and why it is not so."""
    for what, why in scenario.reasons.items():
        of = "class" if what == "class" else f"{what}, the {DETECTOR_NAMES[what]}"
        yield f"The catalogue of bugs expected otherwise of {of}: {why}"


def in_words(class_: str) -> str:
    """Return a class with its words; what is none as it is."""
    return f"{class_}: {CLASSES[class_]}" if class_ in CLASSES else class_
