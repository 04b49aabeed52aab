"""Every buffer in bytes of its own: what any cure of placements costs at most.

What a problem tells of `own` and of addresses already decided (`fixed`) is kept; without a problem,
what the plan puts outside the arenas stays there. Bytes that outlast a run, of parameters, states
and buffers into which an upload is left out, are in every plan of a session at one address that
nobody else uses.

Buffers follow each other by alignment, then by size, the largest first: the peak hangs on no
numbering.

Complexity: O(n log n) for n buffers of all plans.

What this module does not see: lifetimes and pairs, and whether anything is cured.
"""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from allocsim.cure.room import lasting
from allocsim.model import OWN, Bools, Document, Plan
from allocsim.model.layout import LIMIT, Int64s

Range = tuple[int, int]


def all_apart(document: Document) -> tuple[Plan, ...] | None:
    """Return the plans of a document with every buffer apart, in their order.

    The answer is None where that does not fit into an arena, or an address goes beyond `LIMIT`.
    """
    plans = document.plans
    sizes = [_sizes(document, plan) for plan in plans]
    told = [
        {b: at for b, at in (plan.problem.fixed if plan.problem is not None else {}).items() if not _own(plan)[b]}
        for plan in plans
    ]
    homes = [dict(mine) for mine in told]
    kept: list[tuple[int, int, int]] = []
    decided = [row for plan, size, mine in zip(plans, sizes, told, strict=True) for row in _ranges(plan, size, mine)]
    rows = [(max(_order(plans[n], sizes[n], b) for n, b in found), found) for found in _lasting(document)]
    for (step, nbytes), found in sorted(rows, key=lambda row: row[0], reverse=True):
        arena = int(plans[found[0][0]].program.buffers.arena[found[0][1]])
        most = max(nbytes, *(int(sizes[n][b]) for n, b in found))
        known = [told[n][b] for n, b in found if b in told[n]]
        at = known[0] if known else next(_free(_of(arena, [*decided, *kept]), [(step, most)]))
        for n, b in found:
            homes[n].setdefault(b, at)
        kept.append((arena, at, at + most))
    placed = [
        _placed(plan, size, mine, [*kept, *_ranges(plan, size, mine)])
        for plan, size, mine in zip(plans, sizes, homes, strict=True)
    ]
    whole = tuple(plan for plan in placed if plan is not None)
    return whole if len(whole) == len(plans) else None


def _own(plan: Plan) -> Bools:
    """Which buffers have memory of their own: those of which that was told."""
    return plan.arena == OWN if plan.problem is None else plan.problem.own


def _sizes(document: Document, plan: Plan) -> Int64s:
    """Bytes that a buffer needs in any program that the plan is used for."""
    programs = {id(run.program): run.program for run in document.runs if run.plan is plan} | {
        id(plan.program): plan.program
    }
    sizes = [program.buffers.nbytes_high for program in programs.values()]
    found: Int64s = np.max([*sizes, *([] if plan.problem is None else [plan.problem.nbytes])], axis=0)
    return found


def _order(plan: Plan, sizes: Int64s, buffer: int) -> tuple[int, int]:
    return int(plan.program.buffers.alignment[buffer]), int(sizes[buffer])


def _ranges(plan: Plan, sizes: Int64s, homes: dict[int, int]) -> list[tuple[int, int, int]]:
    """Return (arena, low, high) of buffers at home somewhere."""
    arena = plan.program.buffers.arena
    return [(int(arena[b]), at, at + int(sizes[b])) for b, at in homes.items()]


def _of(arena: int, ranges: Iterable[tuple[int, int, int]]) -> list[Range]:
    return [(low, high) for here, low, high in ranges if here == arena]


def _lasting(document: Document) -> list[list[tuple[int, int]]]:
    """Return the buffers that outlast a run, as (plan, buffer).

    Those of one name, in one arena, are one.
    """
    found: dict[Hashable, list[tuple[int, int]]] = {}
    for index, plan in enumerate(document.plans if document.session is not None else ()):
        buffers, own = plan.program.buffers, _own(plan)
        for buffer in np.flatnonzero(lasting(document, plan) & ~own).tolist():
            named = (
                (buffers.names[buffer], int(buffers.arena[buffer])) if buffers.persistent[buffer] else (index, buffer)
            )
            found.setdefault(named, []).append((index, buffer))
    return list(found.values())


def _placed(plan: Plan, sizes: Int64s, homes: dict[int, int], taken: list[tuple[int, int, int]]) -> Plan | None:
    """Return a plan with every buffer outside these ranges, but those that are at home in them."""
    buffers, own = plan.program.buffers, _own(plan)
    offset = np.zeros(len(own), dtype=np.int64)
    for arena, memory in enumerate(plan.program.arenas):
        here = np.flatnonzero((buffers.arena == arena) & ~own).tolist()
        free = sorted((b for b in here if b not in homes), key=lambda b: _order(plan, sizes, b), reverse=True)
        found = list(_free(_of(arena, taken), [_order(plan, sizes, b) for b in free]))
        at = {**dict(zip(free, found, strict=True)), **{b: homes[b] for b in here if b in homes}}
        end = max((at[b] + int(sizes[b]) for b in here), default=0)
        if end > (LIMIT if memory.capacity is None else min(memory.capacity, LIMIT)):
            return None
        offset[here] = [at[b] for b in here]
    return replace(
        plan,
        arena=np.where(own, OWN, buffers.arena).astype(np.int32),
        offset=offset,
        nbytes=np.where(own, 0, sizes).astype(np.int64),
    )


def _free(taken: Iterable[Range], wanted: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield an offset for each (alignment, bytes) wanted, one after another, between the ranges
    taken.
    """
    ahead = sorted(taken, reverse=True)
    top = 0
    for step, nbytes in wanted:
        at = -(-top // step) * step
        while ahead and ahead[-1][0] < at + nbytes:
            at = max(at, -(-ahead.pop()[1] // step) * step)
        yield at
        top = at + nbytes


__all__ = ["all_apart"]
