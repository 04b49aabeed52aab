"""When a buffer is live in one run: from the write of a value to its last read, cell by cell.

`steps` are the ops in which some byte of the buffer must hold what it holds, `across` the boundaries that it must
survive: boundary t lies between op t and op t + 1, -1 before the first op. A segment ends at op t where t is a step and
boundary t is not crossed; it begins there where boundary t - 1 is not crossed. What another run does, or a host's late
read, plays no part.

Readings. An empty value is live by its own name; a `view` of it produces nothing. A persistent buffer counts as a whole:
each of its bytes is live while it is. It is live from the run's start only if some op reads it before the first full
overwrite, or if there is no full overwrite; an op that reads it and overwrites it fully reads first. A `same` whose sides
are the same bytes of one buffer writes nothing.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from .memory import Site, apart, moves


@dataclass(frozen=True, slots=True)
class Life:
    """The life of one buffer in one run."""

    steps: frozenset
    across: frozenset
    reads: frozenset
    """Ops that read the buffer."""
    writes: frozenset
    """Ops that write it."""
    full: frozenset
    """Ops that overwrite a persistent buffer fully: their results cover each byte that any value of the program in it covers."""
    spans: dict = field(default_factory=dict)
    """cell -> [(first op, last op, whether a write began it)]; empty for a persistent buffer."""
    persistent: bool = False

    def begins(self, step):
        return step in self.steps and step - 1 not in self.across

    def ends(self, step):
        return step in self.steps and step not in self.across

    def moments(self, cell, step):
        """Return in which states of an op, 0 before and 1 after, a cell of the buffer must hold what it holds."""
        if self.persistent:
            if step not in self.steps:
                return frozenset()
            before = {0} if step - 1 in self.across else set()
            return frozenset(before | ({1} if step in self.across or step in self.writes else set()))
        return frozenset(
            1 if first == step and by_write else 0
            for first, last, by_write in self.spans.get(cell, ())
            if first <= step <= last
        )


def lives(document, run):
    """Return the `Life` of every buffer of a run's program in that run, in the order of the buffers."""
    program = document.programs[run.program]
    site = Site(apart, run, program)
    accesses = [_accesses(site, op) for op in document.ops(run)]
    return [_life(program, buffer, accesses) for buffer in program.buffers]


def _accesses(site, op):
    """Return (op, operands, results that it writes) as values."""
    values = site.program.values
    return op.index, [values[v] for v in op.operands], [values[op.results[i]] for i in moves(site, op)]


def _life(program, buffer, accesses):
    mine = [
        (t, [v for v in operands if v.buffer == buffer.index], [v for v in results if v.buffer == buffer.index])
        for t, operands, results in accesses
    ]
    reads = frozenset(t for t, operands, _ in mine if operands)
    writes = frozenset(t for t, _, results in mine if results)
    full = frozenset()
    if buffer.persistent:
        whole = {cell for v in program.values if v.buffer == buffer.index for _, cell in v.cells}
        full = frozenset(
            t for t, _, results in mine if results and whole <= {cell for v in results for _, cell in v.cells}
        )
        pieces, spans = _phases(len(program.ops), reads, writes, full), {}
    else:
        spans = _spans(mine)
        pieces = [(first, last) for each in spans.values() for first, last, _ in each]
    steps = {t for first, last in pieces for t in range(max(first, 0), min(last, len(program.ops) - 1) + 1)}
    across = {t for first, last in pieces for t in range(first, last)}
    cells = {key: each for key, each in spans.items() if isinstance(key, int)}
    return Life(frozenset(steps), frozenset(across), reads, writes, full, cells, buffer.persistent)


def _spans(mine):
    """Return cell, or ("name", value) for an empty value, -> [(first op, last op, whether a write began it)]."""
    spans = {}
    for t, operands, results in mine:
        for key in dict.fromkeys(key for v in operands for key in _keys(v)):
            each = spans.setdefault(key, [])
            first, _, by_write = each.pop() if each else (t, t, False)
            each.append((first, t, by_write))
        for key in dict.fromkeys(key for v in results for key in _keys(v)):
            spans.setdefault(key, []).append((t, t, True))
    return spans


def _keys(value):
    return [cell for _, cell in value.cells] or [("name", value.index)]


def _phases(count, reads, writes, full):
    """Return the pieces (first op, last op) of a persistent buffer; op -1 is the run's start, op `count` its end."""
    pieces = []
    bounds = [-1, *sorted(full), None]
    for begin, end in pairwise(bounds):
        births = [begin, *sorted(w for w in writes if w > begin and (end is None or w < end))]
        until = [t for t in reads if t > begin and (end is None or t <= end)]
        last = count if end is None else max(until, default=-1)
        pieces += [(birth, max(birth, last)) for birth in births if birth >= 0 or last > -1]
    return pieces
