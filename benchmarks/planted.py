"""Known bugs planted into the shelf as targets of `allocsim fuzz`: how long each takes to be found, and how small it gets.

    python benchmarks/planted.py [--seeds N] [--seconds S] [--out FILE] [NAME...]

Each mutant is a target in a process of its own, as a stranger would be, and is fuzzed from each of the seeds 0 to N - 1 until its first finding is
there, reduced. Seconds are processor time of campaign and target together, from the first program to the first finding, with what either compiles on its
first call; a campaign without a finding after `--seconds` is over. Beside the JSON a table for people is written. Of several seeds the worst one is in the table.

The exit status is the number of mutants that were not found in `SECONDS` or not shrunk to `OPS` ops, from some seed.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.fuzzing import BrokenProperty, CampaignSpec, Explorer, Target, chunks  # noqa: E402 - after the path above
from allocsim.fuzzing.mutants import MUTANTS  # noqa: E402 - as above

SECONDS: Final = 60.0
"""A planted bug is found in this time."""

OPS: Final = 6
"""A finding has no more ops than this."""


class Enough(BaseException):
    """A finding is there, and reduced; or the time is up."""


def main() -> int:
    """Measure, print, write; return how many planted bugs miss the aims."""
    parser = argparse.ArgumentParser(description="Known bugs as targets.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="CPU time for one campaign")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "planted.json")
    parser.add_argument("names", nargs="*", default=list(MUTANTS))
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.names:
        results[name] = [found(name, seed, options.seconds) for seed in range(options.seeds)]
        print(row(name, results[name]), flush=True)
        record = {
            "unit": "CPU seconds of campaign and target",
            "aims": {"seconds": SECONDS, "ops": OPS},
            "mutants": results,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
        options.out.with_suffix(".md").write_text(table(results))
    return sum(not reaches(runs) for runs in results.values())


def found(name: str, seed: int, seconds: float) -> dict[str, Any]:
    """Return when a mutant was found from one seed, by what, and how small its case is."""
    asked = CampaignSpec(target=Target(name=f"allocsim.fuzzing.mutants:{name}"), source="hypothesis", seed=seed)
    told: list[tuple[float, BrokenProperty]] = []

    def tell(finding: BrokenProperty) -> None:
        told.append((spent(), finding))
        if finding.reduced:
            raise Enough

    with Explorer(asked) as explorer:
        begun = time.process_time()

        def spent() -> float:
            return time.process_time() - begun + explorer.asker.cpu_seconds

        programs = 0
        try:
            for chunk in chunks("hypothesis", seed=seed, options={}, total=None):
                programs += explorer.explore(chunk, tell)[0].programs
                if told or spent() > seconds:
                    break
        except Enough:
            pass
    if not told:
        return {"seed": seed, "seconds": None, "programs": programs}
    small = min((finding for _, finding in told), key=lambda finding: (finding.ops, finding.size))
    return {
        "seed": seed,
        "seconds": round(told[0][0], 2),
        "reduced_seconds": round(told[-1][0], 2),
        "property": small.breaks,
        "cause": small.cause,
        "ops": small.ops,
        "minimal": small.reduced,
    }


def reaches(runs: Sequence[dict[str, Any]]) -> bool:
    """Return whether a mutant was found in time and made small, from every seed."""
    return all(run["seconds"] is not None and run["seconds"] <= SECONDS and run["ops"] <= OPS for run in runs)


def row(name: str, runs: Sequence[dict[str, Any]]) -> str:
    """Return a line of the table: the slowest and the largest of all seeds."""
    about = MUTANTS[name]
    if any(run["seconds"] is None for run in runs):
        return f"| `{name}` | {about.class_} | {about.into} | not found | | |"
    slowest, ops = max(run["seconds"] for run in runs), max(run["ops"] for run in runs)
    by = ", ".join(sorted({run["property"] for run in runs}))
    return f"| `{name}` | {about.class_} | {about.into} | {slowest:.1f} | {ops} | {by} |"


def table(results: dict[str, Any]) -> str:
    """Return the table for people."""
    seeds = len(next(iter(results.values())))
    good = sum(map(reaches, results.values()))
    return "\n".join(
        (
            f"{len(results)} known bugs as targets of the fuzzer, from {seeds} seeds each: {good} are found within {SECONDS:g} s and shrunk to at most {OPS} ops from all of them.",
            "Written by `benchmarks/planted.py`; CPU seconds of campaign and target until the first finding, and its ops once reduced, are those of the worst seed.",
            "",
            "| planted bug | class | planted into | seconds | ops | broken property |",
            "|---|---|---|---|---|---|",
            *(row(name, runs) for name, runs in results.items()),
            "",
        )
    )


if __name__ == "__main__":
    sys.exit(main())
