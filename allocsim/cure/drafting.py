"""Build a draft: a document that is being mended, with a `Room` of movable slots for each plan.

This module does not decide which slots should move (`allocsim.cure`), or whether the mended
document is right.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from allocsim.allocators import ALLOCATORS
from allocsim.cure.changes import Change
from allocsim.cure.mending import with_more_waits
from allocsim.cure.ranks import ranks
from allocsim.cure.room import Room, rooms_of
from allocsim.cure.waits import Ordered, Pair, covering
from allocsim.errors import AllocsimError
from allocsim.judge.violations import Violation
from allocsim.liveness import lifetimes
from allocsim.model import OWN, Document, Plan, Problem
from allocsim.model.assignment import highest
from allocsim.model.layout import Int64s


@dataclass(slots=True, kw_only=True)
class Draft:
    """A document that is being mended; `moved` and `resized` map each plan to buffers."""

    document: Document
    rooms: dict[int, Room]
    changes: dict[Change, None] = field(default_factory=dict)
    moved: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    resized: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    replanned: dict[tuple[int, int], Plan] = field(default_factory=dict)
    told: list[tuple[int, int, Change]] = field(default_factory=list)
    """The (plan, buffer, change) of each moved slot that the cure lists; `change` required the
    move."""

    @classmethod
    def of(cls, document: Document) -> "Draft":
        """Return a new draft of a document, in which no slot has moved."""
        return cls(document=document, rooms=rooms_of(document))


def built(draft: Draft) -> Document:
    """Return the mended document of a draft, with the slots taken from the rooms."""
    plans = []
    for index, plan in enumerate(draft.document.plans):
        nbytes, room = _sizes(draft, index), draft.rooms[index]
        if nbytes is not None:
            plan = replace(plan, arena=room.arena.astype(np.int32), offset=room.offset, nbytes=nbytes)  # noqa: PLW2901
        plans.append(plan)
    made = draft.document.with_parts(plans=plans)
    if not draft.replanned or made.session is None:
        return made
    place = {id(plan): index for index, plan in enumerate(made.plans)}
    programs = {id(program): index for index, program in enumerate(made.programs)}
    session = tuple(
        replace(run, plan=draft.replanned.get((place[id(run.plan)], programs[id(run.program)]), run.plan))
        for run in made.session
    )
    return replace(made, plans=(*made.plans, *draft.replanned.values()), session=session)


def _sizes(draft: Draft, index: int) -> Int64s | None:
    """Return the bytes of each slot of a plan in a draft, or None if no slot has changed."""
    plan, room = draft.document.plans[index], draft.rooms[index]
    moved, resized = draft.moved[index], draft.resized[index]
    rows = sorted(moved | resized)
    if not rows:
        return None
    nbytes = plan.nbytes.copy()
    nbytes[rows] = np.where(room.arena[rows] >= 0, np.maximum(nbytes[rows], plan.program.buffers.nbytes_high[rows]), 0)
    grown = sorted(resized)
    nbytes[grown] = np.where(room.arena[grown] >= 0, room.nbytes[grown], 0)
    return nbytes


def peak_of(draft: Draft) -> int:
    """Return the sum of the peaks of a draft's plans in bytes, without the `replanned` plans."""
    total = 0
    for index, plan in enumerate(draft.document.plans):
        nbytes, room = _sizes(draft, index), draft.rooms[index]
        total += plan.peak_bytes if nbytes is None else highest(plan.program, room.arena, room.offset, nbytes)
    return total


def waited_for(draft: Draft, new: Sequence[Violation]) -> bool:
    """Add waits for new races, such as races between a restored upload and the ops that read it.
    Return False if a new violation is not a race within one run, or if there is no new violation.
    """
    if draft.replanned:  # a replanned plan was made for the program without further waits
        return False
    pairs: dict[int, set[Pair]] = defaultdict(set)
    for v in new:
        if v.kind != "Race" or v.program is None or v.op is None or v.other_op is None or v.run != v.other_run:
            return False
        pairs[v.program].add((max(v.op, v.other_op), min(v.op, v.other_op)))
    waits = [
        Change(kind="wait", program=program, op=op, after=after)
        for program, rows in sorted(pairs.items())
        for op, after in covering(Ordered.of(draft.document.programs[program]), rows)
    ]
    draft.document = with_more_waits(draft.document, waits)
    draft.changes |= dict.fromkeys(waits)
    return bool(waits)


def replan(draft: Draft, change: Change) -> bool:
    """Plan the program of a `stale` change anew. Parameters, states and buffers in memory of their
    own are not moved. Return False if no planner can place the buffers.
    """
    assert change.plan is not None
    assert change.program is not None
    document = draft.document
    program, old = document.programs[change.program], document.plans[change.plan]
    told = old.problem
    own = (old.arena == OWN) | (program.buffers.persistent & (old.arena < 0))
    span = lifetimes(program)
    fixed = {int(b): int(old.offset[b]) for b in np.flatnonzero(program.buffers.persistent & old.placed)}
    pinned = told.pinned if told is not None else np.zeros(len(own), dtype=np.bool_)
    order = np.argsort(ranks(program), kind="stable")  # the order does not depend on the buffers' indices
    problem = Problem.of(program, start=span[:, 0], stop=span[:, 1], own=own, fixed=fixed, pinned=pinned, order=order)
    try:
        best = min(
            (ALLOCATORS[name].place(problem) for name in ("greedy_by_size", "linear_scan")),
            key=lambda plan: plan.peak_bytes,
        )
    except AllocsimError:
        return False
    draft.replanned[change.plan, change.program] = replace(best, problem=None, source=old.source)
    draft.changes[change] = None
    return True


def over_operands(plan: Plan, unsafe: Change) -> set[int]:
    """Return the buffers of results that a plan places at the address of an operand. `unsafe` names
    the op kind and the positions of operand and result.
    """
    program = plan.program
    ops, values = program.ops, program.values
    found = set()
    for step in np.flatnonzero(ops.is_kind(unsafe.op_kind or "")).tolist():
        operands, results = ops[step].operands, ops[step].results
        if (unsafe.operand or 0) < len(operands) and (unsafe.result or 0) < len(results):
            pair = [operands[unsafe.operand or 0], results[unsafe.result or 0]]
            homes = values.buffer[pair]
            address = plan.offset[homes] + values.offset[pair]
            same = plan.placed[homes].all() and plan.arena[homes[0]] == plan.arena[homes[1]]
            if homes[0] != homes[1] and same and address[0] == address[1]:
                found.add(int(homes[1]))
    return found


def place_of(draft: Draft, index: int, buffer: int, *, keeps: bool = False) -> Change:
    """Return the `place` change of a moved slot; if `keeps`, no other buffer may use its bytes."""
    room = draft.rooms[index]
    offset = int(room.offset[buffer]) if int(room.arena[buffer]) >= 0 else None
    return Change(kind="place", plan=index, buffer=buffer, offset=offset, keeps=keeps)


def partners_at(room: Room, buffer: int) -> set[int]:
    """Return the buffers that share bytes with `buffer` in the room while both are alive."""
    low, high = int(room.offset[buffer]), int(room.offset[buffer]) + int(room.nbytes[buffer])
    meets = (
        (room.arena == room.arena[buffer])
        & (room.offset < high)
        & (low < room.offset + room.nbytes)
        & (room.nbytes > 0)
        & room.living(buffer)
    )
    meets[buffer] = False
    return set(np.flatnonzero(meets).tolist())


def apart_already(room: Room, pair: tuple[int, int]) -> bool:
    """Whether two buffers share no byte in the room."""
    one, other = pair
    if room.arena[one] != room.arena[other] or room.arena[one] < 0:
        return True
    low, high = sorted(pair, key=lambda buffer: int(room.offset[buffer]))
    return int(room.offset[low]) + int(room.nbytes[low]) <= int(room.offset[high])
