"""Claims about the nodes of a document: of each operand, which write each of its bits holds; of
each node, how far each chain is known.

* A *piece* says that bits [start, start + length) of a buffer hold what write (node, result) wrote
  `shift` bits further back in its own buffer; node 0 is content, -1 nobody. Pieces of an operand
  tile its bits: from the lowest up, and of a `same` in row-major order.
* A clock of a node says which chain it is on, names nodes that happen before it, and lists (chain,
  node): the last node of that chain which happens before it, or is it. Clocks are left out where
  all nodes are on one chain.
* All addresses are below 2^depth.

Nothing here is trusted. Memory apart is replayed once, by interval; the plan is not looked at.

Complexity: O(accesses x segments of a buffer), and O(nodes x chains).

What this module does not see: whether a claim holds as planned. The checker says so.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from allocsim.certificates.joined import Access, RunNode, joined, reach
from allocsim.certificates.terms import Terms
from allocsim.model.layout import byte_runs

Mark = tuple[int, int, int]
"""Node, result, shift."""

Piece = tuple[int, int, int, int, int]
"""Start, length, node, result, shift."""

NOBODY: Mark = (-1, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What is claimed of each node, in order."""

    depth: int
    claims: tuple[tuple[tuple[Piece, ...], ...], ...]
    """Of each node, each operand, each piece."""
    clocks: tuple["Clock", ...]
    """Of each node; none at all where there is one chain."""


class Clock(NamedTuple):
    """What is claimed of the order of a node."""

    chain: int
    earlier: tuple[int, ...]
    ends: tuple[tuple[int, int], ...]
    """(chain, last node known)."""


def certificate_of(terms: Terms) -> Certificate:
    """Return what is so of a document's runs apart, and of their order."""
    memory: dict[int, _Segments] = defaultdict(_Segments)
    contents, nodes = joined(terms)
    for number, access in enumerate(contents):
        if access.length:
            memory[access.ident].write(0, access.length, (0, number, 0))
    claims = tuple(_claimed(memory, number, node) for number, node in enumerate(nodes, 1))
    several = len({node.chain for node in nodes}) > 1
    return Certificate(depth=reach(terms).bit_length(), claims=claims, clocks=tuple(_clocks(nodes)) if several else ())


class _Segments:
    """Who wrote each bit of a buffer last: sorted stretches that do not overlap."""

    def __init__(self) -> None:
        self.low: list[int] = []
        self.high: list[int] = []
        self.mark: list[Mark] = []

    def write(self, low: int, high: int, mark: Mark) -> None:
        first, last = bisect_right(self.high, low), bisect_left(self.low, high)
        cut: list[tuple[int, int, Mark]] = [(low, high, mark)]
        if first < last:
            if self.low[first] < low:
                cut.insert(0, (self.low[first], low, self.mark[first]))
            if self.high[last - 1] > high:
                cut.append((high, self.high[last - 1], self.mark[last - 1]))
        self.low[first:last], self.high[first:last], self.mark[first:last] = map(list, zip(*cut, strict=True))

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """Yield what [low, high) holds."""
        at = bisect_right(self.high, low)
        while low < high:
            if at == len(self.low) or self.low[at] >= high:
                yield low, high - low, *NOBODY
                return
            if low < self.low[at]:
                yield low, self.low[at] - low, *NOBODY
                low = self.low[at]
            end = min(high, self.high[at])
            yield low, end - low, *self.mark[at]
            low, at = end, at + 1


def _claimed(memory: dict[int, _Segments], number: int, node: RunNode) -> tuple[tuple[Piece, ...], ...]:
    """Return the claims of a node, and write its results."""
    expand = runs if node.kind == "op" else rows
    claims = tuple(
        tuple(
            piece
            for low, length in expand(operand.start, operand.dims, operand.length)
            for piece in memory[operand.ident].pieces(low, low + length)
        )
        for operand in node.operands
    )
    if node.kind != "op":
        for pieces, result in zip(claims, node.results, strict=True):
            for low, high, mark in _handed_on(pieces, result):
                memory[result.ident].write(low, high, mark)
        return claims
    for position, result in enumerate(node.results):
        for low, length in runs(result.start, result.dims, result.length):
            memory[result.ident].write(low, low + length, (number, position, 0))
    return claims


def _handed_on(pieces: tuple[Piece, ...], result: Access) -> Iterator[tuple[int, int, Mark]]:
    """Yield what a `same` puts where: low, high and the mark that it then is."""
    targets = iter(rows(result.start, result.dims, result.length))
    target, room = 0, 0
    for start, length, node, position, shift in pieces:
        done = 0
        while done < length:
            if not room:
                target, room = next(targets)
            part = min(length - done, room)
            yield target, target + part, (node, position, shift + target - start - done)
            done, target, room = done + part, target + part, room - part


@cache
def runs(start: int, dims: tuple[tuple[int, int], ...], length: int) -> tuple[tuple[int, int], ...]:
    """Return the bits of a layout from the lowest up: starts and lengths of runs."""
    found = byte_runs(tuple(n for n, _ in dims), tuple(s for _, s in dims), start, length)
    return tuple((low, high - low) for low, high in found.tolist())


@cache
def rows(start: int, dims: tuple[tuple[int, int], ...], length: int) -> tuple[tuple[int, int], ...]:
    """Return the bits of a layout in row-major order: starts and lengths of runs."""
    inner = list(dims)
    while inner and (inner[-1][0] == 1 or inner[-1][1] == length):
        length *= inner.pop()[0]
    starts = [start]
    for count, stride in inner:
        starts = [low + stride * index for low in starts for index in range(count)]
    return tuple((low, length) for low in starts)


def _clocks(nodes: tuple[RunNode, ...]) -> Iterator[Clock]:
    """Yield how far each node knows each chain."""
    clocks: list[dict[int, int]] = []
    last: dict[int, int] = {}
    for number, node in enumerate(nodes, 1):
        known: dict[int, int] = {}
        for earlier in (*node.earlier, last.get(node.chain, 0)):
            for chain, end in clocks[earlier - 1].items() if earlier else ():
                known[chain] = max(known.get(chain, 0), end)
        known[node.chain] = last[node.chain] = number
        clocks.append(known)
        yield Clock(node.chain, node.earlier, tuple(sorted(known.items())))
