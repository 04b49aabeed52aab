"""What the sanitized run costs: a training step in guarded memory against the same step plain, in turn.

    python benchmarks/sanitizer.py [--pairs N] [--threads N] [--out FILE]

Two graphs of 30 layers: the flagship (SmolLM2-135M with adapters, 64 tokens) and the same at small width, where an op takes about a microsecond. The figure
is the median over pairs of (sanitized / plain) in CPU seconds; beside it stands that of the memory alone: the plain step between guard pages, with red zones
round each block, where nothing is looked at. That of the strict mode, where each tensor has pages of its own, is measured by itself (it has a copy of the
weights). Runs that are traced (the first two) are listed apart. Every step's loss must agree to the bit, and nothing may be
found.
"""

from statistics import median
from typing import Any

from harness import Found, cpu, run

from step import FULL, SMALL

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import OWN, Role
from allocsim.p_sanitizer.pools import Pool
from engine.graph.lowering import lower
from engine.models.llama import LlamaConfig, batch, init_parameters, training_graph
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime
from engine.runtime.plan_memory import arena_sizes

CONFIGS = {"flagship": FULL, "small width": {**SMALL, "layers": FULL["layers"]}}
LIMITS = {"flagship": (1.1, 1.5), "small width": (2.0, 3.0)}
"""What is allowed, as a ratio: of the memory alone, of the sanitized run."""
STRICT_LIMITS = {"flagship": 3.0, "small width": None}
"""Of the strict mode; at small width it is measured alone, since rights of pages cost more than an op does there."""
TRACED = 2


def prepared(name: str) -> tuple[Any, ...]:
    """Return a graph lowered, its plan, its parameters and a batch."""
    config = LlamaConfig(**CONFIGS[name], targets=("q", "v"))
    training = training_graph(config)
    lowered = lower(training.graph, (training.loss,))
    parameters = init_parameters(config, seed=1, learning_rate=1e-4)
    return lowered, find("ggml").plan(lowered.program), parameters, batch(config, seed=1)


def in_turn(name: str, sides: dict[str, Any], inputs: Any, pairs: int) -> dict[str, list[float]]:
    """Return the CPU seconds of the steps of each side, the traced ones first; the last side is a sanitizer."""
    rows: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(TRACED + pairs):
        losses = {}
        for side, runtime in sides.items():
            seconds, outputs = cpu(lambda runtime=runtime: runtime.run(inputs))
            rows[side].append(seconds)
            losses[side] = float(outputs["loss"][0])
        if len({*losses.values()}) > 1:
            raise EngineError(f"{name}: the losses differ: {losses}")
    sanitizer = [*sides.values()][-1]
    sanitizer.finish()
    if sanitizer.incidents:
        raise EngineError(f"{name}: {sanitizer.incidents[0].message}")
    return rows


def middle(rows: dict[str, list[float]], side: str, by: str = "") -> float:
    """Return the median seconds of a side, or of its ratio to another, of steps that are not traced."""
    ones = rows[by] if by else [1.0] * len(rows[side])
    return median(a / b for a, b in zip(rows[side][TRACED:], ones[TRACED:], strict=True))


def measured(name: str, pairs: int, threads: int) -> Found:
    """Run one graph all ways: plain, between guards and sanitized in turn, then plain and in the strict mode in turn."""
    lowered, plan, parameters, inputs = prepared(name)
    buffers = lowered.program.buffers
    own = (plan.arena == OWN) & ~((buffers.role == Role.PARAMETER) & buffers.read_only)
    pool = Pool.of([*arena_sizes(plan), *buffers.nbytes[own].tolist()])
    how = {"parameters": parameters, "threads": threads}
    with (
        Runtime(lowered, plan, **how) as plain,
        Runtime(lowered, plan, **how, allocate=pool.take) as zoned,
        Sanitizer(lowered, plan, **how) as sanitized,
    ):
        rows = in_turn(name, {"plain": plain, "memory": zoned, "sanitized": sanitized}, inputs, pairs)
    with Runtime(lowered, plan, **how) as plain, Sanitizer(lowered, plan, **how, strict=True) as strict:
        strictly = in_turn(name, {"plain": plain, "strict": strict}, inputs, pairs)
        examined = strict.examined
    return {
        "ops": len(lowered.program.ops),
        **{f"{side}_seconds": middle(rows, side) for side in rows},
        "memory_ratio": middle(rows, "memory", "plain"),
        "ratio": middle(rows, "sanitized", "plain"),
        "traced_seconds": rows["sanitized"][:TRACED],
        "memory_limit": LIMITS[name][0],
        "limit": LIMITS[name][1],
        "strict_seconds": middle(strictly, "strict"),
        "strict_ratio": middle(strictly, "strict", "plain"),
        "strict_traced_seconds": strictly["strict"][:TRACED],
        "strict_limit": STRICT_LIMITS[name],
        "examined": examined,
    }


def measure(*, pairs: int = 15, threads: int = 1) -> Found:
    """Measure both graphs."""
    found = {name: measured(name, pairs, threads) for name in CONFIGS}
    limits = {"ratio": "limit", "memory_ratio": "memory_limit", "strict_ratio": "strict_limit"}
    over = [
        f"{name}: {ratio}"
        for name, row in found.items()
        for ratio, limit in limits.items()
        if row[limit] is not None and row[ratio] > row[limit]
    ]
    return {"pairs": pairs, "threads": threads, "graphs": found, "over": over}


if __name__ == "__main__":
    run(measure, failed="over")
