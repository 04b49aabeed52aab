"""The judge of this checkout against that of another one: a chain of ops of version 1, processor time, in turns.

    python benchmarks/against.py OTHER [--ops 1000000] [--pairs 6] [--out FILE]

OTHER is a checkout from before a change (`git archive COMMIT | tar -x -C OTHER`). Each side judges in processes of its own, three times each, of which
the least counts; the figure is the median over pairs of this / other.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

SIDE = """
import gc, sys, time
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/benchmarks", sys.argv[1] + "/tests"]
from checks import chained
from allocsim.judge.fast import check
spent = []
for _ in range(3):
    document = chained(int(sys.argv[2]))
    gc.collect()
    began = time.process_time()
    assert check(document).clean
    spent.append(time.process_time() - began)
print(min(spent))
"""


def judged(tree: Path, ops: int) -> float:
    """Return the processor seconds that the judge of a checkout takes."""
    command = [sys.executable, "-c", SIDE, str(tree.resolve()), str(ops)]
    environment = {"PATH": "/usr/bin:/bin"}  # no PYTHONPATH: each side its own checkout
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def main() -> None:
    """Measure in turns, print, write."""
    parser = argparse.ArgumentParser(description="The judge against that of another checkout.")
    parser.add_argument("other", type=Path)
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "against.json")
    options = parser.parse_args()
    rows = []
    for _ in range(options.pairs):
        rows.append([judged(options.other, options.ops), judged(HERE.parent, options.ops)])
        print(rows[-1], flush=True)
    ratios = [this / other for other, this in rows]
    found = {"ops": options.ops, "ratio": {"median": statistics.median(ratios), "pairs": ratios}}
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(found)


if __name__ == "__main__":
    main()
