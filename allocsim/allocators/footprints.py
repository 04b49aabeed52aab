"""Footprints: the rectangles of bytes by steps that a placement gives one offset each.

A footprint is one buffer, or a chain of buffers that take each other's place in place and so share
an address. The planners of the shelf place footprints and know nothing of pairs, pins and arenas'
names; this module turns a problem into footprints and offsets of footprints back into a plan.

Convention
----------
* Bytes `[offset, offset + nbytes)`, steps `[start, stop)`, both half-open. Two footprints *meet* if
  they are in one arena, both have bytes and steps, and their steps intersect; those that meet may
  not share a byte.
* A pinned footprint never stops (`stop` is `LIMIT`).
* Not placed, so in no footprint: buffers that are `own`, and buffers that no op touches and whose
  believed lifetime is empty.
* Chains: for each recipient in `problem.order`, the first donor of `may_share` that is offered for
  it, still free, in the same arena, and whose last step is the recipient's first. Neither is
  persistent, own, fixed or with gaps; the donor is not pinned, starts before the recipient (else
  two links of a chain could live at one step that are no pair), and is as large as the recipient
  once both are rounded up to the arena's alignment (else the chain, a rectangle, would waste what
  the donor has more). Pairs not taken meet like any two.
* `gaps` are kept beside the rectangle (`Footprints.gaps`) where the program has no ops, since only
  there the judge grants them.

O(n + pairs). What this module does not see: how offsets are found.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any, NamedTuple

import numpy as np

from allocsim.allocators.reference import check_fits, idle
from allocsim.model import OWN, UNPLACED, Bools, Int32s, Meta, Plan, Problem
from allocsim.model.layout import LIMIT, Int64s

FREE = -(1 << 63)
"""`Footprints.fixed` of a footprint whose offset is not decided yet."""


class FootprintColumns(NamedTuple):
    """What compiled kernels take of some footprints, one row each."""

    start: Int64s
    stop: Int64s
    nbytes: Int64s
    alignment: Int64s
    fixed: Int64s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Footprints:
    """The rectangles of a problem, one row each, in the order in which the problem places their
    first buffers.
    """

    problem: Problem
    of_buffer: Int32s
    """Footprint of each buffer, -1 for none."""
    arena: Int32s
    start: Int64s
    stop: Int64s
    nbytes: Int64s
    alignment: Int64s
    fixed: Int64s
    """Offset that is already decided, or `FREE`."""
    buffers: tuple[tuple[int, ...], ...]
    """The buffers of each footprint, donors before recipients."""
    gaps: dict[int, tuple[tuple[int, int], ...]]
    """Footprint -> ranges of steps in which its bytes need not survive."""

    def __len__(self) -> int:
        return len(self.nbytes)

    @property
    def solid(self) -> Bools:
        """Which footprints have both bytes and steps."""
        mask: Bools = (self.nbytes > 0) & (self.stop > self.start)
        return mask

    def by_arena(self) -> Iterator[tuple[int, Int64s]]:
        """Yield each arena with the solid footprints in it, in row order."""
        rows = np.flatnonzero(self.solid)
        rows = rows[np.argsort(self.arena[rows], kind="stable")]
        count = len(self.problem.program.arenas)
        ends = np.searchsorted(self.arena[rows], np.arange(count + 1)).tolist()
        for arena in range(count):
            yield arena, rows[ends[arena] : ends[arena + 1]]

    def limit(self, arena: int) -> int:
        """Return the bytes an arena has."""
        capacity = self.problem.program.arenas[arena].capacity
        return LIMIT if capacity is None else min(capacity, LIMIT)


def footprints(problem: Problem) -> Footprints:
    """Return what there is to place."""
    buffers = problem.program.buffers
    apart = problem.own | idle(problem)
    donor = _donors(problem, apart)
    groups, of_buffer = _chains(problem, apart, donor)
    first = np.array([group[0] for group in groups], dtype=np.int64)
    last = np.array([group[-1] for group in groups], dtype=np.int64)
    alignment = buffers.alignment[first].copy()
    nbytes = problem.nbytes[first].copy()
    for index in {int(of_buffer[buffer]) for buffer in donor}:
        alignment[index] = min(lcm(*(int(buffers.alignment[b]) for b in groups[index])), LIMIT)
        nbytes[index] = max(int(problem.nbytes[b]) for b in groups[index])
    gaps = {} if len(problem.program.ops) else {int(of_buffer[b]): tuple(gap) for b, gap in problem.gaps.items() if gap}
    gaps.pop(-1, None)
    fixed = np.full(len(groups) + 1, FREE, dtype=np.int64)  # the last one for what is in no footprint
    fixed[of_buffer[list(problem.fixed)]] = list(problem.fixed.values())
    return Footprints(
        problem=problem,
        of_buffer=of_buffer,
        arena=buffers.arena[first],
        start=problem.start[first],
        stop=np.where(problem.pinned[last], LIMIT, problem.stop[last]),
        nbytes=nbytes,
        alignment=alignment,
        fixed=fixed[:-1],
        buffers=tuple(groups),
        gaps=gaps,
    )


def _chains(problem: Problem, apart: Bools, donor: dict[int, int]) -> tuple[list[tuple[int, ...]], Int32s]:
    """Return the buffers of each footprint, and the footprint of each buffer."""
    order = problem.order[~apart[problem.order]]
    of_buffer = np.full(len(apart), -1, dtype=np.int32)
    if not donor:
        of_buffer[order] = np.arange(len(order))
        return list(zip(order.tolist(), strict=True)), of_buffer
    chain: dict[int, int] = {}
    groups: list[list[int]] = []
    for buffer in _donors_first(order.tolist(), donor):
        if buffer in donor:
            chain[buffer] = chain[donor[buffer]]
            groups[chain[buffer]].append(buffer)
        else:
            chain[buffer] = len(groups)
            groups.append([buffer])
    of_buffer[list(chain)] = list(chain.values())
    return [tuple(group) for group in groups], of_buffer


def plan(name: str, placed: Footprints, offsets: Int64s, *, events: Any = None, meta: Meta | None = None) -> Plan:
    """Return the plan in which each footprint lies at its offset.

    Those without bytes or steps at 0, or where they are fixed.

    Raises CapacityError, in the planner's name, where one does not fit into its arena.
    """
    problem, program = placed.problem, placed.problem.program
    offsets = np.where(placed.solid, offsets, np.where(placed.fixed == FREE, 0, placed.fixed))
    inside = placed.of_buffer >= 0
    offset = np.where(inside, offsets[placed.of_buffer], 0) if len(placed) else np.zeros(len(inside), dtype=np.int64)
    limits = np.array([placed.limit(arena) for arena in range(len(program.arenas))], dtype=np.int64)
    over = inside & ((offset < 0) | (offset > limits[program.buffers.arena] - problem.nbytes))
    for buffer in np.flatnonzero(over).tolist():
        check_fits(problem, name, buffer, int(offset[buffer]))
    arena = np.where(inside, program.buffers.arena, np.where(problem.own, OWN, UNPLACED)).astype(np.int32)
    columns: dict[str, Any] = {} if events is None else {"events": np.array(events, dtype=np.int64).reshape(-1, 3)}
    return Plan(
        program=program,
        problem=problem,
        source=name,
        arena=arena,
        offset=offset,
        nbytes=np.where(inside, problem.nbytes, 0),
        meta=meta or {},
        **columns,
    )


def _donors(problem: Problem, skipped: Bools) -> dict[int, int]:
    """Return the donor whose place each recipient takes."""
    if not len(problem.may_share):
        return {}
    buffers, padded = problem.program.buffers, _padded(problem)
    donor, recipient = problem.may_share[:, 0], problem.may_share[:, 1]
    apart = buffers.persistent | skipped | (problem.nbytes == 0)
    apart[[*problem.fixed, *problem.gaps]] = True
    fine = (
        ~apart[donor] & ~apart[recipient] & ~problem.pinned[donor] & (buffers.arena[donor] == buffers.arena[recipient])
    )
    fine &= (problem.stop[donor] == problem.start[recipient] + 1) & (problem.start[donor] < problem.start[recipient])
    fine &= (problem.nbytes[donor] >= problem.nbytes[recipient]) & (padded[donor] == padded[recipient])
    offered: dict[int, list[int]] = {}
    for giver, taker in problem.may_share[fine].tolist():
        offered.setdefault(taker, []).append(giver)
    taken: dict[int, int] = {}
    given: set[int] = set()
    for taker in problem.order.tolist():
        giver = next((giver for giver in offered.get(taker, ()) if giver not in given), None)
        if giver is not None:
            taken[taker] = giver
            given.add(giver)
    return taken


def _padded(problem: Problem) -> Int64s:
    """Return believed sizes rounded up to the alignments of their arenas."""
    step = np.array([arena.alignment for arena in problem.program.arenas], dtype=np.int64)[
        problem.program.buffers.arena
    ]
    padded: Int64s = -(-problem.nbytes // step) * step
    return padded


def _donors_first(order: list[int], donor: dict[int, int]) -> Iterator[int]:
    """Yield the buffers in order, but each donor before its recipient."""
    seen: set[int] = set()
    for buffer in order:
        waiting = [buffer]
        while waiting[-1] in donor and donor[waiting[-1]] not in seen:
            waiting.append(donor[waiting[-1]])
        for ready in reversed(waiting):
            if ready not in seen:
                seen.add(ready)
                yield ready
