"""A campaign of random models of another system, which can be stopped and goes on: what `in_executorch.py` and `in_tinygrad.py` share.

A seed that is done has a folder of its own in the folder of `--keep`, with `row.json` (what was measured) and what the system planned. It is not run
again; what is kept is judged anew by each run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent

BATCH: Final = 50
"""Models of one process: the systems take seconds to import."""

ROW: Final = "row.json"

BAD: Final = ("accused, numbers agree", "clean, numbers differ", "refused")
"""What nobody has explained yet: exit status 1."""

Row = dict[str, Any]


def campaign(
    name: str, about: str | None, judged: Callable[[Path, Row], Row], environment: dict[str, str] | None = None
) -> int:
    """Run NAME_models.py seed by seed, judge, count and write; return the exit status.

    Args:
        name: of the system; NAME_models.py draws and runs.
        about: what `--help` says.
        judged: the folder of a seed and its row to what is said of it now; `told` is what it is counted as.
        environment: of the models' process, beside this one's.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after this long")
    parser.add_argument("--peers", default=os.environ.get("BENCH_PEERS", sys.executable))
    parser.add_argument("--out", type=Path, default=HERE / "results" / f"{name}.json")
    parser.add_argument("--keep", type=Path, default=Path("out") / name, help="plans and what was measured of them")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.models)
    left = [str(seed) for seed in seeds if not (options.keep / str(seed) / ROW).is_file()]
    begin = time.monotonic()
    for at in range(0, len(left), BATCH):
        if time.monotonic() - begin > options.seconds:
            break
        command = [options.peers, "-W", "ignore", str(HERE / f"{name}_models.py"), str(options.keep)]
        for seed in measured([*command, *left[at : at + BATCH]], environment or {}):
            print(seed, end=" ", flush=True)
    rows = sorted(rows_of(options.keep, judged), key=lambda row: int(row["seed"]))
    counts = dict(sorted(Counter(str(row["told"]) for row in rows).items()))
    version = next((row["version"] for row in rows if "version" in row), "")
    odd = [row for row in rows if row["told"] != "clean, numbers agree"]
    total = {
        "version": f"{name} {version}", "models": len(rows), "ops": sum(row.get("ops", 0) for row in rows),
        "counts": counts, "failures": failures(rows), "all but clean ones that agree": odd,
    }  # fmt: skip
    options.out.write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: total[key] for key in ("version", "models", "ops", "counts", "failures")}, indent=1))
    return int(any(told in BAD for told in counts))


def measured(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Yield seeds as they are done."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **environment}
    ) as child:
        assert child.stdout is not None
        yield from (line.strip() for line in child.stdout if line.strip().isdigit())


def rows_of(keep: Path, judged: Callable[[Path, Row], Row]) -> Iterator[Row]:
    """Yield the rows that are kept, with what is said of them now."""
    for path in keep.glob(f"*/{ROW}"):
        row = json.loads(path.read_text(encoding="utf-8"))
        yield row | ({"told": "not built"} if "failed" in row else judged(path.parent, row))


def failures(rows: list[Row]) -> dict[str, int]:
    """Return how often each reason for not being built came, without what differs from model to model."""
    found = Counter(str(row["failed"])[:80] for row in rows if "failed" in row)
    return dict(found.most_common(8))
