"""A campaign of random models of another system, which can be stopped and goes on: what `in_executorch.py`, `in_tinygrad.py`, `inductor.py` and `xla.py` share.

A seed that is done has a folder of its own in the folder of `--keep`, with `row.json` (what was measured) and what the system planned. It is not run
again; what is kept is judged anew by each run.
"""

import argparse
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from harness import HERE, PEERS, RESULTS, table, until, write

from replays import DISAGREES

BATCH: Final = 50
"""Models of one process: the systems take seconds to import."""

ROW: Final = "row.json"

AGREES: Final = "clean, numbers agree"
BAD: Final = ("accused, numbers agree", "clean, numbers differ", "refused")
"""What nobody has explained yet: exit status 1."""

Row = dict[str, Any]


def campaign(
    name: str,
    about: str | None,
    judged: Callable[[Path, Row], Row],
    environment: dict[str, str] | None = None,
    *,
    doubted: Callable[[Row], bool] = lambda _: False,
) -> int:
    """Run NAME_models.py seed by seed, judge, count and write; return the exit status.

    Args:
        name: of the system; NAME_models.py draws and runs.
        about: what `--help` says.
        judged: the folder of a seed and its row to what is said of it now; `told` is what it is counted as, `replayed`
            what replaying each of its documents said (`replays.py`).
        environment: of the models' process, beside this one's.
        doubted: whether what was said of a seed is to be measured with more doubt (`each_seed.py`).
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after this long")
    parser.add_argument("--peers", default=PEERS)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    parser.add_argument("--keep", type=Path, default=Path("out") / name, help="plans and what was measured of them")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.models)
    left = [str(seed) for seed in seeds if not (options.keep / str(seed) / ROW).is_file()]
    for at in until(options.seconds, range(0, len(left), BATCH)):
        command = [options.peers, "-W", "ignore", str(HERE / f"{name}_models.py"), str(options.keep)]
        for seed in measured([*command, *left[at : at + BATCH]], environment or {}):
            print(seed, end=" ", flush=True)
            if doubted(row_of(options.keep / seed, judged)):
                list(measured([*command, f"{seed}!"], environment or {}))
    rows = sorted((row_of(path.parent, judged) for path in options.keep.glob(f"*/{ROW}")), key=lambda row: row["seed"])
    counts = Counter(str(row["told"]) for row in rows)
    replayed = Counter(word for row in rows for word in row.get("replayed", ()))
    version = next((row["version"] for row in rows if "version" in row), "")
    failures = Counter(str(row["failed"])[:80] for row in rows if "failed" in row)  # the rest differs between models
    total = {
        "version": f"{name} {version}", "models": len(rows), "ops": sum(row.get("ops", 0) for row in rows),
        "counts": dict(sorted(counts.items())), "replayed": dict(sorted(replayed.items())), "failures": dict(failures.most_common(8)),
    }  # fmt: skip
    print(table(total), end="")
    write(options.out, {**total, "all but clean ones that agree": [row for row in rows if row["told"] != AGREES]})
    return int(DISAGREES in replayed or any(told in BAD for told in counts))


def measured(command: list[str], environment: dict[str, str]) -> Iterator[str]:
    """Yield seeds as they are done."""
    quiet = {"stderr": subprocess.DEVNULL, "text": True, "env": {**os.environ, **environment}}
    with subprocess.Popen(command, stdout=subprocess.PIPE, **quiet) as child:
        assert child.stdout is not None
        yield from (line.strip() for line in child.stdout if line.strip().isdigit())


def row_of(folder: Path, judged: Callable[[Path, Row], Row]) -> Row:
    """Return the row of a seed, with what is said of it now."""
    row = json.loads((folder / ROW).read_text(encoding="utf-8"))
    return row | ({"told": "not built"} if "failed" in row else judged(folder, row))
