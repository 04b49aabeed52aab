"""Gradient checkpointing at full size: a SmolLM2-135M-shaped step with rank-8 LoRA, kept whole and with the outputs of layers alone.

    python benchmarks/checkpoint.py [--seq 256] [--pairs 5] [--one-hot] [--out FILE]

Both programs are planned by the same allocator and run in turns, one step each, in one process at one thread. The figures are the arenas (all
temporaries and inputs; parameters lie outside), and the median over pairs of the ratio of CPU times. Labels are class numbers; with `--one-hot` they are rows of as many
numbers as there are classes, which lie in the arena too. First both take one step from the same weights: if a bit of the loss or of an updated weight differs, the benchmark stops, since it would compare different computations.
"""

import argparse
import json
import platform
import sys
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from allocsim.allocators import find
from allocsim.files import write_atomic
from engine.autodiff.recomputation import arena_nbytes
from engine.graph.lowering import lower
from engine.models.llama import SMOLLM2_135M, batch, init_parameters, training_graph
from engine.runtime import Runtime

MIB = 1024 * 1024


def main() -> int:
    """Measure and print; return 1 if the two steps differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--allocators", nargs="+", default=["ggml", "greedy_by_size"])
    parser.add_argument("--one-hot", action="store_true", help="labels as ggml has them")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    config = replace(SMOLLM2_135M, seq=options.seq, layers=options.layers)
    classes = not options.one_hot
    whole, kept = (
        _Step(config, checkpoints=checkpoints, allocators=options.allocators, classes=classes)
        for checkpoints in (False, True)
    )
    for name in options.allocators:
        a, b = whole.nbytes[name], kept.nbytes[name]
        print(
            f"{name:16} arena {a / MIB:8.1f} MiB whole {b / MIB:8.1f} MiB checkpointed   ratio {b / a:.3f}", flush=True
        )
    found: dict[str, Any] = {
        "labels": "class numbers" if classes else "one-hot",
        "config": {"layers": options.layers, "seq": options.seq, "rank": config.rank},
        "ops": {"whole": whole.ops, "checkpointed": kept.ops},
        "arena_nbytes": {
            name: {"whole": whole.nbytes[name], "checkpointed": kept.nbytes[name]} for name in options.allocators
        },
        "arena_ratio": {name: kept.nbytes[name] / whole.nbytes[name] for name in options.allocators},
    }
    if options.pairs:
        parameters, inputs = init_parameters(config, seed=1), batch(config, seed=1, classes=classes)
        with whole.runtime(parameters) as one, kept.runtime(parameters) as two:
            first, second = one.run(inputs), two.run(inputs)
            if any(not np.array_equal(first[name], second[name]) for name in first):
                print("the two steps differ", file=sys.stderr)
                return 1
            pairs = [(_seconds(one, inputs), _seconds(two, inputs)) for _ in range(options.pairs)]
        ratio = median(b / a for a, b in pairs)
        found["cpu_seconds"] = {"whole": median(a for a, _ in pairs), "checkpointed": median(b for _, b in pairs)}
        found["time_ratio"] = {"median": ratio, "pairs": [b / a for a, b in pairs]}
        print(f"CPU time of a step: {ratio:.3f} times that without checkpoints (median of {options.pairs} pairs)")
    found["versions"] = {"python": platform.python_version(), "numpy": np.__version__}
    if options.out:
        write_atomic(options.out, (json.dumps(found, indent=1) + "\n").encode())
    return 0


class _Step:
    def __init__(self, config: Any, *, checkpoints: bool, allocators: list[str], classes: bool) -> None:
        training = training_graph(config, checkpoints=checkpoints, classes=classes)
        self.lowered = lower(training.graph, [training.loss, *training.updates.values()])
        self.plans = {name: find(name).plan(self.lowered.program) for name in allocators}
        self.nbytes = {name: arena_nbytes(plan) for name, plan in self.plans.items()}
        self.ops = sum(kernel is not None for kernel in self.lowered.kernels)

    def runtime(self, parameters: dict[str, Any]) -> Runtime:
        """Return the step bound to the first allocator's plan."""
        return Runtime(self.lowered, next(iter(self.plans.values())), parameters=parameters)


def _seconds(runtime: Runtime, inputs: dict[str, Any]) -> float:
    start = time.process_time()
    runtime.run(inputs)
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
