"""The steps at which each buffer is live: derived lifetimes, and the segments within them.

Conventions are those of `allocsim.liveness`.

What this module does not see: interference of buffers, and plans.
"""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from allocsim.model import VIEW, Bools, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.access_steps import accesses, first_and_last


def lifetimes(program: Program, *, skip: Iterable[int] = ()) -> Int64s:
    """Return the derived lifetimes, int64 (buffers, 2), half-open.

    A buffer without accesses has `[0, 0)`. O(size).
    """
    first, last = first_and_last(program, skip=skip)
    start, stop = np.maximum(first, 0), last + 1
    whole = program.buffers.persistent
    start[whole], stop[whole] = 0, len(program.ops)
    return np.stack([start, stop], axis=1)


def segments(program: Program, *, skip: Iterable[int] = ()) -> Int64s:
    """Return the segments of all buffers, int64 (n, 3): buffer, start, stop, in order of buffer,
    then start; stretches that share a step are one segment.

    O(size), and for each buffer that is written in parts O(accesses x pieces).
    """
    step, buffer, write = accesses(program, skip=skip)
    count, ops = len(program.buffers), len(program.ops)
    span = lifetimes(program, skip=skip)
    writes = np.bincount(buffer[write], minlength=count)
    first_write = np.full(count, ops, dtype=np.int64)
    np.minimum.at(first_write, buffer[write], step[write])
    first_read = np.full(count, ops, dtype=np.int64)
    np.minimum.at(first_read, buffer[~write], step[~write])
    simple = (writes == 1) & (first_write < first_read) & ~_in_parts(program, skip) & ~program.buffers.persistent
    touched = writes + np.bincount(buffer[~write], minlength=count) > 0
    rows = np.flatnonzero(simple)
    found = [np.column_stack([rows, span[rows]])]
    odd = np.flatnonzero(~simple & (touched | program.buffers.persistent))
    deeds = _deeds(program, odd, skip)
    several = [
        (int(index), low, high)
        for index in odd
        for low, high in (_kept if program.buffers.persistent[index] else _lived)(
            program, int(index), deeds.get(int(index), [])
        )
    ]
    found.append(np.array(several, dtype=np.int64).reshape(-1, 3))
    table: Int64s = np.concatenate(found)
    return table[np.lexsort((table[:, 1], table[:, 0]))]


def _in_parts(program: Program, skip: Iterable[int]) -> Bools:
    """Return the buffers that are accessed in parts: some access covers only a part of the bytes
    that all accesses cover.
    """
    ops, values = program.ops, program.values
    active = ~ops.is_kind(VIEW)
    active[list(skip)] = False
    used = np.concatenate(
        [
            ops.operands[np.repeat(active, np.diff(ops.operand_starts))],
            ops.results[np.repeat(active, np.diff(ops.result_starts))],
        ]
    )
    low, high = values.hulls[used, 0], values.hulls[used, 1]
    least, most = np.full(len(program.buffers), LIMIT), np.full(len(program.buffers), -LIMIT)
    np.minimum.at(least, values.buffer[used], low)
    np.maximum.at(most, values.buffer[used], high)
    home = values.buffer[used]
    part = ~values.dense[used] | (low != least[home]) | (high != most[home]) | (low >= high) | values.ragged[used]
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[home[part]] = True
    return mask


Deed = tuple[int, bool, int]
"""One access: (step, write?, value)."""


def _deeds(program: Program, chosen: Int64s, skip: Iterable[int]) -> dict[int, list[Deed]]:
    """Return buffer -> its accesses in order, for the buffers chosen; reads of an op come first."""
    wanted, left_out = set(chosen.tolist()), set(skip)
    ops, owner = program.ops, program.values.buffer
    acts = ~ops.is_kind(VIEW)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[chosen] = True
    step = np.concatenate(
        [
            np.repeat(np.arange(len(ops)), np.diff(ops.operand_starts)),
            np.repeat(np.arange(len(ops)), np.diff(ops.result_starts)),
        ]
    )
    value = np.concatenate([ops.operands, ops.results])
    write = np.arange(len(step)) >= len(ops.operands)
    rows = np.flatnonzero(mask[owner[value]] & acts[step])
    rows = rows[np.lexsort((rows, write[rows], step[rows]))]
    found: dict[int, list[Deed]] = {buffer: [] for buffer in wanted}
    for at, wrote, each in zip(step[rows].tolist(), write[rows].tolist(), value[rows].tolist(), strict=True):
        if at not in left_out:
            found[int(owner[each])].append((at, wrote, each))
    return found


def _cells(program: Program, value: int) -> list[tuple[int, int]]:
    """Return the ranges of bits of a value inside its buffer; a value without bits has one
    artificial bit below 0.
    """
    size = 8 * int(program.buffers.nbytes[program.values.buffer[value]])
    runs = [(max(low, 0), min(high, size)) for low, high in program.values.bit_runs(value).tolist()]
    return [run for run in runs if run[0] < run[1]] or [(-value - 2, -value - 1)]


def _lived(program: Program, _: int, deeds: list[Deed]) -> list[tuple[int, int]]:
    """Return the segments of a buffer that is overwritten or written in parts: each piece lives
    from its write to its last read.
    """
    pieces: list[tuple[int, int, int, int]] = []  # low, high, since, last
    done: list[tuple[int, int]] = []
    cells = {value: _cells(program, value) for value in {value for _, _, value in deeds}}
    for step, write, value in deeds:
        for low, high in cells[value]:
            kept, inside = [], []
            for piece in pieces:
                begin, end, since, last = piece
                if end <= low or high <= begin:
                    kept.append(piece)
                    continue
                kept += [(a, b, since, last) for a, b in ((begin, min(end, low)), (max(begin, high), end)) if a < b]
                inside.append((max(begin, low), min(end, high), since, last))
            if write:
                done += [(since, last + 1) for _, _, since, last in inside]
                pieces = [*kept, (low, high, step, step)]
                continue
            bare = _gaps_between(low, high, inside)
            pieces = kept + [(a, b, since, step) for a, b, since, _ in inside] + [(a, b, step, step) for a, b in bare]
    return _united(done + [(since, last + 1) for _, _, since, last in pieces])


def _gaps_between(low: int, high: int, pieces: list[tuple[int, int, int, int]]) -> list[tuple[int, int]]:
    """Return the parts of `[low, high)` that no piece covers."""
    bare = []
    for begin, end, *_ in sorted(pieces):
        if low < begin:
            bare.append((low, begin))
        low = end
    return [*bare, (low, high)] if low < high else bare


def _kept(program: Program, buffer: int, deeds: list[Deed]) -> list[tuple[int, int]]:
    """Return the segments of a parameter or state: each ends at the last read before a full
    overwrite, the last one at the run's end.
    """
    steps = len(program.ops)
    mine = program.values.of(buffer).tolist()
    whole = set(_united([run for value in mine for run in _cells(program, value) if run[0] >= 0], touching=True))
    written: dict[int, list[tuple[int, int]]] = {}
    for step, write, value in deeds:
        if write:
            written.setdefault(step, []).extend(run for run in _cells(program, value) if run[0] >= 0)
    full = [step for step, runs in written.items() if set(_united(runs, touching=True)) == whole]
    found = []
    for begin, end in pairwise([-1, *full, steps]):
        reads = [step for step, write, _ in deeds if not write and begin < step <= end]
        last = steps if end == steps else max(reads, default=-1)
        births = [step for step in written if begin <= step < end and (step == begin or step not in full)]
        births += [begin] if begin < 0 <= last else []
        found += [(max(birth, 0), min(max(birth, last) + 1, steps)) for birth in births]
    return _united([(low, high) for low, high in found if low < high])


def fills(program: Program, step: int, buffer: int) -> bool:
    """Return whether the results of an op together cover every byte that the program's values in a
    buffer cover.
    """
    owner = program.values.buffer

    def cells(values: Iterable[int]) -> list[tuple[int, int]]:
        runs = [run for value in values if owner[value] == buffer for run in _cells(program, value) if run[0] >= 0]
        return _united(runs, touching=True)

    return cells(program.ops[step].results) == cells(np.flatnonzero(owner == buffer).tolist())


def _united(ranges: list[tuple[int, int]], *, touching: bool = False) -> list[tuple[int, int]]:
    """Return sorted ranges; ranges that overlap, or with `touching` also those that meet, are
    joined.
    """
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and (low < out[-1][1] or (touching and low == out[-1][1])):
            out[-1] = out[-1][0], max(high, out[-1][1])
        else:
            out.append((low, high))
    return out
