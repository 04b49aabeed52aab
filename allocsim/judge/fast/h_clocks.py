"""Finds the accesses that are unordered with an earlier access: vector clocks over streams, held
against the last access of each stream to each byte.

Happens before. Op `i` happens before op `j` if both are on one stream and `i < j`, or `j` waits
for `i` (`after`), transitively. For each stream, op `j` *knows* the ops up to `known[j]`: the last
op of that stream that happens before `j` or is `j`, -1 if there is none. Later ops of that stream
that stand before `j` in the list are unordered with `j`.

Algorithm. It passes over the list once for each stream, the *source*. Ops of the source leave their
step on the bytes they touch, once for writes and once for all accesses; steps only grow, so the
largest step on a range of bytes is the last one. Every access of another stream looks up the
largest step on its own bytes: among writes if it reads, among all accesses if it writes. If that
step is after `known` of its op, the two race, and the access is *late*. So each unordered pair is
met once, in the pass of the earlier op's stream, and no ordered access is late.

Bytes are ranks: every end of every range in order of (space, address). The steps lie in a segment
tree over the ranks. A node has `left`, the last step left on all of it, and `below`, the largest
step left on any of it; both arrays hold writes first, then all accesses.

Complexity: O(streams x (ops + waits + byte runs x log byte runs)) time, O(ops + byte runs) memory:
a clock has one column at a time. `sweep` is plain Python over arrays; large inputs have it
compiled, the same lines, so that records are identical either way.

This module does not examine the earlier access of each race (`h_pairs`), buffers, plans.
"""

from collections.abc import Callable  # noqa: TC003 - read by people and mypy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from allocsim.errors import ModelError
from allocsim.judge.fast.selector import Selector
from allocsim.model import Ops
from allocsim.model.layout import Int64s

Column = Any
"""An int64 column as `sweep` takes it: an array, or a list of ints."""

MAX_WORK: Final = 1 << 31
"""Most streams times ops: a bound on time, for each stream takes a pass over the list."""

LATE_LIMIT: Final = 1 << 20
"""Most late accesses kept; with more of them, the number of races is only a lower bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The streams and waits of the ops of a program, which make their happens-before order."""

    stream: Int64s
    """int64 (ops,): dense numbers of the streams in use."""
    streams: int
    previous: Int64s
    """int64 (ops,): the op before on the same stream, -1 if there is none."""
    after_starts: Int64s
    after: Int64s
    """CSR: the ops that each op waits for."""

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
    """The accesses in order of op, each to a value, and the byte ranges of each value."""

    starts: Int64s
    """int64 (ops + 1,): CSR of the accesses by op."""
    value: Int64s
    write: Int64s
    """int64 (accesses,): 1 for a write, 0 for a read."""
    run_starts: Int64s
    """int64 (values + 1,): CSR of byte runs by value."""
    low: Int64s
    high: Int64s
    """int64 (runs,): half-open ranges of ranks."""
    ranks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """Accesses that race with some op of a source stream, in order of (op, access, source)."""

    access: Int64s
    source: Int64s
    known: Int64s
    """The last op of the source that happens before the access; -1 if none does."""
    cut: bool
    """Whether there may be more than `LATE_LIMIT`; accesses left out belong to later ops."""


def late_accesses(order: Order, touched: Touched, selector: Selector) -> Late:
    """Return every access that is unordered with a conflicting access of an earlier op.

    Raises ModelError where streams times ops are beyond `MAX_WORK`.
    """
    work = order.streams * len(order.stream)
    if work > MAX_WORK:
        rule = (
            f"{order.streams} in use over {len(order.stream)} ops: at most {MAX_WORK} for streams x ops are supported"
        )
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
        facts, column = [fact.tolist() for fact in facts], lambda length: [-1] * length  # lists are quicker to index
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
            cut = True  # the accesses kept are complete up to their last op; later passes stop there
            found = found[:, :LATE_LIMIT]
            stop = int(np.searchsorted(touched.starts, found[0, -1], side="right"))
    return Late(access=found[0], source=found[1], known=found[2], cut=cut)


def sweep(  # noqa: PLR0917 - columns
    source: int, stop: int, stream: Column, previous: Column, after_starts: Column, after: Column,
    starts: Column, value: Column, write: Column, run_starts: Column, low: Column, high: Column,
    size: int, left: Column, below: Column, known: Column, late: Column, knows: Column,
) -> int:  # fmt: skip
    """Find the accesses before op `stop` that race with `source`: fill `late` with the accesses and
    `knows` with `known` of their ops; return their number.

    `left` and `below` have `size` nodes for writes, then `size` for all accesses, all -1; `known`
    is scratch. The sweep stops at the first access that `late` has no room for, and counts it.
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
                # a write leaves its step in both trees; a write looks at the tree of all accesses,
                # a read at the tree of writes
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
