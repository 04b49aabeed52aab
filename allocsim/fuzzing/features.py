"""Features of programs: one bit for each, so that a campaign can count them alone and in pairs.

    mask = marks(batch)              # one int64 for each program of a batch
    names(mask[0])                   # ("view", "mutation", ...)

A feature is a row of `FEATURES`: which table it is about, and a function that marks the rows that
have it. A program has a feature if one of its rows does. All rows work on the columns of a whole
batch. O(columns) for each.

What this module does not see: plans.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.files.sizes import in_bytes
from allocsim.fuzzing.batch import Batch
from allocsim.fuzzing.scaling import side_by_side, uniform
from allocsim.model import BYTES, HOST_READ, HOST_WRITE, VIEW, WHOLE, Bools, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.access_steps import side_by_side_values


@dataclass(frozen=True, slots=True)
class Feature:
    """One row: the table whose rows `mark` marks, and what it means."""

    table: str
    """`ops`, `values` or `buffers`; `programs` where `mark` is given the batch and marks those."""
    mark: Callable[[Any], Bools]
    means: str


def _in_view(program: Program) -> Bools:
    """Mark values that a `view` op makes."""
    made = program.producer
    mask = made >= 0
    mask[mask] = program.ops.is_kind(VIEW)[made[mask]]
    return mask


def view_depth(program: Program) -> Int64s:
    """Return for each value how many views lie between it and what an op wrote, 3 for more."""
    ops, in_view = program.ops, _in_view(program)
    parent = np.zeros(len(program.values), dtype=np.int64)
    parent[in_view] = ops.operands[ops.operand_starts[program.producer[in_view]]]
    depth = in_view.astype(np.int64)
    for _ in range(2):
        depth = np.where(in_view, 1 + depth[parent], 0)
    return depth


def _operands(program: Program, values: Bools) -> Bools:
    """Mark ops that have one of these values among their operands."""
    return _any(values[program.ops.operands], program.ops.operand_starts)


def _any(rows: Bools, starts: Int64s) -> Bools:
    total = np.concatenate([[0], np.cumsum(rows)])
    mask: Bools = total[starts[1:]] > total[starts[:-1]]
    return mask


def _dims(program: Program, rows: Bools) -> Bools:
    return _any(rows & (program.values.shape > 1), program.values.dim_starts)


def _pairs(program: Program) -> tuple[Int64s, Int64s, Int64s]:
    """Return op, operand value and result value of every declared pair between two buffers."""
    ops = program.ops
    op = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    operand = ops.operands[ops.operand_starts[op] + ops.in_place[:, 0]].astype(np.int64)
    result = ops.results[ops.result_starts[op] + ops.in_place[:, 1]].astype(np.int64)
    apart = program.values.buffer[operand] != program.values.buffer[result]
    return op[apart], operand[apart], result[apart]


def _of_pairs(program: Program) -> Bools:
    mask = np.zeros(len(program.ops), dtype=np.bool_)
    mask[_pairs(program)[0]] = True
    return mask


def of_strength(program: Program, strength: int) -> Bools:
    """Mark ops that declare a pair of this strength of the alias contract."""
    ops = program.ops
    op = np.repeat(np.arange(len(ops)), np.diff(ops.in_place_starts))
    mask = np.zeros(len(ops), dtype=np.bool_)
    mask[op[ops.in_place_strength == strength]] = True
    return mask


def _chains(program: Program) -> Bools:
    op, operand, result = _pairs(program)
    given = np.zeros(len(program.values), dtype=np.bool_)
    given[result] = True
    mask = np.zeros(len(program.ops), dtype=np.bool_)
    mask[op[given[operand]]] = True
    return mask


def _mutations(program: Program) -> Bools:
    ops, of_value = program.ops, program.values.buffer
    op, operand, result = side_by_side_values(ops, ~ops.is_kind(VIEW))
    mask = np.zeros(len(ops), dtype=np.bool_)
    mask[op[of_value[operand] == of_value[result]]] = True
    return mask


def _unread(program: Program) -> Bools:
    ops, of_value = program.ops, program.values.buffer
    read = np.zeros(len(program.buffers), dtype=np.bool_)
    read[of_value[ops.operands]] = True
    return _any(~read[of_value[ops.results]], ops.result_starts)


def _untouched(program: Program) -> Bools:
    ops, of_value = program.ops, program.values.buffer
    mask = np.ones(len(program.buffers), dtype=np.bool_)
    mask[of_value[ops.operands]] = False
    mask[of_value[ops.results]] = False
    return mask


def _capped(program: Program) -> Bools:
    limited = np.array([arena.capacity is not None for arena in program.arenas], dtype=np.bool_)
    return limited[program.buffers.arena]


def _squeezed(batch: Batch) -> Bools:
    needed = side_by_side(batch.program, ~batch.program.buffers.persistent)
    less: Bools = np.any((capacities(batch.program) < needed).reshape(len(batch), -1), axis=1)
    return less


def capacities(program: Program) -> Int64s:
    """Return where each arena ends; one without an end at 2^62."""
    return np.array([LIMIT if arena.capacity is None else arena.capacity for arena in program.arenas], dtype=np.int64)


FEATURES: Final[Mapping[str, Feature]] = {
    "view": Feature("ops", lambda p: p.ops.is_kind(VIEW), "a value in the buffer of another"),
    "view of a view": Feature(
        "ops", lambda p: p.ops.is_kind(VIEW) & _operands(p, _in_view(p)), "a view whose parent is one"
    ),
    "read through a view": Feature(
        "ops", lambda p: ~p.ops.is_kind(VIEW) & _operands(p, _in_view(p)), "an op that reads a view"
    ),
    "three views deep": Feature(
        "ops",
        lambda p: ~p.ops.is_kind(VIEW) & _operands(p, view_depth(p) > 2),
        "an op that reads a view of a view of a view",
    ),
    "strided": Feature("values", lambda p: ~p.values.dense, "a layout with holes"),
    "broadcast": Feature("values", lambda p: _dims(p, p.values.strides == 0), "a stride of zero"),
    "flip": Feature("values", lambda p: _dims(p, p.values.strides < 0), "a negative stride"),
    "mutation": Feature("ops", _mutations, "a result in the buffer of an operand"),
    "in place": Feature("ops", _of_pairs, "a declared pair of two buffers"),
    "in-place chain": Feature("ops", _chains, "a pair whose operand is the result of another"),
    "same": Feature("ops", lambda p: p.same_ops, "values that are equal by definition, in other memory"),
    "bytes pair": Feature("ops", partial(of_strength, strength=BYTES), "a pair of which the first bytes may be shared"),
    "whole pair": Feature("ops", partial(of_strength, strength=WHOLE), "a pair that may overlap in any way"),
    "undeclared": Feature("ops", lambda p: ~p.ops.in_place_known, "an op that declares nothing"),
    "several results": Feature("ops", lambda p: np.diff(p.ops.result_starts) > 1, "an op with more than one result"),
    "unread result": Feature("ops", _unread, "a result in a buffer nobody reads: a workspace, or a value for nothing"),
    "zero bytes": Feature("buffers", lambda p: p.buffers.nbytes == 0, "an empty buffer"),
    "untouched": Feature("buffers", _untouched, "a buffer without any value in an op"),
    "input": Feature("ops", lambda p: p.ops.is_kind(HOST_WRITE), "the host writes"),
    "pin": Feature("ops", lambda p: p.ops.is_kind(HOST_READ), "the host reads"),
    "persistent": Feature("buffers", lambda p: p.buffers.persistent, "a parameter or state"),
    "several arenas": Feature("buffers", lambda p: p.buffers.arena > 0, "a buffer in another arena than the first"),
    "several streams": Feature("ops", lambda p: p.ops.stream > 0, "an op on another stream than the first"),
    "capacity": Feature("buffers", _capped, "an arena with an end"),
    "squeezed": Feature("programs", _squeezed, "an arena that ends before its buffers would, side by side"),
    "own alignment": Feature("buffers", lambda p: ~uniform(p), "an alignment other than the arena's"),
    "no operand": Feature(
        "ops", lambda p: (np.diff(p.ops.operand_starts) == 0) & ~p.ops.is_kind(HOST_WRITE), "an op that reads nothing"
    ),
    "three operands": Feature("ops", lambda p: np.diff(p.ops.operand_starts) > 2, "an op with three operands or more"),
    "three results": Feature("ops", lambda p: np.diff(p.ops.result_starts) > 2, "an op with three results or more"),
    "odd granule": Feature(
        "buffers", lambda p: p.buffers.alignment & (p.buffers.alignment - 1) > 0, "an alignment that is no power of two"
    ),
    "wide alignment": Feature("buffers", lambda p: p.buffers.alignment > 32, "an alignment above 32"),
    "above 1 MiB": Feature("buffers", lambda p: p.buffers.nbytes > 1 << 20, "a buffer of more than a mebibyte"),
    "above 4 GiB": Feature("buffers", lambda p: p.buffers.nbytes > 1 << 32, "a buffer of more than 2^32 bytes"),
    "above 2^53": Feature("buffers", lambda p: p.buffers.nbytes > 1 << 53, "a buffer of more than 2^53 bytes"),
    "huge alignment": Feature("buffers", lambda p: p.buffers.alignment > 4096, "an alignment above 4,096"),
    "above 16 buffers": Feature("programs", lambda b: np.diff(b.buffer_starts) > 16, "more than 16 buffers"),
    "above 64 buffers": Feature("programs", lambda b: np.diff(b.buffer_starts) > 64, "more than 64 buffers"),
    "above 1,000 buffers": Feature("programs", lambda b: np.diff(b.buffer_starts) > 1000, "more than 1,000 buffers"),
    "above 2,000 buffers": Feature("programs", lambda b: np.diff(b.buffer_starts) > 2000, "more than 2,000 buffers"),
    "above 200 ops": Feature("programs", lambda b: np.diff(b.op_starts) > 200, "more than 200 ops"),
}
"""Every feature by name; its place is its bit.

In a batch the second arena of each program is another than the first.
"""


def marks(batch: Batch) -> Int64s:
    """Return the features of each program as bits. O(columns x features)."""
    starts = {"ops": batch.op_starts, "values": batch.value_starts, "buffers": batch.buffer_starts}
    mask = np.zeros(len(batch), dtype=np.int64)
    for bit, feature in enumerate(FEATURES.values()):
        if feature.table == "programs":
            mask |= feature.mark(batch).astype(np.int64) << bit
            continue
        if feature.mark is FEATURES["several arenas"].mark:
            rows = batch.program.buffers.arena % batch.arenas > 0
        else:
            rows = feature.mark(batch.program)
        mask |= _any(rows, starts[feature.table]).astype(np.int64) << bit
    return mask


def names(mask: int) -> tuple[str, ...]:
    """Return the names of the features whose bits are set."""
    return tuple(name for bit, name in enumerate(FEATURES) if int(mask) >> bit & 1)


def singly(counts: Mapping[int, int]) -> dict[str, int]:
    """Return how many programs have each feature, from how many there are of each mask."""
    return {name: sum(n for mask, n in counts.items() if mask >> bit & 1) for bit, name in enumerate(FEATURES)}


def in_pairs(counts: Mapping[int, int]) -> dict[tuple[str, str], int]:
    """Return how many programs have each pair of features, from how many there are of each mask."""
    bits = list(enumerate(FEATURES))
    return {
        (one, other): sum(n for mask, n in counts.items() if mask >> a & mask >> b & 1)
        for a, one in bits
        for b, other in bits[a + 1 :]
    }


def never(counts: Mapping[int, int]) -> list[str]:
    """Return the features that no program has, from how many there are of each mask."""
    return [name for name, count in singly(counts).items() if not count]


def size_in_words(sizes: Mapping[str, int], programs: int) -> str:
    """Return in one line how large a program was at the mean."""
    of = {name: sizes.get(name, 0) for name in ("ops", "buffers", "operands", "results", "doublings")}
    each, op = max(programs, 1), max(of["ops"], 1)
    nbytes = in_bytes(round(2 ** (of["doublings"] / max(of["buffers"], 1))))
    shown = f"{of['ops'] / each:.1f} ops and {of['buffers'] / each:.1f} buffers of {nbytes} (a geometric mean)"
    return f"at the mean: {shown}; {of['operands'] / op:.2f} operands and {of['results'] / op:.2f} results an op"


def tallied(masks: Iterable[int]) -> dict[int, int]:
    """Return how many programs there are of each mask."""
    found, counts = np.unique(np.fromiter(masks, dtype=np.int64), return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))
