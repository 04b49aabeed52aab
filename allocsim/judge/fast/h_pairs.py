"""Find the pairs of ops that race, in one run or in several runs that overlap in time. The late
accesses (`h_clocks`) are joined with the earlier accesses with which they race.

Two accesses race under these conditions: they belong to different ops, they access a common byte
under the plan, at least one of them writes the byte, and neither op happens before the other.
Buffers outside all arenas have memory of their own. The accesses of one op are ordered: the op
reads, then writes.

The racing earlier accesses of a late access are in a window of its source stream. The window has
the ops that precede the late op in the list but do not happen before it. Each window is joined with
the accesses in the window that share bytes with the late access (`intervals.join`). The join is
done on each level of a segment tree over the source's ops, with at most two nodes of a window on
each level.

Complexity: the cost of `h_clocks` for a run without races. Races add O((late + byte runs) log^2
byte runs + pairs) for each batch of late accesses. At most `PAIR_LIMIT` pairs, plus the pairs of
one more batch, are listed, in order. This module makes no records of races (`h_races`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from allocsim.judge.fast.accesses import Accesses
from allocsim.judge.fast.h_clocks import Late, Order, Touched, late_accesses
from allocsim.judge.fast.intervals import Ranges, among, distinct, join
from allocsim.judge.fast.selector import Selector
from allocsim.model import Bools
from allocsim.model.layout import Int64s

PAIR_LIMIT: Final = 1_000_000
"""The number of pairs up to which races are counted exactly (docs/format.md)."""

BATCH: Final = 1 << 12
"""The number of late accesses in the first batch."""

ROWS: Final = 1 << 22
"""The largest number of byte runs, and of pairs of byte runs, in a batch, to bound memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Races:
    """Racing pairs, one row for each pair of ops and pair of buffers. Rows are sorted by `op`,
    `other`, `buffer` and `other_buffer`.
    """

    op: Int64s
    """The op that is later in the list."""
    other: Int64s
    """The op that is earlier in the list."""
    buffer: Int64s
    """The buffer in which `op` touches the shared bytes."""
    other_buffer: Int64s
    cut: bool = False
    """Whether pairs may be missing; all missing pairs belong to later ops."""


_NONE: Final = np.empty(0, dtype=np.int64)
NO_RACES: Final = Races(op=_NONE, other=_NONE, buffer=_NONE, other_buffer=_NONE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RacingPart:
    """The accesses of one run, with their positions in the order and in memory."""

    accesses: Accesses
    """The accesses, with extents in bytes."""
    node: Int64s
    """int64 (ops,): the position of each op in the order."""
    space: Int64s
    base: Int64s
    """int64 (buffers,): the base address in bytes; `space` has the address space."""
    written: Bools
    """bool (writes,): whether a write changes memory under the plan; a `same` at one address does
    not."""


def races(parts: Sequence[RacingPart], order: Order, selector: Selector) -> Races:
    """Return the races among the runs of `parts`.

    Ops are numbered by their position in `order`. Buffers are numbered consecutively over all
    parts.
    """
    if order.streams < 2:
        return NO_RACES
    table = _Table(parts, order)
    if not len(table.op):
        return NO_RACES
    late = late_accesses(order, table.touched, selector)
    return table.pairs(late) if len(late.access) else NO_RACES


class _Table:
    """The accesses of several runs that could race, in order of op."""

    def __init__(self, parts: Sequence[RacingPart], order: Order) -> None:
        self.order = order
        ops, writes, values, buffers, spaces = [], [], [], [], []
        owners, lows, highs, homes, bases = [], [], [], [], []
        value_base = buffer_base = 0
        for part in parts:
            accesses, extents = part.accesses, part.accesses.extents
            count = len(accesses.program.values)
            # each value once for each op and direction, reads before writes
            key = distinct(
                np.concatenate(
                    [
                        2 * accesses.read_op * count + accesses.read_value,
                        ((2 * accesses.write_op + 1) * count + accesses.write_value)[part.written],
                    ]
                )
            )
            op, write, value = key // count // 2, key // count % 2, key % count
            kept = extents.low[value] < extents.high[value]
            op, write, value = op[kept], write[kept], value[kept]
            ops.append(part.node[op])
            writes.append(write)
            values.append(value + value_base)
            buffers.append(extents.buffer[value] + buffer_base)
            spaces.append(part.space[extents.buffer[value]])
            used = distinct(value)
            owner, low, high = _runs(accesses, used)
            owners.append(owner + value_base)
            lows.append(low)
            highs.append(high)
            homes.append(part.space[extents.buffer[owner]])
            bases.append(part.base[extents.buffer[owner]])
            value_base += count
            buffer_base += len(accesses.program.buffers)
        op, write, value, buffer, space = (np.concatenate(column) for column in (ops, writes, values, buffers, spaces))
        if len(parts) > 1:
            turn = np.lexsort((value, write, op))
            op, write, value, buffer, space = (column[turn] for column in (op, write, value, buffer, space))
        keep = _shared(space, write, order.stream[op], int(space.max(initial=0)) + 1)[space]
        self.op: Int64s = op[keep]
        self.value: Int64s = value[keep]
        self.write: Int64s = write[keep]
        self.buffer: Int64s = buffer[keep]
        owner, low, high, home, base = (np.concatenate(column) for column in (owners, lows, highs, homes, bases))
        there = among(owner, distinct(self.value))
        owner, low, high, home, base = (column[there] for column in (owner, low, high, home, base))
        rank = _ranked(home, base, low, high)
        self.touched = Touched(
            starts=np.searchsorted(self.op, np.arange(len(order.stream) + 1)).astype(np.int64),
            value=self.value,
            write=self.write,
            run_starts=np.searchsorted(owner, np.arange(value_base + 1)).astype(np.int64),
            low=rank.low,
            high=rank.high,
            ranks=int(rank.high.max(initial=0)) + 1,
        )

    @cached_property
    def places(self) -> Int64s:
        """int64 (ops,), sorted: `stream * ops + op` of every op; the index is the op's rank."""
        places: Int64s = np.sort(self.order.stream * len(self.order.stream) + np.arange(len(self.order.stream)))
        return places

    def pairs(self, late: Late) -> Races:
        """Return the racing pairs that contain the late accesses."""
        listed = np.empty((4, 0), dtype=np.int64)
        start, size, cut = 0, BATCH, late.cut
        while start < len(late.access):
            rows = np.arange(start, min(start + size, len(late.access)))
            found, total = self._meetings(late, rows)
            if total > ROWS and size > 1:
                size //= 2
                continue
            cut |= total > ROWS
            # a pair may be found again in the next batch, if that batch begins with the same op
            listed = _distinct(np.concatenate([listed, found], axis=1))
            start, size = start + len(rows), size if total > ROWS // 4 else 2 * size
            if listed.shape[1] > PAIR_LIMIT:
                cut |= start < len(late.access)
                break
        op, other, buffer, other_buffer = listed
        return Races(op=op, other=other, buffer=buffer, other_buffer=other_buffer, cut=cut)

    def _meetings(self, late: Late, rows: Int64s) -> tuple[Int64s, int]:
        """Return int64 (4, n) columns of `Races` for some late accesses, with repetitions, and the
        number of pairs of byte runs found.
        """
        ops = len(self.order.stream)
        access, source = late.access[rows], late.source[rows]
        first = np.searchsorted(self.places, source * ops + late.known[rows] + 1)
        last = np.searchsorted(self.places, source * ops + self.op[access])
        inside = np.zeros(ops + 1, dtype=np.int64)
        np.add.at(inside, first, 1)
        np.add.at(inside, last, -1)
        place = np.searchsorted(self.places, self.order.stream[self.op] * ops + self.op)
        asked: Bools = np.cumsum(inside)[place] > 0
        found, total = [np.empty((4, 0), dtype=np.int64)], 0
        for side in (0, 1):
            window = np.flatnonzero(self.write[access] == side)
            for comers in self._slices(np.flatnonzero(asked & ((side == 1) | (self.write == 1)))):
                holder, window_ranges = self._expand(access[window])
                comer, ranges = self._expand(comers)
                left, right, count = _stabs(
                    first[window][holder], last[window][holder], window_ranges, place[comers][comer], ranges
                )
                total += count
                mine, other = access[window][holder[left]], comers[comer[right]]
                found.append(np.stack([self.op[mine], self.op[other], self.buffer[mine], self.buffer[other]]))
                if total > ROWS:
                    return np.concatenate(found, axis=1), total
        return np.concatenate(found, axis=1), total

    def _slices(self, accesses: Int64s) -> Iterator[Int64s]:
        """Cut a column of accesses into slices with at most `ROWS` byte runs each."""
        starts = self.touched.run_starts
        ends = np.cumsum(starts[self.value[accesses] + 1] - starts[self.value[accesses]])
        begin = 0
        while begin < len(accesses):
            done = int(ends[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(ends, done + ROWS, side="right")), begin + 1)
            yield accesses[begin:end]
            begin = end

    def _expand(self, accesses: Int64s) -> tuple[Int64s, Ranges]:
        """Return the byte runs of some accesses, as the row in `accesses` and the ranks."""
        starts = self.touched.run_starts
        first, counts = starts[self.value[accesses]], starts[self.value[accesses] + 1] - starts[self.value[accesses]]
        owner = np.repeat(np.arange(len(accesses)), counts)
        run = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
        return owner, Ranges(key=owner, low=self.touched.low[run], high=self.touched.high[run])


def _shared(space: Int64s, write: Int64s, stream: Int64s, spaces: int) -> Bools:
    """Return which spaces several streams access and some op writes; only these can have races."""
    written = np.bincount(space[write == 1], minlength=spaces) > 0
    streams = int(stream.max(initial=0)) + 1
    visitors = np.bincount(distinct(space * streams + stream) // streams, minlength=spaces)
    several: Bools = written & (visitors > 1)
    return several


def _runs(accesses: Accesses, values: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Return the byte runs of some values within their buffers, in order: value, low, high."""
    extents = accesses.extents
    dense, holes = extents.dense[values], extents.holes
    row = np.where(dense, 0, holes.row[values])
    counts = np.where(dense, 1, np.diff(holes.starts, append=0)[row])
    owner = np.repeat(np.arange(len(values)), counts)
    run = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    low, high = extents.low[values][owner], extents.high[values][owner]
    strided = ~dense[owner]
    place = holes.starts[row][owner[strided]] + run[strided]
    low[strided], high[strided] = holes.low[place], holes.high[place]
    return values[owner], low, high


def _ranked(space: Int64s, base: Int64s, low: Int64s, high: Int64s) -> Ranges:
    """Return byte ranges as ranges of ranks on one axis, on which the spaces follow each other."""
    laid = Ranges.laid(space, base, low, high)
    points, owner = np.concatenate([laid.low, laid.high]), np.concatenate([space, space])
    order = np.lexsort((points, owner))
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (points[order[1:]] != points[order[:-1]]) | (owner[order[1:]] != owner[order[:-1]])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.cumsum(fresh) - 1
    return Ranges(key=space, low=rank[: len(low)], high=rank[len(low) :])


def _stabs(first: Int64s, last: Int64s, windows: Ranges, place: Int64s, comers: Ranges) -> tuple[Int64s, Int64s, int]:
    """Return (row of `windows`, row of `comers`) for each comer with a place in the window's
    `[first, last)` and a range that overlaps the window's range. Also return the number of pairs.

    Each batch lists at most `ROWS` pairs. On each level of a tree, a place has one node and a
    window at most two. A place in a window has a node in common with it on exactly one level.
    """
    count = int(max(last.max(initial=0), place.max(initial=-1) + 1))
    low, high, node = first + count, np.maximum(first, last) + count, place + count
    left, right, total = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
    while np.any(open_ := low < high):
        at_low, at_high = open_ & (low & 1 == 1), open_ & (high & 1 == 1)
        owner = np.concatenate([np.flatnonzero(at_low), np.flatnonzero(at_high)])
        nodes = np.concatenate([low[at_low], high[at_high] - 1])
        asked = np.flatnonzero(among(node, nodes))
        held = Ranges(key=nodes, low=windows.low[owner], high=windows.high[owner])
        found = join(held, Ranges(key=node[asked], low=comers.low[asked], high=comers.high[asked]), cap=ROWS)
        left.append(owner[found.left])
        right.append(asked[found.right])
        total += found.total
        if total > ROWS:
            break
        low, high, node = (low + at_low) >> 1, (high - at_high) >> 1, node >> 1
    return np.concatenate(left), np.concatenate(right), total


def _distinct(rows: Int64s) -> Int64s:
    """Return the distinct columns of an int64 (4, n) array, in order."""
    rows = rows[:, np.lexsort(rows[::-1])]
    fresh = np.ones(rows.shape[1], dtype=np.bool_)
    fresh[1:] = np.any(rows[:, 1:] != rows[:, :-1], axis=0)
    return rows[:, fresh]
