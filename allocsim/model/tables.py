"""What a program consists of: arenas, and the tables of its buffers, values and ops. `allocsim.model` makes programs of them.

Columns, not objects: each table is a frozen bundle of read-only numpy arrays; lists of lists are in CSR form (`starts`, flat). The little objects
(`Op`, `Value`) are views for reading a few rows; hot code takes the columns. Steps, bytes and indices are what the header of `allocsim.model` says.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.model import layout
from allocsim.model.layout import Int64s

Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]
Meta = Mapping[str, Any]

HOST_WRITE: Final = "host.write"
HOST_READ: Final = "host.read"
VIEW: Final = "view"

DTYPES: Final[tuple[tuple[str, int], ...]] = (
    ("f64", 8), ("f32", 4), ("f16", 2), ("bf16", 2), ("i64", 8), ("i32", 4), ("i16", 2), ("i8", 1),
    ("u64", 8), ("u32", 4), ("u16", 2), ("u8", 1), ("bool", 1),
)  # fmt: skip
"""Name and item size of each dtype; a value's `dtype` column is an index into this table."""

DTYPE_CODES: Final = {name: code for code, (name, _) in enumerate(DTYPES)}
ITEMSIZES: Final = np.array([size for _, size in DTYPES], dtype=np.int64)


class Role(IntEnum):
    """What a buffer is to its program; decides whether it persists from run to run."""

    TEMPORARY = 0
    """Made and used within a run."""
    INPUT = 1
    """Filled by the host."""
    PARAMETER = 2
    """Holds its content before the session starts and through every run: weights."""
    STATE = 3
    """As a parameter, and written by the program: accumulators, momenta, caches."""

    @property
    def persistent(self) -> bool:
        """Whether a buffer of this role lives through every run it is part of."""
        return self >= Role.PARAMETER


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One address space: a device's memory, or one chunk of it."""

    name: str
    """For people."""
    alignment: int = 1
    """Bytes; the default of the buffers that live here."""
    capacity: int | None = None
    """Bytes; None is unbounded."""
    meta: Meta = field(default_factory=dict, compare=False, repr=False)


DEFAULT_ARENAS: Final = (Arena(name="cpu", alignment=32),)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Buffers:
    """Units of allocation, one row each."""

    names: tuple[str, ...]
    nbytes: Int64s
    alignment: Int64s
    """Bytes, at least 1; the arena's default is already filled in."""
    arena: Int32s
    """The address space this buffer must be placed in."""
    role: NDArray[np.int8]
    """`Role` codes."""
    read_only: Bools
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nbytes)

    @cached_property
    def persistent(self) -> Bools:
        """Which buffers are parameters or state."""
        mask: Bools = self.role >= Role.PARAMETER
        return mask


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Values:
    """Tensors, one row each: a dtype, a shape and a byte layout inside one buffer."""

    names: tuple[str, ...]
    buffer: Int32s
    dtype: NDArray[np.int8]
    """Indices into `DTYPES`."""
    offset: Int64s
    """Bytes from the start of the buffer to element 0."""
    dim_starts: Int64s
    """CSR: the dimensions of value j are rows `dim_starts[j]:dim_starts[j + 1]` of `shape` and `strides`."""
    shape: Int64s
    strides: Int64s
    """Bytes; negative flips, zero broadcasts."""
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.buffer)

    def __getitem__(self, index: int) -> "Value":
        dims = slice(int(self.dim_starts[index]), int(self.dim_starts[index + 1]))
        name, itemsize = DTYPES[self.dtype[index]]
        return Value(
            index=index,
            name=self.names[index],
            buffer=int(self.buffer[index]),
            dtype=name,
            itemsize=itemsize,
            shape=tuple(self.shape[dims].tolist()),
            strides=tuple(self.strides[dims].tolist()),
            offset=int(self.offset[index]),
        )

    def __iter__(self) -> Iterator["Value"]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def itemsize(self) -> Int64s:
        """Bytes of one element, for each value."""
        return ITEMSIZES[self.dtype]

    @cached_property
    def hulls(self) -> Int64s:
        """(n, 2): lowest and highest byte touched by each value, half-open, within its buffer; empty shapes give (x, x)."""
        extent = (self.shape - 1) * self.strides
        owner = np.repeat(np.arange(len(self)), np.diff(self.dim_starts))
        low, high = self.offset.copy(), self.offset + self.itemsize
        np.add.at(low, owner, np.minimum(extent, 0))
        np.add.at(high, owner, np.maximum(extent, 0))
        empty = np.zeros(len(self), dtype=np.bool_)
        empty[owner[self.shape == 0]] = True
        low[empty] = self.offset[empty]
        high[empty] = self.offset[empty]
        return np.stack([low, high], axis=1)

    @cached_property
    def dense(self) -> Bools:
        """Which values are one byte run: `runs(j)` is then `hulls[j]`. Sufficient and necessary."""
        ranks = np.diff(self.dim_starts)
        rank = int(ranks.max(initial=0))
        column = np.arange(rank)
        inside = column < ranks[:, None]
        stride = np.zeros((len(self), rank), dtype=np.int64)
        count = np.ones((len(self), rank), dtype=np.int64)
        stride[inside] = np.abs(self.strides)
        count[inside] = self.shape
        matters = (count > 1) & (stride > 0)
        stride[~matters], count[~matters] = 0, 1
        by_stride = np.argsort(stride, axis=1, kind="stable")
        stride = np.take_along_axis(stride, by_stride, axis=1)
        count = np.take_along_axis(count, by_stride, axis=1)
        length = self.itemsize.copy()
        dense = np.ones(len(self), dtype=np.bool_)
        for axis in range(rank):
            dense &= stride[:, axis] <= length
            length += stride[:, axis] * (count[:, axis] - 1)
        one_run: Bools = dense | (self.hulls[:, 0] == self.hulls[:, 1])
        return one_run

    def runs(self, index: int) -> Int64s:
        """Return the byte runs of a value within its buffer: int64 (k, 2), half-open, sorted, disjoint (`allocsim.model.layout`)."""
        if self.dense[index]:
            low, high = self.hulls[index]
            return np.array([[low, high]] if high > low else [], dtype=np.int64).reshape(-1, 2)
        value = self[index]
        return layout.byte_runs(value.shape, value.strides, value.offset, value.itemsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One row of `Values`."""

    index: int
    name: str
    buffer: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def same_layout(self, other: "Value") -> bool:
        """Return whether shape, item size and every stride that matters agree; offsets and buffers may differ."""
        return layout.same_layout((self.shape, self.strides, self.itemsize), (other.shape, other.strides, other.itemsize))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Ops:
    """Kernel calls in list order, one row each; the row is the step."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    """The distinct kinds; `kind` indexes this."""
    kind: Int32s
    operand_starts: Int64s
    operands: Int32s
    """CSR: values the kernel reads, by position."""
    result_starts: Int64s
    results: Int32s
    """CSR: values it writes, by position."""
    in_place_starts: Int64s
    in_place: Int32s
    """CSR (n, 2): declared pairs (operand position, result position)."""
    in_place_known: Bools
    """False where nobody knows what the kernel promises (a foreign kernel, `in_place: null`)."""
    stream: Int32s
    after_starts: Int64s
    after: Int32s
    """CSR: earlier ops of other streams it waits for."""
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, step: int) -> "Op":
        return Op(
            step=step,
            name=self.names[step],
            kind=self.kinds[self.kind[step]],
            operands=tuple(self.operands[self.operand_starts[step] : self.operand_starts[step + 1]].tolist()),
            results=tuple(self.results[self.result_starts[step] : self.result_starts[step + 1]].tolist()),
            in_place=(
                tuple((o, r) for o, r in self.in_place[self.in_place_starts[step] : self.in_place_starts[step + 1]].tolist())
                if self.in_place_known[step]
                else None
            ),
            stream=int(self.stream[step]),
            after=tuple(self.after[self.after_starts[step] : self.after_starts[step + 1]].tolist()),
        )

    def __iter__(self) -> Iterator["Op"]:
        return (self[step] for step in range(len(self)))

    def is_kind(self, kind: str) -> Bools:
        """Return the mask of ops of one kind."""
        code = self.kinds.index(kind) if kind in self.kinds else -1
        mask: Bools = self.kind == code
        return mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """One row of `Ops`."""

    step: int
    name: str
    kind: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    in_place: tuple[tuple[int, int], ...] | None
    stream: int
    after: tuple[int, ...]


def freeze(table: object) -> None:
    """Make every column of a frozen table read-only, without a copy where nobody else holds a writeable one."""
    for name, column in vars(table).items():
        if isinstance(column, np.ndarray) and column.flags.writeable:
            frozen = column.view() if column.base is None else column.copy()
            frozen.flags.writeable = False
            object.__setattr__(table, name, frozen)
