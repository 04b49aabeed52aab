"""The list of nodes that the proof makes of a document (`joined` of `proof/Terms.v`), for claims.

* An *access* is a value apart, in bits: in memory `ident`, from `start`, dimensions (count, stride)
  from the outermost in, `length` bits at each index.
* A *node* is an op of a run, in order of run and op; views and uploads left out are nodes that
  touch nothing. The `host.read` ops of a run with `read_after: k` stand behind run k; at their own
  place a node of kind `hold` keeps, apart, what they must find. Nodes are numbered from 1; the
  writes of 0 are contents.
* A *chain* is a stream of a run, and goes on in a later run that waits for it. What is held, and
  what comes late, is a chain of its own.

Nothing here is trusted: where it differs from what the proof says, claims are refused.

Complexity: O(ops + operands + results) for each run, and O(runs x waits) for what waits.

What this module does not see: plans.
"""

from collections import defaultdict
from typing import Final, NamedTuple

from allocsim.certificates.terms import OpTerm, Terms, ValueTerm

NOBODY: Final = -1


class Access(NamedTuple):
    """A value as a run sees it apart, in bits."""

    ident: int
    start: int
    length: int
    dims: tuple[tuple[int, int], ...]


class RunNode(NamedTuple):
    """An op of a run."""

    run: int
    op: int
    chain: int
    earlier: tuple[int, ...]
    """Numbers of nodes that happen before it.

    Whatever else does happens before one of them, or is earlier on its chain.
    """
    kind: str
    """`op`, `same` or `hold`."""
    operands: tuple[Access, ...]
    results: tuple[Access, ...]


class Joined(NamedTuple):
    """Contents, and the nodes of all runs."""

    contents: tuple[Access, ...]
    nodes: tuple[RunNode, ...]


def joined(terms: Terms) -> Joined:
    """Return the nodes of a document's runs."""
    runs = _Runs(terms)
    late: dict[int, list[RunNode]] = defaultdict(list)
    for position, run in enumerate(terms.session):
        runs.begin(position)
        for step, op in enumerate(terms.programs[run.program].ops):
            if op.kind == "read" and run.read_after is not None:
                late[run.read_after].append(runs.held(position, step, op))
            else:
                runs.add(position, step, op)
        runs.tips[position] |= set(runs.lasts[position].values()) or runs.waited[position]
        runs.tips[position] |= {runs.late(node, position) for node in late.pop(position, ())}
    return Joined(tuple(runs.contents), tuple(runs.nodes))


class _Runs:
    """The runs of a document, one after the other."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.nodes: list[RunNode] = []
        self.contents: list[Access] = []
        self.idents: dict[object, int] = {}
        self.waits: list[range | frozenset[int]] = []
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
        self.made: dict[tuple[int, int], list[Access]] = {}
        """Of each home and program, its values."""

    def begin(self, position: int) -> None:
        """Say what a run waits for and whose buffers it has; lay the content that it brings."""
        run = self.terms.session[position]
        direct = run.waits or () if self.terms.shared else ()
        known: range | frozenset[int] = frozenset(direct).union(*(self.waits[earlier] for earlier in direct))
        if self.terms.shared and run.waits is None:
            known = range(position)
        kin = [earlier for earlier in known if self.terms.session[earlier].program == run.program]
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
        self.tips.append(set())
        for table in (self.numbers, self.lasts, self.chains):
            table.append({})
        for index, buffer in enumerate(self.terms.programs[run.program].buffers):
            if buffer.name is not None and self._key(position, index) not in self.idents:
                self.contents.append(Access(self._ident(self._key(position, index)), 0, 8 * buffer.nbytes, ()))
        if (self.homes[position], run.program) not in self.made:
            self.made[self.homes[position], run.program] = [
                _bits(self._ident(self._key(position, value.buffer)), value)
                for value in self.terms.programs[run.program].values
            ]

    def add(self, position: int, step: int, op: OpTerm) -> None:
        """Add an op at its own place."""
        earlier = {self.numbers[position][other] for other in op.after if other in self.numbers[position]}
        if op.stream not in self.lasts[position]:
            earlier |= self.waited[position]
            self.chains[position][op.stream] = self._chain(position, op.stream)
        operands, results = self._accesses(position, step, op)
        kind = "same" if op.kind == "same" and (operands or results) else "op"
        chain = self.chains[position][op.stream]
        self.nodes.append(RunNode(position, step, chain, tuple(sorted(earlier)), kind, operands, results))
        self.lasts[position][op.stream] = self.numbers[position][step] = len(self.nodes)

    def held(self, position: int, step: int, op: OpTerm) -> RunNode:
        """Keep what a late read must find, at its own place; return the node that it will be."""
        last, numbers = self.lasts[position].get(op.stream), self.numbers[position]
        earlier = {numbers[other] for other in op.after if other in numbers}
        earlier |= self.waited[position] if last is None else {last}
        operands, _ = self._accesses(position, step, op)
        kept = tuple(
            operand._replace(ident=self._ident(("kept", position, step, i))) for i, operand in enumerate(operands)
        )
        self.nodes.append(RunNode(position, step, self._new_chain(), (), "hold", operands, kept))
        return RunNode(position, step, 0, tuple(earlier), "op", kept, ())

    def late(self, node: RunNode, behind: int) -> int:
        """Add a read that comes after run `behind`; return its number."""
        earlier = {*node.earlier, *self.lasts[behind].values()}
        self.nodes.append(node._replace(chain=self._new_chain(), earlier=tuple(sorted(earlier))))
        return len(self.nodes)

    def _accesses(self, position: int, step: int, op: OpTerm) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        run = self.terms.session[position]
        if op.kind == "view" or step in run.skip:
            return (), ()
        values = self.made[self.homes[position], run.program]
        return tuple(values[v] for v in op.operands), tuple(values[v] for v in op.results)

    def _ident(self, key: object) -> int:
        return self.idents.setdefault(key, len(self.idents) + 1)

    def _key(self, position: int, buffer: int) -> object:
        """Return what names a buffer apart: a parameter or state has one name in all programs."""
        name = self.terms.programs[self.terms.session[position].program].buffers[buffer].name
        if name is not None:
            return "persistent", 0 if self.terms.shared else position, name
        return self.homes[position], buffer

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


def _bits(ident: int, value: ValueTerm) -> Access:
    """Return the bits of a value: below 8 bits the last dimension is packed."""
    dims = [(count, 8 * stride) for count, stride in value.dims]
    if dims and value.width < 8:
        dims[-1] = dims[-1][0], dims[-1][1] + value.width
    if any(count == 0 for count, _ in dims):
        dims = [(0, 0)]
    return Access(ident, 8 * value.offset + value.bit_offset, value.width, tuple(dims))


def reach(terms: Terms) -> int:
    """Return a bound on all addresses, as planned and apart, in bits."""
    ends = [8 * buffer.nbytes for program in terms.programs for buffer in program.buffers]
    for access in (_bits(0, value) for program in terms.programs for value in program.values):
        extent = sum(max((count - 1) * stride, 0) for count, stride in access.dims)
        ends.append(max(access.start + extent + access.length, 0))
    slots = [8 * slot[1] for plan in terms.plans for slot in plan if slot]
    return max(ends, default=0) + max(slots, default=0) + 8
