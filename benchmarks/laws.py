"""Which planner of the shelf keeps which law on pairs, promised or not, on programs drawn from one seed.

    python benchmarks/laws.py [--programs N] [--planners NAME ...] [--out FILE]

For each law and planner: so many pairs were asked, in so many the two answers break the law. `docs/fuzzing.md` has the table.
The exit status is the number of promises that were broken.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.allocators import ALLOCATORS  # noqa: E402 - after the path above
from allocsim.fuzzing.bulk import Cut, batch_of  # noqa: E402 - as above
from allocsim.fuzzing.exercised import Within  # noqa: E402 - as above
from allocsim.fuzzing.fuzz_case import FuzzCase  # noqa: E402 - as above
from allocsim.fuzzing.laws import LAWS, LawPair  # noqa: E402 - as above
from allocsim.fuzzing.told_constraints import gapped  # noqa: E402 - as above

SEED: Final = 33


def pairs(law: str, programs: int) -> Iterator[LawPair]:
    """Yield two pairs at most of each program; a batch in four has arenas with an end."""
    for number in range(4):
        batch = batch_of(np.random.default_rng([SEED, number]), programs // 4, capped=number == 3)
        for case in Cut(batch):
            told = gapped(case.program) if LAWS[law].of_lives else FuzzCase(program=case.program)
            yield from LAWS[law].pairs(told, 2)


def measured(name: str, asked: dict[str, list[LawPair]]) -> dict[str, Any]:
    """Return of each law how many pairs were asked of a planner, in how many it is broken, and whether it is promised."""
    within = Within(ALLOCATORS[name])
    row: dict[str, Any] = {}
    for law, made in asked.items():
        broken = sum(LAWS[law].broken(pair, *within.ask([pair.one, pair.other])) is not None for pair in made)
        row[law] = {"pairs": len(made), "broken": broken, "promised": law in ALLOCATORS[name].guarantees}
    return row


def main() -> int:
    """Ask, print, write; return how many promises are broken."""
    parser = argparse.ArgumentParser(description="Laws on pairs, by planner.")
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--planners", nargs="+", choices=list(ALLOCATORS), default=list(ALLOCATORS))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "laws.json")
    options = parser.parse_args()
    asked = {law: list(pairs(law, options.programs)) for law in LAWS}
    rows: dict[str, Any] = {}
    for name in options.planners:
        rows[name] = measured(name, asked)
        cells = (f"{'promised' if row['promised'] else row['broken']}" for row in rows[name].values())
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
        options.out.write_text(json.dumps({"seed": SEED, "planners": rows}, indent=1) + "\n")
    return sum(row["promised"] and row["broken"] > 0 for laws in rows.values() for row in laws.values())


if __name__ == "__main__":
    sys.exit(main())
