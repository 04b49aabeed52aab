"""What the sanitized run costs: a training step in guarded memory against the same step plain, in turn.

    python benchmarks/sanitizer.py [--pairs N] [--threads N] [--out FILE]

Two graphs of 30 layers: the flagship (SmolLM2-135M with adapters, 64 tokens) and the same at small width, where an op takes about a microsecond. The figure
is the median over pairs of (sanitized / plain) in CPU seconds; beside it stands that of the memory alone: the plain step between guard pages, with red zones
round each block, where nothing is looked at. That of the strict mode, where each tensor has pages of its own, is measured by itself (it has a copy of the
weights). Runs that are traced (the first two) are listed apart. Every step's loss must agree to the bit, and nothing may be
found.
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

sys.path.insert(0, str(Path(__file__).parents[1]))  # this checkout, installed or not

from allocsim.allocators import find
from allocsim.model import OWN, Role
from allocsim.p_sanitizer.pools import Pool
from engine.graph.lowering import lower
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime
from engine.runtime.plan_memory import arena_sizes

FULL = {"layers": 30, "hidden": 576, "ffn": 1536, "heads": 9, "kv_heads": 3, "vocab": 49152, "seq": 64,
        "rope_theta": 1e5, "eps": 1e-5, "rank": 8, "alpha": 16.0, "targets": ("q", "v")}  # fmt: skip
CONFIGS = {
    "flagship": FULL,
    "small width": {**FULL, "hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "vocab": 96, "seq": 16},
}
LIMITS = {"flagship": (1.1, 1.5), "small width": (2.0, 3.0)}
"""What is allowed, as a ratio: of the memory alone, of the sanitized run."""
STRICT_LIMITS = {"flagship": 3.0, "small width": None}
"""Of the strict mode; at small width it is measured alone, since rights of pages cost more than an op does there."""
TRACED = 2


def cpu(call: Callable[[], dict[str, Any]]) -> tuple[float, float]:
    """Return CPU seconds and loss of a step."""
    start = time.process_time()
    outputs = call()
    return time.process_time() - start, float(outputs["loss"][0])


def prepared(name: str) -> tuple[Any, ...]:
    """Return a graph lowered, its plan, its parameters and a batch."""
    config = LlamaConfig(**CONFIGS[name])
    training = training_graph(config)
    lowered = lower(training.graph, (training.loss,))
    parameters = init_parameters(config, seed=1, learning_rate=1e-4)
    return lowered, find("ggml").plan(lowered.program), parameters, batch(config, seed=1)


def measure_strict(name: str, pairs: int, threads: int) -> dict[str, Any]:
    """Run one graph plain and in the strict mode in turn."""
    lowered, plan, parameters, inputs = prepared(name)
    rows = []
    with (
        Runtime(lowered, plan, parameters=parameters, threads=threads) as plain,
        Sanitizer(lowered, plan, parameters=parameters, threads=threads, strict=True) as strict,
    ):
        for _ in range(TRACED + pairs):
            (ours, loss), (theirs, same) = cpu(lambda: plain.run(inputs)), cpu(lambda: strict.run(inputs))
            if loss != same:
                sys.exit(f"{name}: the loss of the strict mode is {same}, the plain one {loss}")
            rows.append((ours, theirs))
        strict.finish()
        if strict.incidents:
            sys.exit(f"{name}: {strict.incidents[0].message}")
        warm = rows[TRACED:]
        return {
            "strict_seconds": median(b for _, b in warm),
            "strict_ratio": median(b / a for a, b in warm),
            "strict_traced_seconds": [b for _, b in rows[:TRACED]],
            "strict_limit": STRICT_LIMITS[name],
            "examined": strict.examined,
        }


def measure(name: str, pairs: int, threads: int) -> dict[str, Any]:
    """Run one graph both ways in turn."""
    lowered, plan, parameters, inputs = prepared(name)
    rows = []
    buffers = lowered.program.buffers
    own = (plan.arena == OWN) & ~((buffers.role == Role.PARAMETER) & buffers.read_only)
    pool = Pool.of([*arena_sizes(plan), *buffers.nbytes[own].tolist()])
    with (
        Runtime(lowered, plan, parameters=parameters, threads=threads) as plain,
        Runtime(lowered, plan, parameters=parameters, threads=threads, allocate=pool.take) as zoned,
        Sanitizer(lowered, plan, parameters=parameters, threads=threads) as sanitized,
    ):
        for _ in range(TRACED + pairs):
            (ours, loss), (theirs, same) = cpu(lambda: plain.run(inputs)), cpu(lambda: sanitized.run(inputs))
            alone, between = cpu(lambda: zoned.run(inputs))
            if not np.array_equal([loss, loss], [same, between]):
                sys.exit(f"{name}: the sanitized loss is {same}, between guards {between}, the plain one {loss}")
            rows.append((ours, theirs, alone))
        sanitized.finish()
        if sanitized.incidents:
            sys.exit(f"{name}: {sanitized.incidents[0].message}")
    warm = rows[TRACED:]
    return {
        "ops": len(lowered.program.ops),
        "plain_seconds": median(a for a, *_ in warm),
        "memory_seconds": median(c for *_, c in warm),
        "sanitized_seconds": median(b for _, b, _ in warm),
        "memory_ratio": median(c / a for a, _, c in warm),
        "ratio": median(b / a for a, b, _ in warm),
        "traced_seconds": [b for _, b, _ in rows[:TRACED]],
        "memory_limit": LIMITS[name][0],
        "limit": LIMITS[name][1],
    }


def main() -> int:
    """Read the options, measure, print, write; return how many graphs are over their limit."""
    parser = argparse.ArgumentParser(description="What the sanitized run costs.")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sanitizer.json")
    options = parser.parse_args()
    found = {
        name: measure(name, options.pairs, options.threads) | measure_strict(name, options.pairs, options.threads)
        for name in CONFIGS
    }
    for name, row in found.items():
        print(
            f"{name:12s} plain {row['plain_seconds'] * 1e3:7.1f} ms   sanitized {row['sanitized_seconds'] * 1e3:7.1f} ms   "
            f"ratio {row['ratio']:.3f} (at most {row['limit']})   memory alone {row['memory_ratio']:.3f} "
            f"(at most {row['memory_limit']})   strict {row['strict_ratio']:.3f} (at most {row['strict_limit']})   traced {', '.join(f'{s * 1e3:.0f}' for s in row['traced_seconds'])} ms"
        )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    temporary = options.out.with_suffix(".tmp")
    text = json.dumps(
        {"pairs": options.pairs, "threads": options.threads, "graphs": found, "numpy": np.__version__}, indent=1
    )
    temporary.write_text(text + "\n", encoding="utf-8")
    temporary.replace(options.out)
    return sum(
        row["ratio"] > row["limit"]
        or row["memory_ratio"] > row["memory_limit"]
        or (row["strict_limit"] is not None and row["strict_ratio"] > row["strict_limit"])
        for row in found.values()
    )


if __name__ == "__main__":
    sys.exit(main())
