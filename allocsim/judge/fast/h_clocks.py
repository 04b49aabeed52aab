"""Which accesses are unordered with an earlier one: vector clocks over streams, against the bytes
each stream touched last.

Happens before. Op `i` happens before op `j` if both are on one stream and `i < j`, or `j` waits
for `i` (`after`), transitively. All that counts of it for a later op is how far it *knows* each
stream: `known[j]`, the last op of that stream that happens before `j` or is `j`, -1 if none does.
Whatever is later on that stream, and earlier in the list than `j`, is unordered with `j`.

How. One pass over the list for each stream, the *source*. Ops of the source leave their step on the
bytes they touch, once for writes and once for accesses of any sort; steps only grow, so the largest
step on a range of bytes is the last. Every access of another stream asks for the largest step on
its own bytes, of writes if it reads, of anything if it writes: if that is beyond what its op knows
of the source, the two race, and it is *late*. So each unordered pair is met once, in the pass of
the earlier op's stream, and no access that is ordered is late.

Bytes are ranks: every end of every range in order of (space, address). The steps lie in a segment
tree over the ranks. A node has `left`, what was left on all of it, and `below`, the largest step
left on any of it; both arrays hold writes in row 0 and accesses of any sort in row 1.

Complexity: O(streams x (ops + waits + byte runs x log byte runs)) time, O(ops + byte runs) memory:
a clock has one column at a time. `sweep` is plain Python over arrays; large inputs have it
compiled, the same lines, so that records are identical either way.

What this module does not see: which earlier access it is (`h_pairs`), buffers, plans.
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
"""Streams times ops: a bound on time, for the list is passed once for each stream."""

LATE_LIMIT: Final = 1 << 20
"""Late accesses kept; an input that has more of them has more races than are counted exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The ops of a program in the order that holds between them."""

    stream: Int64s
    """int64 (ops,): dense numbers of the streams in use."""
    streams: int
    previous: Int64s
    """int64 (ops,): the op before on the same stream, -1 if there is none."""
    after_starts: Int64s
    after: Int64s
    """CSR: ops waited for."""

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
    """Who touches which bytes: accesses in order of op, each of a value, with its ranges."""

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
    """Whether there may be more than `LATE_LIMIT`; those left out are none of earlier ops."""


def late_accesses(order: Order, touched: Touched, selector: Selector) -> Late:
    """Return every access that is unordered with a conflicting one of an earlier op.

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
            cut = True  # what is kept is complete up to its last op; nothing later is looked at any more
            found = found[:, :LATE_LIMIT]
            stop = int(np.searchsorted(touched.starts, found[0, -1], side="right"))
    return Late(access=found[0], source=found[1], known=found[2], cut=cut)


def sweep(  # noqa: PLR0917 - columns
    source: int, stop: int, stream: Column, previous: Column, after_starts: Column, after: Column,
    starts: Column, value: Column, write: Column, run_starts: Column, low: Column, high: Column,
    size: int, left: Column, below: Column, known: Column, late: Column, knows: Column,
) -> int:  # fmt: skip
    """Find the accesses before op `stop` that are late against `source`: fill `late` and what they
    know, return how many there are.

    `left` and `below` have `size` nodes for writes, then `size` for accesses of any sort, all -1;
    `known` is scratch. Stops at the first access that `late` has no room for, and counts it.
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
            continue  # all that the source has touched is known here
        for access in range(starts[op], starts[op + 1]):
            found = False
            for run in range(run_starts[value[access]], run_starts[value[access] + 1]):
                # a write leaves its step on both trees; a write asks the tree of all accesses, a
                # read that of the writes
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
