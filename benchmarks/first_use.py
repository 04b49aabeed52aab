"""First use on a fresh machine: seconds until every kernel of a training step and of the front is compiled, and until it is loaded again later.

    python benchmarks/first_use.py [--rounds N] [--out FILE]

Each round starts two processes, one after the other, on an empty folder for numba's cache: the first compiles, the second loads. A process binds
a step of the flagship's kind (all its kernels and layouts, one layer, on the tape) and takes a gradient at the front. Kernels do not depend on sizes.
CPU seconds of the process from its start, imports included, and beside it without the imports; medians over rounds.
"""

import tempfile
import time
from statistics import median

from harness import Found, apart, run


def bound() -> list[float]:
    """Bind and run a little of everything; return seconds of imports and of the rest."""
    import numba  # noqa: F401
    import numpy as np

    from allocsim.allocators import find
    from engine import Runtime, tensor
    from engine.graph.lowering import lower
    from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph

    imported = time.process_time()
    config = LlamaConfig(layers=1, hidden=64, ffn=96, heads=4, kv_heads=2, vocab=96, seq=16)
    step = training_graph(config)
    lowered = lower(step.graph, reads=(step.loss,))
    plan = find("ggml").plan(lowered.program)
    parameters = init_parameters(config, seed=1, learning_rate=0.1)
    with Runtime(lowered, plan, parameters=parameters, executor="tape") as runtime:
        runtime.run(batch(config, seed=1))
    x = tensor(np.ones(3), requires_grad=True)
    (x * x).sum().backward()
    return [imported, time.process_time() - imported]


def measure(*, rounds: int = 3) -> Found:
    """Start two processes for each round."""
    made = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            made.append([apart(bound, NUMBA_CACHE_DIR=cache) for _ in range(2)])
    return {
        f"{when}_{what}_s": round(median(pair[i][j] for pair in made), 2)
        for i, when in enumerate(("first", "later"))
        for j, what in enumerate(("imports", "kernels"))
    }


if __name__ == "__main__":
    run(measure)
