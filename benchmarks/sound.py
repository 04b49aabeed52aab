"""A hundred thousand sound programs with plans, beliefs and sessions, made without any planner: what is in them, and what the judge says against them.

    python benchmarks/sound.py [--programs 100000] [--first SEED] [--out FILE]

The programs are those of `tests/generation.py`, a thousand to a document, judged by S, L, H and R and by the verdict. `accusations` must be 0; exit status 1 where
it is not. `tests/power/test_sound.py` does the same in every run of the tests; here any number can be judged, from any seed.
"""

import time
from collections import Counter

from harness import Found, run

from generation import lot
from power.accusations import accusations

LOT = 1000


def measure(*, programs: int = 100_000, first: int = 0) -> Found:
    """Make and judge them, a thousand for each seed from the first."""
    counts, seconds, accused = Counter[str](), Counter[str](), dict[int, list[str]]()
    for seed in range(first, first + -(-programs // LOT)):
        began = time.process_time()
        one = lot(seed, count=LOT, ops=4)
        made = time.process_time()
        said = accusations(one.document)
        seconds.update(making=made - began, judging=time.process_time() - made)
        counts.update(programs=one.programs, in_place=one.in_place, sessions=one.sessions, streams=one.streams)
        counts.update(ops=len(one.document.programs[0].ops), runs=one.programs * len(one.document.runs))
        if said:
            accused[seed] = said
            print(f"seed {seed}: {said[0]}")
    shares = {name: round(100 * counts[name] / counts["programs"], 1) for name in ("in_place", "sessions", "streams")}
    return {
        "programs": counts["programs"],
        "seeds": [first, first + counts["programs"] // LOT],
        **{name: counts[name] for name in ("ops", "runs")},
        **{f"{name}_percent": share for name, share in shares.items()},
        "accusations": sum(map(len, accused.values())),
        "cpu_seconds": {name: round(spent, 1) for name, spent in seconds.items()},
    }


if __name__ == "__main__":
    run(measure, failed="accusations")
