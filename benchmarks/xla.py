"""Random functions compiled by XLA for the CPU: is a plan accused whose numbers are right, or clean whose numbers are wrong?

    python benchmarks/xla.py [--functions 1000] [--first SEED] [--peers PYTHON] [--out FILE]

`xla_functions.py`, run by an interpreter that has jax, compiles and dumps them and compares their numbers with those of their operations one by
one. Each dump is read, with its live ranges, and judged here. `differ` are functions whose numbers are further apart than rounding explains. Exit status 1 where a
function is accused that gives right numbers, or is clean and does not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import systems  # noqa: E402 - after the path above
from allocsim.errors import DocumentError  # noqa: E402 - as above
from allocsim.judge.fast import check  # noqa: E402 - as above

BATCH: Final = 25
FAR: Final = 1e-3
"""Of the largest element: more than float32 loses in such chains of operations."""


def main() -> int:
    """Compile, judge, count and write."""
    parser = argparse.ArgumentParser(description="Random functions compiled by XLA.")
    parser.add_argument("--functions", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--peers", default=os.environ.get("BENCH_PEERS", sys.executable), help="an interpreter with jax"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "xla.json")
    options = parser.parse_args()
    counted: Counter[str] = Counter()
    seeds: dict[str, list[int]] = {}
    pairs = ops = switched = 0
    for first in range(options.first, options.first + options.functions, BATCH):
        last = min(first + BATCH, options.first + options.functions)
        with tempfile.TemporaryDirectory() as folder:
            command = [options.peers, "-W", "ignore", str(HERE / "xla_functions.py"), folder, str(first), str(last)]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"seeds {first} to {last}: {done.stderr.strip().splitlines()[-1]}")
            for row in map(json.loads, done.stdout.splitlines()):
                answer, found, doubtful = judged(Path(folder) / str(row["seed"]))
                ops, pairs, switched = ops + found, pairs + doubtful, switched + bool(row["switches"])
                told = f"{answer}, numbers {'agree' if row['apart'] <= FAR else 'differ'}"
                counted[told] += 1
                if told != "clean, numbers agree":
                    seeds.setdefault(told, []).append(row["seed"])
    asked = [options.peers, "-c", "import jax; print(jax.__version__)"]
    version = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    result: dict[str, Any] = {
        "version": f"jax {version}", "functions": options.functions, "ops": ops, "counts": dict(sorted(counted.items())),
        "pairs that nobody vouches for": pairs, "with a switch changed": switched, "seeds": seeds,
    }  # fmt: skip
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return int(
        any(name in seeds for name in ("accused, numbers agree", "clean, numbers differ")) or "refused" in str(seeds)
    )


def judged(folder: Path) -> tuple[str, int, int]:
    """Return what is said of a dump, how many ops were judged, and the pairs that nobody vouches for."""
    try:
        document = systems.load(folder)
    except DocumentError as error:
        return f"refused ({error.rule})", 0, 0
    report = check(document)
    doubtful = sum(row.kind == "AssumedInPlace" for row in report.warnings)
    return "clean" if report.clean else "accused", sum(len(program.ops) for program in document.programs), doubtful


if __name__ == "__main__":
    sys.exit(main())
