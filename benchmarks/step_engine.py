"""One side of the step benchmark: the engine's training step, timed on request over a pipe (`step_serving`), and its time by kind of op."""

import os
import sys
import time
from collections import defaultdict
from typing import Any

from engine import processor

processor.prefer(os.environ)  # before numpy loads its BLAS
sys.modules["coverage"] = None  # type: ignore[assignment]  # a tool of the tests, which numba would load; who only trains has it not

import numpy as np  # noqa: E402
import step_serving  # noqa: E402 - beside this file
from threadpoolctl import threadpool_info  # noqa: E402

from allocsim.allocators import find  # noqa: E402
from engine.lower import lower  # noqa: E402
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph  # noqa: E402
from engine.runtime import Runtime  # noqa: E402


def main() -> None:
    """Serve steps until standard input ends."""
    job = step_serving.job()
    config = LlamaConfig(**{**job["config"], "targets": ("q", "v"), "attention": job["attention"]})
    training = training_graph(config, classes=True)  # as the peers have them
    lowered = lower(training.graph, reads=(training.loss,))
    plan = find(job["allocator"]).plan(lowered.program)
    parameters = init_parameters(config, seed=job["seed"], learning_rate=job["learning_rate"])
    inputs = batch(config, seed=job["seed"], classes=True)
    if job.get("weights"):
        np.savez(job["weights"], **parameters, tokens=inputs["tokens"], labels=inputs["labels"])
    with Runtime(lowered, plan, parameters=parameters, threads=job["threads"], executor=job["executor"]) as runtime:

        def about() -> dict[str, Any]:
            return {
                "kinds": by_kind(runtime, inputs, job["profiled"]),
                "versions": {"numpy": np.__version__},
                "blas": [library.get("architecture") for library in threadpool_info() if library["user_api"] == "blas"],
                "arena_mib": plan.peak_bytes / 2**20,
            }

        step_serving.serve(job["warmup"], lambda: float(runtime.run(inputs)["loss"][0]), about)


def by_kind(runtime: Runtime, inputs: dict[str, Any], steps: int) -> dict[str, dict[str, float]]:
    """Return for each kind of op how often a step runs it and the median of its CPU seconds per step, over `steps` steps."""
    kinds = runtime.lowered.program.ops
    names = {step: kinds.kinds[int(kinds.kind[step])] for step in range(len(kinds))}
    seconds: list[dict[str, float]] = []
    for _ in range(steps):
        spent: dict[str, float] = defaultdict(float)
        for step, name in names.items():
            start = time.process_time()
            runtime.execute(step, inputs)
            spent[name] += time.process_time() - start
        seconds.append(spent)
    counts: dict[str, int] = defaultdict(int)
    for name in names.values():
        counts[name] += 1
    return {
        name: {"ops": counts[name], "seconds": float(np.median([spent[name] for spent in seconds]))}
        for name in counts
        if not name.startswith("host.") and name != "view"
    }


if __name__ == "__main__":
    main()
