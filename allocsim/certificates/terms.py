"""From a document to the checker's terms: the ops of all runs as one list of nodes.

* A *unit* is a byte, or a bit where some value holds a byte in part; `grain` is units to a byte.
* An *access* is a value as some run sees it: apart it lies in memory `ident`, which is its buffer's
  own; as planned at `base` in `space`. Its units are those of `start`, dimensions (count, stride)
  from the outermost in, and `length` units at each index. The checker makes runs of them.
* A run has the buffers of the last run of its program that it waits for, else fresh ones; a
  parameter or state is one buffer for all programs that have one of its name, and its content is
  laid once, in buffer order, where the first run that has it puts it. Without a session every run
  has memory of its own.
* A *node* is an op of a run, in order of run and op; views and uploads left out are nodes that
  touch nothing. The `host.read` ops of a run with `read_after: k` stand behind run k; at their own
  place a node of kind `hold` keeps, apart, what they must find. Nodes are numbered from 1; the
  writes of 0 are contents.
* A *chain* is a stream of a run, and goes on in a later run that waits for it. The first node of a
  run on each stream is after the last nodes, and the late reads, of the runs that it waits for.

This module is trusted (docs/theory.md); `tests/laws/test_certificates.py` derives the terms anew.

Complexity: O(ops + operands + results) for each run, and O(runs x waits) for what waits.

What this module does not see: who wrote what (`claims`), and what is right.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from allocsim.errors import ModelError
from allocsim.model import HOST_READ, VIEW, Document
from allocsim.model.tables import STRENGTHS

NOBODY: Final = -1


class Access(NamedTuple):
    """A value as a run sees it, in units."""

    ident: int
    space: int
    base: int
    start: int
    length: int
    width: int
    """Bits of an element; 0 where it does not matter."""
    dims: tuple[tuple[int, int], ...]


class RunNode(NamedTuple):
    """An op of a run."""

    run: int
    op: int
    chain: int
    after: tuple[int, ...]
    """Numbers of earlier nodes."""
    kind: str
    """`op`, `same` or `hold`."""
    operands: tuple[Access, ...]
    results: tuple[Access, ...]
    """Of a `same` and a `hold`, as many as operands."""
    promises: tuple[tuple[int, int, str], ...]
    """Operand position, result position, strength."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A document as the checker knows it."""

    depth: int
    """All addresses are below 2^depth."""
    grain: int
    contents: tuple[Access, ...]
    nodes: tuple[RunNode, ...]


def terms_of(document: Document) -> Terms:
    """Return a document in the checker's terms.

    Raises ModelError where a buffer has a range of sizes: each end is a document of its own.
    """
    for index, program in enumerate(document.programs):
        if program.buffers.nbytes_range:
            place = f"programs[{index}].buffers[{min(program.buffers.nbytes_range)}].nbytes_range"
            raise ModelError(place, "a certificate is of one size; certify a document of each end")
    return _Unrolled(document).terms()


class _Unrolled:
    """The runs of a document, one after the other."""

    def __init__(self, document: Document) -> None:
        self.runs, self.joined = document.runs, document.session is not None
        self.unit = 8 if any(program.values.ragged.any() for program in document.programs) else 1
        self.nodes: list[RunNode] = []
        self.contents: list[Access] = []
        self.idents: dict[object, int] = {}
        self.spaces: dict[object, int] = {}
        self.waits: list[frozenset[int]] = []
        """Of each run, those that it waits for, transitively."""
        self.homes: list[int] = []
        """Of each run, the first of those whose buffers it has."""
        self.waited: list[set[int]] = []
        """Of each run, the nodes that its first on each stream waits for."""
        self.numbers: list[dict[int, int]] = []
        """Of each run, the numbers of its nodes by step, less the late reads."""
        self.lasts: list[dict[int, int]] = []
        """Of each run, the last node on each stream."""
        self.tips: list[set[int]] = []
        """Of each run, the nodes that whoever waits for it waits for."""
        self.chains: list[dict[int, int]] = []
        """Of each run, the chain of each stream."""
        self.latest: list[int] = []
        """Of each chain, the last run that is on it."""
        self.holding = 0
        """The chain of nodes that hold, which wait for nobody; 0 before there is one."""

    def terms(self) -> Terms:
        late: dict[int, list[RunNode]] = defaultdict(list)
        values: dict[object, _Values] = {}
        for position, run in enumerate(self.runs):
            self._begin(position)
            key = id(run.program), id(run.plan), self.homes[position], self._world(position)
            seen = values.setdefault(key, _Values(self, position))
            reads = run.program.ops.is_kind(HOST_READ) & (run.read_after is not None)
            for step, is_late in enumerate(reads.tolist()):
                if is_late:
                    late[run.read_after or 0].append(self._held(position, step, seen))
                else:
                    self._node(position, step, seen)
            self.tips[position] |= set(self.lasts[position].values()) or self.waited[position]
            self.tips[position] |= {self._late(node, position) for node in late.pop(position, ())}
        reach = [_end(access) for node in self.nodes for access in (*node.operands, *node.results)]
        reach += [_end(access) for access in self.contents]
        return Terms(
            depth=max(reach, default=0).bit_length(),
            grain=self.unit,
            contents=tuple(self.contents),
            nodes=tuple(self.nodes),
        )

    def _begin(self, position: int) -> None:
        """Say what a run waits for and whose buffers it has; lay the content that it brings."""
        run = self.runs[position]
        direct = () if not self.joined else range(position) if run.after is None else run.after
        known = frozenset(direct).union(*(self.waits[earlier] for earlier in direct))
        kin = [earlier for earlier in known if self.runs[earlier].program is run.program]
        waited: set[int] = set()
        covered: set[int] = set()
        for earlier in sorted(known, reverse=True):
            if len(covered) == len(known):
                break
            if earlier not in covered:
                waited |= self.tips[earlier]
                covered |= {earlier, *self.waits[earlier]}
        self.waits.append(known)
        self.homes.append(self.homes[max(kin)] if kin else position)
        self.waited.append(waited)
        self.numbers.append({})
        self.lasts.append({})
        self.tips.append(set())
        self.chains.append({})
        buffers = run.program.buffers
        for buffer in np.flatnonzero(buffers.persistent).tolist():
            fresh = self._key(position, buffer) not in self.idents
            access = Access(*self.at(position, buffer), 0, int(buffers.nbytes[buffer]) * self.unit, 0, ())
            if fresh and access.length:
                self.contents.append(access)

    def at(self, position: int, buffer: int) -> tuple[int, int, int]:
        """Return where a buffer of a run lies: its memory apart; space and base as planned."""
        plan, world = self.runs[position].plan, self._world(position)
        own = self._key(position, buffer)
        ident = self.idents.setdefault(own, len(self.idents) + 1)
        base = 0
        if plan.placed[buffer]:
            key: object = world, "arena", int(plan.arena[buffer])
            base = int(plan.offset[buffer]) * self.unit
        elif self.runs[position].program.buffers.persistent[buffer]:
            key = own
        else:
            key = world, id(self.runs[position].program), buffer
        return ident, self.spaces.setdefault(key, len(self.spaces) + 1), base

    def _key(self, position: int, buffer: int) -> object:
        """Return what names a buffer apart: a parameter or state has one name in all programs."""
        buffers = self.runs[position].program.buffers
        if buffers.persistent[buffer]:
            return self._world(position), "persistent", buffers.names[buffer]
        return self.homes[position], buffer

    def _world(self, position: int) -> int:
        return 0 if self.joined else position

    def _node(self, position: int, step: int, values: "_Values") -> None:
        stream, first = int(values.ops.stream[step]), False
        if stream not in self.lasts[position]:
            first, self.chains[position][stream] = True, self._chain(position, stream)
        numbers = self.numbers[position]
        after = {numbers[other] for other in values.after(step) if other in numbers}
        if first:
            after |= self.waited[position]
        self.nodes.append(values.node(position, step, self.chains[position][stream], after))
        self.lasts[position][stream] = numbers[step] = len(self.nodes)

    def _held(self, position: int, step: int, values: "_Values") -> RunNode:
        """Keep what a late read must find, at its own place; return the node that it will be."""
        last = self.lasts[position].get(int(values.ops.stream[step]))
        numbers = self.numbers[position]
        after = {numbers[other] for other in values.after(step) if other in numbers}
        after |= self.waited[position] if last is None else {last}
        node = values.node(position, step, 0, after)
        kept = tuple(map(self._kept, node.operands))
        if not self.holding:
            self.holding = self._new_chain()
        hold = node._replace(kind="hold", chain=self.holding, after=(), results=kept, promises=())
        self.nodes.append(hold)
        found = [here._replace(ident=there.ident) for here, there in zip(node.operands, kept, strict=True)]
        return node._replace(operands=tuple(found))

    def _kept(self, operand: Access) -> Access:
        """Return a place of its own for what a late read must find."""
        key = "kept", len(self.idents)
        ident = self.idents.setdefault(key, len(self.idents) + 1)
        return operand._replace(ident=ident, space=self.spaces.setdefault(key, len(self.spaces) + 1), base=0)

    def _late(self, node: RunNode, behind: int) -> int:
        """Add a read that comes after run `behind`; return its number."""
        after = {*node.after, *self.lasts[behind].values()}
        self.nodes.append(node._replace(chain=self._new_chain(), after=tuple(sorted(after))))
        return len(self.nodes)

    def _chain(self, position: int, stream: int) -> int:
        """Return the chain of a stream: that of an earlier run if this one waits for all on it."""
        for earlier in sorted(self.waits[position], reverse=True):
            chain = self.chains[earlier].get(stream)
            if chain is not None and self.latest[chain - 1] in self.waits[position]:
                self.latest[chain - 1] = position
                return chain
        return self._new_chain(position)

    def _new_chain(self, position: int = NOBODY) -> int:
        """Return a fresh chain, of a run that may be gone on with, or of none."""
        self.latest.append(position)
        return len(self.latest)


class _Values:
    """The values of a program as runs see them that have its buffers in one place."""

    def __init__(self, runs: _Unrolled, position: int) -> None:
        self.position, self.unit = position, runs.unit
        self.program = runs.runs[position].program
        self.ops = self.program.ops
        self.places = [runs.at(position, buffer) for buffer in range(len(self.program.buffers))]
        self.skip = {step: frozenset(run.skip) for step, run in enumerate(runs.runs)}
        self.known: dict[int, Access | None] = {}
        self.made: dict[int, RunNode] = {}

    def after(self, step: int) -> list[int]:
        """Return the ops that an op waits for."""
        waits: list[int] = self.ops.after[self.ops.after_starts[step] : self.ops.after_starts[step + 1]].tolist()
        return waits

    def access(self, value: int) -> Access | None:
        """Return a value in the checker's terms; None for one without elements."""
        if value not in self.known:
            row = self.program.values[value]
            inner = row.width < 8 and bool(row.shape)  # packed: the last dimension is what stands together
            length = row.width * (row.shape[-1] if inner else 1) * self.unit // 8
            kept = slice(0, -1 if inner else None)
            dims = tuple((n, stride * self.unit) for n, stride in zip(row.shape[kept], row.strides[kept], strict=True))
            start = row.offset * self.unit + (row.bit_offset if self.unit > 1 else 0)
            access = Access(*self.places[row.buffer], start, length, row.width, dims)
            self.known[value] = None if 0 in row.shape else access
        return self.known[value]

    def node(self, position: int, step: int, chain: int, after: set[int]) -> RunNode:
        """Return an op of a run as a node."""
        if step not in self.made:
            self.made[step] = self._node(step)
        node = self.made[step]
        if step in self.skip[position]:
            node = node._replace(operands=(), results=(), promises=())
        return node._replace(run=position, chain=chain, after=tuple(sorted(after)))

    def _node(self, step: int) -> RunNode:
        op, kind = self.ops[step], "same" if self.program.same_ops[step] else "op"
        if op.kind == VIEW:
            return RunNode(0, step, 0, (), kind, (), (), ())
        reads, writes = [self.access(v) for v in op.operands], [self.access(v) for v in op.results]
        new = [
            dict(zip(np.flatnonzero([a is not None for a in side]).tolist(), range(len(side)), strict=False))
            for side in (reads, writes)
        ]
        promises = tuple(
            (new[0][i], new[1][j], STRENGTHS[strength])
            for (i, j), strength in zip(op.in_place or (), op.strengths, strict=False)
            if i in new[0] and j in new[1]
        )
        operands = tuple(access for access in reads if access is not None)
        return RunNode(
            0, step, 0, (), kind, operands, tuple(access for access in writes if access is not None), promises
        )


def _end(access: Access) -> int:
    """Return one past the highest address of an access, in either memory."""
    extent = sum(max((count - 1) * stride, 0) for count, stride in access.dims)
    return max(access.base, 0) + max(access.start + extent + access.length, 0) + 8
