"""Planners of other systems, asked the same random problems as the shelf: sound or not, and bytes over the bound.

    ALLOCSIM_PEERS=python-with-them python benchmarks/live_planners.py [NAME ...] [--problems N] [--first SEED] [--out FILE]

A problem is drawn from its seed: up to 60 buffers with lives, sizes and pins, in one arena; as lives of a deep network (nested), of a chain, or at
random. Each plan is judged by `check`; `over` is the median of peak over the lower bound, `reference` how often no reuse at all needs less.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import Arena, Document, Problem, ProgramBuilder  # noqa: E402 - after the path above
from allocsim.allocators import find  # noqa: E402
from allocsim.allocators.live_planners import LIVE_PLANNERS  # noqa: E402
from allocsim.allocators.lower_bounds import lower_bound  # noqa: E402
from allocsim.errors import PlannerError  # noqa: E402
from allocsim.judge.fast import check  # noqa: E402

ALIGNMENT = 64
SHELF = ("greedy_by_size", "tlsf", "best_fit")


def drawn(seed: int) -> Problem:
    """Return the problem of a seed."""
    rng = random.Random(seed)  # noqa: S311 - cases, not secrets
    count, shape = rng.randint(1, 60), rng.choice(("nested", "chain", "random"))
    builder = ProgramBuilder(f"problem {seed}", arenas=[Arena(name="memory", alignment=ALIGNMENT)])
    lives = []
    for number in range(count):
        size = rng.choice((rng.randint(1, 100), 64 * rng.randint(1, 64), 1 << rng.randint(6, 20)))
        builder.buffer(f"b{number}", size)
        start = number if shape != "random" else rng.randrange(count)
        stop = 2 * count - number if shape == "nested" else start + rng.randint(1, 4 if shape == "chain" else count)
        lives.append((start, stop))
    start, stop = np.array(lives, dtype=np.int64).T
    pinned = np.array([rng.random() < 0.1 for _ in lives], dtype=np.bool_)
    return Problem.of(builder.build(), start=start, stop=stop, pinned=pinned)


def main() -> None:
    """Ask, judge, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[*LIVE_PLANNERS, *SHELF])
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "live_planners.json")
    options = parser.parse_args()
    rows = []
    for name in options.names:
        planner = find(name)
        faulty: list[int] = []
        refused: list[str] = []
        over: list[float] = []
        begin = time.perf_counter()
        worse = 0
        for seed in range(options.first, options.first + options.problems):
            problem = drawn(seed)
            try:
                plan = planner.place(problem)
            except PlannerError as error:
                refused.append(f"{seed}: {error}"[:300])
                continue
            report = check(Document.of(plan))
            if report.violations:
                faulty.append(seed)
            over.append(report.stats.peak_bytes / max(lower_bound(problem), 1))
            apart = sum(-(-n // ALIGNMENT) * ALIGNMENT for n in problem.nbytes.tolist())
            worse += report.stats.peak_bytes > apart
        row = {
            "planner": name,
            "problems": options.problems,
            "first": options.first,
            "faulty": faulty,
            "refused": len(refused),
            "refusals": refused[:3],
            "over": round(median(over), 4) if over else None,
            "over_most": round(max(over), 3) if over else None,
            "above_reference": worse,
            "seconds": round(time.perf_counter() - begin, 1),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
        options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
