"""Find the accesses that are unordered with an earlier access. Vector clocks over streams are
compared with the last access of each stream to each byte.

Order. Op `i` happens before op `j` if both are on one stream and `i < j`, or if `j` waits for `i`
(`after`), transitively. For each stream, op `j` *knows* the ops up to `known[j]`. `known[j]` is the
last op of that stream that happens before `j` or is `j`, or -1 without such an op. Later ops of
that stream that precede `j` in the list are unordered with `j`.

Algorithm. The list is passed once for each stream, called the *source* of the pass. Ops of the
source record their step on the bytes they access, once for writes and once for all accesses. Steps
only grow, so the largest step on a byte range is the last step. Every access of another stream
looks up the largest step on its own bytes. A read looks among the writes, and a write among all
accesses. If the step found is after `known` of the op, the two race, and the access is *late*. So
each unordered pair is found once, in the pass of the earlier op's stream, and no ordered access is
late.

Addresses are replaced by ranks. The rank of a range end is its position among all range ends in
order of (space, address). The steps are stored in a segment tree over the ranks. For each node,
`left` is the last step recorded on the whole node, and `below` is the largest step recorded on any
part of the node. Both arrays have the nodes for writes first, then the nodes for all accesses.

Complexity: O(streams x (ops + waits + byte runs x log byte runs)) time and O(ops + byte runs)
memory, because only one clock column exists at a time. `sweep` is plain Python over arrays. For
large inputs `sweep` is compiled from the same lines, so that the records are identical.

This module does not find the earlier access of each race (`h_pairs`), and does not examine buffers
or plans.
"""

from collections.abc import Callable  # noqa: TC003 - for readers and mypy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.selector import Selector
from allocsim.model import Ops
from allocsim.model.layout import Int64s

Column = Any
"""An int64 column for `sweep`: an array, or a list of ints."""

MAX_WORK: Final = 1 << 31
"""The largest product of streams and ops, to bound time; each stream needs a pass over the list."""

LATE_LIMIT: Final = 1 << 20
"""The largest number of late accesses kept; beyond it, the number of races is a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The streams and waits of a program's ops, which define the happens-before order."""

    stream: Int64s
    """int64 (ops,): the stream of each op; used streams are numbered 0, 1, 2, ..."""
    streams: int
    previous: Int64s
    """int64 (ops,): the previous op on the same stream, or -1 if there is none."""
    after_starts: Int64s
    after: Int64s
    """The ops that each op waits for, in CSR form with `after_starts`."""

    @classmethod
    def of(cls, ops: Ops) -> "Order":
        """Return the order of a program's ops. O(ops + waits)."""
        used, stream = np.unique(ops.stream, return_inverse=True)
        by_stream = np.argsort(stream, kind="stable")
        previous = np.full(len(stream), -1, dtype=np.int64)
        same = stream[by_stream[1:]] == stream[by_stream[:-1]]
        previous[by_stream[1:][same]] = by_stream[:-1][same]
        return cls(
            stream=stream.astype(np.int64),
            streams=len(used),
            previous=previous,
            after_starts=ops.after_starts,
            after=ops.after.astype(np.int64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The accesses of values, in order of op, and the byte ranges of each value."""

    starts: Int64s
    """int64 (ops + 1,): CSR row starts of the accesses of each op."""
    value: Int64s
    write: Int64s
    """int64 (accesses,): 1 for a write, 0 for a read."""
    run_starts: Int64s
    """int64 (values + 1,): CSR row starts of the byte runs of each value."""
    low: Int64s
    high: Int64s
    """int64 (runs,): half-open ranges of ranks."""
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Accesses that race with an earlier op of a source stream, sorted by (op, access, source)."""

    access: Int64s
    source: Int64s
    known: Int64s
    """The last op of the source that happens before the access, or -1 if there is none."""
    cut: bool
    """Whether accesses may be missing because of `LATE_LIMIT`; missing accesses belong to later
    ops."""


def late_accesses(order: Order, touched: Touched, selector: Selector) -> Late:
    """Return every access that is unordered with a conflicting access of an earlier op.

    Raises ModelError if the product of streams and ops is more than `MAX_WORK`.
    """
    work = order.streams * len(order.stream)
    if work > MAX_WORK:
        rule = f"{order.streams} streams are used by {len(order.stream)} ops: streams x ops may be at most {MAX_WORK}"
        raise ModelError("streams", rule)
    size = 2 << max(touched.ranks - 1, 1).bit_length()
    capacity = min(len(touched.value), LATE_LIMIT)
    facts: list[Column] = [
        order.stream, order.previous, order.after_starts, order.after,
        touched.starts, touched.value, touched.write, touched.run_starts, touched.low, touched.high,
    ]  # fmt: skip
    screen = selector.late(len(touched.value) * order.streams)
    run: Callable[..., int] = screen or sweep
    column: Callable[[int], Column] = partial(np.full, fill_value=-1, dtype=np.int32)
    if screen is None:
        facts, column = [fact.tolist() for fact in facts], lambda length: [-1] * length  # indexing lists is faster
    found = np.empty((3, 0), dtype=np.int64)
    stop, cut = len(order.stream), False
    for source in range(order.streams):
        late, knows = column(capacity), column(capacity)
        count = run(
            source, stop, *facts, size, column(2 * size), column(2 * size), column(len(order.stream)), late, knows
        )
        kept = min(count, capacity)
        found = np.concatenate([found, [late[:kept], np.full(kept, source), knows[:kept]]], axis=1)
        found = found[:, np.lexsort((found[1], found[0]))]
        if count > kept or found.shape[1] > LATE_LIMIT:
            cut = True  # the kept accesses are complete up to their last op, so later passes stop there
            found = found[:, :LATE_LIMIT]
            stop = int(np.searchsorted(touched.starts, found[0, -1], side="right"))
    return Late(access=found[0], source=found[1], known=found[2], cut=cut)


def sweep(  # noqa: PLR0917 - columns
    source: int, stop: int, stream: Column, previous: Column, after_starts: Column, after: Column,
    starts: Column, value: Column, write: Column, run_starts: Column, low: Column, high: Column,
    size: int, left: Column, below: Column, known: Column, late: Column, knows: Column,
) -> int:  # fmt: skip
    """Find the accesses before op `stop` that race with `source`. Fill `late` with the accesses and
    `knows` with `known` of their ops, and return the number of accesses.

    `left` and `below` have `size` nodes for writes, then `size` nodes for all accesses, all -1 at
    first. `known` is scratch memory. The sweep stops at the first access that does not fit into
    `late`, and counts that access.
    """
    count, latest = 0, -1
    for op in range(stop):
        knowledge = known[previous[op]] if previous[op] >= 0 else -1
        for wait in range(after_starts[op], after_starts[op + 1]):
            knowledge = max(knowledge, known[after[wait]])
        mine = stream[op] == source
        known[op] = op if mine else knowledge
        if mine:
            latest = op if starts[op] < starts[op + 1] else latest
        elif knowledge >= latest:
            continue  # all accesses of the source happen before this op
        for access in range(starts[op], starts[op + 1]):
            found = False
            for run in range(run_starts[value[access]], run_starts[value[access] + 1]):
                # a write records its step in both trees; a write searches the tree of all accesses,
                # a read searches the tree of writes
                first, last = low[run] + size // 2, high[run] + size // 2 - 1
                base = size if write[access] != mine else 0
                while mine and base <= size:
                    a, b = first, last + 1
                    while a < b:
                        if a & 1:
                            left[base + a] = op
                            below[base + a] = op
                        if b & 1:
                            left[base + b - 1] = op
                            below[base + b - 1] = op
                        a, b = (a + 1) >> 1, b >> 1
                    a, b = first >> 1, last >> 1
                    while a:
                        below[base + a] = op
                        below[base + b] = op
                        a, b = a >> 1, b >> 1
                    base += size
                if mine or below[base + 1] <= knowledge:
                    continue
                a, b = first, last + 1
                while a < b and not found:
                    if a & 1:
                        found = found or below[base + a] > knowledge
                    if b & 1:
                        found = found or below[base + b - 1] > knowledge
                    a, b = (a + 1) >> 1, b >> 1
                a, b = first, last
                while a and not found:
                    found = left[base + a] > knowledge or left[base + b] > knowledge
                    a, b = a >> 1, b >> 1
                if found:
                    break
            if not found:
                continue
            if count == len(late):
                return count + 1
            late[count] = access
            knows[count] = knowledge
            count += 1
    return count
