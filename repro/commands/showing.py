"""Run and judge a scenario without and with its defect, for `repro show` and `repro gallery`.

Each scenario has two sides, without and with its defect. For a small scenario, the sides are its
sound twin and its faulty document. A scenario of the engine is trained at a small size on each
side. A fault of ggml runs on the first library that can be opened.

What this module does not see: how the two sides are printed, and the page of the gallery.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from allocsim.errors import EngineError
from allocsim.outcomes.description import describe_round
from allocsim.systems.ggml.access.library import WHEELS
from allocsim.systems.ggml.access.probe import open_library
from reports.figures.deeds import buffers_of, deeds, run_of
from repro import ggml_faults, small_runs
from repro.options import EngineOptions, RunSizes
from repro.run import run
from repro.scenario import GgmlFault, OwnTraining, Scenario, SmallScenario
from repro.scenarios import AnyScenario

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL_SIZE = RunSizes(layers=2, seq=8, steps=2)
"""The size of a scenario of the engine if the user gives none."""

WHOLE = 40
"""The largest number of ops that are shown if the verdict names no op."""

Sides = tuple[Any, Any]
"""The result for the repaired twin, and the result for the faulty scenario. Each of the two results
has the fields `evidence` and `verdict`."""


def sides(scenario: AnyScenario) -> Sides:
    """Run the twin and the faulty scenario; raise EngineError if a fault of ggml has no library."""
    if isinstance(scenario, SmallScenario):
        found = small_runs.run(scenario)
        return found.twin, found.faulty
    if isinstance(scenario, GgmlFault):
        which = _library()
        return ggml_faults.run(scenario, which, fixed=True), ggml_faults.run(scenario, which)
    options = small(scenario, EngineOptions())
    return run(scenario, replace(options, fixed=True)), run(scenario, options)


def small(scenario: Scenario, options: EngineOptions) -> EngineOptions:
    """Return the options at the small size; for a user's own model, only the steps are changed."""
    if isinstance(scenario.training, OwnTraining):
        return replace(options, steps=max(SMALL_SIZE.steps or 1, scenario.least_steps))
    return replace(options, layers=SMALL_SIZE.layers, seq=SMALL_SIZE.seq, steps=SMALL_SIZE.steps)


def graph(both: Sides) -> Iterator[str]:
    """Yield lines with the ops near the fault and the slots of their buffers, for both sides."""
    twin, faulty = both
    verdict = faulty.verdict.as_json()
    number = run_of(verdict)
    did = deeds(verdict, number)
    buffers = sorted(set(buffers_of(verdict, number)))
    for words, side, said in (("without the defect", twin, dict.fromkeys(did, "")), ("with it", faulty, did)):
        runs = side.evidence.document.runs
        place = min(number, len(runs) - 1)
        program, plan = runs[place].program, runs[place].plan
        near = {step: deed for step, deed in said.items() if step < len(program.ops)}
        if not did:
            near = dict.fromkeys(range(min(len(program.ops), WHOLE)), "")
        yield f"{words}: the ops near the fault{f', run {place}' if len(runs) > 1 else ''}"
        known = [buffer for buffer in buffers if buffer < len(program.buffers)]
        yield from (f"  {line}" for line in describe_round(program, plan, near, known).splitlines())
        yield ""


def picture(scenario: AnyScenario, both: Sides, *, told: bool = True) -> "Figure":
    """Return the picture of both sides, with the story above them if `told` is True."""
    from reports.figures.story_figure import StorySide, story

    twin, faulty = (
        StorySide(
            title=title, document=side.evidence.document, report=side.verdict.report, verdict=side.verdict.as_json()
        )
        for title, side in zip(("without the defect", "with it"), both, strict=True)
    )
    expected = ", ".join(f"{class_}, fault of the {fault}" for class_, fault in scenario.expected)
    return story(f"{scenario.name}: {scenario.title} ({expected})", (twin, faulty), (scenario.story,) if told else ())


def _library() -> str:
    reasons = []
    for which in WHEELS:
        try:
            open_library(which).close()
        except EngineError as error:
            reasons.append(str(error))
            continue
        return which
    raise EngineError(reasons[0] if reasons else "no library of ggml is known")
