"""The sentences about a scenario in `repro show`, the gallery and docs/scenarios.md.

What this module does not see: how a scenario is run, and the layout of the sentences.
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
"""Detector -> its name in at most two words, in the order of the columns."""

MARKS: Final = "● must report, · must run and report nothing, blank: cannot run"


def defects(scenario: AnyScenario) -> Iterator[str]:
    """Yield one clause for each defect, which says where the defect is."""
    if isinstance(scenario, SmallScenario):
        yield f"in the {scenario.place} (changed fields of the document: {', '.join(scenario.change)})"
        return
    if isinstance(scenario, GgmlFault):
        yield f"the fault {scenario.fault} of unmodified ggml"
        return
    for kind, variant in scenario.kernels.items():
        yield f"the kernel of {kind} is the variant {variant}"
    if scenario.belief is not None:
        yield f"a wrong belief: {' '.join((scenario.belief.__doc__ or '').split()).rstrip('.')}"
    for name in scenario.write_once:
        yield f"{name} is written before the first run only"
    if not scenario.reuse_waits:
        yield f"the plan was made for one stream and runs on {scenario.streams} streams"


def answers(scenario: AnyScenario) -> Mapping[str, str | None]:
    """Return detector -> its expected answer; an empty mapping if the scenario states no answers.

    An answer has the kinds that the detector must report, or `something` if the kinds are not
    stated. The answer is "" if the detector must report nothing, and None if it cannot run.
    """
    if isinstance(scenario, SmallScenario):
        return {letter: None if said is None else " ".join(sorted(said)) for letter, said in scenario.answers.items()}
    reports, idle = scenario.reports.split(), scenario.not_run.split()
    if not reports:
        return {}
    return {letter: None if letter in idle else "something" if letter in reports else "" for letter in DETECTOR_NAMES}


def marks(scenario: AnyScenario) -> dict[str, str]:
    """Return detector -> the sign of its expected answer (`MARKS`)."""
    said = answers(scenario)
    return {letter: " " if (kinds := said.get(letter)) is None else "●" if kinds else "·" for letter in DETECTOR_NAMES}


def notes(scenario: AnyScenario) -> Iterator[str]:
    """Yield the notes below a story: the defect, the reports that the detectors must make, what the
    catalogue of bugs expected, and what would have caught the bug.
    """
    yield f"The defect: {'; '.join(defects(scenario)) or 'none'}."
    said = {letter: answer for letter, answer in answers(scenario).items() if answer}
    known = isinstance(scenario, SmallScenario)
    must = "; ".join(f"{letter} {answer}" for letter, answer in said.items()) if known else ", ".join(said)
    if must:
        yield f"The detectors must report: {must}."
    yield from (f"{line}." for line in otherwise(scenario))
    if scenario.caught:
        yield f"What would have caught it: {scenario.caught[0].lower()}{scenario.caught[1:]}"


def otherwise(scenario: AnyScenario) -> Iterator[str]:
    """Yield a sentence for each answer that differs from the catalogue of bugs, with the reason."""
    for what, why in scenario.reasons.items():
        of = "class" if what == "class" else f"answer of {what}, the {DETECTOR_NAMES[what]}"
        yield f"The catalogue of bugs expected another {of}. The reason for the difference: {why}"


def in_words(class_: str) -> str:
    """Return a class and its meaning, such as `C01: ...`; any other text is returned unchanged."""
    return f"{class_}: {CLASSES[class_]}" if class_ in CLASSES else class_
