"""What a rank of `test_mpi_ranks.py` runs: losses and parts of a few steps, or a rank that dies."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

from engine.sharding import pipeline, shard
from engine.sharding.mpi_ranks import MpiRank, ending_together, mpi

spec = importlib.util.spec_from_file_location("rank_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(spec)
spec.loader.exec_module(steps)

with ending_together():
    world, out = mpi().COMM_WORLD, Path(sys.argv[1])
    how = json.loads(sys.argv[2])
    dies = how.pop("dies", None)
    model, stages, sizes = how.pop("model", "perceptron"), how.pop("stages", False), how.pop("sizes", {})
    recorded = getattr(steps, model)(how.get("microbatches", world.size), **sizes)
    if stages:
        step, mine = pipeline(*recorded.forward(), stages=world.size, **how), recorded.data
    else:
        step = shard(*recorded.forward(), ranks=world.size, **how)
        mine = [rows[world.rank // step.sharding.tensor] for rows in recorded.data]
    with MpiRank(step, step.planned(), recorded.weights) as rank:
        losses = []
        for number, rows in enumerate(mine):
            if number and world.rank == dies:
                raise ArithmeticError("this rank has had enough")
            losses += [float(loss[0]) for name, loss in rank.run(rows, {"alpha": 0.1}).items() if name == "loss.mean"]
        whole = rank.weights()
        if not world.rank:
            np.savez(out / "whole.npz", **whole)
        np.savez(out / f"rank{world.rank}.npz", losses=losses, **rank.parts())
