"""The lines that `repro show` and `repro run` print for a small scenario only.

What this module does not see: how a scenario is run.
"""

from collections.abc import Iterator
from typing import Any, Final

from allocsim.cli.output import Section
from repro.scenario import SmallScenario
from repro.small.answers import DETECTORS
from repro.small.small_document import SmallDocument
from repro.small_runs import SmallResult, in_words

NOTES: Final = {
    "slots": "offsets in bytes; a buffer that is not named is apart from all others",
    "believed": "the lifetime of a buffer that the planner believes; half-open, in steps",
    "order": "p/q: the program p on the plan of q",
    "runs": "for each run, the uploads left out",
    "share": "a>b: b may take the slot of a",
}
"""The name of a field of `SmallDocument` -> the meaning of its words."""


def tale(scenario: SmallScenario) -> Iterator[str]:
    """Yield the lines of `repro show` that say which fields of the document the defect changes."""
    yield f"the defect, in the {scenario.place}:"
    for name, now in scenario.change.items():
        yield from _changed(name, getattr(scenario.sound, name), now)


def entry(scenario: SmallScenario) -> dict[str, Any]:
    """Return the fields of `list --json` and `show --json` that only small scenarios have."""
    return {
        "place": scenario.place,
        "answers": {letter: None if kinds is None else sorted(kinds) for letter, kinds in scenario.answers.items()},
    }


def answers(result: SmallResult) -> list[Section]:
    """Return a table of the answers about both documents, with the expected answers."""
    wanted = result.scenario.answers
    rows = [
        (letter, in_words(result.faulty.said[letter]), in_words(wanted[letter]), in_words(result.twin.said[letter]))
        for letter in DETECTORS
    ]
    sections: list[Section] = [("reports of the detectors", ("", "faulty document", "expected", "its twin"), rows)]
    if result.differs:
        sections.append(("differences", ("",), [(text,) for text in result.differs]))
    return sections


def _changed(name: str, before: Any, after: Any) -> Iterator[str]:
    if name == "others":
        for one in before:
            for part in ("text", "slots"):
                if getattr(before[one], part) != getattr(after[one], part):
                    yield f"  of {one}:"
                    yield from _changed(part, getattr(before[one], part), getattr(after[one], part))
        return
    if name != "text":
        if name in NOTES:
            yield f"  ({NOTES[name]})"
        said = _uploads if name == "runs" else _short
        yield f"  {name}: {said(before)} -> {said(after)}"
        return
    if "~" in before or "~" in after:
        yield "  (~n: on stream n; ^n: waits for op n)"
    old, new = ([row.strip() for row in text.split(";")] for text in (before, after))
    for step in range(max(len(old), len(new))):
        one, other = old[step : step + 1], new[step : step + 1]
        if one != other:
            yield f"  op {step}: {' '.join(one) or 'none'} -> {' '.join(other) or 'none'}"


def _uploads(runs: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(f"run {run}: {' '.join(f'op {op}' for op in left) or 'none'}" for run, left in enumerate(runs))


def _short(thing: Any) -> str:
    if isinstance(thing, dict):
        return ", ".join(f"{key}: {_short(value)}" for key, value in thing.items()) or "none"
    if isinstance(thing, SmallDocument):
        return f"{thing.text} | {thing.slots}"
    return str(thing) or "none"
