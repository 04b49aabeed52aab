"""Datasets a configuration can name: drawn ones to try things on, and files.

| kind | columns |
|---|---|
| moons | data [n, 2], labels [n]: two half circles, micrograd's demo |
| shapes | data [n, 1, size, size], labels [n]: bars, crosses and frames at random places, four classes |
| text | tokens and labels [n, seq]: bytes of a file and the byte after each |
| tokens | the same from a .npy of integers |
| arrays | every array of an .npz by its name |

What this module does not see: models.
"""

from pathlib import Path
from typing import Final

import numpy as np

from allocsim.errors import EngineError
from allocsim.files.gate import CEILINGS, content, refused_with
from engine.kernels.binding import Array
from engine.training import array_files
from engine.training.dataset import LABELS, Dataset

SHAPES: Final = ("horizontal bar", "vertical bar", "cross", "frame")
"""Classes of `shapes`, by number."""


def moons(points: int, *, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Return `points` noisy points on two interleaved half circles, of classes 0 and 1."""
    if points < 2 or noise < 0:
        raise EngineError(f"moons of {points} points with noise {noise}: at least two points, and no negative noise")
    generator = np.random.default_rng(seed)
    angle, classes = generator.uniform(0, np.pi, points), np.arange(points) % 2
    outer = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    inner = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], axis=1)
    where = np.where(classes[:, None] == 0, outer, inner) + generator.normal(0, noise, (points, 2))
    return Dataset.of(where.astype(np.float32), classes.astype(np.int32))


def shapes(images: int, *, size: int = 12, noise: float = 0.2, seed: int = 0) -> Dataset:
    """Return images [n, 1, size, size] of `SHAPES`, drawn in place and extent, with noise."""
    if images < 1 or size < 6 or noise < 0:
        raise EngineError(
            f"shapes: {images} images of {size} with noise {noise}: at least one, of at least 6, no negative noise"
        )
    generator = np.random.default_rng(seed)
    data = generator.normal(0, noise, (images, 1, size, size))
    for index in range(images):
        extent = int(generator.integers(5, size + 1))
        top, left = (int(generator.integers(0, size - extent + 1)) for _ in range(2))
        patch = data[index, 0, top : top + extent, left : left + extent]
        middle, kind = extent // 2, index % len(SHAPES)
        if kind in (0, 2):
            patch[middle] += 1
        if kind in (1, 2):
            patch[:, middle] += 1
        if kind == 3:
            patch[[0, -1]] += 1
            patch[1:-1, [0, -1]] += 1
    return Dataset.of(data.astype(np.float32), (np.arange(images) % len(SHAPES)).astype(np.int32))


def text(path: str | Path, *, seq: int, shard: int = 1) -> Dataset:
    """Return the bytes of a file as sequences of `seq` tokens, labelled with the next byte."""
    found = content(path, CEILINGS["stream"], refusal=refused_with(EngineError))
    return sequences(np.frombuffer(found, dtype=np.uint8), seq=seq, shard=shard, source=str(path))


def tokens(path: str | Path, *, seq: int, shard: int = 1) -> Dataset:
    """Return the integers of a .npy file as sequences, likewise."""
    found = array_files.read_npy(path)
    if found.dtype.kind not in "iu":
        raise EngineError(f"{path}: is no array of integers")
    return sequences(found.reshape(-1), seq=seq, shard=shard, source=str(path))


def arrays(path: str | Path, *, shard: int = 1) -> Dataset:
    """Return the arrays of an .npz as columns."""
    return Dataset(columns=array_files.read_npz(path), shard=shard)


def sequences(stream: Array, *, seq: int, shard: int = 1, source: str = "the stream") -> Dataset:
    """Return columns `tokens` and `labels` [n, seq] i32: the stream in pieces, labels one on."""
    count = (len(stream) - 1) // seq if seq > 0 else 0
    if count < 1:
        raise EngineError(f"{source}: {len(stream)} tokens make no sequence of {seq} and the token after it")
    pieces = stream[: count * seq + 1].astype(np.int32)
    columns = {"tokens": pieces[:-1].reshape(count, seq), LABELS: pieces[1:].reshape(count, seq)}
    return Dataset(columns=columns, shard=shard)
