"""The gallery: one page with the story, the answers and the picture of every scenario.

A scenario that cannot be run here (a library of ggml is missing) stands on the page with its story
and the reason. With several workers each entry, picture and all, is made by a process of its own;
the page is the same.

What this module does not see: how the page is laid out (`reports.interactive.stories`).
"""

from collections.abc import Callable, Iterator, Sequence

from allocsim.errors import EngineError
from allocsim.outcomes.telling import one_line
from reports.figures.style import render
from reports.interactive.stories import Entry, stories
from repro.commands import showing
from repro.commands.workers import mapping
from repro.scenario import GgmlFault, Scenario, SmallScenario
from repro.scenarios import AnyScenario, named
from repro.small.answers import DETECTORS

HEAD = (
    "Real bugs of memory planning, each with its defect as a switch, before and after. "
    "S static replay, L lifetimes believed, H happens-before, R later runs, P sanitized run, "
    "D differential run, K kernel audit. A filled circle must report, a dot must run and find nothing, "
    "a blank cannot run. What they say here and now is printed by: allocsim repro run --all"
)

PAGE_DPI = 110
"""Of a picture as wide as the page: some 1,300 pixels."""


def page(names: Sequence[str], workers: int = 1, done: Callable[[], object] = lambda: None) -> bytes:
    """Return the page; every scenario is run, by so many processes. `done` is called after each.

    Raises UnknownNameError and ModelError as `scenarios.named`.
    """
    entries = []
    with mapping(min(workers, len(names))) as mapped:
        for entry in mapped(_entry, names):
            entries.append(entry)
            done()
    return stories("The library of scenarios", HEAD, entries)


def marks(scenario: AnyScenario) -> dict[str, str]:
    """Return what each detector must say: a circle, a dot or a blank."""
    reports = scenario.reports if isinstance(scenario, SmallScenario) else scenario.reports.split()
    idle = scenario.not_run.split()
    return {letter: " " if letter in idle else "●" if letter in reports else "·" for letter in DETECTORS}


def _entry(name: str) -> Entry:
    scenario = named(name)
    picture, notes = None, list(_notes(scenario))
    try:
        figure = showing.picture(scenario, showing.sides(scenario))
        picture = render(figure, ".png", dpi=PAGE_DPI)  # a third of the bytes of an SVG
    except EngineError as error:
        if not isinstance(scenario, GgmlFault):
            raise
        notes.append(f"Not drawn here: {one_line(str(error))}")
    return Entry(
        name=scenario.name,
        title=scenario.title,
        link=scenario.source,
        group=scenario.expected[0][0] if scenario.expected else "none",
        story=scenario.story,
        notes=tuple(notes),
        cells=marks(scenario),
        causes=", ".join(f"{class_} {fault}" for class_, fault in scenario.expected),
        picture=picture,
    )


def _notes(scenario: AnyScenario) -> Iterator[str]:
    if isinstance(scenario, SmallScenario):
        says = "; ".join(f"{letter} {kinds}" for letter, kinds in scenario.reports.items())
        yield f"The defect stands in the {scenario.place}: {', '.join(scenario.change)} of the document differs."
        yield f"Must report: {says}."
    elif isinstance(scenario, Scenario):
        yield "Trained on the engine, drawn at a small size: the ops round the fault."
    if scenario.caught:
        yield f"What would have caught it: {scenario.caught}"


__all__ = ["marks", "page"]
