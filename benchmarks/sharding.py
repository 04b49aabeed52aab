"""Bytes a rank holds under each stage, beside the formulas of ZeRO; and one judged step of 1,024 ranks.

    python benchmarks/sharding.py            # writes benchmarks/results/sharding.json

The model is SmolLM2-135M's shape with 30 layers and every weight trained, a smaller vocabulary and
hidden size so that it is planned in seconds; bytes are divided by the parameters. The formulas (f32, Adam): 4
for parameters, 4 for gradients, 8 for moments, each over N where its stage cuts it (Rajbhandari et
al. 2020, figure 1). Planned bytes are those of buffers of the rank's program, by category; of
gradients the most that live at once.
"""

import json
import resource
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from allocsim.model import Role
from engine.graph import Graph
from engine.models import llama
from engine.sharding import Sharded, judge_ranks, shard

OUT = Path(__file__).parent / "results" / "sharding.json"
FULL = llama.LlamaConfig(
    layers=30, hidden=96, ffn=256, heads=6, kv_heads=2, vocab=512, seq=8, full=True, rank=0, targets=("q",)
)
RANKS = (1, 4, 16, 64, 1024)


def step_of(config: llama.LlamaConfig, zero: int, ranks: int) -> Sharded:
    """Return the Adam step of a rank."""
    graph = Graph("llama")
    logits = llama._forward(graph, config)  # noqa: SLF001 - the graph alone, without a backward pass
    labels = graph.input("labels", logits.shape)
    loss = graph.op("cross_entropy_loss", logits, labels, name="loss")
    graph.expand(loss)
    return shard(graph, loss, zero=zero, ranks=ranks, optimizer="adamw")


def held(step: Sharded) -> dict[str, int]:
    """Return bytes by category: of parameters and moments all, of gradients the most at once."""
    program = step.lowered.program
    buffers, problem = program.buffers, step.problem
    reduced = {
        int(program.values.buffer[step.lowered.value_of[tensor]])
        for tensor in step.lowered.graph.nodes
        if tensor.kind in ("reduce_scatter", "all_reduce") and tensor.name != "loss.mean"
    }
    if step.sharding.zero == 1:  # whole gradients live until they are scattered
        reduced |= {
            int(program.values.buffer[step.lowered.value_of[gradient]])
            for gradient in step.lowered.graph.gradients.values()
        }
    live = np.zeros(len(program.ops) + 1, np.int64)
    for buffer in reduced:
        live[problem.start[buffer]] += buffers.nbytes[buffer]
        live[problem.stop[buffer]] -= buffers.nbytes[buffer]
    roles = {role: int(buffers.nbytes[buffers.role == role].sum()) for role in (Role.PARAMETER, Role.STATE)}
    return {"parameters": roles[Role.PARAMETER], "gradients": int(live.cumsum().max()), "moments": roles[Role.STATE]}


def formula(zero: int, ranks: int) -> dict[str, float]:
    """Return bytes a parameter, by ZeRO's formulas."""
    return {
        "parameters": 4 / (ranks if zero == 3 else 1),
        "gradients": 4 / (ranks if zero >= 2 else 1),
        "moments": 8 / (ranks if zero >= 1 else 1),
    }


def main() -> None:
    """Print and write the table and the time of the judge."""
    rows = []
    for zero, ranks in ((zero, ranks) for zero in range(4) for ranks in RANKS):
        step = step_of(FULL, zero, ranks)
        count = sum(int(np.prod(shape)) for shape in shapes(step).values())
        planned = {name: round(nbytes / count, 5) for name, nbytes in held(step).items()}
        known = {name: round(nbytes, 5) for name, nbytes in formula(zero, ranks).items()}
        arena = step.planned().peak_bytes
        rows.append({"zero": zero, "ranks": ranks, "planned": planned, "formula": known, "arena_bytes": arena})
        print(rows[-1])
    ranks = 1024
    step = step_of(FULL, 3, ranks)
    plan = step.planned()
    begin = time.process_time()
    report = judge_ranks([replace(plan) for _ in range(ranks)], step.groups)
    judged = {
        "ranks": ranks,
        "ops": len(plan.program.ops),
        "clean": report.clean,
        "ranks_judged": report.judged,
        "cpu_seconds": round(time.process_time() - begin, 2),
        "process_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(judged)
    OUT.write_text(json.dumps({"bytes_a_parameter": rows, "judged": judged}, indent=1) + "\n", encoding="utf-8")


def shapes(step: Sharded) -> dict[str, tuple[int, ...]]:
    """Return the whole shape of each trained weight."""
    return {leaf.name: step.shapes.get(leaf.name, leaf.shape) for leaf in step.lowered.graph.leafs if leaf.trainable}


if __name__ == "__main__":
    main()
