"""When collectives are issued, on which stream, and what waits for what.

Order. `scheduled` moves collectives within the list of nodes, which is the order in which the host
issues ops. Gathers of parameters that stand next to each other and belong to one layer are a unit;
a unit is issued where the unit `prefetch` before it begins to be used. Reductions come right behind
the op that makes the gradient, in stage 0 behind the last of a bucket, in stage 1 behind backward.

Streams. Collectives run on `comm` (messages of a pipeline on two streams), all else on `compute`.
Waits, by data: an op waits for each op of another stream that touches a buffer it touches, where
one of the two writes. By issue: a collective also waits for the last op of `compute` before it in
the list, as one that is issued behind an event recorded there; so it cannot run further ahead than
`prefetch` says, and memory stays bounded. A wait that others imply is left out. A view waits for a
message that it is a view of: messages come from programs unlike this one, and an order of all ops
must make what it names.

Complexity: O(ops x streams + accesses).

What this module does not see: slots. That no buffer is taken by another too early is for lifetimes
that know streams (`allocsim.allocators.over_streams`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from allocsim.model import VIEW, Bools, Program
from allocsim.programs.rank_meetings import Groups, in_meta
from engine.graph import Tensor
from engine.graph.lowering import Lowered
from engine.kernels import COLLECTIVES, MESSAGES

STREAMS: Final = ("compute", "comm")
COMPUTE: Final = 0
COMM: Final = 1
_SIDES: Final = {"send": "to", "recv": "from"}
_NO_WAITS: Final[Mapping[int, Sequence[int]]] = {}

_REDUCING: Final = ("pad", "reduce_scatter", "all_reduce")
_GATHERS: Final = ("all_gather", "view", "reshape")

Place = tuple[int, int, int]
"""A node of the old order, before it (-1), it (0) or behind it (1), and the node's own place."""


def scheduled(nodes: Sequence[Tensor], prefetch: int, bucket_nbytes: int, *, late: bool) -> list[Tensor]:
    """Return the nodes in the order in which they are issued. O(n log n)."""
    at = {node: place for place, node in enumerate(nodes)}
    where: dict[Tensor, Place] = {node: (place, 0, place) for node, place in at.items()}
    units = list(_units(nodes))
    for number, unit in enumerate(units):
        target = at[units[max(0, number - prefetch)][0]]
        where.update({node: (target, -1, at[node]) for node in unit})
    if not late:
        where.update(_reductions(nodes, at, bucket_nbytes))
    return sorted(nodes, key=where.__getitem__)


def _units(nodes: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield the gathers of parameters with their views, those of one layer and stage together."""
    unit: list[Tensor] = []
    inside: set[Tensor] = set()
    for node in nodes:
        source = node.sources[0] if node.sources else node
        narrow = source.kind == "cast" and source.sources[0].is_leaf
        gathers = node.kind == "all_gather" and (source.is_leaf or narrow)
        if not gathers and not (node.kind in _GATHERS and source in inside):
            continue
        if unit and gathers and (node.layer, node.stage) != (unit[0].layer, unit[0].stage):
            yield unit
            unit = []
        new = [one for one in (source, node) if one is node or (narrow and one not in inside)]
        unit += new
        inside.update(new)
    if unit:
        yield unit


def _reductions(nodes: Sequence[Tensor], at: dict[Tensor, int], bucket_nbytes: int) -> dict[Tensor, Place]:
    """Return where the reductions of whole gradients are issued."""
    chains: list[tuple[int, list[Tensor]]] = []
    for node in nodes:
        backward = node.stage == "backward"  # a model may call what it makes by that name, too
        if node.kind not in ("reduce_scatter", "all_reduce") or not (backward and node.name.startswith("reduced.")):
            continue
        chain = [node]
        while chain[-1].sources[0].name.startswith(("reduced.", "reshape")) and not chain[-1].sources[0].is_leaf:
            chain.append(chain[-1].sources[0])
        chains.append((at[chain[-1].sources[0]] if not chain[-1].sources[0].is_leaf else 0, chain))
    found: dict[Tensor, Place] = {}
    bucket: list[tuple[int, list[Tensor]]] = []
    chains.sort(key=lambda one: one[0])
    for number, one in enumerate(chains):
        bucket.append(one)
        full = sum(chain[0].nbytes for _, chain in bucket) >= bucket_nbytes
        if full or one[1][0].kind == "reduce_scatter" or number == len(chains) - 1:
            found.update({node: (bucket[-1][0], 1, at[node]) for _, chain in bucket for node in chain})
            bucket = []
    return found


def on_streams(
    lowered: Lowered,
    *,
    ranks: int,
    groups: Groups,
    streams: Sequence[str] = STREAMS,
    stream_of: Callable[[Tensor], int] = lambda _: COMM,
    also: Mapping[int, Sequence[int]] = _NO_WAITS,
) -> Lowered:
    """Return the program with its collectives and messages off `compute`, its waits, and its ranks
    and groups told in `meta`.

    Args:
        lowered: ops in the order in which they are issued.
        ranks: how many there are.
        groups: in which they meet.
        streams: names; the first is `compute`.
        stream_of: the stream of a collective or message.
        also: op -> ops before it that it waits for besides.
    """
    program = lowered.program
    ops = program.ops
    meta, stream = dict(ops.meta), np.full(len(ops), COMPUTE, np.int32)
    for step in np.flatnonzero(ops_of(program, (*COLLECTIVES, *MESSAGES))).tolist():
        tensor = lowered.tensors[step]
        where = {_SIDES[tensor.kind]: tensor.params["peer"]} if tensor.kind in _SIDES else {}
        meta[step] = {**meta.get(step, {}), "collective": tensor.params["group"], "of": tensor.name, **where}
        stream[step] = stream_of(tensor)
    placed = replace(
        program,
        streams=tuple(streams),
        meta={**program.meta, "ranks": in_meta(ranks, groups)},
        ops=replace(ops, stream=stream, meta=meta),
    )
    return replace(lowered, program=with_waits(placed, also))


def ops_of(program: Program, kinds: Collection[str]) -> Bools:
    """Return (ops,): whether an op is of one of these kinds."""
    return np.isin(program.ops.kind, [code for code, kind in enumerate(program.ops.kinds) if kind in kinds])


def with_waits(program: Program, also: Mapping[int, Sequence[int]] = _NO_WAITS) -> Program:
    """Return the program with the waits that its data, its issue order and `also` ask for."""
    ops, count = program.ops, len(program.streams)
    latest, clock = [-1] * count, np.full((len(ops), count), -1, np.int64)
    waits: list[list[int]] = []
    for step, (stream, by_data) in enumerate(zip(ops.stream.tolist(), _needs(program), strict=True)):
        row = clock[step]
        if latest[stream] >= 0:
            row[:] = clock[latest[stream]]
        issued = [latest[COMPUTE]] if stream != COMPUTE else []
        waits.append([])
        for needed in sorted({*by_data, *issued, *also.get(step, ())}, reverse=True):
            if needed > row[ops.stream[needed]]:  # a later one may imply an earlier one, never the other way
                waits[-1].append(needed)
                np.maximum(row, clock[needed], out=row)
        waits[-1].sort()
        row[stream] = latest[stream] = step
    starts = np.cumsum([0, *map(len, waits)])
    after = np.array([step for row in waits for step in row], np.int32)
    return replace(program, ops=replace(ops, after_starts=starts.astype(ops.after_starts.dtype), after=after))


def _needs(program: Program) -> Iterator[list[int]]:
    """Yield for each op the last op of each other stream that it must come behind, if any."""
    buffers, streams = program.values.buffer.tolist(), range(len(program.streams))
    written: list[dict[int, int]] = [{} for _ in streams]
    read: list[dict[int, int]] = [{} for _ in streams]
    messages = ops_of(program, MESSAGES)
    for op in program.ops:
        found: list[int] = []
        named = op.kind == VIEW
        reads = {buffers[value] for value in op.operands}
        writes = set() if named else {buffers[value] for value in op.results}
        for other in (stream for stream in streams if stream != op.stream):
            needed = max((written[other].get(buffer, -1) for buffer in reads | writes), default=-1)
            needed = max(needed, max((read[other].get(buffer, -1) for buffer in writes), default=-1))
            found += [needed] if needed >= 0 and (messages[needed] or not named) else []
        if not named:
            written[op.stream].update(dict.fromkeys(writes, op.step))
            read[op.stream].update(dict.fromkeys(reads, op.step))
        yield found
