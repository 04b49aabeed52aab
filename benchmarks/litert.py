"""Random models in a live LiteRT interpreter: who is convicted, and whose numbers are wrong.

    BENCH_PEERS=python-with-litert python benchmarks/litert.py [--models N] [--out FILE]

Each model runs as the interpreter plans it and with `preserve_all_tensors`; its pointers are judged. An accusation whose numbers are right is a false
one; numbers that differ without an accusation are a fault missed. Both must be 0. The models run in an interpreter of their own
(`litert_models.py`), 500 a process.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.judge.fast import check  # noqa: E402 - after the path above
from allocsim.systems.litert import litert_pointers  # noqa: E402

BATCH = 500


def main() -> None:
    """Run, judge, count and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument(
        "--peers", default=os.environ.get("BENCH_PEERS", sys.executable), help="an interpreter that has ai-edge-litert"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "litert.json")
    options = parser.parse_args()
    counted: Counter[str] = Counter()
    wrong: list[int] = []
    version = ""
    for first in range(0, options.models, BATCH):
        last = min(first + BATCH, options.models)
        command = [options.peers, str(HERE / "litert_models.py"), str(first), str(last)]
        made = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in made.stdout.splitlines():
            row = json.loads(line)
            version = row["dump"]["versions"]
            convicted = bool(check(litert_pointers.loads(json.dumps(row["dump"]).encode())).violations)
            counted[f"{'convicted' if convicted else 'clean'}, numbers {'differ' if row['differs'] else 'agree'}"] += 1
            if row["differs"]:
                wrong.append(row["seed"])
    result = {
        "version": version,
        "models": options.models,
        "counts": dict(sorted(counted.items())),
        "seeds that differ": wrong,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    if counted["convicted, numbers agree"] or counted["clean, numbers differ"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
