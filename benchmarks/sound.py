"""A hundred thousand sound programs with plans, beliefs and sessions, made without any planner: what is in them, and what the judge says against them.

    python benchmarks/sound.py [--programs 100000] [--first SEED] [--out FILE]

The programs are those of `tests/generation.py`, a thousand to a document, judged by S, L, H and R and by the verdict. `accusations` must be 0; exit status 1 where
it is not. `tests/power/test_sound.py` does the same in every run of the tests; here any number can be judged, from any seed.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

from generation import lot  # noqa: E402 - after the paths above
from power.accusations import accusations  # noqa: E402 - as above

LOT = 1000


def main() -> int:
    """Judge, print, write."""
    parser = argparse.ArgumentParser(description="Sound programs, and nothing said against them.")
    parser.add_argument("--programs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first thousand")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "sound.json")
    options = parser.parse_args()
    counts, seconds, accused = Counter[str](), Counter[str](), dict[int, list[str]]()
    for seed in range(options.first, options.first + -(-options.programs // LOT)):
        began = time.process_time()
        one = lot(seed, count=LOT, ops=4)
        made = time.process_time()
        said = accusations(one.document)
        seconds.update(making=made - began, judging=time.process_time() - made)
        counts.update(programs=one.programs, in_place=one.in_place, sessions=one.sessions, streams=one.streams)
        counts.update(ops=len(one.document.programs[0].ops), runs=one.programs * len(one.document.runs))
        if said:
            accused[seed] = said
    results: dict[str, Any] = {
        "programs": counts["programs"],
        "seeds": [options.first, options.first + counts["programs"] // LOT],
        "ops": counts["ops"],
        "runs": counts["runs"],
        **{
            f"{name}_percent": round(100 * counts[name] / counts["programs"], 1)
            for name in ("in_place", "sessions", "streams")
        },
        "accusations": sum(map(len, accused.values())),
        "cpu_seconds": {name: round(spent, 1) for name, spent in seconds.items()},
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(results)
    for seed, said in accused.items():
        print(f"seed {seed}: {said[0]}")
    return int(bool(accused))


if __name__ == "__main__":
    sys.exit(main())
