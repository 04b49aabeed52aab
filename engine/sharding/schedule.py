"""When collectives are issued, on which stream, and what waits for what.

Order. `scheduled` moves collectives within the list of nodes, which is the order in which the host
issues ops. Gathers of parameters that stand next to each other and belong to one layer are a unit;
a unit is issued where the unit `prefetch` before it begins to be used. Reductions come right behind
the op that makes the gradient, in stage 0 behind the last of a bucket, in stage 1 behind backward.

Streams. Collectives run on `comm`, all else on `compute`. Waits, by data: an op waits for each op
of the other stream that touches a buffer it touches, where one of the two writes. By issue: a
collective also waits for the last op of `compute` before it in the list, as one that is issued
behind an event recorded there; so it cannot run further ahead than `prefetch` says, and memory
stays bounded. A wait that others imply is left out.

Complexity: O(ops x streams + accesses).

What this module does not see: slots. That no buffer is taken by another too early is for lifetimes
that know streams (`allocsim.allocators.over_streams`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from allocsim.model import VIEW, Program
from allocsim.programs.rank_meetings import Groups, in_meta
from engine.graph import Tensor
from engine.graph.lowering import Lowered
from engine.kernels import COLLECTIVES

STREAMS: Final = ("compute", "comm")
COMPUTE: Final = 0
COMM: Final = 1

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
        gathers = node.kind == "all_gather" and source.is_leaf
        if not gathers and not (node.kind in _GATHERS and source in inside):
            continue
        if unit and gathers and (node.layer, node.stage) != (unit[0].layer, unit[0].stage):
            yield unit
            unit = []
        unit.append(node)
        inside.add(node)
    if unit:
        yield unit


def _reductions(nodes: Sequence[Tensor], at: dict[Tensor, int], bucket_nbytes: int) -> dict[Tensor, Place]:
    """Return where the reductions of whole gradients are issued."""
    chains: list[tuple[int, list[Tensor]]] = []
    for node in nodes:
        if node.kind not in ("reduce_scatter", "all_reduce") or not node.name.startswith("reduced."):
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


def on_streams(lowered: Lowered, *, ranks: int, groups: Groups) -> Lowered:
    """Return the program with its collectives on `comm`, its waits, and its ranks and groups told
    in `meta`.
    """
    program = lowered.program
    ops = program.ops
    collective = np.isin(ops.kind, [code for code, kind in enumerate(ops.kinds) if kind in COLLECTIVES])
    meta = dict(ops.meta)
    for step in np.flatnonzero(collective).tolist():
        tensor = lowered.tensors[step]
        meta[step] = {**meta.get(step, {}), "collective": tensor.params["group"], "of": tensor.name}
    placed = replace(
        program,
        streams=STREAMS,
        meta={**program.meta, "ranks": in_meta(ranks, groups)},
        ops=replace(ops, stream=np.where(collective, COMM, COMPUTE).astype(np.int32), meta=meta),
    )
    return replace(lowered, program=with_waits(placed))


def with_waits(program: Program) -> Program:
    """Return the program with the waits that its data and its issue order ask for."""
    ops = program.ops
    issued = ops.stream == COMM
    latest, clock = [-1, -1], np.full((len(ops), 2), -1, np.int64)
    waits: list[list[int]] = []
    for step, (stream, by_data) in enumerate(zip(ops.stream.tolist(), _needs(program), strict=True)):
        needed = max(by_data, latest[COMPUTE]) if issued[step] else by_data
        row = clock[step]
        if latest[stream] >= 0:
            row[:] = clock[latest[stream]]
        waits.append([needed] if needed > row[1 - stream] else [])
        if waits[-1]:
            np.maximum(row, clock[needed], out=row)
        row[stream] = latest[stream] = step
    starts = np.cumsum([0, *map(len, waits)])
    after = np.array([step for row in waits for step in row], np.int32)
    return replace(program, ops=replace(ops, after_starts=starts.astype(ops.after_starts.dtype), after=after))


def _needs(program: Program) -> Iterator[int]:
    """Yield for each op the last op of the other stream that it must come behind, -1 for none."""
    buffers = program.values.buffer.tolist()
    written: list[dict[int, int]] = [{}, {}]
    read: list[dict[int, int]] = [{}, {}]
    for op in program.ops:
        needed, other = -1, 1 - op.stream
        if op.kind != VIEW:
            reads = {buffers[value] for value in op.operands}
            writes = {buffers[value] for value in op.results}
            needed = max((written[other].get(buffer, -1) for buffer in reads | writes), default=-1)
            needed = max(needed, max((read[other].get(buffer, -1) for buffer in writes), default=-1))
            written[op.stream].update(dict.fromkeys(writes, op.step))
            read[op.stream].update(dict.fromkeys(reads, op.step))
        yield needed


__all__ = ["COMM", "COMPUTE", "STREAMS", "on_streams", "scheduled", "with_waits"]
