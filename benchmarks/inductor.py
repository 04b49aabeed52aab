"""Random models compiled by TorchInductor for the CPU: is a wrapper accused whose numbers are right, or clean whose numbers are wrong?

    BENCH_PEERS=python-with-torch python benchmarks/inductor.py [--models 100] [--first SEED] [--seconds S] [--out FILE]

`inductor_models.py`, run by an interpreter that has torch, compiles them and compares their numbers with the eager ones. Each wrapper is read and
judged here; the numbers of an accused one are compared once more, with its reuse turned off. Every seed that is done lies in the folder of `--keep`
and is not compiled again: a campaign that was stopped goes on, and what is kept is judged anew by each run. Exit status 1 where a model is accused whose numbers are right, or is clean and whose are not.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim import systems  # noqa: E402 - after the path above
from allocsim.errors import AllocsimError  # noqa: E402 - as above
from allocsim.judge.fast import check  # noqa: E402 - as above

BATCH: Final = 10
"""Models of one process: torch takes long to import."""

FAR: Final = 1e-3
"""As in `inductor_models.py`."""

ROW: Final = "row.json"
"""What was measured of a seed, beside its wrappers."""

Row = dict[str, Any]


def main() -> int:
    """Compile, judge, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after this long")
    parser.add_argument("--peers", default=os.environ.get("BENCH_PEERS", sys.executable))
    parser.add_argument("--out", type=Path, default=HERE / "results" / "inductor.json")
    parser.add_argument(
        "--keep", type=Path, default=Path("out") / "inductor", help="wrappers and what was measured of them"
    )
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.models)
    left = [seed for seed in seeds if not (options.keep / str(seed) / ROW).is_file()]
    begin = time.monotonic()
    for at in range(0, len(left), BATCH):
        if time.monotonic() - begin > options.seconds:
            break
        for seed in compiled(options.peers, options.keep, [str(seed) for seed in left[at : at + BATCH]]):
            answer = judged(options.keep / str(seed))
            if answer["kinds"] and "reuse" not in answer:
                list(compiled(options.peers, options.keep, [f"{seed}!"]))
    rows = [judged(path.parent) for path in options.keep.glob(f"*/{ROW}")]
    counts = written(rows, options.out)
    print(json.dumps(counts))
    return int(any(name in counts for name in ("accused, numbers agree", "clean, numbers differ")))


def compiled(peers: str, folder: Path, words: list[str]) -> Iterator[int]:
    """Yield seeds as they are done."""
    command = [peers, "-W", "ignore", str(HERE / "inductor_models.py"), str(folder), *words]
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        yield from map(int, child.stdout)


def judged(folder: Path) -> Row:
    """Return what was measured of one model, and what is said of its wrappers now."""
    row = json.loads((folder / ROW).read_text(encoding="utf-8"))
    ops, kinds, doubtful, refused = 0, set(), 0, []
    for path in sorted(folder.glob("graph*.py")):
        try:
            document = systems.load(path)
        except AllocsimError as error:
            refused.append(str(error).replace(f"{folder}/", "")[:200])
            continue
        report = check(document)
        ops += sum(len(program.ops) for program in document.programs)
        kinds |= {row.kind for row in report.violations}
        doubtful += sum(row.kind == "AssumedInPlace" for row in report.warnings)
    return row | {"ops": ops, "kinds": sorted(kinds), "doubtful": doubtful, "refused": refused}


def told(row: Row) -> str:
    """Return what a row is counted as."""
    if "failed" in row:
        return "not compiled"
    answer = "accused" if row["kinds"] else "refused in part" if row["refused"] else "clean"
    return f"{answer}, numbers {'agree' if max(row['apart'], row.get('reuse', 0)) <= FAR else 'differ'}"


def written(rows: list[Row], out: Path) -> dict[str, int]:
    """Write rows and counts; return the counts."""
    rows = sorted(rows, key=lambda row: int(row["seed"]))
    counts = dict(sorted(Counter(map(told, rows)).items()))
    total = {"models": len(rows), "ops": sum(row.get("ops", 0) for row in rows), "counts": counts, "rows": rows}
    out.write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")
    return counts


if __name__ == "__main__":
    sys.exit(main())
