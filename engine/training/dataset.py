"""Datapoints by column, their shuffling by shards, and what of them goes into a batch.

A dataset is columns of one length, such as `data` and `labels`; row i of each is datapoint i. The
order in which datapoints are used is an array of row numbers of its own, so that a dataset is never
changed and an order can be saved. Shuffling moves *shards*, runs of `shard` neighbouring
datapoints, as ggml's `ggml_opt_dataset_shuffle` does; the last shard may be shorter and stays where
it is.

What this module does not see: models, and what a column means.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.errors import EngineError

Array = NDArray[Any]
Order = NDArray[np.int64]

LABELS: Final = "labels"
"""The column a loss compares outputs with."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """Columns of datapoints; f32, f64 and integers."""

    columns: Mapping[str, Array]
    """Name -> array of shape [datapoints, ...]."""
    shard: int = 1
    """Datapoints that stay together when the order is shuffled."""

    def __post_init__(self) -> None:
        """Raise EngineError unless columns are numbers of one length and the shard has a size."""
        if not self.columns:
            raise EngineError("a dataset needs at least one column")
        lengths = {name: len(column) for name, column in self.columns.items() if column.ndim}
        if len(lengths) != len(self.columns) or len(set(lengths.values())) != 1:
            shapes = ", ".join(f"{name} {list(column.shape)}" for name, column in self.columns.items())
            raise EngineError(f"columns must have one leading length; there are {shapes}")
        for name, column in self.columns.items():
            if column.dtype.kind not in "fiu":
                raise EngineError(f"column {name!r} is {column.dtype}; floats or integers are needed")
        if self.shard < 1:
            raise EngineError(f"shard is {self.shard}; it must be at least 1")
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))

    @classmethod
    def of(cls, data: Array, labels: Array | None = None, *, shard: int = 1, **columns: Array) -> "Dataset":
        """Return a dataset of `data` [n, ...] and `labels`: [n] class numbers, or [n, ...] targets.

        Further columns by name.
        """
        given = {"data": data, **({} if labels is None else {LABELS: labels}), **columns}
        return cls(columns={name: np.asarray(column) for name, column in given.items()}, shard=shard)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {column.dtype}{list(column.shape)}" for name, column in self.columns.items())
        return f"Dataset({columns})"

    def take(self, rows: Order) -> dict[str, Array]:
        """Return a copy of some datapoints, by column."""
        return {name: column[rows] for name, column in self.columns.items()}

    def order(self) -> Order:
        """Return the order of the columns themselves."""
        return np.arange(len(self), dtype=np.int64)

    def shuffled(self, order: Order, generator: np.random.Generator, count: int | None = None) -> Order:
        """Return `order` with the shards of its first `count` places (all by default) permuted.

        O(datapoints).

        Raises EngineError if `count` is no multiple of the shard: half a shard would be torn from
        its other half.
        """
        count = len(order) if count is None else count
        whole = count // self.shard
        if whole * self.shard != count and count != len(order):
            raise EngineError(f"the first {count} datapoints are no whole number of shards of {self.shard}")
        head = order[: whole * self.shard].reshape(whole, self.shard)
        return np.concatenate([head[generator.permutation(whole)].reshape(-1), order[whole * self.shard :]])
