"""From violations to causes: the change that each violation would vanish with.

The order of charge:

1. The program against itself, every buffer apart: what the judge finds there is the program's, or
   the host's where an upload brings it right.
2. The placement against its problem, then the problem against the program, for each pair of buffers
   that meet (`allocsim.verdict.meetings`), then single slots and the planner's book.
3. Every wrong belief, whether or not it did harm.
4. The order: waits, of the program where the race exists apart, of the plan where reuse made it
   (`allocsim.verdict.waiting`).

What vanishes once a slot is moved that breaks a promise, or does not fit, is charged to that slot
alone. A violation that each of several changes would bring about by itself is listed under all.

Complexity: the checks once, O(violations), and one more check for each slot that is astray and for
each question of `allocsim.verdict.meetings`, `QUESTIONS` of each at most.

What this module does not see: classes and parties (`allocsim.verdict.naming`), kernels
(`allocsim.verdict.measured`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from allocsim.cure.changes import Change, Charges
from allocsim.cure.defects import OPS, key_of
from allocsim.cure.effort import SpentError
from allocsim.cure.mending import index_of_part
from allocsim.judge.fast import Violation
from allocsim.model import Event
from allocsim.verdict.blame import IN_PLACE, life_mend, pair_mend
from allocsim.verdict.dossier import Dossier
from allocsim.verdict.meetings import (
    EVENTS,
    PAIRED,
    QUESTIONS,
    as_small_as_believed,
    charge_meetings,
    is_uploaded,
    upload_for,
)
from allocsim.verdict.waiting import Found, charge_order

OWN_KINDS: Final[dict[str, str]] = {
    "UninitialisedRead": "unwritten",
    "OverwrittenRead": "mutation",
    **dict.fromkeys(sorted(IN_PLACE), "in place"),
    "ResultsOverlap": "results",
    "WriteToReadOnly": "read only",
    "OutOfBounds": "bounds",
}
"""Kind of violation that a program can have by itself -> kind of mend."""

BROKEN: Final = frozenset(
    {
        "PinIgnored", "LifetimeIgnored", "FixedIgnored", "OwnIgnored", "OwnUntold", "SizeIgnored",
        "Misaligned", "OutOfBounds", "WrongArena", "Undersized",
    }
)  # fmt: skip
"""Kinds that say of a slot that it keeps no promise, or does not fit."""
AFTER_SLOTS: Final = frozenset({"upload", "state", "late", "wait", "lifetime", "pair"})
"""Kinds of mend that are charged after the placement, where no problem states otherwise."""


def charges_of(dossier: Dossier) -> Charges:
    """Return the mends of everything that S, H and L found, each with the violations it explains,
    in the report's order.
    """
    found: Found = defaultdict(list)
    left = list(_own(dossier, found))
    left = list(charge_meetings(dossier, found, left))
    left = list(_slots(dossier, found, left))
    _beliefs(dossier, found)
    charge_order(dossier, found, [v for v in left if v.kind == "Race"])
    _charge_once(dossier, found)
    _history(dossier, found)
    position = {id(v): number for number, v in enumerate((*dossier.report.violations, *dossier.report.warnings))}
    return {
        mend: sorted({id(v): v for v in violations}.values(), key=lambda v: position[id(v)])
        for mend, violations in found.items()
        if violations
    }


# the program and the host -------------------------------------------------------------------------


def _own(dossier: Dossier, found: Found) -> Iterator[Violation]:
    """Charge what exists with every buffer apart; yield the rest."""
    for v in dossier.static:
        own = _is_own(dossier, v)
        if own:
            found[_own_mend(dossier, v)].append(v)
        if not own or (v.buffer != v.other_buffer and v.other_buffer is not None and v.kind in PAIRED):
            yield v


def _is_own(dossier: Dossier, v: Violation) -> bool:
    if v.kind in {"UninitialisedRead", "OverwrittenRead", "WriteToReadOnly"}:
        return True
    if v.kind == "OutOfBounds":
        return v.value is not None
    if v.kind not in OPS:
        return False
    of_one = v.other_buffer is None or v.buffer == v.other_buffer
    return of_one or (v.kind != "AssumedInPlace" and key_of(v) in dossier.apart)


def _own_mend(dossier: Dossier, v: Violation) -> Change:
    kind = OWN_KINDS[v.kind]
    if kind in {"unwritten", "mutation"} and is_uploaded(dossier, v):
        return upload_for(dossier, v)
    if kind in {"in place", "results"}:
        return Change(kind=kind, program=v.program, op=v.op)
    return Change(kind=kind, program=v.program, buffer=v.buffer, op=v.other_op if kind == "mutation" else None)


def _charge_once(dossier: Dossier, found: Found) -> None:
    """Charge to a slot that breaks a promise of its own, or does not fit, all that vanishes once it
    lies elsewhere: what was charged for want of a stated belief, to the host, or to the order.
    """
    slots = [
        mend
        for mend, rows in found.items()
        if mend.kind == "slot" and any(v.kind in BROKEN and v.plan == mend.plan for v in rows)
    ]
    slots.sort(key=lambda slot: (-1, -1) if slot.buffer is None else dossier.rank(slot.plan or 0, slot.buffer))
    for slot in slots[:QUESTIONS]:
        later = [m for m, rows in found.items() if m.kind in AFTER_SLOTS and m.problem is None and rows]
        if not later:
            return
        try:
            left = dossier.without_slot(slot.plan or 0, slot.buffer or 0)
        except SpentError:
            return
        for mend in later:
            gone = [v for v in found[mend] if key_of(v) not in left]
            found[slot] += gone
            found[mend] = [v for v in found[mend] if key_of(v) in left]


def _history(dossier: Dossier, found: Found) -> None:
    """A warning that old bytes are read goes with their fault; alone it is no finding."""
    for v in dossier.history:
        for kind in ("unwritten", "state"):
            mend = Change(kind=kind, program=v.program, buffer=v.buffer)
            if mend in found:
                found[mend].append(v)


# single slots, the planner's book, beliefs -------------------------------------------------------


def _slots(dossier: Dossier, found: Found, violations: Iterable[Violation]) -> Iterator[Violation]:
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
        problem = index_of_part(dossier.document.problems, plan.problem)
        return Change(kind="size", problem=problem, buffer=v.buffer)
    mends = [
        Change(kind="slot", plan=v.plan, buffer=buffer) for buffer in (v.buffer, v.other_buffer) if buffer is not None
    ]
    return next((mend for mend in mends if mend in found), mends[0] if mends else Change(kind="slot", plan=v.plan))


def _beliefs(dossier: Dossier, found: Found) -> None:
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
