"""Random programs typed at the front against PyTorch: values, gradients, second derivatives, Jacobians, threads.

    BENCH_PEERS=python-with-torch python benchmarks/front_programs.py [--programs N] [--seconds S] [--out FILE] [--again]

`tests/front_programs.py` says what a program has. The campaign goes on from where FILE ends (`--again` begins anew) and writes it after every hundred
programs; program n is drawn from seed n. `differences` are named with their seeds; `refused_here` counts, by op, programs whose backward pass PyTorch
computes and the front refuses, since the derivative of that op reads a value that was changed in place; `refused_by_pytorch` the other way round.
Rounding: |a - b| <= r (1 + max |b|), r = 1e-9 for float64 (nine programs of ten) and 2e-3 for float32.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness import PEERS, Found, kept, run, until

EVERY = 100


def measure(
    *, programs: int = 10_000, seconds: float = float("inf"), again: bool = False, out: Path
) -> Iterator[Found]:
    """Go on with the campaign, for so many seconds."""
    import torch
    from front_programs import ROUNDING, compare

    found = (not again and kept(out)) or {
        "programs": 0, "compared": 0, "differences": [], "refused_here": {}, "refused_by_both": 0, "refused_by_pytorch": 0, "steps": {},
    }  # fmt: skip
    found |= {"torch": torch.__version__, "rounding": ROUNDING}
    steps, here = Counter(found["steps"]), Counter(found["refused_here"])
    for first in until(seconds, range(found["programs"], programs, EVERY)):
        for seed in range(first, min(first + EVERY, programs)):
            one = compare(seed)
            steps += one.steps
            here += one.refused_here
            for name in ("compared", "refused_by_both", "refused_by_pytorch"):
                found[name] += getattr(one, name)
            found["differences"] += [f"seed {seed}: {text}" for text in one.differences]
            found["programs"] = seed + 1
        found |= {"steps": dict(sorted(steps.items())), "refused_here": dict(sorted(here.items()))}
        yield found


if __name__ == "__main__":
    if Path(PEERS).absolute() != Path(sys.executable).absolute():
        sys.exit(subprocess.run([PEERS, __file__, *sys.argv[1:]], check=False).returncode)
    run(measure, failed="differences")
