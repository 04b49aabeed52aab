"""Random programs typed at the front against PyTorch: values, gradients, second derivatives, Jacobians, threads.

    BENCH_PEERS=python-with-torch python benchmarks/front_programs.py [--programs N] [--seconds S] [--out FILE] [--again]

`tests/front_programs.py` says what a program has. The campaign goes on from where FILE ends (`--again` begins anew) and writes it after every hundred
programs; program n is drawn from seed n. `differences` are named with their seeds; `refused_here` counts, by op, programs whose backward pass PyTorch
computes and the front refuses, since the derivative of that op reads a value that was changed in place; `refused_by_pytorch` the other way round.
Rounding: |a - b| <= r (1 + max |b|), r = 1e-9 for float64 (nine programs of ten) and 2e-3 for float32.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]  # this checkout, installed or not

EVERY = 100


def main() -> int:
    """Go on with the campaign; 1 if there is a difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="Stop after so long, resumable.")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "front_programs.json")
    parser.add_argument("--again", action="store_true")
    asked = parser.parse_args()
    peers = os.environ.get("BENCH_PEERS")
    if peers and Path(peers).absolute() != Path(sys.executable).absolute():
        return subprocess.run([peers, __file__, *sys.argv[1:]], check=False).returncode
    import torch  # noqa: PLC0415 - only in the interpreter that has it
    from front_programs import ROUNDING, compare  # noqa: PLC0415

    found = {
        "programs": 0,
        "compared": 0,
        "differences": [],
        "refused_here": {},
        "refused_by_both": 0,
        "refused_by_pytorch": 0,
        "steps": {},
    }
    if asked.out.exists() and not asked.again:
        found = json.loads(asked.out.read_text(encoding="utf-8"))
    found |= {"torch": torch.__version__, "rounding": ROUNDING}
    steps, here, began = Counter(found["steps"]), Counter(found["refused_here"]), time.monotonic()
    while found["programs"] < asked.programs and time.monotonic() - began < asked.seconds:
        for seed in range(found["programs"], min(found["programs"] + EVERY, asked.programs)):
            one = compare(seed)
            steps += one.steps
            here += one.refused_here
            found["compared"] += one.compared
            found["refused_by_both"] += one.refused_by_both
            found["refused_by_pytorch"] += one.refused_by_pytorch
            found["differences"] += [f"seed {seed}: {text}" for text in one.differences]
            found["programs"] = seed + 1
        found |= {"steps": dict(sorted(steps.items())), "refused_here": dict(sorted(here.items()))}
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        f"{found['programs']} programs, {found['compared']} comparisons, {len(found['differences'])} "
        f"differences; refused here alone: {dict(here)}"
    )
    return int(bool(found["differences"]))


if __name__ == "__main__":
    sys.exit(main())
