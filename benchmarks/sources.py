"""Programs a CPU second by source, against another tree, for programs of the size that both draw.

    python benchmarks/sources.py FOLDER [--sources NAME,...] [--rounds N] [--programs N] [--out FILE]

FOLDER is a checkout of an earlier version. Both trees are run in turn, each in a process of its own, with
`greedy_by_size` as the target: programs as Hypothesis drew them before there were large ones (`programs()`),
batches of the bulk source without those of real sizes, and the exhaustive source. CPU seconds are those of the
campaign and of all the target's processes, also of one whose nursery ended first; the figure is the median ratio of
the rounds. What every campaign takes to begin (a process that imports the target) is in it. With `--programs` the
first N of each source alone are asked. Rows of sources that are not asked stay.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from harness import ROOT, Found, child, kept, loop_ns, run

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


def measure(
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
    run(measure, failed="slower")
