"""One side of the step benchmark: the engine's training step, timed on request over a pipe.

Started by `benchmarks/step.py`: `python step_engine.py CONFIG.json`; prints one JSON line when ready (losses of the first steps, peak memory,
time by kind of op), then one for each line it is sent: {"cpu": seconds, "wall": seconds, "loss": x}. CPU time is the process's, all
threads together.
"""

import json
import os
import resource
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from engine import processor

processor.prefer(os.environ)  # before numpy loads its BLAS

import numpy as np  # noqa: E402
from threadpoolctl import threadpool_info  # noqa: E402

from allocsim.allocators import find  # noqa: E402
from engine.lower import lower  # noqa: E402
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph  # noqa: E402
from engine.runtime import Runtime  # noqa: E402


def main() -> None:
    """Serve steps until standard input ends."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    config = LlamaConfig(**{**job["config"], "targets": ("q", "v")})
    training = training_graph(config)
    lowered = lower(training.graph, reads=(training.loss,))
    plan = find(job["allocator"]).plan(lowered.program)
    parameters = init_parameters(config, seed=job["seed"], learning_rate=job["learning_rate"])
    inputs = batch(config, seed=job["seed"])
    if job.get("weights"):
        np.savez(job["weights"], **parameters, tokens=inputs["tokens"], labels=inputs["labels"].argmax(-1))
    with Runtime(lowered, plan, parameters=parameters, threads=job["threads"], executor=job["executor"]) as runtime:
        losses = [float(runtime.run(inputs)["loss"][0]) for _ in range(job["warmup"])]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        say(
            {
                "losses": losses,
                "peak_kib": peak,
                "kinds": by_kind(runtime, inputs, job["profiled"]),
                "versions": {"numpy": np.__version__},
                "blas": [library.get("architecture") for library in threadpool_info() if library["user_api"] == "blas"],
                "arena_mib": plan.peak_bytes / 2**20,
            }
        )
        for _ in sys.stdin:
            cpu, wall = time.process_time(), time.perf_counter()
            loss = runtime.run(inputs)["loss"]
            say({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "loss": float(loss[0])})


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


def say(message: dict[str, Any]) -> None:
    """Print one line of JSON at once."""
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main()
