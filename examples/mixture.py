"""A mixture of experts: each row goes to the expert that its gate prefers; the gate is trained
through the weight it gives.
"""

import numpy as np

import repro
from engine import model, scope
from engine.front import functions as fn

INPUTS, WIDTH, EXPERTS, CLASSES = 6, 8, 3, 3


def mixture(p, data):
    """Rows [N, INPUTS] to scores of classes."""
    x = fn.rms_norm(data @ p["in"], p["norm"])
    shares = (x @ p["gate"]).softmax()
    chosen = fn.one_hot(shares.argmax(1), EXPERTS) * shares
    total = x
    for expert in range(EXPERTS):
        with scope(f"expert.{expert}", layer=expert):
            said = (x @ p[f"expert.{expert}.up"]).gelu() @ p[f"expert.{expert}.down"]
            total = total + chosen[:, expert : expert + 1] * said
    return fn.rms_norm(total, p["last"]) @ p["out"]


def weights(seed=0):
    """Weights to start from, by name."""
    rng = np.random.default_rng(seed)
    shapes = {"in": (INPUTS, WIDTH), "gate": (WIDTH, EXPERTS), "out": (WIDTH, CLASSES)}
    for expert in range(EXPERTS):
        shapes |= {f"expert.{expert}.up": (WIDTH, 2 * WIDTH), f"expert.{expert}.down": (2 * WIDTH, WIDTH)}
    made = {name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in shapes.items()}
    return made | {"norm": np.ones(WIDTH, np.float32), "last": np.ones(WIDTH, np.float32)}


def batch(rows=18, seed=1):
    """Points around three centres, and whose they are."""
    rng = np.random.default_rng(seed)
    classes = np.arange(rows) % CLASSES
    centres = rng.normal(0, 2.0, (CLASSES, INPUTS))
    return {"data": (centres[classes] + rng.normal(size=(rows, INPUTS))).astype(np.float32), "labels": classes.astype(np.int32)}  # fmt: skip


NET = model(mixture, weights(), example=batch())
CASE = repro.trial(NET, batch(), hyper={"alpha": 0.2}, steps=6, title="a mixture of experts learns three clusters")
