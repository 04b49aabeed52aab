"""Compute the steps at which each buffer of a run is live, as segments from writes to last reads.

* A buffer is live from the write of a value to the last read of the value. A read extends the live
  range of each write of which the read finds bytes. A read of a value without bytes extends the
  live range of that value's own write. A value that no op reads is live only at the op that writes
  it. Bytes that are read before the run writes them are live from that first read. Other runs have
  no influence.
* A persistent buffer (parameter or state) counts as a whole. The buffer is live from the run's
  start or, if its first access overwrites it fully, from that write. The buffer is live up to the
  last read before the next full overwrite, or to the run's end if no full overwrite follows. A full
  overwrite is an op with results that together cover every byte that the program's values in the
  buffer cover. An op reads before it writes.
* A *segment* is a half-open range of steps `[start, stop)`. Ranges that share a step are one
  segment. Ranges that only touch stay two segments, so that the buffer's bytes may be handed over
  in between. A segment from the run's start has start -1, and a segment to the run's end has stop
  `ops + 1`, so that no op begins or ends it.

Algorithm. If every write of a buffer covers all bytes that are accessed in the buffer, each write
ends the previous range, and the segments are computed in columns. The few other buffers are written
in parts; these are followed byte range by byte range.

Complexity: O(accesses log accesses) in columns, plus O(byte runs log byte runs) for buffers written
in parts.

This module does not examine plans, or which buffers hold equal content (`s_tags`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allocsim.judge.fast.accesses import Accesses, Extents
from allocsim.judge.fast.owners import NEVER, OwnerAxis, Range, merged
from allocsim.model import Bools
from allocsim.model.layout import Int64s


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveSegments:
    """The segments of the buffers of one run, one row each, sorted by buffer, then by start."""

    buffer: Int64s
    start: Int64s
    stop: Int64s
    buffers: int
    steps: int
    """The number of ops of the program."""
    fresh: Bools
    """bool (rows,): False for a segment of a persistent buffer that begins without a full
    overwrite."""

    @cached_property
    def rows(self) -> Int64s:
        """int64 (buffers + 1,): CSR row starts of each buffer."""
        return np.searchsorted(self.buffer, np.arange(self.buffers + 1)).astype(np.int64)

    def ending(self, buffer: Int64s, step: Int64s) -> Int64s:
        """Return for each (buffer, step) the row of the segment that has the step as its last step,
        or -1 if there is no such segment.
        """
        return self._at(buffer, step + 1, self.stop)

    def beginning(self, buffer: Int64s, step: Int64s) -> Int64s:
        """Return for each (buffer, step) the row of the fresh segment that begins at the step, or
        -1 if there is no such segment.
        """
        row = self._at(buffer, step, self.start)
        row[row >= 0] = np.where(self.fresh[row[row >= 0]], row[row >= 0], -1)
        return row

    def _at(self, buffer: Int64s, step: Int64s, column: Int64s) -> Int64s:
        """Return the row of `buffer` with the entry `step` in a column, or -1 if no row has it. The
        column must be ascending within each buffer.
        """
        if not len(self.buffer):
            return np.full(len(buffer), -1, dtype=np.int64)
        low, high = self.rows[buffer], self.rows[buffer + 1]
        row = low.copy()
        several = np.flatnonzero(high - low > 1)
        if len(several):
            span = int(max(column.max(), step.max(initial=0))) + 1
            at = np.searchsorted(self.buffer * span + column, buffer[several] * span + step[several])
            row[several] = np.minimum(at, len(column) - 1)
        held = np.minimum(row, len(column) - 1)
        return np.where((row < high) & (self.buffer[held] == buffer) & (column[held] == step), held, -1)

    def of(self, buffer: int) -> list[Range]:
        """Return the segments of the buffer `buffer`."""
        part = slice(int(self.rows[buffer]), int(self.rows[buffer + 1]))
        return list(zip(self.start[part].tolist(), self.stop[part].tolist(), strict=True))


def live_segments(accesses: Accesses) -> LiveSegments:
    """Return the segments of all buffers of a run, given its accesses."""
    buffers = accesses.program.buffers
    table = _Rows(accesses)
    parts = _parts(table)
    regular = ~(buffers.persistent | parts)
    columns = [_regular(table, regular)]
    rows = table.by_buffer(np.flatnonzero(parts & ~buffers.persistent))
    spans = [
        (buffer, low, high, fresh)
        for buffer, mine in rows
        for low, high, fresh in joined(sorted(_followed(accesses, mine)))
    ]
    steps = len(accesses.program.ops)
    written = np.zeros(len(buffers), dtype=np.bool_)
    written[accesses.write_buffer] = True
    spans += [
        (buffer, low, high, fresh)
        for buffer, mine in table.by_buffer(np.flatnonzero(buffers.persistent & written))
        for low, high, fresh in joined(sorted(_persistent(accesses, buffer, mine)))
    ]
    kept = np.flatnonzero(buffers.persistent & ~written)
    columns.append(np.stack([kept, kept * 0 - 1, kept * 0 + steps + 1, kept * 0], axis=1))
    columns.append(np.array(spans, dtype=np.int64).reshape(-1, 4))
    found = np.concatenate(columns)
    if len(found) > len(columns[0]):
        found = found[np.lexsort((found[:, 1], found[:, 0]))]
    return LiveSegments(
        buffer=found[:, 0],
        start=found[:, 1],
        stop=found[:, 2],
        fresh=found[:, 3].astype(np.bool_),
        buffers=len(buffers),
        steps=steps,
    )


def joined(spans: list[tuple[int, int, bool]]) -> Iterator[tuple[int, int, bool]]:
    """Yield sorted ranges of steps [first, stop); ranges that share a step are joined.

    A joined range is fresh if a fresh range begins at its start.
    """
    held: tuple[int, int, bool] | None = None
    for low, high, fresh in spans:
        if held is None or low >= held[1]:
            if held is not None:
                yield held
            held = low, high, fresh
        else:
            held = held[0], max(high, held[1]), held[2] or (fresh and low == held[0])
    if held is not None:
        yield held


class _Rows:
    """The accesses of a run, reads before writes. `whole` is True for an access that covers all
    bytes accessed in its buffer.
    """

    def __init__(self, accesses: Accesses) -> None:
        extents = accesses.extents
        self.accesses = accesses
        self.reads = len(accesses.read_op)
        self.buffer = np.concatenate([accesses.read_buffer, accesses.write_buffer])
        self.value = np.concatenate([accesses.read_value, accesses.write_value])
        self.op = np.concatenate([accesses.read_op, accesses.write_op])
        count = len(accesses.program.buffers)
        low, high = extents.low[self.value], extents.high[self.value]
        self.empty: Bools = low >= high
        least, most = np.full(count, 1 << 62, dtype=np.int64), np.zeros(count, dtype=np.int64)
        np.minimum.at(least, self.buffer, low)
        np.maximum.at(most, self.buffer, high)
        self.whole: Bools = extents.dense[self.value] & (low == least[self.buffer]) & (high == most[self.buffer])

    def by_buffer(self, chosen: Int64s) -> Iterator[tuple[int, list[tuple[int, bool, int]]]]:
        """Yield each chosen buffer with its accesses in order, as (step, is a write, value)."""
        if not len(chosen):
            return
        mask = np.zeros(len(self.accesses.program.buffers), dtype=np.bool_)
        mask[chosen] = True
        rows = np.flatnonzero(mask[self.buffer])
        rows = rows[np.lexsort((rows, rows >= self.reads, self.op[rows], self.buffer[rows]))]
        cuts = np.searchsorted(self.buffer[rows], [*chosen.tolist(), len(mask)])
        for buffer, low, high in zip(chosen.tolist(), cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            mine = rows[low:high]
            yield (
                buffer,
                list(
                    zip(self.op[mine].tolist(), (mine >= self.reads).tolist(), self.value[mine].tolist(), strict=True)
                ),
            )


def _parts(table: _Rows) -> Bools:
    """Return the buffers to follow byte range by byte range. These buffers have an empty access, a
    write of a part, or a read of a part before any write.
    """
    accesses = table.accesses
    mask = np.zeros(len(accesses.program.buffers), dtype=np.bool_)
    part = ~table.whole
    mask[table.buffer[table.empty]] = True
    mask[table.buffer[table.reads :][part[table.reads :]]] = True
    unwritten = accesses.first_write >= accesses.first  # an op reads before it writes
    early = part[: table.reads] & (accesses.read_op <= accesses.first_write[accesses.read_buffer])
    mask[accesses.read_buffer[early & unwritten[accesses.read_buffer]]] = True
    return mask


def _regular(table: _Rows, regular: Bools) -> Int64s:
    """Return (rows, 4): buffer, start, stop, fresh, for the `regular` buffers. Each write of such a
    buffer ends the previous range.
    """
    accesses = table.accesses
    first, last = accesses.first, accesses.last
    count = np.bincount(accesses.write_buffer, minlength=len(first))
    once = regular & (count <= 1) & (accesses.first_write == first) & (accesses.first_read > first) & (last >= 0)
    once |= regular & (count == 0) & (last >= 0)
    single = np.flatnonzero(once)
    fresh = (count[single] > 0).astype(np.int64)
    found = np.stack([single, first[single], last[single] + 1, fresh], axis=1)
    mask = regular & ~once
    rows = np.flatnonzero(mask[table.buffer])
    if not len(rows):
        return found
    write = rows >= table.reads
    rows = rows[np.lexsort((write, table.op[rows], table.buffer[rows]))]
    buffer, op, write = table.buffer[rows], table.op[rows], rows >= table.reads
    begins = write.copy()
    begins[0] = True
    begins[1:] |= buffer[1:] != buffer[:-1]
    at = np.flatnonzero(begins)
    buffer, start, fresh = buffer[at], op[at], write[at].astype(np.int64)
    stop = op[np.append(at[1:], len(rows)) - 1] + 1
    # ranges that share a step are one segment
    new = np.ones(len(at), dtype=np.bool_)
    new[1:] = (buffer[1:] != buffer[:-1]) | (start[1:] >= stop[:-1])
    head = np.flatnonzero(new)
    several = np.stack([buffer[head], start[head], np.maximum.reduceat(stop, head), fresh[head]], axis=1)
    merged_rows = np.concatenate([found, several])
    return merged_rows[np.lexsort((merged_rows[:, 1], merged_rows[:, 0]))]


def _followed(accesses: Accesses, rows: list[tuple[int, bool, int]]) -> list[tuple[int, int, bool]]:
    """Return the live range of each write of a buffer, and of each read of unwritten bytes."""
    extents, memory = accesses.extents, OwnerAxis()
    apart = _apart(extents, sorted({value for _, _, value in rows}))
    if apart is not None:
        return _by_class(rows, apart)
    names: dict[int, int] = {}
    spans: list[list[int]] = []
    for step, write, value in rows:
        runs = extents.runs(value)
        if write:
            names[value] = len(spans)
            memory.write_runs(runs, len(spans))
            spans.append([step, step + 1])
            continue
        if not runs:
            if value not in names:
                names[value] = len(spans)
                spans.append([step, step + 1])
            spans[names[value]][1] = step + 1
            continue
        for low, high in runs:
            for _, _, owner in memory.walk(low, high):
                if owner != NEVER:
                    spans[owner][1] = step + 1
        # these bytes get one owner, so that the next read does not visit all pieces again
        memory.write_runs(runs, len(spans))
        spans.append([step, step + 1])
    return [(low, high, True) for low, high in spans]


def _apart(extents: Extents, values: list[int]) -> dict[int, int] | None:
    """Return a number for each value; values with equal bytes have equal numbers. Return None if
    two values share some bytes, but not all, or if a value has no bytes.
    """
    kinds: dict[tuple[int, int, bytes], int] = {}
    numbers, lows, highs = {}, [], []
    for value in values:
        low, high = int(extents.low[value]), int(extents.high[value])
        if low >= high:
            return None
        low_column, high_column = np.array([low]), np.array([high])
        if not extents.dense[value]:
            where = extents.holes.of(value)
            low_column, high_column = extents.holes.low[where], extents.holes.high[where]
        key = low, high, low_column.tobytes() + high_column.tobytes()
        if key not in kinds:
            kinds[key] = len(kinds)
            lows.append(low_column)
            highs.append(high_column)
        numbers[value] = kinds[key]
    low_all, high_all = np.sort(np.concatenate(lows)), np.sort(np.concatenate(highs))
    return numbers if np.all(low_all[1:] >= high_all[:-1]) else None


def _by_class(rows: list[tuple[int, bool, int]], numbers: dict[int, int]) -> list[tuple[int, int, bool]]:
    """Return the live ranges of a buffer in which any two values share all bytes or none."""
    held: dict[int, int] = {}
    spans: list[list[int]] = []
    for step, write, value in rows:
        number = numbers[value]
        if write or number not in held:
            held[number] = len(spans)
            spans.append([step, step + 1])
        spans[held[number]][1] = step + 1
    return [(low, high, True) for low, high in spans]


def _persistent(accesses: Accesses, buffer: int, rows: list[tuple[int, bool, int]]) -> list[tuple[int, int, bool]]:
    """Return the live ranges of a parameter or state that some op writes."""
    spans: list[tuple[int, int, bool]] = []
    steps = len(accesses.program.ops)
    begin, fresh, last, parts = -1, False, -2, []
    full = overwrites(accesses, buffer, rows)
    for step, write, _ in [*rows, (steps, True, -1)]:
        if not write:
            last = step
        elif step not in full and step < steps:
            parts.append(step)
        elif step > begin:
            # the old content lives to its last read, or to the run's end; a part written later
            # lives for its own op
            end = steps + 1 if step == steps else last + 1
            if fresh or end > 0:
                spans.append((begin, max(end, begin + 1), fresh))
            spans += [(part, part + 1, False) for part in parts if part >= end]
            begin, fresh, last, parts = step, True, -2, []
    return spans


def overwrites(accesses: Accesses, buffer: int, rows: list[tuple[int, bool, int]]) -> set[int]:
    """Return the steps of the ops that overwrite a buffer fully. Their results together cover every
    byte that the program's values in the buffer cover.
    """
    extents = accesses.extents
    mine = accesses.program.values.of(buffer)
    values = mine[extents.low[mine] < extents.high[mine]].tolist()
    aim = merged(sorted(part for value in values for part in extents.all_runs(value)))
    found: dict[int, list[int]] = {}
    for step, write, value in rows:
        if write:
            found.setdefault(step, []).append(value)
    return {
        step
        for step, results in found.items()
        if merged(sorted(part for value in results for part in extents.runs(value))) == aim
    }
