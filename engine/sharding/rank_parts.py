"""Which rank holds which part of an array, as arithmetic on arrays.

A parameter of n elements is cut, in row-major order, into as many parts of ceil(n / parts) elements
as the group has ranks; the last are filled up with zeros. `whole` undoes `part`. So a checkpoint
made of the parts of any number of ranks is that of any other. Tensor parallelism splits it along an
axis first (`Spread`).

What this module does not see: graphs, and who sends what to whom.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from engine.kernels.binding import Array
from engine.kernels.collective import part_of
from engine.ops.collective import part_length

Ranks = tuple[int, ...]

SHARDS = "shards"
"""The group of ranks that together hold one copy of the parameters."""
REPLICAS = "replicas"
"""The group of ranks that hold the same part."""
TENSOR: Final = "tensor"
"""The group of ranks over which tensors are split: neighbours, which read the same rows."""
EXPERTS: Final = "experts"
"""The group of ranks over which experts are spread: neighbours, each with rows of its own."""
DATA: Final = "data"
"""The group of ranks that hold the same slice of what is split, and read other rows."""


def part(array: Array, place: int, parts: int) -> Array:
    """Return the part of one rank, flat, of its full length."""
    found = np.zeros(part_length(array.size, parts), array.dtype)
    mine = part_of(np.ascontiguousarray(array), place, parts)
    found[: mine.size] = mine
    return found


def whole(parts: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Return the array that the parts, in the order of their ranks, are parts of."""
    return np.concatenate(parts)[: prod(shape)].reshape(shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How ranks hold an array: split along an axis, in flat parts, or in parts of a split."""

    shape: tuple[int, ...]
    """Of the whole."""
    axis: int | None = None
    """Along which neighbouring ranks hold equal slices."""
    slices: int = 1
    parts: int = 1
    """Ranks that share a slice, each a flat part of it; 1 where each holds all of it."""
    flat: bool = False
    """Whether what a rank holds is flat."""

    def held(self, array: Array, rank: int) -> Array:
        """Return what a rank holds of the whole."""
        mine = array if self.axis is None else np.split(array, self.slices, self.axis)[rank % self.slices]
        place = rank // self.slices % self.parts
        return part(mine, place, self.parts) if self.flat else np.ascontiguousarray(mine)

    def joined(self, by_rank: Sequence[Array]) -> Array:
        """Return the whole of what ranks hold, in their order."""
        shape = tuple(n // self.slices if axis == self.axis else n for axis, n in enumerate(self.shape))
        alike = [by_rank[place :: self.slices][: self.parts] for place in range(self.slices)]
        slices = [whole(rows, shape) if self.flat else rows[0] for rows in alike]
        return slices[0] if self.axis is None else np.concatenate(slices, self.axis)


def groups_of(
    ranks: int, hybrid: tuple[int, int] | None, slices: int = 1, neighbours: str = TENSOR
) -> dict[str, tuple[Ranks, ...]]:
    """Return the groups in which ranks meet: all, and the two axes of `hybrid` (copies, parts) and
    of `slices`, whose holders are the group `neighbours`.

    Rank r holds part r % parts of copy r // parts; and slice r % slices of what is split.
    """
    copies, parts = hybrid or (1, ranks)
    split = _grid(ranks // slices, slices)
    return {
        "world": (tuple(range(ranks)),),
        **dict(zip((SHARDS, REPLICAS), _grid(copies, parts), strict=True)),
        **(dict(zip((neighbours, DATA), split, strict=True)) if slices > 1 else {}),
    }


def _grid(rows: int, columns: int) -> tuple[tuple[Ranks, ...], tuple[Ranks, ...]]:
    """Return the rows and the columns of ranks that are laid out row by row."""
    count = rows * columns
    across = tuple(tuple(range(row * columns, (row + 1) * columns)) for row in range(rows))
    return across, tuple(tuple(range(column, count, columns)) for column in range(columns))
