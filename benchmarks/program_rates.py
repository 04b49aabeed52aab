"""How many programs a second a core gets through, by source of programs.

    python benchmarks/program_rates.py fuzzing [--out FILE] [--target NAME] [--scale 1.0]
    python benchmarks/program_rates.py sources FOLDER [--sources NAME,...] [--rounds N] [--programs N] [--out FILE]

`fuzzing`: how many programs a second a core gets through, by source of programs: made, planned and judged, each apart. CPU seconds of one process and of the
process of the target it drives, all that either took, after a first chunk that compiles and warms up and is not counted. `rest` is this process alone,
without the target's, whose planning is its author's affair. For the exhaustive scope also how many programs a second are only made, and how many are made and
judged (sound, no worse) under plans with beliefs that were made before: what the aim is about.

`sources`: programs a CPU second by source, against another tree, for programs of the size that both draw. FOLDER is a checkout of an earlier version. Both
trees are run in turn, each in a process of its own, with `greedy_by_size` as the target: programs as Hypothesis drew them before there were large ones
(`programs()`), batches of the bulk source without those of real sizes, and the exhaustive source. CPU seconds are those of the campaign and of all the
target's processes, also of one whose nursery ended first; the figure is the median ratio of the rounds. What every campaign takes to begin (a process that
imports the target) is in it. With `--programs` the first N of each source alone are asked. Rows of sources that are not asked stay.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from harness import ROOT, Found, child, cpu, grown, kept, loop_ns, run_one_of

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


def fuzzing(*, target: str = "greedy_by_size", scale: float = 1.0) -> Iterator[Found]:
    """Measure every source; `scale` is of the number of programs."""
    rows = (
        measured(name, target, max(int(SIZES[name] * scale), 64)) if name else enumerated(scale)
        for name in (*SIZES, "")
    )
    return grown(rows, under="rows", target=target, unit="programs per CPU second")


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


ASKED: Final = {
    "hypothesis": {"examples": 2000, "options": {"strategy": "allocsim.fuzzing.strategies:programs"}},
    "bulk": {"examples": 49_152, "options": {}},
    "exhaustive": {"examples": None, "options": {"ops": 5}},
}
"""What is asked of each source."""
RUN: Final = """
import ctypes, json, os, resource, sys
ctypes.CDLL(None).prctl(36, 1)  # whoever loses his parent becomes ours, and his time is counted
from allocsim.fuzzing import CampaignSpec, Target, bulk, campaign
source, asked = json.loads(sys.argv[1])
for name in ("WIDE", "LONG"):
    if hasattr(bulk, name):
        setattr(bulk, name, 1 << 30)
target = Target(name="greedy_by_size")
spec = lambda examples: CampaignSpec(target=target, source=source, seed=0, **{**asked, "examples": examples})
def spent():
    try:
        while os.waitpid(-1, 0):
            pass
    except ChildProcessError:
        pass
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
if source == "exhaustive":
    campaign(CampaignSpec(target=target, source=source, options={"ops": 2}))
else:
    campaign(spec(20))
begun = spent()
programs = campaign(spec(asked["examples"])).tally.programs
print(json.dumps([programs, spent() - begun]))
"""
"""One campaign, after a small one that compiles; prints its programs and CPU seconds."""


def rate(tree: Path, source: str, programs: int) -> float:
    """Return the programs a CPU second of a source in a tree, of the first ones where a number is given."""
    asked = ASKED[source] | ({"examples": programs} if programs else {})
    said = child("-c", RUN, json.dumps([source, asked]), quiet=True, cwd=tree, PYTHONPATH=str(tree.resolve()))
    programs, seconds = json.loads(said[-1])
    return float(programs / seconds)


def sources(
    against: str, *, sources: tuple[str, ...] = tuple(ASKED), rounds: int = 3, programs: int = 0, out: Path
) -> Iterator[Found]:
    """Measure both trees in turn."""
    results: Found = kept(out).get("sources", {})
    for source in sources:
        begun = loop_ns()
        pairs = [(rate(Path(against), source, programs), rate(ROOT, source, programs)) for _ in range(rounds)]
        results[source] = {
            "rounds": rounds,
            "programs": programs or ASKED[source]["examples"],
            "loop_ns": [begun, loop_ns()],
            "before": round(median(before for before, _ in pairs), 1),
            "now": round(median(now for _, now in pairs), 1),
            "ratio": round(median(now / before for before, now in pairs), 3),
        }
        print(source, results[source], flush=True)
        slower = [name for name, row in results.items() if row["ratio"] < 1]
        yield {"unit": "programs a CPU second, the median of the rounds", "sources": results, "slower": slower}


if __name__ == "__main__":
    run_one_of(fuzzing, sources, failed={"sources": "slower"})
