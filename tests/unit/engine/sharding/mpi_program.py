"""What a rank of `test_mpi_ranks.py` runs: losses and parts of a few steps, or a rank that dies."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

from engine.sharding import shard
from engine.sharding.mpi_ranks import MpiRank, ending_together, mpi

spec = importlib.util.spec_from_file_location("rank_steps", Path(__file__).with_name("steps.py"))
steps = importlib.util.module_from_spec(spec)
spec.loader.exec_module(steps)

with ending_together():
    world, out = mpi().COMM_WORLD, Path(sys.argv[1])
    how = json.loads(sys.argv[2])
    dies = how.pop("dies", None)
    recorded = getattr(steps, how.pop("model", "perceptron"))(world.size)
    step = shard(*recorded.forward(), ranks=world.size, **how)
    with MpiRank(step, step.planned(), recorded.weights) as rank:
        losses = []
        for number, rows in enumerate(recorded.data):
            if number and world.rank == dies:
                raise ArithmeticError("this rank has had enough")
            losses.append(float(rank.run(rows[world.rank // step.sharding.tensor], {"alpha": 0.1})["loss.mean"][0]))
        np.savez(out / f"rank{world.rank}.npz", losses=losses, **rank.parts())
