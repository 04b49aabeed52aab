"""Known bugs planted into the shelf as targets of `allocsim fuzz`: how long each takes to be found, and how small it gets.

    python benchmarks/planted.py [--seed N] [--examples N] [--out FILE] [NAME...]

Each mutant is a target in a process of its own, as a stranger would be. `found_seconds` is processor time of the campaign until the first
finding, without the target's own and with what the campaign compiles on its first call, `ops` the ops of the smallest finding once it is reduced.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.fuzzing import Asked, Explorer, Finding, Target, chunks  # noqa: E402 - after the path above
from allocsim.fuzzing.mutants import MUTANTS  # noqa: E402 - as above


class Enough(BaseException):
    """A finding is there, and reduced."""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description="Known bugs as targets.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "planted.json")
    parser.add_argument("names", nargs="*", default=list(MUTANTS))
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.names:
        results[name] = found(name, options.seed, options.examples)
        print(f"{name:34} {results[name]}", flush=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")


def found(name: str, seed: int, examples: int) -> dict[str, Any]:
    """Return when a mutant was found, by what, and how small its case is."""
    asked = Asked(target=Target(name=f"allocsim.fuzzing.mutants:{name}"), source="hypothesis", seed=seed)
    first: list[float] = []
    last: list[Finding] = []

    def tell(finding: Finding) -> None:
        first.append(time.process_time() - began)
        last.append(finding)
        if finding.reduced:
            raise Enough

    with Explorer(asked) as explorer:
        began = time.process_time()
        programs = 0
        try:
            for chunk in chunks("hypothesis", seed=seed, options={}, total=examples):
                tally, _ = explorer.explore(chunk, tell)
                programs += tally.programs
        except Enough:
            pass
    if not last:
        return {"class": MUTANTS[name].class_, "found_seconds": None, "programs": programs}
    small = min(last, key=lambda finding: (finding.ops, finding.size))
    return {
        "class": MUTANTS[name].class_,
        "found_seconds": round(first[0], 2),
        "property": small.breaks,
        "cause": small.cause,
        "ops": small.ops,
        "reduced": small.reduced,
    }


if __name__ == "__main__":
    main()
