"""Who reads and writes what, and from when to when: the facts of a program that every check shares.

* An op *reads* its operands and *writes* its results, in that order, all bytes of them. Ops of kind `view` and the
  `host.write` ops that a run skips touch nothing: they are no accesses. An empty shape is accessed but has no bytes.
* The bytes of a value are those of its layout that lie inside its buffer; what reaches outside is left out (and reported by
  `slots`).
* A program without ops has no accesses. What a problem believes of it stands in: lifetimes less the gaps, sizes, and pairs.

Complexity: O(columns) for each (program, set of skipped steps), all vectorised.

What this module does not see: slots and addresses.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocsim.checks.holes import Holes, holes_of
from allocsim.checks.owners import Range
from allocsim.model import HOST_WRITE, VIEW, Bools, Problem, Program
from allocsim.model.layout import Int64s


class Extents:
    """Where the values of one program have bytes, within their buffers and cut to them."""

    def __init__(self, program: Program) -> None:
        values = program.values
        self.program = program
        self.buffer: Int64s = values.buffer.astype(np.int64)
        nbytes = program.buffers.nbytes[self.buffer]
        self.low: Int64s = np.clip(values.hulls[:, 0], 0, nbytes)
        """int64 (values,): the lowest byte inside the buffer."""
        self.high: Int64s = np.maximum(np.clip(values.hulls[:, 1], 0, nbytes), self.low)
        """int64 (values,): one past the highest byte inside the buffer; equal to `low` where no byte is."""
        self.dense: Bools = values.dense
        """bool (values,): whether `[low, high)` is all bytes of the value and no others."""
        self.whole: Bools = (values.hulls[:, 0] >= 0) & (values.hulls[:, 1] <= nbytes)
        """bool (values,): whether no byte of the value lies outside its buffer."""

    @cached_property
    def holes(self) -> Holes:
        """The byte runs, cut to the buffer, of all values with holes that some op other than `view` reads or writes."""
        ops = self.program.ops
        active = ~ops.is_kind(VIEW)
        used = np.zeros(len(self.dense), dtype=np.bool_)
        used[ops.operands[np.repeat(active, np.diff(ops.operand_starts))]] = True
        used[ops.results[np.repeat(active, np.diff(ops.result_starts))]] = True
        chosen = np.flatnonzero(used & ~self.dense & (self.low < self.high))
        return holes_of(self.program.values, chosen, self.low, self.high)

    def runs(self, value: int) -> list[Range]:
        """Return the bytes of an accessed value inside its buffer as sorted, disjoint, non-empty ranges."""
        low, high = int(self.low[value]), int(self.high[value])
        if low >= high:
            return []
        if self.dense[value]:
            return [(low, high)]
        where = self.holes.of(value)
        return list(zip(self.holes.low[where].tolist(), self.holes.high[where].tolist(), strict=True))

    def all_runs(self, value: int) -> list[Range]:
        """Return the same of any value, accessed or not."""
        if self.dense[value] or self.holes.row[value] >= 0:
            return self.runs(value)
        nbytes = int(self.program.buffers.nbytes[self.buffer[value]])
        cut = [(max(low, 0), min(high, nbytes)) for low, high in self.program.values.runs(value).tolist()]
        return [(low, high) for low, high in cut if low < high]

    def same_layout(self, a: Int64s, b: Int64s) -> Bools:
        """Return, for rows of two columns of values, whether shape, item size and the strides that matter agree."""
        values = self.program.values
        ranks = np.diff(values.dim_starts)
        same: Bools = (ranks[a] == ranks[b]) & (values.itemsize[a] == values.itemsize[b])
        rows = np.flatnonzero(same & (ranks[a] > 0))
        if not len(rows):
            return same
        lengths = ranks[a[rows]]
        begins = np.cumsum(lengths) - lengths
        within = np.arange(int(lengths.sum())) - np.repeat(begins, lengths)
        dims_a = np.repeat(values.dim_starts[a[rows]], lengths) + within
        dims_b = np.repeat(values.dim_starts[b[rows]], lengths) + within
        shape = values.shape[dims_a]
        differs = (shape != values.shape[dims_b]) | ((shape > 1) & (values.strides[dims_a] != values.strides[dims_b]))
        same[rows] = ~np.logical_or.reduceat(differs, begins)
        return same


class Accesses:
    """The reads and writes of one program when the host leaves out the ops of `skip`. Rows are in order of step, then position."""

    def __init__(self, extents: Extents, skip: frozenset[int] = frozenset()) -> None:
        program, ops = extents.program, extents.program.ops
        self.program = program
        self.extents = extents
        steps = np.arange(len(ops), dtype=np.int64)
        self.active: Bools = ~ops.is_kind(VIEW)
        """bool (ops,): which ops touch bytes in this run."""
        self.active[list(skip)] = False
        self.host_write: Bools = ops.is_kind(HOST_WRITE)
        read_op = np.repeat(steps, np.diff(ops.operand_starts))
        write_op = np.repeat(steps, np.diff(ops.result_starts))
        self.read_row: Int64s = np.flatnonzero(self.active[read_op])
        """Rows of `ops.operands` that are reads."""
        self.read_op: Int64s = read_op[self.read_row]
        self.read_value: Int64s = ops.operands[self.read_row].astype(np.int64)
        self.read_buffer: Int64s = extents.buffer[self.read_value]
        self.write_row: Int64s = np.flatnonzero(self.active[write_op])
        """Rows of `ops.results` that are writes."""
        self.write_op: Int64s = write_op[self.write_row]
        self.write_value: Int64s = ops.results[self.write_row].astype(np.int64)
        self.write_buffer: Int64s = extents.buffer[self.write_value]

    @cached_property
    def first(self) -> Int64s:
        """int64 (buffers,): step of the first access, `len(ops)` where there is none."""
        return np.minimum(self.first_read, self.first_write)

    @cached_property
    def first_read(self) -> Int64s:
        """int64 (buffers,): step of the first read, `len(ops)` where there is none."""
        first = np.full(len(self.program.buffers), len(self.program.ops), dtype=np.int64)
        np.minimum.at(first, self.read_buffer, self.read_op)
        return first

    @cached_property
    def first_write(self) -> Int64s:
        """int64 (buffers,): step of the first write, `len(ops)` where there is none."""
        first = np.full(len(self.program.buffers), len(self.program.ops), dtype=np.int64)
        np.minimum.at(first, self.write_buffer, self.write_op)
        return first

    @cached_property
    def last(self) -> Int64s:
        """int64 (buffers,): step of the last access, -1 where there is none."""
        last = np.full(len(self.program.buffers), -1, dtype=np.int64)
        np.maximum.at(last, self.read_buffer, self.read_op)
        np.maximum.at(last, self.write_buffer, self.write_op)
        return last

    @cached_property
    def touched(self) -> Bools:
        """Bool (buffers,): whether anything accesses them."""
        touched: Bools = self.last >= 0
        return touched


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedLives:
    """When each buffer must keep its bytes, one row for each non-empty stretch of steps; a buffer may have several."""

    buffer: Int64s
    start: Int64s
    stop: Int64s


def believed_lifetimes(problem: Problem) -> BelievedLives:
    """Return the lifetimes of a problem, less its gaps. O(buffers + gaps log gaps)."""
    gapped = np.zeros(len(problem.start), dtype=np.bool_)
    gapped[list(problem.gaps)] = True
    whole = np.flatnonzero((problem.start < problem.stop) & ~gapped)
    rows = [
        (buffer, low, high)
        for buffer, gaps in problem.gaps.items()
        for low, high in _without(int(problem.start[buffer]), int(problem.stop[buffer]), gaps)
    ]
    cut = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return BelievedLives(
        buffer=np.concatenate([whole, cut[:, 0]]),
        start=np.concatenate([problem.start[whole], cut[:, 1]]),
        stop=np.concatenate([problem.stop[whole], cut[:, 2]]),
    )


def _without(start: int, stop: int, gaps: tuple[Range, ...]) -> list[Range]:
    left = []
    for low, high in sorted(gaps):
        if low >= high:
            continue
        if start < min(low, stop):
            left.append((start, min(low, stop)))
        start = max(start, high)
    if start < stop:
        left.append((start, stop))
    return left
