"""docs/scenarios.md: the library of real bugs, written from the tables of scenarios alone; nothing is run for it."""

import textwrap
from collections import defaultdict
from collections.abc import Iterator

from repro import scenarios
from repro.scenario import GgmlFault, Scenario, SmallScenario
from repro.small.answers import DETECTORS

HEAD = """# The library of scenarios

Real bugs, each with its link, the defect as a switch, a repaired twin that must come out clean, and
the answer that every detector must give. `allocsim repro run NAME` judges the faulty one and its
twin and ends with 1 where an answer differs; `allocsim repro run --all --jobs N` prints the matrix
of all; `allocsim repro show NAME` tells the story with both plans. `+` between names of the engine
puts two defects into one run.

A small scenario is a document in words (`repro/small/words.py`); what its ops compute is nobody's
business. Scenarios of the engine train a transformer; those of ggml run on the library itself.
CONTRIBUTING.md says how a scenario is added. This page is written by `ALLOCSIM_UPDATE=1 pytest
tests/unit/repro/test_small_scenarios.py` from the tables.

S static replay, L lifetimes believed, H happens-before, R later runs, P sanitized run, D
differential run, K kernel audit ([verdict.md](verdict.md)). `●` must report, `·` must run and find
nothing, a blank cannot run.

"""


def page() -> str:
    """Return the page."""
    every = (*scenarios.every(), *scenarios.every_on_ggml(), *scenarios.every_small())
    rows = [*_table(every), ""]
    for class_, found in _by_class(scenarios.every_small()).items():
        rows += [f"## {class_}", ""]
        for scenario in found:
            rows += [*_story(scenario), ""]
    return HEAD + "\n".join(_wrapped(row) for row in rows).rstrip() + "\n"


def _table(every: tuple[Scenario | GgmlFault | SmallScenario, ...]) -> Iterator[str]:
    yield f"{len(every)} scenarios, {len(scenarios.SMALL)} of them small."
    yield ""
    yield f"| scenario | runs on | class and party | {' | '.join(DETECTORS)} | what one sees |"
    yield "|---|---|---|" + "---|" * (len(DETECTORS) + 1)
    for scenario in every:
        causes = " and ".join(f"{class_} {fault}" for class_, fault in scenario.expected)
        marks = " | ".join(_mark(scenario, letter) for letter in DETECTORS)
        name = f"[{scenario.name}]({scenario.source})" if "://" in scenario.source else scenario.name
        yield f"| {name} | {scenario.runtime} | {causes} | {marks} | {scenario.title} |"


def _mark(scenario: Scenario | GgmlFault | SmallScenario, letter: str) -> str:
    if letter in scenario.not_run.split():
        return " "
    reports = scenario.reports if isinstance(scenario, SmallScenario) else scenario.reports.split()
    return "●" if letter in reports else "·"


def _by_class(every: tuple[SmallScenario, ...]) -> dict[str, list[SmallScenario]]:
    found = defaultdict(list)
    for scenario in every:
        found[scenario.expected[0][0]].append(scenario)
    return {class_: found[class_] for class_ in sorted(found, key=str.lower)}


def _story(scenario: SmallScenario) -> Iterator[str]:
    yield f"### {scenario.name}"
    yield ""
    yield scenario.story
    yield ""
    says = ", ".join(f"{letter} {kinds}" for letter, kinds in scenario.reports.items())
    yield f"- The defect stands in the {scenario.place}: `{', '.join(scenario.change)}` of the document differs."
    yield f"- Must report: {says}."
    for what, why in scenario.reasons.items():
        yield f"- The catalogue of bugs expected otherwise of {what}: {why}."
    yield f"- What would have caught it: {scenario.caught[0].lower()}{scenario.caught[1:]}"


def _wrapped(row: str) -> str:
    """Break a line of prose at 100 characters; a row of a table stays whole."""
    if row.startswith("|"):
        return row
    indent = "  " if row.startswith("- ") else ""
    return textwrap.fill(row, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
