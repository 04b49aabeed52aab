"""Gradient checkpointing at full size: a SmolLM2-135M-shaped step with rank-8 LoRA, kept whole and with the outputs of layers alone.

    python benchmarks/checkpoint.py [--seq 256] [--pairs 5] [--one-hot] [--out FILE]

Both programs are planned by the same allocator and run in turns, one step each, in one process at one thread. The figures are the arenas (all
temporaries and inputs; parameters lie outside), and the median over pairs of the ratio of CPU times. Labels are class numbers; with `--one-hot` they are rows of as many
numbers as there are classes, which lie in the arena too. First both take one step from the same weights: if a bit of the loss or of an updated weight differs, the benchmark stops, since it would compare different computations.
"""

from dataclasses import replace
from statistics import median
from typing import Any

from harness import Found, cpu, in_turns, ratio, run

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff.recomputation import arena_nbytes
from engine.graph.lowering import lower
from engine.models.llama import SMOLLM2_135M, batch, init_parameters, training_graph
from engine.runtime import Runtime


def measure(
    *,
    seq: int = 256,
    pairs: int = 5,
    layers: int = 30,
    allocators: tuple[str, ...] = ("ggml", "greedy_by_size"),
    one_hot: bool = False,
) -> Found:
    """Plan both by each allocator, and run them by the plans of the first."""
    config = replace(SMOLLM2_135M, seq=seq, layers=layers)
    how = {"allocators": allocators, "classes": not one_hot}
    whole, kept = (_Step(config, checkpoints=checkpoints, **how) for checkpoints in (False, True))
    found: Found = {
        "labels": "one-hot" if one_hot else "class numbers",
        "config": {"layers": layers, "seq": seq, "rank": config.rank},
        "ops": {"whole": whole.ops, "checkpointed": kept.ops},
        "arena_nbytes": {name: {"whole": whole.nbytes[name], "checkpointed": kept.nbytes[name]} for name in allocators},
        "arena_ratio": {name: kept.nbytes[name] / whole.nbytes[name] for name in allocators},
    }
    if not pairs:
        return found
    parameters, inputs = init_parameters(config, seed=1), batch(config, seed=1, classes=not one_hot)
    with whole.runtime(parameters) as one, kept.runtime(parameters) as two:
        first, second = one.run(inputs), two.run(inputs)
        if any(not np.array_equal(first[name], second[name]) for name in first):
            raise EngineError("the two steps differ")
        times = in_turns({"whole": lambda: _seconds(one, inputs), "checkpointed": lambda: _seconds(two, inputs)}, pairs)
    return found | {
        "cpu_seconds": {name: median(row) for name, row in times.items()},
        "time_ratio": ratio(times["checkpointed"], times["whole"]),
    }


class _Step:
    def __init__(self, config: Any, *, checkpoints: bool, allocators: tuple[str, ...], classes: bool) -> None:
        training = training_graph(config, checkpoints=checkpoints, classes=classes)
        self.lowered = lower(training.graph, [training.loss, *training.updates.values()])
        self.plans = {name: find(name).plan(self.lowered.program) for name in allocators}
        self.nbytes = {name: arena_nbytes(plan) for name, plan in self.plans.items()}
        self.ops = sum(kernel is not None for kernel in self.lowered.kernels)

    def runtime(self, parameters: dict[str, Any]) -> Runtime:
        """Return the step bound to the first allocator's plan."""
        return Runtime(self.lowered, next(iter(self.plans.values())), parameters=parameters)


def _seconds(runtime: Runtime, inputs: dict[str, Any]) -> float:
    return cpu(lambda: runtime.run(inputs))[0]


if __name__ == "__main__":
    run(measure)
