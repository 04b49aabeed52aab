"""How many programs a second a core gets through, by source of programs: made, planned and judged, each apart.

    python benchmarks/fuzzing.py [--out FILE] [--target NAME] [--scale 1.0]

CPU seconds of one process and of the process of the target it drives, all that either took, after a first chunk that compiles and warms up and is not
counted. `rest` is this process alone, without the target's, whose planning is its author's affair. For the exhaustive scope also how many programs a second are only made, and how many are
made and judged (sound, no worse) under plans with beliefs that were made before: what the aim is about.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from harness import Found, cpu, run

from allocsim.allocators import ALLOCATORS
from allocsim.errors import EngineError
from allocsim.fuzzing import CampaignSpec, Explorer, SourceChunk, Target
from allocsim.fuzzing.exhaustive import SIZE, Odometer, total
from allocsim.fuzzing.properties import unsound_among, worse_among
from engine.d_differential.execution import execute

AIMS = {"hypothesis": 100, "bulk": 3_000, "bulk, executed": 200, "exhaustive": 200_000}
"""Programs a second a core that are aimed at."""

OPS = 5
"""Scope of the exhaustive rows."""

SIZES = {"hypothesis": 250, "bulk": 8192, "bulk, executed": 2048, "exhaustive": 8192}


def measure(*, target: str = "greedy_by_size", scale: float = 1.0) -> Iterator[Found]:
    """Measure every source; `scale` is of the number of programs."""
    rows: list[Found] = []
    for name in (*SIZES, ""):
        rows.append(measured(name, target, max(int(SIZES[name] * scale), 64)) if name else enumerated(scale))
        print(rows[-1], flush=True)
        yield {"target": target, "unit": "programs per CPU second", "rows": rows}


def measured(name: str, target: str, size: int) -> dict[str, Any]:
    """Return the rates of one source."""
    source = name.partition(",")[0]
    runs = execute if name.endswith("executed") else None
    what: dict[str, Any] = {"ops": OPS} if source == "exhaustive" else {"runnable": True} if runs else {}
    asked = CampaignSpec(target=Target(name=target), source=source, execute=runs, options=what, reduce_seconds=0.0)
    begin: tuple[int, ...] = ()
    with Explorer(asked) as explorer:
        explorer.explore(SourceChunk(seed=1, number=0, count=min(size, 512), options=what, begin=begin), lambda _: None)
        if source == "exhaustive":
            odometer = Odometer(OPS)
            odometer.skip(total(OPS) // 2)
            begin = odometer.at
        began, theirs = time.process_time(), explorer.asker.cpu_seconds
        tally, _ = explorer.explore(
            SourceChunk(seed=1, number=2, count=size, options=what, begin=begin), lambda _: None
        )
        if source == "hypothesis":  # an odd chunk is steered
            tally += explorer.explore(SourceChunk(seed=1, number=3, count=size, options=what), lambda _: None)[0]
        mine = time.process_time() - began
        theirs = explorer.asker.cpu_seconds - theirs
    planning = tally.microseconds["planning"] / 1e6
    return {
        "source": name,
        "programs": tally.programs,
        "per_second": tally.programs / (mine + theirs),
        "rest_per_second": tally.programs / mine,
        "target_questions_per_second": tally.questions / planning,
        "aim": AIMS[name],
        "findings": sum(tally.broken.values()),
    }


def enumerated(scale: float) -> dict[str, Any]:
    """Return how fast the exhaustive scope is made, and made and judged under plans that a planner of the shelf made before."""
    seconds, count = cpu(lambda: total(OPS))
    planner = ALLOCATORS["greedy_by_size"]
    odometer = Odometer(OPS)
    odometer.skip(count // 2)
    spent, judged = 0.0, 0
    for turn in range(max(int(12 * scale), 3)):
        seconds_made, batch = cpu(lambda: odometer.batch(SIZE))
        if batch is None:
            raise EngineError(f"the scope of {OPS} ops has no more programs after batch {turn}")
        plan = planner.plan(batch.program)
        seconds_judged, wrong = cpu(lambda batch=batch, plan=plan: wrong_among(batch, plan))
        spent += (seconds_made + seconds_judged) * (turn > 0)  # the first one compiles
        if wrong:
            raise EngineError(f"programs {wrong[:5]} of a batch of {planner.name} are not planned as they should be")
        judged += len(batch) * (turn > 0)
    return {
        "source": f"every program of up to {OPS} ops, made and judged",
        "programs": judged,
        "per_second": judged / spent,
        "only_made_per_second": count / seconds,
        "aim": AIMS["exhaustive"],
        "of_the_scope": count,
    }


def wrong_among(batch: Any, plan: Any) -> list[int]:
    """Return the programs of a batch of which a plan is not sound, or worse than no reuse."""
    return [*unsound_among(replace(batch, plain=True), plan, None), *worse_among(batch, plan, None)]


if __name__ == "__main__":
    run(measure)
