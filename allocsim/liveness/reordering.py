"""Searches greedily for another order of the same ops that needs fewer bytes at once.

An order is legal if every two ops that touch the same buffer, ops of the host included, keep their
order; only reads between two writes may change places. At each step the search takes, among the ops
that may run, an op that adds the fewest bytes: the sizes of buffers that it is the first to touch,
less the sizes of those that it is the last to touch. Ties go to the first in its direction.
The search runs from the first op to the last, and again from the last op to the first, which puts a
producer just before its reader, as the other direction cannot.

Buffers that are persistent or not counted weigh nothing. A buffer that is overwritten weighs from
its first to its last access. O(ops x ops that may run). The minimum over all orders is NP-hard: an
order that is found proves that a better one exists, but finding none proves nothing.

What this module does not see: streams, the duration of ops, and the place of a `view`: it touches
no bytes, so the user of an order has to put each view before its readers.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np

from allocsim.model import VIEW, Bools, Program

MAX_OPS: Final = 20_000
"""Most ops of a program for which an order is searched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reordering:
    """The most bytes that the given order, and the best order found, need at once."""

    given: int
    found: int
    order: tuple[int, ...]
    """The ops in the order that needs `found` bytes; the given order if none is better."""


@dataclass(slots=True)
class _Graph:
    """The order between ops, and the buffers that they touch."""

    after: list[set[int]]
    """Op -> ops that must run after it."""
    waits: list[int]
    """Op -> number of ops that must run before it."""
    touched: list[list[int]]
    """Op -> buffers that it touches and that weigh something."""
    readers: list[int]
    """Buffer -> number of ops that touch it."""


def reordered(program: Program, *, counted: Bools | None = None) -> Reordering | None:
    """Return the best of the given order and the greedy ones; None beyond `MAX_OPS` ops.

    `counted` masks the buffers that matter.
    """
    if len(program.ops) > MAX_OPS:
        return None
    weighs = ~program.buffers.persistent if counted is None else counted & ~program.buffers.persistent
    sizes = np.where(weighs, program.buffers.nbytes, 0).tolist()
    graph = _graph(program, sizes)
    last = len(program.ops) - 1
    orders = [
        list(range(last + 1)),
        _greedy(graph, sizes),
        [last - op for op in reversed(_greedy(_mirrored(graph), sizes))],
    ]
    needs = [_most(graph, sizes, order) for order in orders]
    best = min(range(len(orders)), key=needs.__getitem__)
    return Reordering(given=needs[0], found=needs[best], order=tuple(orders[best]))


def _graph(program: Program, sizes: list[int]) -> _Graph:
    home = program.values.buffer.tolist()
    count = len(program.ops)
    graph = _Graph([set() for _ in range(count)], [0] * count, [], [0] * len(program.buffers))
    writer: dict[int, int] = {}
    reading: dict[int, list[int]] = {}

    def wait(op: int, other: int) -> None:
        if other != op and op not in graph.after[other]:
            graph.after[other].add(op)
            graph.waits[op] += 1

    for index, op in enumerate(program.ops):
        read = {home[value] for value in op.operands}
        written = {home[value] for value in op.results} if op.kind != VIEW else set()
        for buffer in read | written:
            if buffer in writer:
                wait(index, writer[buffer])
        for buffer in written:
            for other in reading.pop(buffer, ()):
                wait(index, other)
            writer[buffer] = index
        for buffer in read - written:
            reading.setdefault(buffer, []).append(index)
        mine = [buffer for buffer in read | written if sizes[buffer]] if op.kind != VIEW else []
        graph.touched.append(mine)
        for buffer in mine:
            graph.readers[buffer] += 1
    return graph


def _mirrored(graph: _Graph) -> _Graph:
    """Return the graph of the reversed list: op i becomes op `last - i`, all waits are reversed."""
    last = len(graph.after) - 1
    after: list[set[int]] = [set() for _ in graph.after]
    for op, waiting in enumerate(graph.after):
        for other in waiting:
            after[last - other].add(last - op)
    waits = [len(graph.after[last - op]) for op in range(last + 1)]
    return _Graph(after, waits, graph.touched[::-1], graph.readers)


def _greedy(graph: _Graph, sizes: list[int]) -> list[int]:
    """Return the greedy order.

    The heap holds the bytes that each op adds. While other ops run, this number can only fall, when
    a buffer comes to life or has one access left; the ops that touch such a buffer enter again.
    """
    waits, left = list(graph.waits), list(graph.readers)
    alive: set[int] = set()
    touching: dict[int, set[int]] = {}
    ready: set[int] = set()
    order: list[int] = []

    def added(op: int) -> int:
        mine = graph.touched[op]
        return sum(sizes[b] for b in mine if b not in alive) - sum(sizes[b] for b in mine if left[b] == 1)

    heap: list[tuple[int, int]] = []

    def enter(op: int) -> None:
        ready.add(op)
        for buffer in graph.touched[op]:
            touching.setdefault(buffer, set()).add(op)
        heappush(heap, (added(op), op))

    for op, number in enumerate(waits):
        if number == 0:
            enter(op)
    while heap:
        weight, op = heappop(heap)
        if op not in ready or weight != added(op):
            continue  # an outdated entry
        ready.discard(op)
        order.append(op)
        changed: set[int] = set()
        for buffer in graph.touched[op]:
            alive.add(buffer)
            left[buffer] -= 1
            touching[buffer].discard(op)
            changed |= touching[buffer]
        for other in changed:
            heappush(heap, (added(other), other))
        for other in sorted(graph.after[op]):
            waits[other] -= 1
            if waits[other] == 0:
                enter(other)
    return order


def _most(graph: _Graph, sizes: list[int], order: list[int]) -> int:
    """Return the most bytes that an order needs at once."""
    left = list(graph.readers)
    alive: set[int] = set()
    now = most = 0
    for op in order:
        for buffer in graph.touched[op]:
            if buffer not in alive:
                alive.add(buffer)
                now += sizes[buffer]
        most = max(most, now)
        for buffer in graph.touched[op]:
            left[buffer] -= 1
            if left[buffer] == 0:
                now -= sizes[buffer]
    return most


__all__ = ["MAX_OPS", "Reordering", "reordered"]
