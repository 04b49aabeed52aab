"""What is wrong with one slot by itself, with the planner's book, or with a belief: the mends.

What is wrong between two buffers that lie over each other is charged before
(`allocsim.verdict.charging`).

Complexity: O(violations), and O(events) for each event that gives a buffer back too early.

What this module does not see: the program against itself, and the order.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from allocsim.cure.changes import Change
from allocsim.judge.fast import Violation
from allocsim.model import Event
from allocsim.verdict.blame import life_mend, pair_mend
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.waiting import Found

EVENTS: Final = frozenset({"DoubleFree", "FreeOfUnallocated", "AllocOverLive", "EventOutsideLifetime"})
"""Kinds that are about the planner's book."""


def charge_slots(dossier: Dossier, found: Found, violations: Iterable[Violation]) -> Iterator[Violation]:
    """Charge what is wrong with one slot, or with the planner's book; yield the rest."""
    for v in sorted(violations, key=lambda v: v.kind == "AllocOverLive"):
        if v.kind == "Race":
            yield v
        elif v.kind in EVENTS:
            found[_book_mend(dossier, found, v)].append(v)
        elif v.plan is not None:
            found[_slot_mend(dossier, found, v, v.plan)].append(v)


def _book_mend(dossier: Dossier, found: Found, v: Violation) -> Change:
    """What is handed out while it is taken comes of what was given back too often, where anything
    was; what is given back where a wrong lifetime ends, of that lifetime.
    """
    if v.kind == "EventOutsideLifetime" and _as_believed(dossier, v):
        return life_mend(dossier, v.problem or 0, v.buffer or 0)
    if v.kind == "AllocOverLive":
        for mend in found:
            if mend.kind == "events" and mend.plan == v.plan:
                return mend
    return Change(kind="events", plan=v.plan, buffer=v.buffer)


def _as_believed(dossier: Dossier, v: Violation) -> bool:
    """Whether an event gives a buffer back where its believed life ends, and that is too early: a
    pinned one is believed to live on.
    """
    if (v.problem, v.buffer) not in dossier.short:
        return False
    stop = int(dossier.document.problems[v.problem or 0].stop[v.buffer or 0])
    events = dossier.document.plans[v.plan or 0].events
    assert v.step is not None
    return v.step >= stop - 1 and [v.step, Event.FREE, v.buffer] in events.tolist()


def _slot_mend(dossier: Dossier, found: Found, v: Violation, index: int) -> Change:
    plan = dossier.document.plans[index]
    strange = v.program is not None and dossier.strange(index, v.program)
    if strange and (v.kind, v.buffer) not in dossier.on_own_program(index):
        return Change(kind="stale", plan=v.plan, program=v.program)
    if plan.problem is not None and as_small_as_believed(dossier, v):
        return Change(kind="size", problem=dossier.problem_index(plan.problem), buffer=v.buffer)
    mends = [
        Change(kind="slot", plan=v.plan, buffer=buffer) for buffer in (v.buffer, v.other_buffer) if buffer is not None
    ]
    return next((mend for mend in mends if mend in found), mends[0] if mends else Change(kind="slot", plan=v.plan))


def as_small_as_believed(dossier: Dossier, v: Violation) -> bool:
    """Whether a slot that is too small is as large as its problem believed."""
    if v.kind != "Undersized" or v.plan is None or v.buffer is None:
        return False
    plan = dossier.document.plans[v.plan]
    return plan.problem is not None and int(plan.problem.nbytes[v.buffer]) <= int(plan.nbytes[v.buffer])


def charge_beliefs(dossier: Dossier, found: Found) -> None:
    """Charge every wrong belief, whether or not the plan made harm of it."""
    for v in dossier.beliefs:
        if v.problem is None or v.buffer is None or v.severity != "violation":
            continue
        if v.kind == "BadSize":
            mend = Change(kind="size", problem=v.problem, buffer=v.buffer)
        elif v.kind == "BadShare":
            mend = pair_mend(dossier, v.problem, v.buffer, v.other_buffer or 0)
        else:
            mend = life_mend(dossier, v.problem, v.buffer)
        found[mend].append(v)


__all__ = ["EVENTS", "as_small_as_believed", "charge_beliefs", "charge_slots"]
