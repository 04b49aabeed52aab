"""A recurrent network over tokens: the next token is foretold from a normalised state."""

import numpy as np

import repro
from engine import model, scope
from engine.front import functions as fn

TOKENS, WIDTH, LENGTH = 7, 12, 5


def rnn(p, data):
    """Tokens [N, LENGTH], int32, to scores of the token after each: [N * LENGTH, TOKENS]."""
    rows, length = data.shape
    embedded = fn.embedding(p["embedding"], data)
    state, seen = p["start"].broadcast_to(rows, WIDTH), []
    for step in range(length):
        with scope(f"step.{step}", layer=step):
            state = fn.rms_norm((embedded[:, step] @ p["in"] + state @ p["again"] + p["bias"]).tanh(), p["norm"])
            seen.append(state)
    return fn.stack(seen, axis=1).reshape(rows * length, WIDTH) @ p["out"]


def weights(seed=0):
    """Weights to start from, by name."""
    rng = np.random.default_rng(seed)
    shapes = {"embedding": (TOKENS, WIDTH), "in": (WIDTH, WIDTH), "again": (WIDTH, WIDTH), "out": (WIDTH, TOKENS)}
    made = {name: (rng.normal(size=shape) / np.sqrt(WIDTH)).astype(np.float32) for name, shape in shapes.items()}
    return made | {"start": np.zeros((1, WIDTH), np.float32), "bias": np.zeros(WIDTH, np.float32), "norm": np.ones(WIDTH, np.float32)}  # fmt: skip


def batch(rows=6, seed=1):
    """Counting upward, from any token and around."""
    first = np.random.default_rng(seed).integers(0, TOKENS, rows)
    text = (first[:, None] + np.arange(LENGTH + 1)) % TOKENS
    return {"data": text[:, :-1].astype(np.int32), "labels": text[:, 1:].astype(np.int32)}


NET = model(rnn, weights(), dtypes={"data": "int32"}, example=batch())
CASE = repro.trial(NET, batch(), hyper={"alpha": 0.3}, steps=6, title="a recurrent network learns to count")
