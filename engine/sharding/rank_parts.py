"""Which rank holds which part of a parameter, as arithmetic on arrays.

A parameter of n elements is cut, in row-major order, into as many parts of ceil(n / parts) elements
as the group has ranks; the last are filled up with zeros. `whole` undoes `part`. So a checkpoint
made of the parts of any number of ranks is that of any other.

What this module does not see: graphs, and who sends what to whom.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from engine.kernels.binding import Array
from engine.kernels.collective import part_of
from engine.ops.collective import part_length

Ranks = tuple[int, ...]

SHARDS = "shards"
"""The group of ranks that together hold one copy of the parameters."""
REPLICAS = "replicas"
"""The group of ranks that hold the same part."""


def part(array: Array, place: int, parts: int) -> Array:
    """Return the part of one rank, flat, of its full length."""
    found = np.zeros(part_length(array.size, parts), array.dtype)
    mine = part_of(np.ascontiguousarray(array), place, parts)
    found[: mine.size] = mine
    return found


def whole(parts: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return the array that the parts, in the order of their ranks, are parts of."""
    return np.concatenate(parts)[: prod(shape)].reshape(shape)


def groups_of(ranks: int, hybrid: tuple[int, int] | None) -> dict[str, tuple[Ranks, ...]]:
    """Return the groups in which ranks meet: all, and with `hybrid` (copies, parts) the two axes.

    Rank r holds part r % parts of copy r // parts.
    """
    copies, parts = hybrid or (1, ranks)
    return {
        "world": (tuple(range(ranks)),),
        SHARDS: tuple(tuple(range(copy * parts, (copy + 1) * parts)) for copy in range(copies)),
        REPLICAS: tuple(tuple(range(place, ranks, parts)) for place in range(parts)),
    }


__all__ = ["REPLICAS", "SHARDS", "groups_of", "part", "whole"]
