"""Attention as one op beside its parts: CPU time of forward and backward, and the arena both need.

    python benchmarks/attention.py [--lengths T ...] [--rounds N] [--out FILE]

Grouped heads of SmolLM2's shape (9 of q, 3 of k and v, 64 numbers each) with a causal mask, float32, one thread. Both graphs compute the gradients of q, k and v of a
weighted sum; they take turns, medians over rounds. The arena is that of `greedy_by_size`, beside the leafs.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # this checkout, installed or not

from allocsim.allocators import find  # noqa: E402 - after the path above
from engine.autodiff import backward  # noqa: E402
from engine.autodiff.recomputation import arena_nbytes  # noqa: E402
from engine.graph import Graph, Tensor  # noqa: E402
from engine.graph.composites import attention_by_parts  # noqa: E402
from engine.graph.lowering import lower  # noqa: E402
from engine.runtime import Runtime  # noqa: E402

HEADS, KV_HEADS, SIZE = 9, 3, 64


def one_op(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the fused op, told that the mask is causal."""
    return q.graph.op("attention", q, k, v, mask, scale=SIZE**-0.5, causal=True)


def by_parts(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the same of a product, a soft maximum and a product."""
    return attention_by_parts(q, k, v, mask)


def bound(build: Callable[..., Tensor], length: int, rng: np.random.Generator) -> tuple[Runtime, int]:
    """Return the graph of a step, bound, and the bytes of its arena."""
    graph = Graph("attention")
    shapes = {"q": (HEADS, length, SIZE), "k": (KV_HEADS, length, SIZE), "v": (KV_HEADS, length, SIZE)}
    q, k, v = (graph.parameter(name, shape, trainable=True) for name, shape in shapes.items())
    mask, weights = graph.parameter("mask", (length, length)), graph.parameter("weights", shapes["q"])
    y = build(q, k, v, mask)
    loss = graph.op("sum", graph.op("mul", y, weights), name="loss")
    found = backward(graph, loss)
    lowered = lower(graph, [loss, *found.values()])
    plan = find("greedy_by_size").plan(lowered.program)
    data = {name: rng.standard_normal(shape, np.float32) for name, shape in {**shapes, "weights": shapes["q"]}.items()}
    data["mask"] = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    return Runtime(lowered, plan, parameters=data), arena_nbytes(plan)


def seconds(runtime: Runtime) -> float:
    """Return the CPU time of one run."""
    start = time.process_time()
    runtime.run({"loss_grad": np.ones(1, np.float32)})
    return time.process_time() - start


def main() -> None:
    """Measure in turns, print, write."""
    parser = argparse.ArgumentParser(description="Attention as one op beside its parts.")
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "attention.json")
    options, _ = parser.parse_known_args()
    found: dict[str, Any] = {
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "size": SIZE,
        "rounds": options.rounds,
        "lengths": {},
    }
    for length in options.lengths:
        (fused, small), (parts, large) = (
            bound(build, length, np.random.default_rng(0)) for build in (one_op, by_parts)
        )
        first, second = (runtime.run({"loss_grad": np.ones(1, np.float32)}) for runtime in (fused, parts))
        worst = max(
            float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(first.values(), second.values(), strict=True)
        )
        if worst > 1e-4:
            raise SystemExit(f"the two differ by {worst} of the largest value")
        rounds = [(seconds(fused), seconds(parts)) for _ in range(options.rounds)]
        found["lengths"][length] = {
            "milliseconds": {"one op": 1e3 * median(a for a, _ in rounds), "parts": 1e3 * median(b for _, b in rounds)},
            "time_ratio": median(a / b for a, b in rounds),
            "arena_nbytes": {"one op": small, "parts": large},
            "arena_ratio": small / large,
        }
    print(json.dumps(found, indent=1))
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
