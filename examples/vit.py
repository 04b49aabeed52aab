"""A vision transformer: patches, a class token, attention and a gated perceptron in each layer."""

import numpy as np

import repro
from engine import model, scope
from engine.front import functions as fn

SIZE, PATCH, WIDTH, HEADS, LAYERS, CLASSES = 8, 4, 16, 2, 2, 3
PLACES = (SIZE // PATCH) ** 2


def vit(p, data):
    """Images [N, 1, SIZE, SIZE] to scores of classes."""
    rows, side = data.shape[0], SIZE // PATCH
    patches = data.reshape(rows, side, PATCH, side, PATCH).transpose(0, 1, 3, 2, 4).reshape(rows, PLACES, PATCH**2)
    first = p["class"].broadcast_to(rows, 1, WIDTH)
    x = fn.concat([first, patches @ p["patch"]], axis=1) + p["place"]
    for layer in range(LAYERS):
        with scope(f"layer.{layer}", layer=layer):
            x = x + _attention(p, f"layer.{layer}", fn.rms_norm(x, p[f"layer.{layer}.norm1"]))
            h = fn.rms_norm(x, p[f"layer.{layer}.norm2"])
            x = x + ((h @ p[f"layer.{layer}.gate"]).silu() * (h @ p[f"layer.{layer}.up"])) @ p[f"layer.{layer}.down"]
    return fn.rms_norm(x[:, 0], p["norm"]) @ p["out"]


def _attention(p, name, x):
    rows, length, _ = x.shape
    q, k, v = (
        (x @ p[f"{name}.{which}"]).reshape(rows, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for which in "qkv"
    )
    looked = (q @ k.transpose(0, 1, 3, 2) * (WIDTH // HEADS) ** -0.5).softmax() @ v
    return looked.transpose(0, 2, 1, 3).reshape(rows, length, WIDTH) @ p[f"{name}.o"]


def weights(seed=0):
    """Weights to start from, by name."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return (rng.normal(size=shape) / np.sqrt(shape[-2])).astype(np.float32)

    ones = np.ones(WIDTH, np.float32)
    made = {"class": normal(1, WIDTH), "place": 0.1 * normal(PLACES + 1, WIDTH), "patch": normal(PATCH**2, WIDTH)}
    for layer in range(LAYERS):
        name = f"layer.{layer}"
        made |= {f"{name}.{which}": normal(WIDTH, WIDTH) for which in "qkvo"}
        made |= {f"{name}.gate": normal(WIDTH, 2 * WIDTH), f"{name}.up": normal(WIDTH, 2 * WIDTH)}
        made |= {f"{name}.down": normal(2 * WIDTH, WIDTH), f"{name}.norm1": ones, f"{name}.norm2": ones}
    return made | {"norm": ones, "out": normal(WIDTH, CLASSES)}


def batch(rows=12, seed=1):
    """Images with a bright row, a bright column or a bright diagonal, and which of them it is."""
    rng = np.random.default_rng(seed)
    images, classes = 0.3 * rng.normal(size=(rows, 1, SIZE, SIZE)), rng.integers(0, CLASSES, rows)
    for image, which, place in zip(images[:, 0], classes, rng.integers(0, SIZE, rows), strict=True):
        marks = (np.s_[place, :], np.s_[:, place], np.eye(SIZE, dtype=bool))
        image[marks[which]] += 2.0
    return {"data": images.astype(np.float32), "labels": classes.astype(np.int32)}


NET = model(vit, weights(), example=batch())
CASE = repro.trial(NET, batch(), hyper={"alpha": 0.1}, steps=6, title="a vision transformer learns three marks")
