"""Programs a second of a planner in a shared library: `docs/planners/library.c`, built here.

    python benchmarks/library.py [--programs N] [--out FILE]

Two figures, in processor time: the planner alone, asked batches of the exhaustive source, its belief made anew
for each (`LibraryPlanner.plan_parts`); and a whole campaign, in which each program is asked twice, once more
with everything pinned and once more with something told, and all plans are judged. The exit status is 1 where
the planner alone answers fewer than `AIM` programs a second.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from harness import ROOT, Found, run

from allocsim.allocators import Constraints
from allocsim.allocators.by_library import find_library
from allocsim.fuzzing import CampaignSpec, Target, campaign, chunks
from allocsim.fuzzing.exhaustive import batches

AIM: Final = 20_000
"""Programs a second that the planner answers, at least."""

OPS: Final = 5


def measure(*, programs: int = 200_000) -> Found:
    """Build and ask."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "library.so"
        compiler = shutil.which("cc") or sys.exit("there is no cc")
        source = ROOT / "docs" / "planners" / "library.c"
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
        figures = {
            "unit": "programs a second of processor time",
            "aim": AIM,
            "planner_alone": round(alone(f"lib:{library}", programs)),
            "campaign": round(in_a_campaign(f"lib:{library}")),
        }
    return {**figures, "too_slow": figures["planner_alone"] < AIM}


def alone(name: str, programs: int) -> float:
    """Return the programs a second that the planner answers, in batches of the exhaustive source."""
    planner, answered, seconds = find_library(name), 0, 0.0
    for chunk in chunks("exhaustive", seed=0, options={"ops": OPS}, total=None):
        for batch in batches(OPS, chunk.begin, chunk.count):
            begun = time.process_time()
            told = Constraints.of(batch.program)
            starts = {"op_starts": batch.op_starts, "buffer_starts": batch.buffer_starts}
            planner.plan_parts(batch.program, told, **starts, arenas=batch.arenas)
            seconds += time.process_time() - begun
            answered += len(batch)
        if answered >= programs:
            break
    planner.close()
    return answered / seconds


def in_a_campaign(name: str) -> float:
    """Return the programs a second of a campaign over every program of up to four ops."""
    asked = CampaignSpec(target=Target(name=name), source="exhaustive", options={"ops": 4})
    tally = campaign(asked).tally
    return tally.programs / (sum(tally.microseconds.values()) / 1e6)


if __name__ == "__main__":
    run(measure, failed="too_slow")
