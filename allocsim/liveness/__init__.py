"""Liveness: the steps at which buffers are live, the buffers that interfere, and the live bytes.

Conventions: time is the step; lifetimes are half-open `[start, stop)`. A buffer is live in
*segments*: from the write of a value to its last read, so that a buffer that is overwritten is free
in between. A `parameter` or `state` is live up to the last read before its next full overwrite, or
to the run's end. The *derived lifetime* of a buffer is the stretch for which planners without gaps
keep it: from the first to the last op, other than `view`, that reads or writes a value in it, both
included, so `stop` is the last access + 1. It is the whole program for `parameter` and `state`, and
`[0, 0)` for a buffer without accesses. Accesses of the host (`host.write`, `host.read`) count like
any others; `skip` names the `host.write` ops that a run leaves out, which then access nothing. A
view is a value in the buffer of another value, so reading it is an access to that buffer.

Two buffers *interfere* if they are in one arena, neither is empty, and some segments of theirs
intersect. A pair (donor, recipient) is *joined* at an op where a segment of the donor ends and one
of the recipient begins, if the op only reads the donor, only writes the recipient, and declares a
pair of values in them, of any strength. If the op's contract is unknown, any two values of equal
layout join. A joined pair is *permissible* if with both buffers at one address the op breaks the
in-place rule of docs/format.md nowhere. Arenas do not matter for that.

The arithmetic is done in columns, so programs of a million ops are in reach; the graph is for up to
about 1e4 buffers. This package shares no code with `allocsim.judge`, which derives the same facts
again, so that neither can hide a mistake of the other.

What this module does not see: plans and their offsets (`allocsim.liveness.explanation` uses a plan,
too), and streams: time is list order.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from allocsim.errors import ModelError
from allocsim.liveness.sharing_pairs import joined_pairs, permissible_pairs
from allocsim.liveness.spans import lifetimes, segments
from allocsim.model import Bools, Int32s, Program
from allocsim.model.layout import LIMIT, Int64s
from allocsim.programs.networkx_graph import as_program

if TYPE_CHECKING:
    import networkx as nx

__all__ = [
    "MAX_EDGES",
    "Peak",
    "interference_graph",
    "interference_pairs",
    "joined_pairs",
    "least_bytes",
    "lifetimes",
    "live_bytes",
    "lower_bound",
    "peak",
    "permissible_pairs",
    "segments",
]

MAX_EDGES = 5_000_000
"""Most edges of an interference graph: a bound on memory (about 1.5 GB in networkx)."""


def interference_pairs(program: Program, *, skip: Iterable[int] = ()) -> Int32s:
    """Return the interfering pairs, int32 (k, 2), each with the lower index first, sorted.

    O(n log n + k log k).

    Raises ModelError where k is beyond `MAX_EDGES`.
    """
    table = segments(program, skip=skip)
    owner, span = table[:, 0], table[:, 1:]
    found = [np.empty((0, 2), dtype=np.int64)]
    total = 0
    for arena in range(len(program.arenas)):
        members = np.flatnonzero((program.buffers.arena[owner] == arena) & (program.buffers.nbytes[owner] > 0))
        members = members[np.argsort(span[members, 0], kind="stable")]
        # in order of start, a buffer interferes with exactly the later ones that start before its
        # stop
        ends = np.searchsorted(span[members, 0], span[members, 1], side="left")
        counts = ends - np.arange(len(members)) - 1
        total += int(counts.sum())
        if total > MAX_EDGES:
            raise ModelError(
                "", f"more than {MAX_EDGES} pairs of buffers live at the same time; use live_bytes for such programs"
            )
        left = np.repeat(np.arange(len(members)), counts)
        right = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts) + left + 1
        found.append(np.sort(np.stack([owner[members[left]], owner[members[right]]], axis=1), axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)  # two buffers with several segments may meet several times
    return pairs.astype(np.int32)


def interference_graph(program: "Program | nx.DiGraph", *, skip: Iterable[int] = ()) -> "nx.Graph":
    """Return the interference graph: nodes are buffers with `name`, `nbytes`, `start`, `stop`.

    The edges are those of `interference_pairs`.
    """
    import networkx as nx  # noqa: PLC0415  # a slow import that only graphs need

    program = as_program(program)
    span = lifetimes(program, skip=skip).tolist()
    graph = nx.Graph(name=program.name)
    sizes = program.buffers.nbytes.tolist()
    for buffer, (start, stop) in enumerate(span):
        graph.add_node(buffer, name=program.buffers.names[buffer], nbytes=sizes[buffer], start=start, stop=stop)
    graph.add_edges_from(interference_pairs(program, skip=skip).tolist())
    return graph


def live_bytes(program: Program, *, counted: Bools | None = None, skip: Iterable[int] = ()) -> Int64s:
    """Return the bytes of all live buffers at each step, (ops,), by segments.

    `counted` masks the buffers to count. O(size).

    The column is int64, or has Python ints if the sum of all sizes exceeds 2^62.
    """
    table = segments(program, skip=skip)
    size: Any = program.buffers.nbytes if counted is None else np.where(counted, program.buffers.nbytes, 0)
    if float(size[table[:, 0]].sum(dtype=np.float64)) > LIMIT:
        size = size.astype(object)
    change = np.zeros(len(program.ops) + 1, dtype=size.dtype)
    np.add.at(change, table[:, 1], size[table[:, 0]])
    np.add.at(change, table[:, 2], -size[table[:, 0]])
    live: Int64s = np.cumsum(change)[:-1]
    return live


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The first step at which most bytes are live."""

    step: int
    nbytes: int
    buffers: tuple[int, ...]
    """The buffers that are live then, largest first."""


def peak(
    program: "Program | nx.DiGraph", *, counted: Bools | None = None, skip: Iterable[int] = (), least: bool = False
) -> Peak | None:
    """Return the first step with most live bytes, or with `least` most of `least_bytes`, with its
    bytes and its buffers; None for a program without ops.
    """
    program = as_program(program)
    live = (least_bytes if least else live_bytes)(program, counted=counted, skip=skip)
    if not len(live):
        return None
    step = int(np.argmax(live))
    table = segments(program, skip=skip)
    mask = np.zeros(len(program.buffers), dtype=np.bool_)
    mask[table[(table[:, 1] <= step) & (step < table[:, 2]), 0]] = True
    if counted is not None:
        mask &= counted
    who = np.flatnonzero(mask)
    who = who[np.argsort(-program.buffers.nbytes[who], kind="stable")]
    return Peak(step=step, nbytes=int(live[step]), buffers=tuple(who.tolist()))


def lower_bound(program: "Program | nx.DiGraph", *, counted: Bools | None = None, skip: Iterable[int] = ()) -> int:
    """Return the lower bound in bytes of every sound plan: the largest of `least_bytes`."""
    return int(least_bytes(as_program(program), counted=counted, skip=skip).max(initial=0))


def least_bytes(program: Program, *, counted: Bools | None = None, skip: Iterable[int] = ()) -> Int64s:
    """Return the live bytes at each step, (ops,), where each class of buffers that might share
    bytes counts as its largest buffer.

    A class at a step is connected by joined pairs, or by `same` ops between any parts of its
    buffers.
    """
    live = live_bytes(program, counted=counted, skip=skip).copy()
    pairs = joined_pairs(program, skip=skip)
    if counted is not None:
        pairs = pairs[counted[pairs[:, 1]] & counted[pairs[:, 2]]]
    size = program.buffers.nbytes.tolist()
    bounds = np.flatnonzero(np.diff(pairs[:, 0], prepend=-1, append=-1))
    by_step = {int(pairs[low, 0]): pairs[low:high, 1:].tolist() for low, high in pairwise(bounds)}
    for step, mine in _handed_on(program, counted, skip):
        by_step.setdefault(step, []).extend(mine)
    for step, mine in by_step.items():
        live[step] -= _saved(mine, size)
    return live


def _handed_on(program: Program, counted: Bools | None, skip: Iterable[int]) -> Iterator[tuple[int, list[list[int]]]]:
    """Yield for each step pairs of live buffers that connect each class of buffers between which a
    chain of `same` ops copies bytes. O(steps x live buffers of classes).
    """
    owner, neighbours = program.values.buffer, dict[int, set[int]]()
    for step in np.flatnonzero(program.same_ops).tolist():
        row = program.ops[step]
        for source, target in zip(row.operands, row.results, strict=True):
            one, other = int(owner[source]), int(owner[target])
            joined = neighbours.get(one, {one}) | neighbours.get(other, {other})
            for buffer in joined:
                neighbours[buffer] = joined
    if not neighbours:
        return
    # two buffers with equal content are connected by such a chain, maybe through uncounted buffers
    rows = [
        row
        for row in segments(program, skip=skip).tolist()
        if row[0] in neighbours and (counted is None or counted[row[0]])
    ]
    starts, stops = (sorted(rows, key=itemgetter(column)) for column in (1, 2))
    here: dict[int, dict[int, None]] = {}
    begun = ended = 0
    for step in range(len(program.ops)):
        while ended < len(stops) and stops[ended][2] <= step:
            here[id(neighbours[stops[ended][0]])].pop(stops[ended][0], None)
            ended += 1
        while begun < len(starts) and starts[begun][1] <= step:
            here.setdefault(id(neighbours[starts[begun][0]]), {})[starts[begun][0]] = None
            begun += 1
        pairs = [[one, other] for group in here.values() for one, other in pairwise(group)]
        if pairs:
            yield step, pairs


def _saved(pairs: list[list[int]], size: list[int]) -> int:
    """Return the bytes saved by counting each class of buffers that `pairs` connect as its largest
    buffer, not as the sum of its buffers.
    """
    classes: list[set[int]] = []
    for pair in pairs:
        meeting = [group for group in classes if not group.isdisjoint(pair)]
        classes = [group for group in classes if group.isdisjoint(pair)] + [set(pair).union(*meeting)]
    return sum(sum(size[buffer] for buffer in group) - max(size[buffer] for buffer in group) for group in classes)
