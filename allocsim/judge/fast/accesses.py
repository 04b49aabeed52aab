"""Compute the reads and writes of a program, and the bytes of its values, for all checks.

* An op first *reads* all bytes of its operands, then *writes* all bytes of its results. Ops of kind
  `view` and the `host.write` ops that a run skips access nothing. A value with an empty shape is
  accessed but has no bytes.
* The bytes of a value are the bytes of its layout inside its buffer. Bytes outside the buffer are
  ignored here and reported by `s_slots`.
* A program without ops has no accesses. The checks then use the beliefs of a problem: lifetimes
  without the gaps, sizes, and pairs.

Complexity: O(columns) for each (program, set of skipped steps), vectorised.

This module does not examine slots or addresses.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.contract import Contract
from allocsim.judge.fast.holes import Holes, holes_of, holes_one_by_one
from allocsim.judge.fast.owners import Range, left_over, merged
from allocsim.model import HOST_WRITE, VIEW, Bools, Plan, Problem, Program
from allocsim.model.layout import MAX_RUNS, Int64s


class Extents:
    """The ranges of a program's values, relative to their buffers and cut to these, in *units*. A
    unit is a byte, or a bit if `unit` is 8.
    """

    def __init__(self, program: Program, unit: int = 1) -> None:
        values = program.values
        self.program = program
        self.unit = unit
        self.buffer: Int64s = values.buffer.astype(np.int64)
        self.room: Int64s = program.buffers.nbytes * unit
        """int64 (buffers,): the size of each buffer in units."""
        room = self.room[self.buffer]
        hulls = values.hulls if unit == 1 else values.bit_hulls
        self.low: Int64s = np.clip(hulls[:, 0], 0, room)
        """int64 (values,): the lowest unit inside the buffer."""
        self.high: Int64s = np.maximum(np.clip(hulls[:, 1], 0, room), self.low)
        """int64 (values,): one past the highest unit inside the buffer, or `low` if no unit is."""
        self.dense: Bools = values.dense
        """bool (values,): whether the value covers every unit of `[low, high)`."""
        if unit > 1 and values.ragged.any():
            self.dense = values.dense.copy()
            ragged = np.flatnonzero(values.ragged)
            self.dense[ragged] = [len(values.bit_runs(value)) <= 1 for value in ragged.tolist()]
        self.whole: Bools = (hulls[:, 0] >= 0) & (hulls[:, 1] <= room)
        """bool (values,): whether the whole value is inside its buffer."""
        self.start: Int64s = values.offset if unit == 1 else values.offset * unit + values.bit_offset
        """int64 (values,): the unit at which element 0 begins."""

    @cached_property
    def in_whole_bytes(self) -> "Extents":
        """The extents in bytes; a partly covered byte counts as covered."""
        return self if self.unit == 1 else Extents(self.program)

    @cached_property
    def holes(self) -> Holes:
        """The runs of values with holes that ops other than views access, cut to the buffer."""
        ops, values = self.program.ops, self.program.values
        active = ~ops.is_kind(VIEW)
        used = np.zeros(len(self.dense), dtype=np.bool_)
        used[ops.operands[np.repeat(active, np.diff(ops.operand_starts))]] = True
        used[ops.results[np.repeat(active, np.diff(ops.result_starts))]] = True
        chosen = np.flatnonzero(used & ~self.dense & (self.low < self.high))
        if self.unit == 1 and not values.packed[chosen].any():
            return holes_of(values, chosen, self.low, self.high)
        return holes_one_by_one([self._uncut(value) for value in chosen.tolist()], chosen, self.low, self.high)

    def _uncut(self, value: int) -> Int64s:
        values = self.program.values
        return values.runs(value) if self.unit == 1 else values.bit_runs(value)

    @cached_property
    def contiguous(self) -> Bools:
        """Bool (values,): whether a value's elements are contiguous in row-major order."""
        values = self.program.values
        ranks = np.diff(values.dim_starts)
        rank = int(ranks.max(initial=0))
        back = np.arange(rank)
        inside = back < ranks[:, None]
        dims = (values.dim_starts[1:, None] - 1 - back)[inside]
        shape, stride = np.ones((len(ranks), rank), dtype=np.int64), np.zeros((len(ranks), rank), dtype=np.int64)
        shape[inside], stride[inside] = values.shape[dims], values.strides[dims] * 8
        if rank:
            stride[values.packed, 0] = values.width[values.packed]
        length, fine = values.width.copy(), np.ones(len(ranks), dtype=np.bool_)
        for axis in range(rank):
            fine &= (shape[:, axis] <= 1) | (stride[:, axis] == length)
            length = length * np.maximum(shape[:, axis], 1)
        mask: Bools = fine | (values.counts == 0)
        return mask

    def runs(self, value: int) -> list[Range]:
        """Return an accessed value's units in its buffer as sorted, disjoint, non-empty ranges."""
        low, high = int(self.low[value]), int(self.high[value])
        if low >= high:
            return []
        if self.dense[value]:
            return [(low, high)]
        where = self.holes.of(value)
        return list(zip(self.holes.low[where].tolist(), self.holes.high[where].tolist(), strict=True))

    def in_bytes(self, runs: Iterable[Range]) -> tuple[Range, ...]:
        """Return sorted ranges of units as ranges of bytes; partly covered bytes are included."""
        return merged((low // self.unit, -(-high // self.unit)) for low, high in runs)

    def all_runs(self, value: int) -> list[Range]:
        """Return the same as `runs`, but also for values that no op accesses."""
        if self.dense[value] or self.holes.row[value] >= 0:
            return self.runs(value)
        room = int(self.room[self.buffer[value]])
        cut = [(max(low, 0), min(high, room)) for low, high in self._uncut(value).tolist()]
        return [(low, high) for low, high in cut if low < high]

    def same_layout(self, a: Int64s, b: Int64s) -> Bools:
        """Return for each row whether the values `a` and `b` agree in shape, width and relevant
        strides.
        """
        values = self.program.values
        ranks = np.diff(values.dim_starts)
        same: Bools = (ranks[a] == ranks[b]) & (values.width[a] == values.width[b])
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
    """The reads and writes of a program in a run in which the host leaves out the ops of `skip`.

    Rows are sorted by step, then by position.
    """

    def __init__(
        self, extents: Extents, contract: Contract, skip: frozenset[int] = frozenset(), *, every_result: bool = False
    ) -> None:
        program, ops = extents.program, extents.program.ops
        self.program = program
        self.extents = extents
        self.contract = contract
        self.at_rest: dict[Plan, frozenset[int]] = {}
        """For each plan, the results that a `same` does not write (filled in by
        `h_sessions.at_rest`)."""
        steps = np.arange(len(ops), dtype=np.int64)
        self.active: Bools = ~ops.is_kind(VIEW)
        """bool (ops,): whether an op accesses bytes in this run."""
        self.active[list(skip)] = False
        self.host_write: Bools = ops.is_kind(HOST_WRITE)
        read_op = np.repeat(steps, np.diff(ops.operand_starts))
        write_op = np.repeat(steps, np.diff(ops.result_starts))
        self.read_row: Int64s = np.flatnonzero(self.active[read_op])
        """The rows of `ops.operands` that are reads."""
        self.read_op: Int64s = read_op[self.read_row]
        self.read_value: Int64s = ops.operands[self.read_row].astype(np.int64)
        self.read_buffer: Int64s = extents.buffer[self.read_value]
        writes = self.active[write_op]
        self.skip, self.every_result = skip, every_result
        if not every_result:
            row, source, target = handed_on(program)
            for at in np.flatnonzero(extents.buffer[source] == extents.buffer[target]).tolist():
                writes[row[at]] &= not in_step(extents, int(source[at]), int(target[at]), 0)  # the value does not move
        self.write_row: Int64s = np.flatnonzero(writes)
        """The rows of `ops.results` that are writes."""
        self.write_op: Int64s = write_op[self.write_row]
        self.write_value: Int64s = ops.results[self.write_row].astype(np.int64)
        self.write_buffer: Int64s = extents.buffer[self.write_value]

    @cached_property
    def results(self) -> "Accesses":
        """These accesses, plus writes for the results that a `same` leaves in place. Such results
        move no byte, but the in-place rule applies to them too.
        """
        if not self.program.same_ops.any():
            return self
        return Accesses(self.extents, self.contract, self.skip, every_result=True)

    @cached_property
    def first(self) -> Int64s:
        """int64 (buffers,): the step of the first access, or `len(ops)` if no op accesses it."""
        return np.minimum(self.first_read, self.first_write)

    @cached_property
    def first_read(self) -> Int64s:
        """int64 (buffers,): the step of the first read, or `len(ops)` if no op reads the buffer."""
        first = np.full(len(self.program.buffers), len(self.program.ops), dtype=np.int64)
        np.minimum.at(first, self.read_buffer, self.read_op)
        return first

    @cached_property
    def first_write(self) -> Int64s:
        """int64 (buffers,): the step of the first write, or `len(ops)` if no op writes it."""
        first = np.full(len(self.program.buffers), len(self.program.ops), dtype=np.int64)
        np.minimum.at(first, self.write_buffer, self.write_op)
        return first

    @cached_property
    def last(self) -> Int64s:
        """int64 (buffers,): the step of the last access, or -1 if no op accesses the buffer."""
        last = np.full(len(self.program.buffers), -1, dtype=np.int64)
        np.maximum.at(last, self.read_buffer, self.read_op)
        np.maximum.at(last, self.write_buffer, self.write_op)
        return last

    @cached_property
    def touched(self) -> Bools:
        """Bool (buffers,): whether some op accesses the buffer."""
        touched: Bools = self.last >= 0
        return touched


def handed_on(program: Program) -> tuple[Int64s, Int64s, Int64s]:
    """Return the rows of `ops.results` that `same` ops make, with the operand value and the result
    value of each row.
    """
    ops = program.ops
    made = np.repeat(np.arange(len(ops)), np.diff(ops.result_starts))
    row = np.flatnonzero(program.same_ops[made])
    op = made[row]
    source = ops.operands[ops.operand_starts[op] + row - ops.result_starts[op]]
    return row, source.astype(np.int64), ops.results[row].astype(np.int64)


def in_step(extents: Extents, one: int, other: int, shift: int) -> bool:
    """Return whether each unit of `other` is `shift` units below the unit of `one` at the same
    row-major position.
    """
    if extents.contiguous[one] and extents.contiguous[other]:
        return int(extents.start[one]) == int(extents.start[other]) + shift
    source, target, _ = pieces_moved(extents, one, other)
    return bool(np.all(source == target + shift))


def pieces_moved(extents: Extents, one: int, other: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return the pieces that match the units of two values in row-major order, as starts in `one`,
    starts in `other`, and lengths. The pieces are not cut to buffers.
    """
    (a, length_a), (b, length_b) = _rows(extents, one), _rows(extents, other)
    length = gcd(length_a, length_b)
    a, b = (
        (starts[:, None] + np.arange(whole // length if length else 0) * length).ravel()
        for starts, whole in ((a, length_a), (b, length_b))
    )
    if len(a) < 2:
        return a, b, np.full(len(a), length, dtype=np.int64)
    fresh = np.ones(len(a), dtype=np.bool_)
    fresh[1:] = (a[1:] != a[:-1] + length) | (b[1:] != b[:-1] + length)
    at = np.flatnonzero(fresh)
    return a[at], b[at], np.diff(np.append(at, len(a))) * length


def _rows(extents: Extents, value: int) -> tuple[Int64s, int]:
    """Return the starts of a value's contiguous ranges in row-major order, and their length."""
    row = extents.program.values[value]
    scale = extents.unit
    shape, strides = list(row.shape), [stride * scale for stride in row.strides]
    length = row.width * scale // 8
    if row.width < 8 and shape:
        length = shape.pop() * row.width * scale // 8
        strides.pop()
    while shape and (shape[-1] == 1 or strides[-1] == length):
        length *= shape.pop()
        strides.pop()
    if prod(shape) > MAX_RUNS:
        raise ModelError(f"values[{value}]", f"the layout has {prod(shape)} runs; at most {MAX_RUNS} are supported")
    starts = np.array([int(extents.start[value])], dtype=np.int64)
    for count, stride in zip(shape, strides, strict=True):
        starts = (starts[:, None] + stride * np.arange(count, dtype=np.int64)).ravel()
    return starts[: len(starts) if length else 0], length


@dataclass(frozen=True, slots=True, kw_only=True)
class BelievedLives:
    """The steps at which buffers are believed to live, one row for each non-empty range of steps.

    A buffer may have several rows.
    """

    buffer: Int64s
    start: Int64s
    stop: Int64s


def believed_lifetimes(problem: Problem) -> BelievedLives:
    """Return the lifetimes of a problem without its gaps. O(buffers + gaps log gaps)."""
    gapped = np.zeros(len(problem.start), dtype=np.bool_)
    gapped[list(problem.gaps)] = True
    whole = np.flatnonzero((problem.start < problem.stop) & ~gapped)
    rows = [
        (buffer, low, high)
        for buffer, gaps in problem.gaps.items()
        for low, high in left_over([(int(problem.start[buffer]), int(problem.stop[buffer]))], merged(sorted(gaps)))
    ]
    cut = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return BelievedLives(
        buffer=np.concatenate([whole, cut[:, 0]]),
        start=np.concatenate([problem.start[whole], cut[:, 1]]),
        stop=np.concatenate([problem.stop[whole], cut[:, 2]]),
    )
