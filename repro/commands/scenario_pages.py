"""The gallery: one page with the story, the answers and the picture of every scenario.

A scenario that cannot be run here (a library of ggml is missing) stands on the page with its story
and the reason. With several workers each entry, picture and all, is made by a process of its own;
the page is the same.

What this module does not see: how the page is laid out (`reports.interactive.stories`).
"""

from collections.abc import Callable, Sequence

from allocsim.errors import EngineError
from allocsim.printable import one_line
from reports.interactive.stories import Entry, stories
from repro.commands import showing
from repro.commands.scenario_words import DETECTOR_NAMES, MARKS, in_words, marks, notes
from repro.commands.workers import mapping
from repro.scenario import GgmlFault, Scenario
from repro.scenarios import named

HEAD = (
    "Real bugs of memory planning, each with its defect as a switch, before and after. "
    f"{', '.join(f'{letter} {name}' for letter, name in DETECTOR_NAMES.items())}: {MARKS}. "
    "What they say here and now is printed by: allocsim repro run --all"
)

PAGE_DPI = 110  # of a picture as wide as the page: some 1,300 pixels


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


def _entry(name: str) -> Entry:
    scenario = named(name)
    picture, said = None, list(notes(scenario))
    if isinstance(scenario, Scenario):
        said.append("Trained on the engine, drawn at a small size: the ops round the fault.")
    from reports.figures.style import render  # matplotlib, which `repro list` needs not

    try:
        figure = showing.picture(scenario, showing.sides(scenario), told=False)
        picture = render(figure, ".png", dpi=PAGE_DPI)  # a third of the bytes of an SVG
    except EngineError as error:
        if not isinstance(scenario, GgmlFault):
            raise
        said.append(f"Not drawn here: {one_line(str(error))}")
    return Entry(
        name=scenario.name,
        title=scenario.title,
        link=scenario.source,
        group=in_words(scenario.expected[0][0]) if scenario.expected else "none",
        story=scenario.story,
        notes=tuple(said),
        cells=marks(scenario),
        causes=", ".join(f"{class_} {fault}" for class_, fault in scenario.expected),
        picture=picture,
    )
