"""First use on a fresh machine: seconds until every kernel of a training step and of the front is compiled, and until it is loaded again later.

    python benchmarks/first_use.py [--rounds N] [--out FILE]

Each round starts two processes, one after the other, on an empty folder for numba's cache: the first compiles, the second loads. A process binds
a step of the flagship's kind (all its kernels and layouts, one layer, on the tape) and takes a gradient at the front. Kernels do not depend on sizes.
CPU seconds of the process from its start, imports included, and beside it without the imports; medians over rounds.
"""

import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from harness import ROOT, Found, child, run


def bound() -> None:
    """Bind and run a little of everything; print [seconds of imports, seconds of the rest]."""
    import numba  # noqa: F401, PLC0415
    import numpy as np  # noqa: PLC0415 - what is measured

    from allocsim.allocators import find  # noqa: PLC0415
    from engine import Runtime, tensor  # noqa: PLC0415
    from engine.graph.lowering import lower  # noqa: PLC0415
    from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph  # noqa: PLC0415

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
    print(json.dumps([imported, time.process_time() - imported]))


def start(cache: str) -> list[float]:
    """Bind in a process of its own, on a folder for numba's cache."""
    found: list[float] = json.loads(
        child(Path(__file__).name, "--child", NUMBA_CACHE_DIR=cache, PYTHONPATH=str(ROOT))[-1]
    )
    return found


def measure(*, rounds: int = 3) -> Found:
    """Start two processes for each round."""
    made = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            made.append((start(cache), start(cache)))
    return {
        f"{when}_{what}_s": round(median(pair[i][j] for pair in made), 2)
        for i, when in enumerate(("first", "later"))
        for j, what in enumerate(("imports", "kernels"))
    }


if __name__ == "__main__":
    bound() if sys.argv[1:] == ["--child"] else run(measure)
