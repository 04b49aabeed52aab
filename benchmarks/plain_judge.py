"""The plain judge against the columns on many random documents: every field of every record but its words, order, counts and sizes.

    python benchmarks/plain_judge.py [--documents 100000] [--first SEED] [--out FILE] [--add]

Documents of version 2 are those of `tests/oracle2/generate.py`, one for each seed; every second one is judged with all screens forced on. For each
hundred of them one is drawn from `tests/strategies.py`: version 1, plans with faults, wrong beliefs, events, stale plans. `--add` joins the range to what FILE holds already.
`differences` must be 0; exit status 1 where it is not. The first version of the plain judge was frozen before it was compared: what it
differed in, and which side the text convicted, stands under `first_version` in FILE and is kept.
"""

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

import strategies  # noqa: E402 - after the paths above
from agreement_plain import agree, compare  # noqa: E402 - as above

from allocsim import document as native  # noqa: E402 - as above

FAULTY = st.one_of(strategies.documents(), strategies.documents(sound=True), strategies.instances())


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description="Random documents, judged by two judges.")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "plain_judge.json")
    parser.add_argument("--add", action="store_true", help="join what FILE holds already")
    options = parser.parse_args()
    asked = [options.first, options.first + options.documents]
    kept: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    before = kept if options.add else {}
    began, counts = time.process_time(), Counter[str]()
    differing = list(before.get("differing", ()))
    for number in range(*asked):
        counts["screens forced on"] += number % 2 == 0
        if differs(lambda number=number: agree(number, screens=number % 2 == 0), f"seed {number}"):
            differing.append(number)
    drawn = drawn_and_compared(options.first, options.documents // 100)
    results: dict[str, Any] = {
        "version_2": before.get("version_2", 0) + options.documents,
        "screens_forced_on": before.get("screens_forced_on", 0) + counts["screens forced on"],
        "version_1": before.get("version_1", 0) + drawn["documents"],
        "seeds": [*before.get("seeds", ()), asked],
        "differences": len(differing) + drawn["differences"],
        "differing": differing,
        "cpu_seconds": round(before.get("cpu_seconds", 0) + time.process_time() - began),
        "first_version": kept.get("first_version", {}),
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print({name: results[name] for name in ("version_2", "version_1", "seeds", "differences", "cpu_seconds")})
    return int(bool(results["differences"]))


def differs(compared: Any, what: str) -> bool:
    """Return whether two judges differ, or one of them crashes."""
    try:
        found = compared()
    except Exception as error:  # noqa: BLE001 - a crash of either is a difference
        found = [f"{type(error).__name__}: {error}"]
    if found:
        print(what, found, flush=True)
    return bool(found)


def drawn_and_compared(first: int, count: int) -> Counter[str]:
    """Compare on documents that Hypothesis draws from a seed, and count."""
    counts: Counter[str] = Counter(documents=0, differences=0)

    @seed(first)
    @settings(max_examples=max(count, 1), database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(FAULTY)
    def each(document: Any) -> None:
        counts["documents"] += 1
        counts["differences"] += differs(lambda: compare(json.loads(native.dumps(document))), "a document of version 1")

    each()
    return counts


if __name__ == "__main__":
    sys.exit(main())
