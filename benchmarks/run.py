"""Every benchmark, one after the other; each writes its figures to benchmarks/results. In the end the engine's are printed as one table.

    python benchmarks/run.py [NAME...] [-- OPTIONS for each]

A benchmark is a script beside this one that takes `--out FILE` and writes JSON there. One that fails does not stop the others; the exit status is
the number that failed. Peers (PyTorch, JAX, HIPS autograd, micrograd) are used where the interpreter that `BENCH_PEERS` names has them, by default
this one.
"""

import ast
import subprocess
import sys

from harness import HERE, RESULTS

BENCHMARKS = {
    "step": "step",
    "step_256": "step --seq 256",
    "step_2": "step --threads 2",
    "step_256_2": "step --threads 2 --seq 256",
    "step_fused": "step --attention fused",
    "step_256_fused": "step --seq 256 --attention fused",
    "sanitizer": "engine_parts sanitizer",
    "products": "products",
    "kernels": "engine_parts kernels",
    "scalars": "scalars",
    "first_use": "first_use",
    "checks": "checks checks",
    "answer": "answers answer",
    "hurtful": "answers hurtful",
    "checkpoint": "engine_parts checkpoint",
    **{name: f"detectors {name}" for name in ("audit", "modes", "replay")},
    "sound": "at_length sound",
    "waste": "detectors waste",
    "attention": "engine_parts attention",
    "order": "checks order",
    "planted": "planted",
    "fuzzing": "program_rates fuzzing",
    "planning": "shelf planning",
}
"""Benchmark, which is the name of its results -> script with its first words."""


def main() -> int:
    """Run the benchmarks named, or all; return how many failed."""
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:split] or BENCHMARKS, arguments[split + 1 :]
    if odd := {*names} - {*BENCHMARKS}:
        sys.exit(f"no benchmark {', '.join(sorted(odd))}; there are {', '.join(BENCHMARKS)}")
    failed = 0
    for name in names:
        script, *words = BENCHMARKS[name].split()
        path = HERE / f"{script}.py"
        about = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
        print(f"== {name}: {' '.join((about, *words))}", flush=True)
        command = [sys.executable, path, *words, "--out", RESULTS / f"{name}.json", *options]
        failed += subprocess.run(command, check=False).returncode != 0
    subprocess.run([sys.executable, HERE / "table.py"], check=False)
    return failed


if __name__ == "__main__":
    sys.exit(main())
