"""The two sides of a scenario, run and judged, as `repro show` and `repro gallery` tell of them.

A small scenario has its document and its twin; one of the engine is trained at a small size, with
its defect and without; a fault of ggml runs on the first library that is there, as it is and done
right.

What this module does not see: how sides are printed, and pages.
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
"""Of a scenario of the engine where no size is given."""

WHOLE = 40
"""Ops that are shown where the verdict names none."""

Sides = tuple[Any, Any]
"""Results of `repro` of repaired twin and faulty one, with `evidence` and `verdict`."""


def sides(scenario: AnyScenario) -> Sides:
    """Run both; raises EngineError where no library of ggml is there."""
    if isinstance(scenario, SmallScenario):
        found = small_runs.run(scenario)
        return found.twin, found.faulty
    if isinstance(scenario, GgmlFault):
        which = _library()
        return ggml_faults.run(scenario, which, fixed=True), ggml_faults.run(scenario, which)
    options = small(scenario, EngineOptions())
    return run(scenario, replace(options, fixed=True)), run(scenario, options)


def small(scenario: Scenario, options: EngineOptions) -> EngineOptions:
    """Return the options at the small size; a model of one's own has its own, except for steps."""
    if isinstance(scenario.training, OwnTraining):
        return replace(options, steps=max(SMALL_SIZE.steps or 1, scenario.least_steps))
    return replace(options, layers=SMALL_SIZE.layers, seq=SMALL_SIZE.seq, steps=SMALL_SIZE.steps)


def graph(both: Sides) -> Iterator[str]:
    """Yield the ops round the fault with the places of its parties, before and after."""
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
        yield f"{words}: the ops round the fault{f', run {place}' if len(runs) > 1 else ''}"
        known = [buffer for buffer in buffers if buffer < len(program.buffers)]
        yield from (f"  {line}" for line in describe_round(program, plan, near, known).splitlines())
        yield ""


def picture(scenario: AnyScenario, both: Sides, *, told: bool = True) -> "Figure":
    """Return the picture of both sides, with the story above them if it is to be `told`."""
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
