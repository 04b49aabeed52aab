"""Planners of other systems, asked the same random problems as the shelf: sound or not, and bytes over the bound.

    ALLOCSIM_PEERS=python-with-them python benchmarks/live_planners.py [NAME ...] [--problems N] [--first SEED] [--out FILE]

A problem is drawn from its seed: up to 60 buffers with lives, sizes and pins, in one arena; as lives of a deep network (nested), of a chain, or at
random. Each plan is judged by `check`; `over` is the median of peak over the lower bound, `reference` how often no reuse at all needs less.
"""

import json
import random
import time
from collections.abc import Iterator
from statistics import median

from harness import Found, run

import numpy as np

from allocsim import Arena, Document, Problem, ProgramBuilder
from allocsim.allocators import find
from allocsim.allocators.live_planners import LIVE_PLANNERS
from allocsim.allocators.lower_bounds import lower_bound
from allocsim.errors import PlannerError
from allocsim.judge.fast import check

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


def asked(name: str, first: int, problems: int) -> Found:
    """Ask one planner, and judge what it says."""
    planner, faulty, refused, over, worse = find(name), list[int](), list[str](), list[float](), 0
    begin = time.perf_counter()
    for seed in range(first, first + problems):
        problem = drawn(seed)
        try:
            plan = planner.place(problem)
        except PlannerError as error:
            refused.append(f"{seed}: {error}"[:300])
            continue
        report = check(Document.of(plan))
        faulty += [seed] if report.violations else []
        over.append(report.stats.peak_bytes / max(lower_bound(problem), 1))
        worse += report.stats.peak_bytes > sum(-(-n // ALIGNMENT) * ALIGNMENT for n in problem.nbytes.tolist())
    about = {"planner": name, "problems": problems, "first": first, "faulty": faulty}
    return {
        **about,
        "refused": len(refused),
        "refusals": refused[:3],
        "over": round(median(over), 4) if over else None,
        "over_most": round(max(over), 3) if over else None,
        "above_reference": worse,
        "seconds": round(time.perf_counter() - begin, 1),
    }


def measure(*names: str, problems: int = 1000, first: int = 0) -> Iterator[Found]:
    """Ask one planner after the other."""
    rows: list[Found] = []
    for name in names or (*LIVE_PLANNERS, *SHELF):
        rows.append(asked(name, first, problems))
        print(json.dumps(rows[-1]), flush=True)
        yield {"rows": rows}


if __name__ == "__main__":
    run(measure)
