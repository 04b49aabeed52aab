"""Attention as one op beside its parts: CPU time of forward and backward, and the arena both need.

    python benchmarks/attention.py [--lengths T,...] [--rounds N] [--out FILE]

Grouped heads of SmolLM2's shape (9 of q, 3 of k and v, 64 numbers each) with a causal mask, float32, one thread. Both graphs compute the gradients of q, k and v of a
weighted sum; they take turns, medians over rounds. The arena is that of `greedy_by_size`, beside the leafs.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

from harness import Found, cpu, in_turns, ratio, run

import numpy as np

from allocsim.allocators import find
from allocsim.errors import EngineError
from engine.autodiff import backward
from engine.autodiff.recomputation import arena_nbytes
from engine.graph import Graph, Tensor
from engine.graph.composites import attention_by_parts
from engine.graph.lowering import lower
from engine.runtime import Runtime

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
    return cpu(lambda: runtime.run({"loss_grad": np.ones(1, np.float32)}))[0]


def measure(*, lengths: tuple[int, ...] = (64, 256, 1024), rounds: int = 9) -> Iterator[Found]:
    """Measure in turns, length by length."""
    found: Found = {"heads": HEADS, "kv_heads": KV_HEADS, "size": SIZE, "rounds": rounds, "lengths": {}}
    for length in lengths:
        made = (bound(build, length, np.random.default_rng(0)) for build in (one_op, by_parts))
        (fused, small), (parts, large) = made
        first, second = (runtime.run({"loss_grad": np.ones(1, np.float32)}) for runtime in (fused, parts))
        both = zip(first.values(), second.values(), strict=True)
        worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in both)
        if worst > 1e-4:
            raise EngineError(f"the two differ by {worst} of the largest value")
        times = in_turns({"one op": partial(seconds, fused), "parts": partial(seconds, parts)}, rounds)
        found["lengths"][length] = {
            "milliseconds": {name: 1e3 * median(row) for name, row in times.items()},
            "time_ratio": ratio(times["one op"], times["parts"])["median"],
            "arena_nbytes": {"one op": small, "parts": large},
            "arena_ratio": small / large,
        }
        yield found


if __name__ == "__main__":
    run(measure)
