"""The pairs (donor, recipient) of buffers that an op may hand over: joined and permissible pairs.

Conventions are those of `allocsim.liveness`; the rule is that of docs/format.md, "In place".

What this module does not see: plans.
"""

from collections.abc import Iterable
from itertools import product
from math import gcd
from typing import Any, Final

import numpy as np

from allocsim.liveness.spans import fills, segments
from allocsim.model import BYTES, VIEW, WHOLE, Int32s, Program, Value
from allocsim.model.layout import Int64s

FEW: Final = 1 << 20
"""Most elements of two values that are compared one by one."""


def permissible_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the permissible pairs as int32 (n, 3): op, donor, recipient; sorted.

    O(size), and a check of each candidate.

    If the contract of a kernel is unknown (`in_place` null), an exact alias of equal layout is
    permissible, because the judge only warns of it.
    """
    overlay = _Overlay(program)
    permitted = [row for row in joined_pairs(program, skip=skip).tolist() if overlay.permits(*row)]
    return np.array(permitted, dtype=np.int32).reshape(-1, 3)


def joined_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the joined pairs in the form of `permissible_pairs`. They include every pair that a
    plan may lay over each other because of an op, at any offsets.
    """
    owner, table = program.values.buffer, segments(program, skip=skip)
    step, operand, result = _declared(program)
    donor, recipient = owner[operand], owner[result]
    width = len(program.ops) + 1
    # a persistent buffer that lives to the run's end is not given there, and is taken only where it
    # is overwritten fully
    stays = program.buffers.persistent[table[:, 0]] & (table[:, 2] == len(program.ops))
    ends = (table[:, 0] * width + table[:, 2] - 1)[~stays]
    begins = table[:, 0] * width + table[:, 1]
    meets = np.isin(donor * width + step, ends) & np.isin(recipient * width + step, begins) & (donor != recipient)
    rows = np.unique(np.stack([step, donor, recipient], axis=1)[meets], axis=0)
    reads, writes = _touched(program)
    keys = rows[:, 0] * len(program.buffers)
    rows = rows[~np.isin(keys + rows[:, 1], writes) & ~np.isin(keys + rows[:, 2], reads)]
    persistent = program.buffers.persistent
    kept = [row for row in rows.tolist() if not persistent[row[2]] or fills(program, row[0], row[2])]
    return np.array(kept, dtype=np.int32).reshape(-1, 3)


def _declared(program: Program) -> tuple[Any, Any, Any]:
    """Return (step, operand value, result value) of each declared pair, of every pair of a `same`,
    and of every pair of equal layout of an op with an unknown contract.
    """
    ops, layout = program.ops, _Layouts(program)
    pair_step = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    operand = ops.operands[ops.operand_starts[pair_step] + ops.in_place[:, 0]]
    result = ops.results[ops.result_starts[pair_step] + ops.in_place[:, 1]]
    guessed = np.array(
        [
            (step, read, made)
            for step in np.flatnonzero((~ops.in_place_known | program.same_ops) & ~ops.is_kind(VIEW)).tolist()
            for read, made in product(ops[step].operands, ops[step].results)
            if program.same_ops[step] or (layout[read] == layout[made] and program.values.counts[read])
        ],
        dtype=np.int64,
    ).reshape(-1, 3)
    return (
        np.concatenate([pair_step, guessed[:, 0]]),
        np.concatenate([operand, guessed[:, 1]]),
        np.concatenate([result, guessed[:, 2]]),
    )


def _touched(program: Program) -> tuple[Int64s, Int64s]:
    """Return `step * buffers + buffer` of each operand, and of each result except results that a
    `same` leaves in place.
    """
    ops, owner, count = program.ops, program.values.buffer, len(program.buffers)
    readers, writers = (np.repeat(np.arange(len(ops)), np.diff(s)) for s in (ops.operand_starts, ops.result_starts))
    moved = np.ones(len(ops.results), dtype=np.bool_)
    for row in np.flatnonzero(program.same_ops[writers]).tolist():
        step = int(writers[row])
        source = int(ops.operands[ops.operand_starts[step] + row - ops.result_starts[step]])
        moved[row] = not _stays(program, source, int(ops.results[row]))
    return readers * count + owner[ops.operands], (writers * count + owner[ops.results])[moved]


def _stays(program: Program, source: int, target: int) -> bool:
    """Return whether two values of equally many bits are the same bits in the same order.

    O(elements); values of different layouts with more than `FEW` elements count as different.
    """
    values, sides = program.values, (source, target)
    if values.buffer[source] != values.buffer[target]:
        return False
    one, other = values[source], values[target]
    if (one.offset, one.bit_offset, one.width, one.shape, one.strides) == (
        other.offset,
        other.bit_offset,
        other.width,
        other.shape,
        other.strides,
    ):
        return True
    unit = gcd(one.width, other.width)
    if max(int(values.counts[side] * values.width[side]) for side in sides) > FEW * unit:
        return False
    return np.array_equal(_places(one, unit), _places(other, unit))


def _places(value: Value, unit: int) -> Int64s:
    """Return the start in the buffer of every `unit` bits of a value, in row-major order."""
    found = np.array([8 * value.offset + value.bit_offset], dtype=np.int64)
    last = len(value.shape) - 1
    for dim, (count, stride) in enumerate(zip(value.shape, value.strides, strict=True)):
        step = value.width if dim == last and value.width < 8 else 8 * stride
        found = (found[:, None] + np.arange(count) * step).ravel()
    return (found[:, None] + np.arange(0, value.width, unit)).ravel()


class _Layouts(dict[int, Any]):
    """Value -> a key of its layout, made at the first request; equal layouts have equal keys."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.table = program.values

    def __missing__(self, index: int) -> Any:
        value = self.table[index]
        strides = tuple(s for n, s in zip(value.shape, value.strides, strict=True) if n > 1)
        self[index] = value.shape, strides, value.width
        return self[index]


class _Overlay:
    """The in-place rule for one pair of buffers at a time. It uses plain lists, because a program
    may have a candidate at every op.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.values, ops = program, program.values, program.ops
        self.owner = self.values.buffer.tolist()
        self.start = [
            (8 * at, bit) for at, bit in zip(self.values.offset.tolist(), self.values.bit_offset.tolist(), strict=True)
        ]
        self.hulls, self.dense, self.ragged = (
            column.tolist() for column in (self.values.hulls, self.values.dense, self.values.ragged)
        )
        self.operands, self.operand_starts = ops.operands.tolist(), ops.operand_starts.tolist()
        self.results, self.result_starts = ops.results.tolist(), ops.result_starts.tolist()
        self.known, self.same = ops.in_place_known.tolist(), program.same_ops.tolist()
        self.layouts = _Layouts(program)

    def permits(self, step: int, donor: int, recipient: int) -> bool:
        """Return whether op `step`, which joins the two buffers, breaks the rule nowhere with both
        at one address.
        """
        owner, joined = self.owner, self.known[step] or self.same[step]
        operands = self.operands[self.operand_starts[step] : self.operand_starts[step + 1]]
        results = self.results[self.result_starts[step] : self.result_starts[step + 1]]
        promised = self._promised(step)
        for (made, result), (read, operand) in product(enumerate(results), enumerate(operands)):
            spans = owner[operand] == donor and owner[result] == recipient
            if not (spans or owner[operand] == owner[result]) or not self._meet(operand, result):
                continue
            exact = self.start[operand] == self.start[result] and self.layouts[operand] == self.layouts[result]
            given = promised.get((read, made), ())
            if self.same[step]:
                fine = WHOLE in given or self._one_set(operand, result)
            elif self.known[step]:
                fine = any(self._keeps(strength, operand, result, exact) for strength in given)
            else:
                fine = exact
            if not fine:
                return False
            joined = joined or (spans and exact)
        return bool(joined)

    def _promised(self, step: int) -> dict[tuple[int, int], list[int]]:
        """Return (operand position, result position) -> strengths that the op declares."""
        ops, found = self.program.ops, dict[tuple[int, int], list[int]]()
        rows = slice(int(ops.in_place_starts[step]), int(ops.in_place_starts[step + 1]))
        for (read, made), strength in zip(
            ops.in_place[rows].tolist(), ops.in_place_strength[rows].tolist(), strict=True
        ):
            found.setdefault((read, made), []).append(strength)
        return found

    def _keeps(self, strength: int, operand: int, result: int, exact: bool) -> bool:  # noqa: FBT001 - one of three facts
        """Return whether a promise of this strength allows the result over the operand."""
        if strength == BYTES:
            at_one = self.start[operand] == self.start[result]
            fits = bool(self.values.nbytes[result] <= self.values.nbytes[operand])
            return at_one and fits and self._contiguous(operand) and self._contiguous(result)
        return exact or strength == WHOLE

    def _contiguous(self, index: int) -> bool:
        """Return whether the elements of a value, in row-major order, follow one another."""
        value = self.values[index]
        if 0 in value.shape:
            return True
        length, row = value.width, value.width < 8
        for n, stride in zip(reversed(value.shape), reversed(value.strides), strict=True):
            step, row = (value.width if row else 8 * stride), False
            if n > 1 and step != length:
                return False
            length *= n
        return True

    def _one_set(self, one: int, other: int) -> bool:
        """Return whether two values cover the same bits of their buffers."""
        return np.array_equal(self.values.bit_runs(one), self.values.bit_runs(other))

    def _meet(self, one: int, other: int) -> bool:
        """Return whether two values share bytes, or bits if they are packed, with their buffers at
        one address.
        """
        (low, high), (other_low, other_high) = self.hulls[one], self.hulls[other]
        if max(low, other_low) >= min(high, other_high):
            return False
        if self.ragged[one] or self.ragged[other]:
            return _share_bytes(self.values.bit_runs(one), self.values.bit_runs(other))
        if self.dense[one] and self.dense[other]:
            return True
        return _share_bytes(self.values.runs(one), self.values.runs(other))


def _share_bytes(first: Int64s, second: Int64s) -> bool:
    """Return whether two sorted lists of byte runs intersect. O(k log k)."""
    if not len(first) or not len(second):
        return False
    # of the runs of `second` that start before a run of `first` ends, only the last one can reach
    # furthest into it
    position = np.searchsorted(second[:, 0], first[:, 1], side="left") - 1
    candidates = position >= 0
    return bool(np.any(second[position[candidates], 1] > first[candidates, 0]))
