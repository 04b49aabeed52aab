"""The gallery: one page with the story, the answers and the picture of every scenario.

If a scenario cannot be run because a library of ggml is missing, the page has its story and the
reason instead of a picture. With several workers, worker processes make the entries with their
pictures; the page is the same.

What this module does not see: the layout of the page (`reports.interactive.stories`).
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
    "Real bugs of memory planning, each shown without its defect and with it. "
    f"{', '.join(f'{letter} {name}' for letter, name in DETECTOR_NAMES.items())}: {MARKS}. "
    "allocsim repro run --all runs the detectors and prints their answers."
)

PAGE_DPI = 110  # a picture as wide as the page then has some 1,300 pixels


def page(names: Sequence[str], workers: int = 1, done: Callable[[], object] = lambda: None) -> bytes:
    """Return the HTML page; `workers` processes run the scenarios, and `done` is called after each.

    Raises UnknownNameError and ModelError as `scenarios.named` does.
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
        said.append("The scenario was trained on the engine at a small size. The picture shows the ops near the fault.")
    from reports.figures.style import render  # imports matplotlib, which `repro list` does not need

    try:
        figure = showing.picture(scenario, showing.sides(scenario), told=False)
        picture = render(figure, ".png", dpi=PAGE_DPI)  # a third of the bytes of an SVG
    except EngineError as error:
        if not isinstance(scenario, GgmlFault):
            raise
        said.append(f"There is no picture: {one_line(str(error))}")
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
