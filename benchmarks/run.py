"""Every benchmark, one after the other; each writes its figures to benchmarks/results.

    python benchmarks/run.py [NAME...] [-- OPTIONS for each]

A benchmark is a script beside this one that takes `--out FILE` and writes JSON there. One that fails does not stop the others; the exit status is
the number that failed.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

BENCHMARKS = {
    "step": "a training step against PyTorch",
    "sanitizer": "a training step in guarded memory against the plain one",
    "kernels": "single kernels at the model's shapes, in place and apart",
    "scalars": "a deep graph of scalars, typed, against HIPS autograd",
    "order": "happens-before on many ops and streams",
    "fuzzing": "programs a second through the fuzzer, by source",
    "planning": "planners against the lower bound, exact against minimalloc's instances",
}
"""Script -> what it measures."""


def main() -> int:
    """Run the benchmarks named, or all; return how many failed."""
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:split] or list(BENCHMARKS), arguments[split + 1 :]
    for name in names:
        if name not in BENCHMARKS:
            sys.exit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
    failed = 0
    for name in names:
        print(f"== {name}: {BENCHMARKS[name]}", flush=True)
        command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(HERE / "results" / f"{name}.json"), *options]
        failed += subprocess.run(command, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
