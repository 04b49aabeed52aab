"""One training step over many ranks: who holds what, what travels when, and what waits for what.

    step = shard(graph, loss, zero=3, ranks=4, optimizer="adamw")
    plan = step.planned("best_fit")
    losses = Simulation(step, plan, parameters).run(batches)

or of stages of layers, with `pipeline(graph, loss, stages=4, microbatches=8)`.

See docs/sharding.md.
"""

from engine.sharding.alike import RanksReport, judge_ranks
from engine.sharding.pipeline_stages import Pipeline, pipeline
from engine.sharding.sharded_step import Sharded, Sharding, shard
from engine.sharding.simulation import Simulation

__all__ = ["Pipeline", "RanksReport", "Sharded", "Sharding", "Simulation", "judge_ranks", "pipeline", "shard"]
