"""A document being mended: its rooms, what has moved in them, and the document they make.

What this module does not see: which slots should move (`allocsim.cure`), and whether what comes out
is right.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.cure.cured import Demand
from allocsim.cure.elements import Element, Place, Replan, SparedKernel, Wait
from allocsim.cure.mending import with_more_waits, with_parts
from allocsim.cure.mends import Mend
from allocsim.cure.pairs import Position
from allocsim.cure.ranks import ranks
from allocsim.cure.room import Room
from allocsim.cure.waits import Ordered, Pair, covering
from allocsim.errors import AllocsimError
from allocsim.judge.violations import Violation
from allocsim.liveness import lifetimes
from allocsim.model import OWN, Document, Plan, Problem


@dataclass(slots=True, kw_only=True)
class Draft:
    """A document being mended."""

    document: Document
    rooms: dict[int, Room]
    elements: dict[Element, None]
    moved: dict[int, set[int]]
    resized: dict[int, set[int]]
    replanned: dict[tuple[int, int], Plan] = field(default_factory=dict)
    wheres: list[tuple[int, int, Mend]] = field(default_factory=list)
    """(plan, buffer, mend) of slots that are elements of their own."""


def built(draft: Draft) -> Document:
    """Return the document of a draft with its slots where the rooms have them."""
    plans = []
    for index, plan in enumerate(draft.document.plans):
        room, moved, resized = draft.rooms[index], draft.moved[index], draft.resized[index]
        rows = sorted(moved | resized)
        if not rows:
            plans.append(plan)
            continue
        nbytes = plan.nbytes.copy()
        nbytes[rows] = np.where(
            room.arena[rows] >= 0, np.maximum(nbytes[rows], plan.program.buffers.nbytes_high[rows]), 0
        )
        grown = sorted(resized)
        nbytes[grown] = np.where(room.arena[grown] >= 0, room.nbytes[grown], 0)
        plans.append(replace(plan, arena=room.arena.astype(np.int32), offset=room.offset, nbytes=nbytes))
    made = with_parts(draft.document, plans=plans)
    if not draft.replanned or made.session is None:
        return made
    place = {id(plan): index for index, plan in enumerate(made.plans)}
    programs = {id(program): index for index, program in enumerate(made.programs)}
    session = tuple(
        replace(run, plan=draft.replanned.get((place[id(run.plan)], programs[id(run.program)]), run.plan))
        for run in made.session
    )
    return replace(made, plans=(*made.plans, *draft.replanned.values()), session=session)


def waited_for(draft: Draft, new: Sequence[Violation]) -> bool:
    """Put in order what a mend has brought to light as unordered: an upload that is no longer left
    out races with the ops that read it. False where there is anything else, or nothing.
    """
    if draft.replanned:  # a plan that the mend made is one of the programs as they are
        return False
    pairs: dict[int, set[Pair]] = defaultdict(set)
    for v in new:
        if v.kind != "Race" or v.program is None or v.op is None or v.other_op is None or v.run != v.other_run:
            return False
        pairs[v.program].add((max(v.op, v.other_op), min(v.op, v.other_op)))
    waits = [
        Wait(program=program, op=op, after=after)
        for program, rows in sorted(pairs.items())
        for op, after in covering(Ordered.of(draft.document.programs[program]), rows)
    ]
    draft.document = with_more_waits(draft.document, waits)
    draft.elements |= dict.fromkeys(waits)
    return bool(waits)


def wait_of(mend: Mend) -> Wait:
    """Return the wait that a mend asks for."""
    assert mend.program is not None
    assert mend.op is not None
    assert mend.after is not None
    return Wait(program=mend.program, op=mend.op, after=mend.after)


def spared(mend: Mend) -> SparedKernel:
    """Return the pair of positions that a mend forbids to a kind of op."""
    assert mend.op_kind is not None
    assert mend.operand is not None
    assert mend.result is not None
    return SparedKernel(op_kind=mend.op_kind, operand=mend.operand, result=mend.result)


def replan(draft: Draft, mend: Mend) -> bool:
    """Make a plan for the program that runs: apart, but what lasts where it lies."""
    assert mend.plan is not None
    assert mend.program is not None
    document = draft.document
    program, old = document.programs[mend.program], document.plans[mend.plan]
    told = old.problem
    own = (old.arena == OWN) | (program.buffers.persistent & (old.arena < 0))
    span = lifetimes(program)
    fixed = {int(b): int(old.offset[b]) for b in np.flatnonzero(program.buffers.persistent & old.placed)}
    pinned = told.pinned if told is not None else np.zeros(len(own), dtype=np.bool_)
    order = np.argsort(ranks(program), kind="stable")  # the same whatever the numbers of buffers
    problem = Problem.of(program, start=span[:, 0], stop=span[:, 1], own=own, fixed=fixed, pinned=pinned, order=order)
    try:
        best = min(
            (ALLOCATORS[name].place(problem) for name in ("greedy_by_size", "linear_scan")),
            key=lambda plan: plan.peak_bytes,
        )
    except AllocsimError:
        return False
    draft.replanned[mend.plan, mend.program] = replace(best, problem=None, source=old.source)
    draft.elements[Replan(plan=mend.plan, program=mend.program)] = None
    return True


def meeting_in_place(plan: Plan, mend: Mend) -> Iterator[tuple[int, int]]:
    """Yield (operand's buffer, result's buffer) of every op of a kind whose operand and result
    begin at one address.
    """
    program, denied = plan.program, spared(mend)
    ops, values = program.ops, program.values
    for step in np.flatnonzero(ops.is_kind(denied.op_kind)).tolist():
        op = ops[step]
        if denied.operand >= len(op.operands) or denied.result >= len(op.results):
            continue
        operand, result = op.operands[denied.operand], op.results[denied.result]
        one, other = int(values.buffer[operand]), int(values.buffer[result])
        if one == other:
            yield one, other
            continue
        same = plan.placed[one] and plan.placed[other] and plan.arena[one] == plan.arena[other]
        if same and plan.offset[one] + values.offset[operand] == plan.offset[other] + values.offset[result]:
            yield one, other


def denials_of(demands: Sequence[Demand]) -> frozenset[Position]:
    """Return the pairs of positions that are unsafe for a kernel."""
    denied = (spared(demand.mend) for demand in demands if demand.mend.kind in {"kernel", "promise"})
    return frozenset((one.op_kind, one.operand, one.result) for one in denied)


def place_of(draft: Draft, index: int, buffer: int, *, keeps: bool = False) -> Place:
    """Return the element of a slot that moved; with `keeps`, to bytes that nobody else has in any
    run.
    """
    room = draft.rooms[index]
    placed = int(room.arena[buffer]) >= 0
    return Place(
        plan=index,
        buffer=buffer,
        offset=int(room.offset[buffer]) if placed else None,
        keeps=keeps,
    )


def partners_at(room: Room, buffer: int) -> set[int]:
    """Return the buffers that lie over one while both live, where it now is."""
    low, high = int(room.offset[buffer]), int(room.offset[buffer]) + int(room.nbytes[buffer])
    meets = (
        (room.arena == room.arena[buffer])
        & (room.offset < high)
        & (low < room.offset + room.nbytes)
        & (room.nbytes > 0)
    )
    meets &= (room.start < room.stop[buffer]) & (room.start[buffer] < room.stop)
    meets[buffer] = False
    return set(np.flatnonzero(meets).tolist())


def apart_already(room: Room, pair: tuple[int, int]) -> bool:
    """Whether two buffers share no byte where they now are."""
    one, other = pair
    if room.arena[one] != room.arena[other] or room.arena[one] < 0:
        return True
    low, high = sorted(pair, key=lambda buffer: int(room.offset[buffer]))
    return int(room.offset[low]) + int(room.nbytes[low]) <= int(room.offset[high])


def in_other_plans(document: Document, index: int, buffer: int) -> bool:
    """Whether a buffer lasts and other plans have it too: then it cannot move in one of them
    alone.
    """
    plan = document.plans[index]
    if not plan.program.buffers.persistent[buffer] or document.session is None:
        return False
    name = plan.program.buffers.names[buffer]
    return any(
        one == name and bool(other.program.buffers.persistent[b])
        for other in document.plans
        if other is not plan
        for b, one in enumerate(other.program.buffers.names)
    )


def is_own(draft: Draft, index: int, buffer: int) -> bool:
    """Whether a buffer of a plan has memory of its own."""
    return int(draft.rooms[index].arena[buffer]) == OWN


__all__ = [
    "Draft",
    "apart_already",
    "built",
    "denials_of",
    "in_other_plans",
    "is_own",
    "meeting_in_place",
    "partners_at",
    "place_of",
    "replan",
    "spared",
    "wait_of",
    "waited_for",
]
