"""Every benchmark, one after the other; each writes its figures to benchmarks/results. In the end the engine's are printed as one table.

    python benchmarks/run.py [NAME...] [-- OPTIONS for each]

A benchmark is a script beside this one that takes `--out FILE` and writes JSON there. One that fails does not stop the others; the exit status is
the number that failed. Peers (PyTorch, JAX, HIPS autograd, micrograd) are used where the interpreter that `BENCH_PEERS` names has them, by default
this one.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

BENCHMARKS = {
    "step": "a training step, T = 64, against PyTorch and JAX",
    "step_256": "the same, T = 256",
    "step_2": "the same, T = 64, two threads",
    "step_256_2": "the same, T = 256, two threads",
    "step_fused": "the same, T = 64, attention as one op of ours",
    "step_256_fused": "the same, T = 256",
    "sanitizer": "a training step in guarded memory against the plain one",
    "products": "products of matrices by tiles, against BLAS",
    "kernels": "single kernels at the model's shapes, in place and apart",
    "scalars": "a deep graph of scalars, typed, against HIPS autograd, micrograd and PyTorch",
    "first_use": "compiling and loading all kernels",
    "checks": "the judge at full size, against the validators of others",
    "answer": "causes and cures at full size",
    "hurtful": "every command on documents made to hurt",
    "checkpoint": "a training step that keeps the outputs of layers alone, against one that keeps all",
    "audit": "every kernel in every layout, the engine's and ggml's",
    "modes": "30 layers trained in every sort of mode, compared tensor by tensor",
    "replay": "what a plan of 30 layers allows: every case judged, those that tell more executed",
    "sound": "a hundred thousand sound programs, and what is said against them",
    "waste": "what lifetimes that are too long cost in bytes",
    "attention": "attention as one op against its parts",
    "order": "happens-before on many ops and streams",
    "planted": "known bugs planted into the shelf, found and made small by the fuzzer",
    "fuzzing": "programs a second through the fuzzer, by source",
    "planning": "planners against the lower bound, exact against minimalloc's instances",
}
"""Name -> what it measures; the script of that name, if `VARIANTS` says no other."""

VARIANTS = {
    "step_256": ("step", "--seq", "256"),
    "step_2": ("step", "--threads", "2"),
    "step_256_2": ("step", "--threads", "2", "--seq", "256"),
    "step_fused": ("step", "--attention", "fused"),
    "step_256_fused": ("step", "--seq", "256", "--attention", "fused"),
}
"""Benchmarks that are another one with options."""


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
        script, *own = VARIANTS.get(name, (name,))
        command = [
            sys.executable,
            str(HERE / f"{script}.py"),
            "--out",
            str(HERE / "results" / f"{name}.json"),
            *own,
            *options,
        ]
        failed += subprocess.run(command, check=False).returncode != 0
    subprocess.run([sys.executable, str(HERE / "table.py")], check=False)
    return failed


if __name__ == "__main__":
    sys.exit(main())
