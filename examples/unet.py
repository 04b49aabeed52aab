"""A small U-Net: down, attention over the pixels in the middle, up, and a skip connection; it says
of every pixel whether it lies in the square.
"""

import numpy as np

import repro
from engine import model, scope
from engine.front import functions as fn

SIZE, WIDTH = 8, 4


def unet(p, data):
    """Images [N, 1, SIZE, SIZE] to one number for each pixel."""
    with scope("down", layer=0):
        fine = fn.conv2d(data, p["down.filter"], p["down.bias"], padding=1).relu()
        coarse = fn.max_pool2d(fine, 2)
    with scope("middle", layer=1):
        coarse = coarse + _looking(p, fn.conv2d(coarse, p["middle.filter"], p["middle.bias"], padding=1).silu())
    with scope("up", layer=2):
        rows, channels, high, wide = coarse.shape
        doubled = coarse.reshape(rows, channels, high, 1, wide, 1).broadcast_to(rows, channels, high, 2, wide, 2)
        joined = fn.concat([doubled.reshape(rows, channels, 2 * high, 2 * wide), fine], axis=1)
        return fn.conv2d(joined, p["up.filter"], p["up.bias"], padding=1)


def _looking(p, x):
    rows, channels, high, wide = x.shape
    pixels = x.reshape(rows, channels, high * wide).transpose(0, 2, 1)
    pixels = fn.rms_norm(pixels, p["middle.norm"])
    q, k, v = (pixels @ p[f"middle.{which}"] for which in "qkv")
    seen = (q @ k.transpose(0, 2, 1) * channels**-0.5).softmax() @ v
    return seen.transpose(0, 2, 1).reshape(rows, channels, high, wide)


def weights(seed=0):
    """Weights to start from, by name."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, fan_in, fan_out in (("down", 1, WIDTH), ("middle", WIDTH, WIDTH), ("up", 2 * WIDTH, 1)):
        made[f"{name}.filter"] = (rng.normal(size=(fan_out, fan_in, 3, 3)) / np.sqrt(9 * fan_in)).astype(np.float32)
        made[f"{name}.bias"] = np.zeros(fan_out, np.float32)
    made |= {f"middle.{which}": rng.normal(0, 0.5, (WIDTH, WIDTH)).astype(np.float32) for which in "qkv"}
    return made | {"middle.norm": np.ones(WIDTH, np.float32)}


def batch(rows=4, seed=1):
    """A bright square in noise, and where it is."""
    rng = np.random.default_rng(seed)
    masks = np.zeros((rows, 1, SIZE, SIZE), np.float32)
    for mask, (top, left) in zip(masks[:, 0], rng.integers(0, SIZE // 2, (rows, 2)), strict=True):
        mask[top : top + 4, left : left + 4] = 1.0
    noise = 0.4 * rng.normal(size=masks.shape)
    return {"data": (masks + noise).astype(np.float32), "labels": masks}


NET = model(unet, weights(), example=batch())
CASE = repro.trial(
    NET, batch(), loss="mean_squared_error", hyper={"alpha": 0.05}, steps=6, title="a U-Net finds a square"
)
