"""Which planner of the shelf keeps which law on pairs, promised or not, on programs drawn from one seed.

    python benchmarks/laws.py [--programs N] [--planners NAME,...] [--out FILE]

For each law and planner: so many pairs were asked, in so many the two answers break the law. `docs/fuzzing.md` has the table.
Exit status 1 where a promise was broken.
"""

from collections.abc import Iterator
from typing import Any, Final

from harness import Found, run

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.fuzzing.bulk import Cut, batch_of
from allocsim.fuzzing.exercised import Within
from allocsim.fuzzing.fuzz_case import FuzzCase
from allocsim.fuzzing.laws import LAWS, LawPair
from allocsim.fuzzing.told_constraints import gapped

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


def measure(*, programs: int = 200, planners: tuple[str, ...] = ()) -> Iterator[Found]:
    """Ask the planners that are named, or all."""
    asked = {law: list(pairs(law, programs)) for law in LAWS}
    rows: Found = {}
    for name in planners or ALLOCATORS:
        rows[name] = measured(name, asked)
        cells = (f"{'promised' if row['promised'] else row['broken']}" for row in rows[name].values())
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
        every = [(name, law, one) for name, row in rows.items() for law, one in row.items()]
        broken = [[name, law] for name, law, one in every if one["promised"] and one["broken"]]
        yield {"seed": SEED, "planners": rows, "promises broken": broken}


if __name__ == "__main__":
    run(measure, failed="promises broken", known={"planners": ALLOCATORS})
