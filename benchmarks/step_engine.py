"""One side of the step benchmark: the engine's training step, timed on request over a pipe (`step_serving`), and its time by kind of op."""

import os
import sys
import time
from collections import Counter, defaultdict
from typing import Any

from allocsim import processor

processor.prefer(os.environ)  # before numpy loads its BLAS
sys.modules["coverage"] = None  # type: ignore[assignment]  # a tool of the tests, which numba would load; who only trains has it not

import numpy as np  # noqa: E402
import step_serving  # noqa: E402 - beside this file
from threadpoolctl import threadpool_info  # noqa: E402

from allocsim.allocators import find  # noqa: E402
from engine.graph.lowering import lower  # noqa: E402
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
                "multiply_adds": multiply_adds(runtime),
            }

        step_serving.serve(job["warmup"], lambda: float(runtime.run(inputs)["loss"][0]), about)


def multiply_adds(runtime: Runtime) -> int:
    """Return the multiply-adds of all products of matrices in a step."""
    ops = runtime.lowered.program.ops
    steps = [step for step, kernel in enumerate(runtime.lowered.kernels) if kernel is not None]
    products = [(step, ops.kinds[int(ops.kind[step])]) for step in steps]
    sums = {"mul_mat": -1, "out_prod": -2}
    of = [(runtime.results(step)[0], runtime.operands(step)[1], sums[kind]) for step, kind in products if kind in sums]
    return sum(result.size * operand.shape[axis] for result, operand, axis in of)


def by_kind(runtime: Runtime, inputs: dict[str, Any], steps: int) -> dict[str, dict[str, float]]:
    """Return for each kind of op how often a step runs it and the median of its CPU seconds per step, over `steps` steps.

    The bound calls are timed, as the list of calls makes them; what reading the clock takes, half a millisecond a step, is taken off.
    """
    lowered = runtime.lowered
    ops = lowered.program.ops
    ran = [(step, ops.kinds[int(ops.kind[step])]) for step, kernel in enumerate(lowered.kernels) if kernel is not None]
    calls = [(name, *runtime.call(step)) for step, name in ran]
    uncounted = [step for step, kernel in enumerate(lowered.kernels) if kernel is None]  # views, host's writes
    tick = reading()
    seconds: list[dict[str, float]] = []
    for _ in range(steps):
        spent: dict[str, float] = defaultdict(float)
        for step in uncounted:
            runtime.execute(step, inputs)
        with np.errstate(all="ignore"):
            for name, function, args in calls:
                start = time.process_time()
                function(*args)
                spent[name] += time.process_time() - start - tick
        seconds.append(spent)
    middle = {name: float(np.median([spent[name] for spent in seconds])) for _, name in ran}
    return {name: {"ops": ops, "seconds": middle[name]} for name, ops in Counter(name for _, name in ran).items()}


def reading() -> float:
    """Return the CPU seconds between two readings of the clock with nothing between them."""
    between = []
    for _ in range(1000):
        start = time.process_time()
        between.append(time.process_time() - start)
    return float(np.median(between))


if __name__ == "__main__":
    main()
