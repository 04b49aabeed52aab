"""docs/scenarios.md: the library of real bugs, written from the tables of scenarios alone; nothing is run for it."""

import textwrap
from collections import defaultdict
from collections.abc import Iterator

from repro import scenarios
from repro.commands.scenario_words import DETECTOR_NAMES, MARKS, in_words, marks, notes
from repro.scenario import SmallScenario
from repro.scenarios import AnyScenario

HEAD = """# The library of scenarios

Each scenario is a real bug. A scenario has a link to the report, the defect as a switch, a repaired
twin in which nothing may be found, and the answer that every detector must give. `allocsim repro
run NAME` judges the faulty scenario, and a small scenario with its twin; it ends with status 1 if
an answer or a verdict is not the expected one. `allocsim repro run --all --jobs N` prints a matrix
of all scenarios and their twins. `allocsim repro show NAME` prints the story and both plans. A `+`
between two scenarios of the engine puts the defects of both into one run.

A small scenario is a document in words (`repro/small/words.py`), and its ops have no meaning.
Scenarios of the engine train a transformer. Scenarios of ggml run on the library itself.
CONTRIBUTING.md says how to add a scenario. This page is written from the tables of scenarios by
`ALLOCSIM_UPDATE=1 pytest tests/unit/repro/test_small_scenarios.py`.

Most scenarios come from a catalogue of bugs. If the catalogue expected another class or another
answer, the scenario gives the reason, and `tests/unit/repro/test_changed_expectations.py` tests it.

"""


def page() -> str:
    """Return the page."""
    every = (*scenarios.every(), *scenarios.every_on_ggml(), *scenarios.every_small())
    names = ", ".join(f"{letter} {name}" for letter, name in DETECTOR_NAMES.items())
    rows = [f"{names} ([verdict.md](verdict.md)): {MARKS}.", "", *_table(every), ""]
    groups = {
        "On the engine": scenarios.every(),
        "On the library of ggml": scenarios.every_on_ggml(),
        **{in_words(class_): found for class_, found in _by_class(scenarios.every_small()).items()},
    }
    for title, found in groups.items():
        rows += [f"## {title}", ""]
        for scenario in found:
            rows += [*_story(scenario), ""]
    return HEAD + "\n".join(_wrapped(row) for row in rows).rstrip() + "\n"


def _table(every: tuple[AnyScenario, ...]) -> Iterator[str]:
    yield f"{len(every)} scenarios, {len(scenarios.SMALL)} of them small."
    yield ""
    yield f"| scenario | runs on | class and party | {' | '.join(DETECTOR_NAMES)} | what goes wrong |"
    yield "|---|---|---|" + "---|" * (len(DETECTOR_NAMES) + 1)
    for scenario in every:
        causes = " and ".join(f"{class_} {fault}" for class_, fault in scenario.expected)
        cells = " | ".join(marks(scenario).values())
        name = f"[{scenario.name}]({scenario.source})" if "://" in scenario.source else scenario.name
        yield f"| {name} | {scenario.runtime} | {causes} | {cells} | {scenario.title} |"


def _by_class(every: tuple[SmallScenario, ...]) -> dict[str, list[SmallScenario]]:
    found = defaultdict(list)
    for scenario in every:
        found[scenario.expected[0][0]].append(scenario)
    return {class_: found[class_] for class_ in sorted(found, key=str.lower)}


def _story(scenario: AnyScenario) -> Iterator[str]:
    yield f"### {scenario.name}"
    yield ""
    yield scenario.story
    yield ""
    yield from (f"- {note}" for note in notes(scenario))


def _wrapped(row: str) -> str:
    """Break a line of prose at 100 characters; a row of a table stays whole."""
    if row.startswith("|"):
        return row
    indent = "  " if row.startswith("- ") else ""
    return textwrap.fill(row, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
