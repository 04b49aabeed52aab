"""Parts of a training step by themselves, and what is said of it in other ways of running.

    python benchmarks/engine_parts.py attention [--lengths T,...] [--rounds N] [--out FILE]
    python benchmarks/engine_parts.py checkpoint [--seq 256] [--pairs 5] [--one-hot] [--out FILE]
    python benchmarks/engine_parts.py kernels [--threads N] [--out FILE]
    python benchmarks/engine_parts.py sanitizer [--pairs N] [--threads N] [--out FILE]
    python benchmarks/engine_parts.py sharding [--layers N] [--out FILE]

`attention`: as one op beside its parts: CPU time of forward and backward, and the arena both need. Grouped heads of SmolLM2's shape (9 of q, 3 of k and v, 64
numbers each) with a causal mask, float32, one thread. Both graphs compute the gradients of q, k and v of a weighted sum; they take turns, medians over rounds.
The arena is that of `greedy_by_size`, beside the leafs.

`checkpoint`: a SmolLM2-135M-shaped step with rank-8 LoRA, kept whole and with the outputs of layers alone. Both programs are planned by the same allocator and
run in turns, one step each, in one process at one thread. The figures are the arenas (all temporaries and inputs; parameters lie outside), and the median over
pairs of the ratio of CPU times. Labels are class numbers; with `--one-hot` they are rows of as many numbers as there are classes, which lie in the arena too.
First both take one step from the same weights: if a bit of the loss or of an updated weight differs, the benchmark stops, since it would compare different
computations.

`kernels`: single kernels at the shapes of the full model: nanoseconds for each element of the result, apart and over the first declared operand. The median of
many calls, wall time, on warm memory: for finding out where time outside the matrix products goes, not for comparing machines.

`sanitizer`: what the sanitized run costs: a training step in guarded memory against the same step plain, in turn. Two graphs of 30 layers: the flagship
(SmolLM2-135M with adapters, 64 tokens) and the same at small width, where an op takes about a microsecond. The figure is the median over pairs of (sanitized
/ plain) in CPU seconds; beside it stands that of the memory alone: the plain step between guard pages, with red zones round each block, where nothing is
looked at. That of the strict mode, where each tensor has pages of its own, is measured by itself (it has a copy of the weights). Runs that are traced (the
first two) are listed apart. Every step's loss must agree to the bit, and nothing may be found.

`sharding`: peak and traffic of a rank under each stage, beside the formulas of ZeRO; and one judged step of 1,024 ranks. The model is SmolLM2-135M's shape
with 30 layers and every weight trained, a smaller vocabulary and hidden size so that it is planned in seconds; bytes are divided by the parameters. The
formulas (f32, Adam): 4 for parameters, 4 for gradients, 8 for moments, each over N where its stage cuts it (Rajbhandari et al. 2020, figure 1); sent is twice
the parameters in stages 0 to 2, three times in stage 3 (section 7), (N - 1) / N of it by rings. Planned bytes are those of buffers of the rank's program, by
category; of gradients the most that live at once. `peak_bytes` is the plan's arena and what is held between steps.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

from harness import Found, cpu, grown, in_turns, peak_mib, ratio, run_one_of

import numpy as np
from step import FULL, SMALL

from allocsim.allocators import find
from allocsim.errors import EngineError
from allocsim.model import OWN, Role
from allocsim.p_sanitizer.pools import Pool
from engine.autodiff import backward
from engine.autodiff.recomputation import arena_nbytes
from engine.graph import Graph, Tensor
from engine.graph.composites import attention_by_parts
from engine.graph.lowering import lower
from engine.kernels import KERNELS
from engine.models import llama
from engine.models.llama import SMOLLM2_135M, LlamaConfig, batch, init_parameters, training_graph
from engine.p_sanitizer import Sanitizer
from engine.runtime import Runtime
from engine.runtime.plan_memory import arena_sizes
from engine.sharding import Sharded, judge_ranks, shard
from engine.sharding.rank_traffic import traffic

HEADS, KV_HEADS, SIZE = 9, 3, 64


def one_op(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Return the fused op, told that the mask is causal."""
    return q.graph.op("attention", q, k, v, mask, scale=SIZE**-0.5, causal=True)


def bound(build: Callable[..., Tensor], length: int) -> tuple[Runtime, int]:
    """Return the graph of a step, bound, and the bytes of its arena."""
    graph, rng = Graph("attention"), np.random.default_rng(0)
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


def spent_on(runtime: Runtime, inputs: dict[str, Any]) -> float:
    """Return the CPU time of one run."""
    return cpu(lambda: runtime.run(inputs))[0]


def attention(*, lengths: tuple[int, ...] = (64, 256, 1024), rounds: int = 9) -> Iterator[Found]:
    """Measure in turns, length by length."""
    found: Found = {"heads": HEADS, "kv_heads": KV_HEADS, "size": SIZE, "rounds": rounds, "lengths": {}}
    inputs = {"loss_grad": np.ones(1, np.float32)}
    for length in lengths:
        (fused, small), (parts, large) = (bound(build, length) for build in (one_op, attention_by_parts))
        both = zip(fused.run(inputs).values(), parts.run(inputs).values(), strict=True)
        worst = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in both)
        if worst > 1e-4:
            raise EngineError(f"the two differ by {worst} of the largest value")
        times = in_turns(
            {"one op": partial(spent_on, fused, inputs), "parts": partial(spent_on, parts, inputs)}, rounds
        )
        found["lengths"][length] = {
            "milliseconds": {name: 1e3 * median(row) for name, row in times.items()},
            "time_ratio": ratio(times["one op"], times["parts"])["median"],
            "arena_nbytes": {"one op": small, "parts": large},
            "arena_ratio": small / large,
        }
        yield found


class Step:
    """A training step, planned by each allocator."""

    def __init__(self, config: Any, *, checkpoints: bool, allocators: tuple[str, ...], classes: bool) -> None:
        training = training_graph(config, checkpoints=checkpoints, classes=classes)
        self.lowered = lower(training.graph, [training.loss, *training.updates.values()])
        self.plans = {name: find(name).plan(self.lowered.program) for name in allocators}
        self.nbytes = {name: arena_nbytes(plan) for name, plan in self.plans.items()}
        self.ops = sum(kernel is not None for kernel in self.lowered.kernels)

    def runtime(self, parameters: dict[str, Any]) -> Runtime:
        """Return the step bound to the first allocator's plan."""
        return Runtime(self.lowered, next(iter(self.plans.values())), parameters=parameters)


def checkpoint(
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
    whole, kept = (Step(config, checkpoints=checkpoints, **how) for checkpoints in (False, True))
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
        sides = {"whole": partial(spent_on, one, inputs), "checkpointed": partial(spent_on, two, inputs)}
        times = in_turns(sides, pairs)
    return found | {
        "cpu_seconds": {name: median(row) for name, row in times.items()},
        "time_ratio": ratio(times["checkpointed"], times["whole"]),
    }


T, D, F, H, K, V, R = 64, 576, 1536, 9, 3, 49152, 8
S = D // H
SHAPES: dict[str, list[tuple[dict[str, Any], list[tuple[int, ...]], tuple[int, ...]]]] = {
    "mul_mat": [
        ({}, [(D, D), (T, D)], (T, D)), ({}, [(F, D), (T, D)], (T, F)), ({}, [(D, F), (T, F)], (T, D)),
        ({}, [(V, D), (T, D)], (T, V)), ({}, [(K, T, S), (H, T, S)], (H, T, T)), ({}, [(R, D), (T, D)], (T, R)),
    ],
    "out_prod": [({}, [(D, F), (D, T)], (T, F)), ({}, [(V, D), (V, T)], (T, D)), ({}, [(T, D), (T, R)], (R, D))],
    "rms_norm": [({"eps": 1e-5}, [(T, D)], (T, D))],
    "rms_norm_back": [({"eps": 1e-5}, [(T, D), (T, D)], (T, D))],
    "soft_max": [({"scale": 0.125}, [(H, T, T), (T, T)], (H, T, T))],
    "soft_max_back": [({"scale": 0.125}, [(H, T, T), (H, T, T)], (H, T, T))],
    "rope": [({"base": 1e5, "dims": S, "mode": mode}, [(T, H, S), (T,)], (T, H, S)) for mode in ("normal", "neox")],
    "swiglu": [({}, [(T, F), (T, F)], (T, F))],
    "silu": [({}, [(T, F)], (T, F))],
    "silu_back": [({}, [(T, F), (T, F)], (T, F))],
    "add": [({}, [(T, D), (T, D)], (T, D))],
    "mul": [({}, [(T, D), (D,)], (T, D)), ({}, [(T, F), (T, F)], (T, F))],
    "scale": [({"s": 2.0}, [(T, D)], (T, D))],
    "cross_entropy_loss": [({}, [(T, V), (T, V)], (1,))],
    "cross_entropy_loss_back": [({}, [(1,), (T, V), (T, V)], (T, V))],
    "opt_step_sgd": [({}, [(R, D), (R, D), (2,)], (R, D))],
}  # fmt: skip
"""kind -> (params, shapes of the operands, shape of the result)."""


def kernels(*, threads: int = 1) -> Iterator[Found]:
    """Time every kernel."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, user_api="blas"):
        rows = (timed(kind, *call) for kind, calls in SHAPES.items() for call in calls)
        yield from grown(rows, under="kernels", quiet=True)


def timed(kind: str, params: dict[str, Any], shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> dict[str, Any]:
    """Return one row: kind, shapes, microseconds a call, and GFLOP/s of a product or ns an element of anything else."""
    rng = np.random.default_rng(0)
    indexed = kind.startswith("rope")
    operands = tuple(
        np.arange(n[0], dtype=np.int32) if indexed and i == 1 else rng.standard_normal(n, dtype=np.float32)
        for i, n in enumerate(shapes)
    )
    kernel = next(iter(KERNELS[kind].values()))
    out = np.zeros(result, np.float32)
    apart = seconds(kernel.bind(params, operands, (out,)))
    row: dict[str, Any] = {"kind": kind, "operands": [list(n) for n in shapes], "us": apart * 1e6}
    if kind in {"mul_mat", "out_prod"}:
        inner = shapes[0][-1] if kind == "mul_mat" else shapes[0][-2]
        row["gflops"] = 2 * out.size * inner / apart / 1e9
        return row
    row["ns_element"] = apart * 1e9 / max(out.size, operands[0].size)
    if kernel.in_place and shapes[0] == result:
        over = operands[0].copy()
        bound = kernel.bind(params, (over, *operands[1:]), (over,))
        row["over_us"] = seconds(bound, lambda: np.copyto(over, operands[0])) * 1e6
    return row


def seconds(call: tuple[Any, tuple[Any, ...]], refill: Callable[[], None] = lambda: None) -> float:
    """Return the median time of a call, not counting `refill` before it; about a fifth of a second is spent on finding it."""
    function, args = call
    times: list[float] = []
    stop = time.perf_counter() + 0.2
    while len(times) < 5 or time.perf_counter() < stop:
        refill()
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return median(times)


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


def sanitized(name: str, pairs: int, threads: int) -> Found:
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


def sanitizer(*, pairs: int = 15, threads: int = 1) -> Found:
    """Measure both graphs."""
    found = {name: sanitized(name, pairs, threads) for name in CONFIGS}
    limits = {"ratio": "limit", "memory_ratio": "memory_limit", "strict_ratio": "strict_limit"}
    over = [
        f"{name}: {ratio}"
        for name, row in found.items()
        for ratio, limit in limits.items()
        if row[limit] is not None and row[ratio] > row[limit]
    ]
    return {"pairs": pairs, "threads": threads, "graphs": found, "over": over}


RANKS = (1, 4, 16, 64, 256, 1024)


def step_of(layers: int, zero: int, ranks: int) -> Sharded:
    """Return the Adam step of a rank."""
    size = {"layers": layers, "hidden": 96, "ffn": 256, "heads": 6, "kv_heads": 2, "vocab": 512, "seq": 8}
    config = llama.LlamaConfig(**size, full=True, rank=0, targets=("q",))
    graph = Graph("llama")
    logits = llama._forward(graph, config)  # noqa: SLF001 - the graph alone, without a backward pass
    labels = graph.input("labels", logits.shape)
    loss = graph.op("cross_entropy_loss", logits, labels, name="loss")
    graph.expand(loss)
    return shard(graph, loss, zero=zero, ranks=ranks, optimizer="adamw")


def held(step: Sharded) -> dict[str, int]:
    """Return bytes by category: of parameters and moments all, of gradients the most at once."""
    lowered, program, problem = step.lowered, step.lowered.program, step.problem
    kinds = ("reduce_scatter", "all_reduce")
    reduced = [node for node in lowered.graph.nodes if node.kind in kinds and node.name != "loss.mean"]
    if step.sharding.zero == 1:  # whole gradients live until they are scattered
        reduced += lowered.graph.gradients.values()
    nbytes, live = program.buffers.nbytes, np.zeros(len(program.ops) + 1, np.int64)
    for buffer in {int(program.values.buffer[lowered.value_of[tensor]]) for tensor in reduced}:
        live[[problem.start[buffer], problem.stop[buffer]]] += (nbytes[buffer], -nbytes[buffer])
    parameters, moments = (int(nbytes[program.buffers.role == role].sum()) for role in (Role.PARAMETER, Role.STATE))
    return {"parameters": parameters, "gradients": int(live.cumsum().max()), "moments": moments}


def formula(zero: int, ranks: int) -> dict[str, float]:
    """Return bytes a parameter, by ZeRO's formulas."""
    cut = [ranks if zero >= stage else 1 for stage in (3, 2, 1)]
    sent = 4 * (3 if zero == 3 else 2) * (ranks - 1) / ranks
    return {"parameters": 4 / cut[0], "gradients": 4 / cut[1], "moments": 8 / cut[2], "sent": sent}


def row_of(step: Sharded) -> Found:
    """Return peak and traffic of a rank, beside the formulas."""
    zero, ranks = step.sharding.zero, step.sharding.ranks
    shapes = [step.shapes.get(leaf.name, leaf.shape) for leaf in step.lowered.graph.leafs if leaf.trainable]
    count, kept, sent = sum(map(int, map(np.prod, shapes))), held(step), traffic(step)[0].sent
    arena = step.planned().peak_bytes
    planned = {name: round(nbytes / count, 5) for name, nbytes in {**kept, "sent": sum(sent.values())}.items()}
    known = {name: round(nbytes, 5) for name, nbytes in formula(zero, ranks).items()}
    peak = arena + kept["parameters"] + kept["moments"]
    return {"zero": zero, "ranks": ranks, "planned": planned, "formula": known, "arena_bytes": arena, "peak_bytes": peak,
            "parameters": count, "sent_bytes": dict(sorted(sent.items()))}  # fmt: skip


def sharding(*, layers: int = 30) -> Iterator[Found]:
    """Measure each stage and number of ranks, then judge all ranks of the last step."""
    rows: list[Found] = []
    for zero, ranks in ((zero, ranks) for zero in range(4) for ranks in RANKS):
        step = step_of(layers, zero, ranks)
        rows.append(row_of(step))
        yield {"bytes_a_parameter": rows}
    plan = step.planned()
    seconds, report = cpu(lambda: judge_ranks([replace(plan) for _ in range(ranks)], step.groups))
    judged = {"ranks": ranks, "ops": len(plan.program.ops), "clean": report.clean, "ranks_judged": report.judged,
              "cpu_seconds": round(seconds, 2), "process_mib": peak_mib()}  # fmt: skip
    yield {"bytes_a_parameter": rows, "judged": judged}


if __name__ == "__main__":
    run_one_of(attention, checkpoint, kernels, sanitizer, sharding, failed={"sanitizer": "over"})
