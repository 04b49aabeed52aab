"""The parts of a program: arenas, and the tables of its buffers, values and ops.

`allocsim.model.computation` makes programs of them.

Each table is a frozen bundle of columns, which are read-only numpy arrays; lists of lists are in
CSR form (`starts`, flat). The small objects (`Op`, `Value`) are for reading a few rows; hot code
reads the columns. The header of `allocsim.model` defines steps, bytes and indices.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from allocsim.model import layout
from allocsim.model.dtypes import DTYPES, ITEMSIZES, WIDTHS
from allocsim.model.layout import Int64s

Int32s = NDArray[np.int32]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Meta = Mapping[str, Any]

HOST_WRITE: Final = "host.write"
HOST_READ: Final = "host.read"
GIVEN_BACK: Final = "given_back"
"""Kind of an op that gives the bytes of its result back; others may use them from then on."""
VIEW: Final = "view"
SAME: Final = "same"
"""Kind of an op whose results equal its operands, byte by byte.

In version 1 this kind has no meaning (`Program.same_ops`).
"""

EXACT: Final = 0
BYTES: Final = 1
WHOLE: Final = 2
STRENGTHS: Final = ("exact", "bytes", "whole")
"""Name of each promise of an `in_place` pair, by code: the kernel is correct at one address and
layout; at one address with any shapes; with any overlap (docs/format.md).
"""


def _no_bytes() -> Bytes:
    return np.empty(0, dtype=np.uint8)


class Role(IntEnum):
    """The use of a buffer in its program, which decides whether it persists from run to run."""

    TEMPORARY = 0
    """Made and used within a run."""
    INPUT = 1
    """Filled by the host."""
    PARAMETER = 2
    """Holds its content before the session starts and through every run: weights."""
    STATE = 3
    """Like a parameter, but the program writes it: accumulators, momenta, caches."""

    @property
    def persistent(self) -> bool:
        """Whether a buffer of this role keeps its content from run to run."""
        return self >= Role.PARAMETER


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """One address space: a device's memory, or one chunk of it."""

    name: str
    """For people."""
    alignment: int = 1
    """Bytes; the default alignment of the buffers in this arena."""
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
    nbytes_range: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Buffer -> least and greatest size in bytes, both included, if only the run decides.

    A plan must be sound at both sizes.
    """
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.nbytes)

    @cached_property
    def persistent(self) -> Bools:
        """Which buffers are parameters or state."""
        mask: Bools = self.role >= Role.PARAMETER
        return mask

    @cached_property
    def nbytes_low(self) -> Int64s:
        """Least size of each buffer in bytes; its `nbytes` if it has no range."""
        return self._end(0)

    @cached_property
    def nbytes_high(self) -> Int64s:
        """Greatest size of each buffer in bytes; its `nbytes` if it has no range."""
        return self._end(1)

    def _end(self, which: int) -> Int64s:
        sizes = self.nbytes.copy()
        for buffer, ends in self.nbytes_range.items():
            sizes[buffer] = ends[which]
        return sizes


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
    """CSR: the dimensions of value j are rows `dim_starts[j]:dim_starts[j + 1]` of `shape` and
    `strides`.
    """
    shape: Int64s
    strides: Int64s
    """Bytes; negative flips, zero broadcasts; 0 in the last dimension of a packed value."""
    bit_offset: Bytes = field(default_factory=_no_bytes)
    """Bits from the start of its byte to element 0 of a packed value, low bits first.

    It is 0 for other values, and by default.
    """
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _fill(self, "bit_offset", len(self.buffer))

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
            width=int(WIDTHS[self.dtype[index]]),
            bit_offset=int(self.bit_offset[index]),
        )

    def __iter__(self) -> Iterator["Value"]:
        return (self[index] for index in range(len(self)))

    @cached_property
    def itemsize(self) -> Int64s:
        """Bytes of one element, for each value."""
        return ITEMSIZES[self.dtype]

    @cached_property
    def width(self) -> Int64s:
        """Bits of one element, for each value."""
        return WIDTHS[self.dtype]

    @cached_property
    def packed(self) -> Bools:
        """Which values have elements narrower than a byte."""
        mask: Bools = self.width < 8
        return mask

    @cached_property
    def counts(self) -> Int64s:
        """Number of elements of each value; 1 for a scalar."""
        counts = np.ones(len(self), dtype=np.int64)
        np.multiply.at(counts, self._owner, self.shape)
        return counts

    @cached_property
    def nbytes(self) -> Int64s:
        """Bytes that the elements of each value need when laid side by side, rounded up to a whole
        byte.
        """
        sizes: Int64s = -(-self.counts * self.width // 8)
        return sizes

    @cached_property
    def row_bits(self) -> Int64s:
        """Bits of one row of each value: the packed elements along its last dimension, or one
        element (`allocsim.model.layout.row_bits`).
        """
        rows = self.width.copy()
        last = np.flatnonzero(self.packed & (np.diff(self.dim_starts) > 0))
        rows[last] *= self.shape[self.dim_starts[last + 1] - 1]
        return rows

    @cached_property
    def ragged(self) -> Bools:
        """Which values cover some byte only in part; exactly for the other values, `bit_runs(j)` is
        `8 * runs(j)`.
        """
        # The first bit of the lowest row and the last of the highest are covered by no other row,
        # and all rows begin alike.
        partly: Bools = (((self.bit_offset | self.row_bits) & 7) != 0) & (self.counts > 0)
        return partly

    @cached_property
    def hulls(self) -> Int64s:
        """(n, 2): lowest and highest byte touched by each value, half-open, within its buffer.

        Empty shapes give (x, x).
        """
        low, high = self._reach
        empty = self.counts == 0
        low, high = low.copy(), high + self._row_bytes
        low[empty] = self.offset[empty]
        high[empty] = self.offset[empty]
        return np.stack([low, high], axis=1)

    @cached_property
    def bit_hulls(self) -> Int64s:
        """(n, 2): as `hulls`, in bits.

        All values must lie within `allocsim.model.layout.PACKED_LIMIT`.
        """
        bits = 8 * self.hulls
        bits[:, 0] += self.bit_offset
        some = self.packed & (self.counts > 0)
        bits[some, 1] = (8 * self._reach[1] + self.bit_offset + self.row_bits)[some]
        bits[self.packed & ~some, 1] += self.bit_offset[self.packed & ~some]
        return bits

    @cached_property
    def dense(self) -> Bools:
        """Which values are one byte run: exactly for these, `runs(j)` is `hulls[j]`."""
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
        length = self._row_bytes.copy()
        dense = np.ones(len(self), dtype=np.bool_)
        for axis in range(rank):
            dense &= stride[:, axis] <= length
            length += stride[:, axis] * (count[:, axis] - 1)
        one_run: Bools = dense | (self.hulls[:, 0] == self.hulls[:, 1])
        return one_run

    def runs(self, index: int) -> Int64s:
        """Return the byte runs of a value within its buffer: int64 (k, 2), half-open, sorted,
        disjoint (`allocsim.model.layout`).

        They include bytes that a packed value covers only in part.
        """
        if self.dense[index]:
            low, high = self.hulls[index]
            return np.array([[low, high]] if high > low else [], dtype=np.int64).reshape(-1, 2)
        value = self[index]
        inner = slice(0, -1 if value.width < 8 else None)  # the last dimension of a packed value is in its rows
        return layout.byte_runs(value.shape[inner], value.strides[inner], value.offset, int(self._row_bytes[index]))

    def bit_runs(self, index: int) -> Int64s:
        """Return the runs of a value in bits, as `runs` does in bytes.

        The value must lie within `allocsim.model.layout.PACKED_LIMIT`.
        """
        if not self.packed[index]:
            return 8 * self.runs(index)
        value = self[index]
        return layout.bit_runs(value.shape, value.strides, value.offset, value.width, value.bit_offset)

    def of(self, buffer: int) -> Int64s:
        """Return the values that lie in a buffer, in order; O(log n), the first time O(n log n)."""
        order, homes = self._by_buffer
        found: Int64s = order[bisect_left(homes, buffer) : bisect_left(homes, buffer + 1)]
        return found

    @cached_property
    def _by_buffer(self) -> tuple[Int64s, list[int]]:
        """The values in order of their buffers, and the buffer of each."""
        order = np.argsort(self.buffer, kind="stable")
        return order, self.buffer[order].tolist()

    @cached_property
    def _owner(self) -> Int64s:
        """Value of each row of `shape`."""
        return np.repeat(np.arange(len(self)), np.diff(self.dim_starts))

    @cached_property
    def _row_bytes(self) -> Int64s:
        """Bytes that one row of each value touches; the item size if the value is not packed."""
        touched: Int64s = np.where(self.packed, (self.bit_offset + self.row_bits + 7) >> 3, self.itemsize)
        return touched

    @cached_property
    def _reach(self) -> tuple[Int64s, Int64s]:
        """Lowest and highest byte at which a row of each value starts."""
        extent = (self.shape - 1) * self.strides
        low, high = self.offset.copy(), self.offset.copy()
        np.add.at(low, self._owner, np.minimum(extent, 0))
        np.add.at(high, self._owner, np.maximum(extent, 0))
        return low, high


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
    width: int
    """Bits of an element."""
    bit_offset: int

    def same_layout(self, other: "Value") -> bool:
        """Return whether shape, width, `bit_offset` and strides of dimensions longer than 1 agree.

        Offsets and buffers may differ.
        """
        alike = layout.same_layout((self.shape, self.strides, self.width), (other.shape, other.strides, other.width))
        return alike and self.bit_offset == other.bit_offset


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
    """CSR: values the kernel writes, by position."""
    in_place_starts: Int64s
    in_place: Int32s
    """CSR (n, 2): declared pairs (operand position, result position)."""
    in_place_known: Bools
    """False if the kernel's promises are unknown (a foreign kernel, `in_place: null`)."""
    stream: Int32s
    after_starts: Int64s
    after: Int32s
    """CSR: earlier ops of other streams that each op waits for."""
    in_place_strength: Bytes = field(default_factory=_no_bytes)
    """The promise of each row of `in_place`: `EXACT` (the default), `BYTES` or `WHOLE`."""
    meta: Mapping[int, Meta] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _fill(self, "in_place_strength", len(self.in_place))

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, step: int) -> "Op":
        pairs = slice(int(self.in_place_starts[step]), int(self.in_place_starts[step + 1]))
        return Op(
            step=step,
            name=self.names[step],
            kind=self.kinds[self.kind[step]],
            operands=tuple(self.operands[self.operand_starts[step] : self.operand_starts[step + 1]].tolist()),
            results=tuple(self.results[self.result_starts[step] : self.result_starts[step + 1]].tolist()),
            in_place=(tuple((o, r) for o, r in self.in_place[pairs].tolist()) if self.in_place_known[step] else None),
            strengths=tuple(self.in_place_strength[pairs].tolist()),
            stream=int(self.stream[step]),
            after=tuple(self.after[self.after_starts[step] : self.after_starts[step + 1]].tolist()),
        )

    def __iter__(self) -> Iterator["Op"]:
        return (self[step] for step in range(len(self)))

    def called(self, step: int) -> str:
        """Return the name of an op, or its kind if it has no name."""
        return self.names[step] or self.kinds[self.kind[step]]

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
    strengths: tuple[int, ...]
    """The promise of each pair of `in_place`, as a code."""
    stream: int
    after: tuple[int, ...]


def freeze(table: object) -> None:
    """Make every column of a frozen table read-only; a column that is a view of another array is
    copied first.
    """
    for name, column in vars(table).items():
        if isinstance(column, np.ndarray) and column.flags.writeable:
            frozen = column.view() if column.base is None else column.copy()
            frozen.flags.writeable = False
            object.__setattr__(table, name, frozen)


def _fill(table: object, name: str, count: int) -> None:
    """Fill a column that was left out, or holds zeros only, with `count` zeros; other columns stay
    as they are.
    """
    column = getattr(table, name)
    if len(column) != count and not np.any(column):
        object.__setattr__(table, name, np.zeros(count, dtype=np.uint8))
