"""The file that costs most: of each kind of file that is read, what repeats and shares legal things until a promise is broken.

    python benchmarks/cost_search.py [--seconds CPU] [--seed S] [--kind NAME ...] [--out FILE]

`tests/growing.py` has the kinds, the steps and the search. The promise is 10 CPU seconds and 1 GiB for any file of up to 10 MB. The table has for each
kind how many files were tried in how many CPU seconds, the worst one, its size, its cost, and the steps that make it of the file that is named; a
kind that was searched before keeps its worst file as well. Exit status 1 where a file breaks the promise.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

from growing import GROWN, search  # noqa: E402 - after the paths above

from allocsim.files import write_atomic  # noqa: E402


def searched(name: str, seconds: float, seed: int) -> dict[str, Any]:
    """Return the row of one kind."""
    with tempfile.TemporaryDirectory() as folder:
        found, count = search(GROWN[name], Path(folder), seconds, random.Random(f"{name} {seed}"))  # noqa: S311 - a search, no secret
    worst = found[0]
    return {
        "kind": name, "seed": seed, "seconds_searched": seconds, "tried": count, "broken": sum(one.cost.share > 1 or one.cost.answer == "bad" for one in found),
        "worst": {
            "file": worst.seed, "steps": [str(step) for step in worst.recipe], "answer": worst.cost.answer, "nbytes": worst.cost.nbytes,
            "cpu_seconds": round(worst.cost.seconds, 2), "mebibytes": worst.cost.memory >> 20,
        },
    }  # fmt: skip


def main() -> int:
    """Search all kinds, print and write the table; return the exit status."""
    parser = argparse.ArgumentParser(description="The file that costs most, of each kind.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(GROWN))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "cost_search.json")
    options = parser.parse_args()
    out = options.out.absolute()
    rows = {row["kind"]: row for row in json.loads(out.read_text())["kinds"]} if out.exists() else {}
    for name in options.kind or list(GROWN):
        rows[name] = row = searched(name, options.seconds, options.seed)
        worst = row["worst"]
        print(
            f"{name:18s} tried {row['tried']:5d}  broken {row['broken']:3d}  worst {worst['nbytes']:9,d} B  {worst['cpu_seconds']:6.2f} s  "
            f"{worst['mebibytes']:5d} MiB  {worst['answer']}: {'; '.join(worst['steps'])}",
            flush=True,
        )
        write_atomic(out, json.dumps({"kinds": [rows[k] for k in GROWN if k in rows]}, indent=1).encode() + b"\n")
    return int(any(row["broken"] for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
