"""Peak and traffic of a rank under each stage, beside the formulas of ZeRO; and one judged step of 1,024 ranks.

    python benchmarks/sharding.py [--layers N] [--out FILE]

The model is SmolLM2-135M's shape with 30 layers and every weight trained, a smaller vocabulary and
hidden size so that it is planned in seconds; bytes are divided by the parameters. The formulas (f32, Adam): 4
for parameters, 4 for gradients, 8 for moments, each over N where its stage cuts it (Rajbhandari et
al. 2020, figure 1); sent is twice the parameters in stages 0 to 2, three times in stage 3 (section 7), (N - 1) / N
of it by rings. Planned bytes are those of buffers of the rank's program, by category; of gradients the most that live
at once. `peak_bytes` is the plan's arena and what is held between steps.
"""

from collections.abc import Iterator
from dataclasses import replace

from harness import Found, cpu, peak_mib, run

import numpy as np

from allocsim.model import Role
from engine.graph import Graph
from engine.models import llama
from engine.sharding import Sharded, judge_ranks, shard
from engine.sharding.rank_traffic import traffic

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


def measure(*, layers: int = 30) -> Iterator[Found]:
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
    run(measure)
