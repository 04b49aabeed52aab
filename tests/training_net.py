"""A net of three layers with a batch to train on, by a name that a command can be given."""

from dataclasses import replace

import numpy as np

from engine.models.mlp import mlp

ROWS = 24
RNG = np.random.default_rng(0)
BATCH = {
    "data": RNG.normal(size=(ROWS, 6)).astype(np.float32),
    "labels": RNG.integers(0, 3, ROWS).astype(np.int32),
}
NET = replace(mlp((6, 32, 32, 3)), example=BATCH)
