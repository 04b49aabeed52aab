"""The five models of `examples/` under every planner of the shelf, and with each of six planted faults: which verdict, which party, which cure.

    python benchmarks/own_models.py [--steps N] [--planners NAME,...] [--seconds S] [--out FILE]

Each model is diagnosed as `allocsim diagnose examples.NAME:CASE --allocator PLANNER` does it. A row is `clean` where nothing wrong was found; a fault is
`convicted` where the verdict names its class and party and nothing else, `cured` where a cure was found and run. Rows that are in FILE are not made again,
and it is written after each; `wrong` names every row that is not as it must be, with what was said.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

from planted_models import EXAMPLES, FAULTS, case, options_of, planted  # noqa: E402 - after the path above

from allocsim.allocators import ALLOCATORS  # noqa: E402
from repro.options import EngineOptions  # noqa: E402
from repro.run import run  # noqa: E402


def row(name: str, what: str, options: EngineOptions) -> dict[str, object]:
    """Diagnose one model with a fault, or under a planner."""
    if what in FAULTS:
        result = run(planted(name, what, options), options_of(what, options))
        good = {"convicted": result.matches, "cured": result.evidence.cure is not None}
    else:
        result = run(case(name), replace(options, allocator=what))
        good = {"clean": result.verdict.sound}
    return {**good, **({} if all(good.values()) else {"said": result.verdict.text})}


def main() -> int:
    """Make the rows that are missing; 1 if one is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "own_models.json")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Begin no row after so long.")
    parser.add_argument(
        "--planners", default=",".join(ALLOCATORS), help="Names joined by commas; all of the shelf by default."
    )
    asked = parser.parse_args()
    options, began = EngineOptions(steps=asked.steps), time.monotonic()
    found = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {}
    rows = found.get("rows", {}) if found.get("steps") == asked.steps else {}
    for what in (*FAULTS, *asked.planners.split(",")):
        for name in EXAMPLES:
            key = f"{name}, {what}"
            if key in rows or time.monotonic() - began > asked.seconds:
                continue
            rows[key] = row(name, what, options)
            wrong = {key: one for key, one in rows.items() if "said" in one}
            counts = {
                sort: sum(bool(one.get(sort)) for one in rows.values()) for sort in ("clean", "convicted", "cured")
            }
            found = {"steps": asked.steps, **counts, "made": len(rows), "wrong": wrong, "rows": rows}
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(key, rows[key], flush=True)
    return int(any("said" in one for one in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
