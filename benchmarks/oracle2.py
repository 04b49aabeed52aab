"""A hundred thousand random documents of version 2, judged by the judge and by an oracle that shares no code with it: where the two differ, and what was in them.

    python benchmarks/oracle2.py [--documents 100000] [--first SEED] [--out FILE] [--add]

The oracle is that of `tests/oracle2`; `tests/laws/test_oracle2.py` asks it in every run of the tests, here any range of seeds can be asked. `--add`
joins the range to what FILE holds already; a seed is counted once, and the seeds of FILE that differed are judged again. `differences` must be 0; exit status 1 where it is not. `remat-scan` of `tests/data/cases`, clean and
20 s of the oracle's, is judged by it first: the tests ask it of the other cases. `features` says how many
documents had each feature that the generator must draw.
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

from agreement_2 import agree  # noqa: E402 - after the paths above
from encodings_2 import case  # noqa: E402 - as above
from oracle2 import judge  # noqa: E402 - as above
from oracle2.features import FEATURES, features  # noqa: E402 - as above
from oracle2.generate import generate  # noqa: E402 - as above


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description="Random documents of version 2 against an independent oracle.")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "oracle2.json")
    parser.add_argument("--add", action="store_true", help="join what FILE holds already")
    options = parser.parse_args()
    asked = [options.first, options.first + options.documents]
    before: dict[str, Any] = json.loads(options.out.read_text()) if options.add and options.out.exists() else {}
    for low, high in before.get("seeds", ()):
        if max(low, asked[0]) < min(high, asked[1]):
            sys.exit(f"seeds {asked[0]} to {asked[1]} meet {low} to {high}, which are in {options.out}")
    if judge(case("remat-scan")).violations:
        sys.exit("the oracle accuses remat-scan, which is clean")
    began, counts = time.process_time(), Counter[str](before.get("features", {}))
    differing = [seed for seed in before.get("differing", ()) if not agrees(seed)]
    for seed in range(*asked):
        if not agrees(seed):
            differing.append(seed)
        counts.update(FEATURES & features(generate(seed)))
    results: dict[str, Any] = {
        "documents": before.get("documents", 0) + options.documents,
        "seeds": joined([*before.get("seeds", ()), asked]),
        "differences": len(differing),
        "differing": differing,
        "features": {name: counts[name] for name in sorted(FEATURES)},
        "cpu_seconds": round(before.get("cpu_seconds", 0) + time.process_time() - began),
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print({name: results[name] for name in ("documents", "seeds", "differences", "cpu_seconds")})
    print(f"drawn least: {min(results['features'].items(), key=lambda item: item[1])}")
    return int(bool(differing))


def agrees(seed: int) -> bool:
    """Say whether judge and oracle agree on a document; a crash of either is a difference too."""
    try:
        agree(seed)
    except Exception as error:  # noqa: BLE001 - as said
        print(f"seed {seed}: {type(error).__name__}", flush=True)
        return False
    return True


def joined(ranges: list[list[int]]) -> list[list[int]]:
    """Return half-open ranges in order, those that touch as one."""
    found: list[list[int]] = []
    for low, high in sorted(ranges):
        if found and found[-1][1] == low:
            found[-1][1] = high
        else:
            found.append([low, high])
    return found


if __name__ == "__main__":
    sys.exit(main())
