"""The worst waste of each planner: small instances on which its peak is far above the least there is.

    python benchmarks/worst.py [--tries N] [--planners NAME,...] [--data FOLDER] [--out FILE]

From a drawn instance of at most `BUFFERS` buffers, one buffer at a time is changed (its life, its size), added or left out; what does
not lower the ratio is kept. The ratio is the planner's peak over the least peak, which `exact` proves. Begun anew where nothing helps for
long. All is drawn from one seed and the planner's name, and each of `tries` instances is planned, so a longer search finds no less. A name is
one of the shelf or, as for `--allocator`, another planner that places what it is given (a function of a problem, `cmd:`, `lib:`). The worst
instances are kept as CSV files of minimalloc in `tests/data/worst`, and tests hold the shelf to the ratios found there.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness import DATA, Found, run

from allocsim.allocators import ALLOCATORS, find
from allocsim.model import Arena, Document, Problem
from allocsim.programs.builder import ProgramBuilder
from allocsim.systems.minimalloc import solver_instance as minimalloc

BUFFERS: Final = 12
STEPS: Final = 10
SIZES: Final = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24)
UNIT: Final = 64
"""Bytes of a size of 1."""
PATIENCE: Final = 300
"""Instances in turn that are no worse, after which another one is drawn."""
KNOWN: Final = ("reference", "best", "exact", "caching")
"""Left out: what reuses nothing, what searches, and what takes segments of megabytes."""

Row = tuple[int, int, int]
"""First step, the one after the last, size in units."""


def drawn(rng: random.Random) -> Row:
    """One buffer."""
    start = rng.randrange(STEPS)
    return start, rng.randrange(start, STEPS) + 1, rng.choice(SIZES)


def changed(rows: list[Row], rng: random.Random) -> list[Row]:
    """An instance with one buffer changed, added or left out."""
    rows, place = list(rows), rng.randrange(len(rows))
    what = rng.random()
    if what < 0.15 and len(rows) > 2:
        del rows[place]
    elif what < 0.3 and len(rows) < BUFFERS:
        rows.insert(place, drawn(rng))
    elif what < 0.6:
        rows[place] = (*rows[place][:2], rng.choice(SIZES))
    else:
        rows[place] = (*drawn(rng)[:2], rows[place][2])
    return rows


def problem(rows: list[Row]) -> Problem:
    """The problem of an instance."""
    builder = ProgramBuilder("worst", arenas=(Arena(name="memory", alignment=1),))
    for place, (_, _, size) in enumerate(rows):
        builder.buffer(f"b{place}", UNIT * size)
    return Problem.of(builder.build(), start=[row[0] for row in rows], stop=[row[1] for row in rows])


def least(told: Problem) -> int:
    """The least peak, proved."""
    plan = ALLOCATORS["exact"].place(told)
    assert plan.meta["exact"]["proved"]
    return plan.peak_bytes


def search(planner: str, tries: int) -> tuple[float, list[Row]]:
    """The worst ratio found and its instance."""
    rng, found = random.Random(f"worst {planner}"), find(planner)  # noqa: S311 - no secret
    best: tuple[float, list[Row]] = 0.0, []
    here: tuple[float, list[Row]] = 0.0, []
    stuck = PATIENCE
    for _ in range(tries):
        rows = [drawn(rng) for _ in range(BUFFERS)] if stuck >= PATIENCE else changed(here[1], rng)
        told = problem(rows)
        ratio = found.place(told).peak_bytes / least(told)
        if stuck >= PATIENCE or ratio >= here[0]:
            stuck = 0 if stuck >= PATIENCE or ratio > here[0] else stuck + 1
            here = ratio, rows
        else:
            stuck += 1
        if ratio > best[0] or (ratio == best[0] and len(rows) < len(best[1])):
            best = ratio, rows
    return best


def measure(*, tries: int = 2000, planners: tuple[str, ...] = (), data: str = str(DATA / "worst")) -> Iterator[Found]:
    """Search, and write the instances."""
    Path(data).mkdir(exist_ok=True)
    found: Found = {}
    for planner in planners or [name for name in ALLOCATORS if name not in KNOWN]:
        ratio, rows = search(planner, tries)
        told = problem(rows)
        document = Document(programs=(told.program,), problems=(told,))
        (Path(data) / f"{planner.replace('/', '-')}.csv").write_bytes(minimalloc.dumps(document))
        found[planner] = {"ratio": round(ratio, 4), "buffers": len(rows)}
        yield found


if __name__ == "__main__":
    run(measure)
