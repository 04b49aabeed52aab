"""Live bytes by category: every live byte is counted once, and in the category of what made it."""

import numpy as np
import pytest

from allocsim.liveness import live_bytes
from allocsim.liveness.memory_categories import CATEGORIES, by_category
from engine.models.mlp import mlp
from engine.training import Trainer

BATCH = {"data": np.ones((5, 3), np.float32), "labels": np.zeros(5, np.int32)}
MODEL = mlp((3, 8, 2))
WEIGHTS = sum(array.nbytes for array in MODEL.parameters.values())


@pytest.mark.parametrize(
    ("build", "optimizer", "period", "moments", "accumulators"),
    [("optimizer", "sgd", 1, 0, 0), ("optimizer", "adamw", 1, 2, 0), ("gradient", "adamw", 2, 0, 1), ("forward", "sgd", 1, 0, 0)],
)  # fmt: skip
def test_every_live_byte_has_one_category(build, optimizer, period, moments, accumulators):
    with Trainer(MODEL, optimizer=optimizer, period=period) as trainer:
        program = trainer.bound(build, BATCH).plan.program
    found = by_category(program)

    np.testing.assert_array_equal(sum(found.live.values()), live_bytes(program))
    assert tuple(found.live) == CATEGORIES
    assert (found.live["optimizer"] == moments * WEIGHTS).all()
    assert found.live["gradients"][-1] >= accumulators * WEIGHTS  # the host resets them, so not from the start
    assert WEIGHTS <= found.at_fullest["weights"] <= WEIGHTS + 64  # and hyper-parameters
    assert sum(found.at_fullest.values()) == live_bytes(program).max()
    assert bool(found.live["workspace"].any()) == (build != "forward")
    assert found.live["activations"].any()
