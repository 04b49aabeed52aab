"""Real plans with one slot moved onto a live neighbour, every slot in turn: how many the judge misses.

    python benchmarks/shifts.py [--out FILE] [NAME...]

The plans are the dumps of ggml in `tests/data/ggml`, the law is that of `tests/laws/test_real_plans.py`, which moves some of the slots in every run
of the tests. `missed` must be 0; exit status 1 where it is not.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "laws")]  # this checkout, installed or not

from test_real_plans import NAMES, apart, check, dropped, given, missed, sames, shifts  # noqa: E402 - after the paths above


def main() -> int:
    """Move, judge, write."""
    parser = argparse.ArgumentParser(description="Every slot of real plans moved onto a live neighbour.")
    parser.add_argument("names", nargs="*", default=NAMES)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "shifts.json")
    options = parser.parse_args()
    began, plans = time.process_time(), dict[str, Any]()
    for name in options.names:
        made = given(name)
        away = [step for step in sames(made) if apart(made, step)]
        plans[name] = {
            "slots": int(made.plans[0].placed.sum()),
            "moved": len(shifts(name)),
            "missed": missed(name, shifts(name)),
            "same_dropped": len(away),
            "same_missed": [step for step in away if check(dropped(made, step)).clean],
        }
        print(name, plans[name], flush=True)
    results = {
        "moved": sum(plan["moved"] for plan in plans.values()),
        "missed": sum(len(plan["missed"]) for plan in plans.values()),
        "same_dropped": sum(plan["same_dropped"] for plan in plans.values()),
        "same_missed": sum(len(plan["same_missed"]) for plan in plans.values()),
        "plans": plans,
        "cpu_seconds": round(time.process_time() - began),
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    return int(bool(results["missed"] or results["same_missed"]))


if __name__ == "__main__":
    sys.exit(main())
