"""The judge of this checkout against that of another one: a chain of ops of version 1, processor time, in turns.

    python benchmarks/against.py OTHER [--ops 1000000] [--pairs 6] [--out FILE]

OTHER is a checkout from before a change (`git archive COMMIT | tar -x -C OTHER`). Each side judges in processes of its own, three times each, of which
the least counts; the figure is the median over pairs of this / other.
"""

from pathlib import Path

from harness import ROOT, Found, child, in_turns, ratio, run

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


def measure(other: Path, *, ops: int = 1_000_000, pairs: int = 6) -> Found:
    """Judge in turns."""

    def judged(tree: Path) -> float:
        return float(child("-c", SIDE, tree.resolve(), str(ops), clean=True)[-1])  # each side its own checkout

    spent = in_turns({"this": lambda: judged(ROOT), "other": lambda: judged(other)}, pairs)
    return {"ops": ops, "ratio": ratio(spent["this"], spent["other"])}


if __name__ == "__main__":
    run(measure)
