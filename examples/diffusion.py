"""A denoiser of points: the noise in a noisy point is foretold from the point and its time."""

import numpy as np

import repro
from engine import model, scope
from engine.front import functions as fn

WIDTH, WAVES, LAYERS = 16, 4, 2


def diffusion(p, data, time):
    """Noisy points [N, 2] and times [N, 1] in 0..1 to the noise in each point."""
    angles = time * (2.0 ** np.arange(WAVES, dtype=np.float32))
    x = fn.concat([data, angles.sin(), angles.cos()], axis=1) @ p["in"]
    for layer in range(LAYERS):
        with scope(f"layer.{layer}", layer=layer):
            h = fn.rms_norm(x, p[f"layer.{layer}.norm"])
            x = x + (h @ p[f"layer.{layer}.up"]).silu() @ p[f"layer.{layer}.down"]
    return x @ p["out"]


def weights(seed=0):
    """Weights to start from, by name."""
    rng = np.random.default_rng(seed)
    shapes = {"in": (2 + 2 * WAVES, WIDTH), "out": (WIDTH, 2)}
    for layer in range(LAYERS):
        shapes |= {f"layer.{layer}.up": (WIDTH, 2 * WIDTH), f"layer.{layer}.down": (2 * WIDTH, WIDTH)}
    made = {name: (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32) for name, shape in shapes.items()}
    return made | {f"layer.{layer}.norm": np.ones(WIDTH, np.float32) for layer in range(LAYERS)}


def batch(rows=24, seed=1):
    """Points of a circle with noise that grows with time, and that noise."""
    rng = np.random.default_rng(seed)
    angle, time = rng.uniform(0, 2 * np.pi, rows), rng.uniform(0, 1, (rows, 1))
    noise = rng.normal(size=(rows, 2))
    points = np.sqrt(1 - time) * np.stack([np.cos(angle), np.sin(angle)], axis=1) + np.sqrt(time) * noise
    return {name: array.astype(np.float32) for name, array in (("data", points), ("time", time), ("labels", noise))}


NET = model(diffusion, weights(), example=batch())
CASE = repro.trial(
    NET, batch(), loss="mean_squared_error", hyper={"alpha": 0.1}, steps=6, title="a denoiser learns a circle"
)
